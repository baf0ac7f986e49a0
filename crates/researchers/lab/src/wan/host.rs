//! One host: a network namespace with one interface.

use super::error::WanError;
use super::spec::{HostSpec, SocketBuffer};
use crate::keeper::Keeper;
use link::{Namespace, Tun};
use onion::Rate;
use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command};

/// The name of a host's one interface, besides `lo`.
pub(super) const DEVICE: &str = "wan";

/// The queue length of a host's interface, in packets: more than a host sends while this thread is not
/// scheduled.
const DEVICE_QUEUE_PACKETS: u32 = 20_000;

/// The burst of the token bucket: ten full packets.
const BURST_BYTES: u32 = 15_400;

/// A host of a running network. Its processes see `lo`, its one interface, and the other hosts.
///
/// Processes that still run there when the network ends are killed, even if this process is killed.
#[derive(Debug)]
pub struct Host {
    name: String,
    address: Ipv4Addr,
    namespace: Namespace,
    _keeper: Keeper,
}

impl Host {
    /// Creates it, and returns the other end of its interface.
    pub(super) fn new(spec: &HostSpec, mtu: u16) -> Result<(Self, Tun), WanError> {
        let namespace = Namespace::new().map_err(WanError::Namespace)?;
        let failed = |source| WanError::Host { name: spec.name.clone(), source };
        let tun = set_up_interface(&namespace, spec, mtu).map_err(failed)?;
        let keeper = start_keeper(&namespace).map_err(failed)?;
        let (name, address) = (spec.name.clone(), spec.address);
        Ok((Self { name, address, namespace, _keeper: keeper }, tun))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address.
    #[must_use]
    pub const fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Its network namespace.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Runs `body` there on a new thread: its sockets and processes stay there.
    ///
    /// # Errors
    /// [`WanError::Host`] if the system does not permit it.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> Result<T, WanError> {
        self.namespace.run(body).map_err(|source| self.failed(source))
    }

    /// Starts a process there.
    ///
    /// # Errors
    /// [`WanError::Command`] if it cannot be started.
    pub fn start(&self, command: &mut Command) -> Result<Child, WanError> {
        self.run(|| command.spawn())?.map_err(|source| WanError::Command {
            program: command.get_program().display().to_string(),
            host: self.name.clone(),
            source,
        })
    }

    /// Installs a token bucket filter on its interface, replacing an earlier one. It limits what the host sends;
    /// the queue is in the host's own kernel. For a limit on received packets see
    /// [`Wan::set_access`](super::Wan::set_access).
    ///
    /// # Errors
    /// [`WanError::Host`] with the error of `tc`.
    pub fn shape(&self, rate: Rate, queue_bytes: u64) -> Result<(), WanError> {
        let bits = rate.as_bit_per_s();
        self.set_queueing(&format!("tbf rate {bits} burst {BURST_BYTES} limit {queue_bytes}"))
    }

    /// Removes the filter of [`shape`](Self::shape).
    ///
    /// # Errors
    /// As for [`shape`](Self::shape).
    pub fn unshape(&self) -> Result<(), WanError> {
        self.set_queueing(UNSHAPED)
    }

    fn set_queueing(&self, discipline: &str) -> Result<(), WanError> {
        let set = format!("qdisc replace dev {DEVICE} root {discipline}");
        self.namespace.tc(&set).map(drop).map_err(|source| self.failed(source))
    }

    /// Packets that its interface has dropped, in both directions.
    pub(super) fn device_drops(&self) -> Result<u64, WanError> {
        let table = self.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?;
        let table = table.map_err(|source| self.failed(source))?;
        Ok(drops(&table))
    }

    fn failed(&self, source: io::Error) -> WanError {
        WanError::Host { name: self.name.clone(), source }
    }
}

/// The queueing discipline without a filter: only the interface's own queue.
const UNSHAPED: &str = "noqueue";

/// Creates the host's interface and configures it; returns the interface's other end.
fn set_up_interface(namespace: &Namespace, spec: &HostSpec, mtu: u16) -> io::Result<Tun> {
    // Only the specified addresses; a kernel without IPv6 needs no configuration.
    let _has_none = namespace.set_parameter("net/ipv6/conf/default/disable_ipv6", "1");
    let tun = namespace.run(|| Tun::new(DEVICE))??;
    let congestion = spec
        .congestion
        .map_or(String::new(), |congestion| format!("congctl {}", congestion.name()));
    let address = spec.address;
    let addresses: String =
        spec.addresses().map(|address| format!("addr add {address}/32 dev {DEVICE}\n")).collect();
    namespace.ip(&format!(
        "link set lo up\n\
         link set {DEVICE} mtu {mtu} txqueuelen {DEVICE_QUEUE_PACKETS} up\n\
         {addresses}\
         route add default dev {DEVICE} src {address} {congestion}\n"
    ))?;
    namespace.tc(&format!("qdisc replace dev {DEVICE} root {UNSHAPED}"))?;
    if let Some(congestion) = spec.congestion {
        // Only a congestion control that every user may choose can be a network's default; the route's choice
        // applies to all.
        let name = congestion.name();
        let _reserved = namespace.set_parameter("net/ipv4/tcp_congestion_control", name);
    }
    for (parameter, buffer) in [("tcp_rmem", spec.tcp_rmem), ("tcp_wmem", spec.tcp_wmem)] {
        if let Some(SocketBuffer { min, initial, max }) = buffer {
            let value = format!("{min} {initial} {max}");
            namespace.set_parameter(&format!("net/ipv4/{parameter}"), &value)?;
        }
    }
    Ok(tun)
}

/// The interface's drops, from a table like `/proc/net/dev`.
fn drops(table: &str) -> u64 {
    /// The columns of received and sent packets, where the device's name is the first field.
    const FIELDS: [usize; 2] = [4, 12];
    let row =
        table.lines().find_map(|line| line.trim_start().strip_prefix(DEVICE)?.strip_prefix(':'));
    let fields: Vec<&str> = row.unwrap_or_default().split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at - 1)?.parse::<u64>().ok();
    FIELDS.into_iter().filter_map(number).sum()
}

/// Starts the keeper that kills all processes in a host's namespace.
fn start_keeper(namespace: &Namespace) -> io::Result<Keeper> {
    let (path, pid) = (namespace.path(), std::process::id().to_string());
    let arguments = [path.as_ref(), pid.as_ref()];
    let (keeper, output) =
        Keeper::spawn(include_str!("keeper.sh"), "flashflow-wan-keeper", arguments)?;
    let mut line = String::new();
    if let Some(output) = output {
        BufReader::new(output).read_line(&mut line)?;
    }
    if line == "ready\n" {
        Ok(keeper)
    } else {
        Err(io::Error::other("its keeper process has exited"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_the_interface_are_summed_over_both_directions() {
        let table = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    3    4    5     6          7         8        9       10    11   12    13     14       15          16
   wan:       1       2    3   40    5     6          7         8        9       10    11  200    13     14       15          16
";
        assert_eq!(drops(table), 240);
        assert_eq!(drops(""), 0);
    }
}
