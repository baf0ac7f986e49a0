//! The network of the experiment: namespaces joined by veth pairs.
//!
//! ```text
//! clients --- bottleneck --- relay --- servers
//! ```

use crate::error::{Error, Result};
use lab::wan::Congestion;
use link::Namespace;
use onion::Rate;
use std::fs;
use std::io;
use std::net::Ipv4Addr;

/// The relay's address towards the bottleneck, which clients connect to.
pub(super) const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
const NARROW_TO_RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);
const NARROW_TO_CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);
const RELAY_TO_SERVERS: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 1);
pub(super) const SERVERS: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 2);

/// The token bucket's burst: ten full packets.
const BURST_BYTES: u32 = 15_400;

/// The kernel's parameter for TCP's congestion control, one for each namespace.
const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";

/// Cubic, the default of Linux, if namespaces may use it; otherwise Reno.
pub(super) fn usual_congestion() -> Congestion {
    let cubic = Congestion::Cubic;
    let set = Namespace::new()
        .and_then(|namespace| namespace.set_parameter(CONGESTION_CONTROL, cubic.name()));
    if set.is_ok() { cubic } else { Congestion::Reno }
}

/// The position of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum NarrowAt {
    /// One hop away from the relay, as a provider's shaper is: the relay's kernel notices it only through
    /// TCP.
    Beyond,
    /// The relay's own interface, whose queue is visible to the relay's kernel.
    Own,
}

/// The bottleneck.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    pub(super) place: NarrowAt,
    pub(super) rate: Rate,
    /// The limit of its queue.
    pub(super) queue_bytes: u32,
    /// The congestion control of all TCP connections.
    pub(super) congestion: Congestion,
}

/// Four network namespaces without other connections. They end with this process.
pub(super) struct Network {
    pub(super) clients: Namespace,
    pub(super) relay: Namespace,
    pub(super) servers: Namespace,
    narrow: Namespace,
    place: NarrowAt,
}

impl Network {
    pub(super) fn new(narrow: Narrow) -> Result<Self> {
        let make = || {
            Namespace::new().map_err(|error| {
                Error::Network(format!(
                    "this experiment needs network namespaces, which require root \
                     (CAP_SYS_ADMIN and CAP_NET_ADMIN): unshare: {error}"
                ))
            })
        };
        let network = Self {
            clients: make()?,
            relay: make()?,
            servers: make()?,
            narrow: make()?,
            place: narrow.place,
        };
        network.connect(narrow).map_err(|error| Error::Network(error.to_string()))?;
        Ok(network)
    }

    fn connect(&self, narrow: Narrow) -> io::Result<()> {
        let cable = |name: &str, peer: &str, to: &Namespace| {
            format!("link add {name} type veth peer name {peer} netns {}\n", to.path())
        };
        let up = |name: &str, address: Ipv4Addr| {
            format!("addr add {address}/24 dev {name}\nlink set {name} up\n")
        };
        let route = |to: &str, via: Ipv4Addr| format!("route add {to} via {via}\n");
        let lines = cable("narrow", "relay", &self.narrow)
            + &cable("servers", "relay", &self.servers)
            + &up("narrow", RELAY)
            + &up("servers", RELAY_TO_SERVERS)
            + "link set lo up\n";
        self.relay.ip(&lines)?;
        self.servers.ip(&(up("relay", SERVERS) + "link set lo up\n"))?;
        let lines = cable("clients", "relay", &self.clients)
            + &up("relay", NARROW_TO_RELAY)
            + &up("clients", NARROW_TO_CLIENTS);
        self.narrow.ip(&lines)?;
        self.clients.ip(&(up("relay", CLIENTS) + &route("10.77.1.0/24", NARROW_TO_CLIENTS)))?;
        self.relay.ip(&route("10.77.2.0/24", NARROW_TO_RELAY))?;
        self.narrow.set_parameter("net/ipv4/ip_forward", "1")?;
        for namespace in [&self.clients, &self.relay, &self.servers] {
            namespace.set_parameter(CONGESTION_CONTROL, narrow.congestion.name())?;
        }
        let (namespace, device) = self.narrow_device();
        let rate = narrow.rate.as_byte_per_s() * 8;
        let queue = narrow.queue_bytes;
        let shaper = format!(
            "qdisc add dev {device} root tbf rate {rate} burst {BURST_BYTES} limit {queue}"
        );
        namespace.tc(&shaper).map(drop)
    }

    const fn narrow_device(&self) -> (&Namespace, &'static str) {
        match self.place {
            NarrowAt::Own => (&self.relay, "narrow"),
            NarrowAt::Beyond => (&self.narrow, "clients"),
        }
    }

    /// The bytes in the bottleneck's queue, and the packets that it has dropped.
    pub(super) fn narrow_queue(&self) -> Option<(u64, u64)> {
        let (namespace, device) = self.narrow_device();
        let text = namespace.tc(&format!("-s -j qdisc show dev {device}")).ok()?;
        let qdiscs: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some((qdiscs[0]["backlog"].as_u64()?, qdiscs[0]["drops"].as_u64()?))
    }

    /// Bytes in the relay's kernel that clients have not acknowledged, whether sent or not.
    pub(super) fn kernel_queue(&self, port: u16) -> Option<u64> {
        let read = || fs::read_to_string("/proc/thread-self/net/tcp");
        let table = self.relay.run(read).ok()?.ok()?;
        Some(unacknowledged(&table, RELAY, port))
    }
}

/// The sum over the connections from this local address in a table such as `/proc/net/tcp`.
fn unacknowledged(table: &str, address: Ipv4Addr, port: u16) -> u64 {
    let local = format!("{:08X}:{port:04X}", u32::from_le_bytes(address.octets()));
    let rows = table.lines().skip(1).filter_map(|line| {
        // Index, local address, peer, state, bytes in the send and receive queues.
        let mut fields = line.split_whitespace().skip(1);
        let is_ours = fields.next()? == local;
        let is_established = fields.nth(1)? == "01";
        let (to_send, _) = fields.next()?.split_once(':')?;
        (is_ours && is_established).then(|| u64::from_str_radix(to_send, 16).ok())?
    });
    rows.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unacknowledged_bytes_are_summed_over_the_relays_connections() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when
   0: 01014D0A:2329 00000000:0000 0A 00000005:00000000 00:00000000 00000000     0
   1: 01014D0A:2329 02024D0A:9C40 01 00000100:00000000 01:00000014 00000000     0
   2: 01014D0A:2329 02024D0A:9C42 01 0000000A:00000003 01:00000014 00000000     0
   3: 01034D0A:9C44 02034D0A:0050 01 00000FFF:00000000 01:00000014 00000000     0
";
        assert_eq!(unacknowledged(table, RELAY, 9001), 0x10A);
    }
}
