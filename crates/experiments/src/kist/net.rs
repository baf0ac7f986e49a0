//! The network of the experiment: namespaces of our own, joined by virtual cables.
//!
//! ```text
//! clients --- narrow place --- relay --- servers
//! ```

use crate::error::{Error, Result};
use lab::wan::Congestion;
use link::Namespace;
use onion::Rate;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// Where the relay's clients have their link: towards the narrow place.
pub(super) const RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 1);
const NARROW_TO_RELAY: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);
const NARROW_TO_CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 1);
const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);
const RELAY_TO_SERVERS: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 1);
pub(super) const SERVERS: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 2);

/// What the token bucket lets through at once: ten full packets.
const BURST_BYTES: u32 = 15_400;

/// Where the kernel keeps which of TCP's congestion controls a network uses.
const CONGESTION_CONTROL: &str = "net/ipv4/tcp_congestion_control";

/// The default of Linux, where networks of our own may have it; else the next older.
pub(super) fn usual_congestion() -> Congestion {
    let may = |congestion: &Congestion| {
        let tried = Namespace::new()
            .and_then(|namespace| namespace.set_parameter(CONGESTION_CONTROL, congestion.name()));
        tried.is_ok()
    };
    [Congestion::Cubic].into_iter().find(may).unwrap_or(Congestion::Reno)
}

/// Where the narrow place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum NarrowAt {
    /// One hop away from the relay, as a provider's shaper is: the relay's kernel learns of it by TCP
    /// alone.
    Beyond,
    /// The relay's own interface: its kernel sees that queue, too.
    Own,
}

/// The narrow place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Narrow {
    pub(super) place: NarrowAt,
    pub(super) rate: Rate,
    /// What may wait there.
    pub(super) queue_bytes: u32,
    /// How TCP finds its pace through it.
    pub(super) congestion: Congestion,
}

/// Four networks that see nothing but each other. They end with this process.
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
                    "this experiment needs network namespaces of its own, and so root \
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
        network.lay(narrow).map_err(|error| Error::Network(error.to_string()))?;
        Ok(network)
    }

    fn lay(&self, narrow: Narrow) -> io::Result<()> {
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

    /// Bytes that wait in the narrow place now, and packets that found it full so far.
    pub(super) fn narrow_queue(&self) -> Option<(u64, u64)> {
        let (namespace, device) = self.narrow_device();
        let text = namespace.tc(&format!("-s -j qdisc show dev {device}")).ok()?;
        let told: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some((told[0]["backlog"].as_u64()?, told[0]["drops"].as_u64()?))
    }

    /// Bytes in the relay's kernel that its clients have not acknowledged: not sent yet, or on their
    /// way.
    pub(super) fn kernel_queue(&self, port: u16) -> Option<u64> {
        let read = || fs::read_to_string("/proc/thread-self/net/tcp");
        let table = self.relay.run(read).ok()?.ok()?;
        Some(unacknowledged(&table, IpAddr::V4(RELAY), port))
    }
}

/// The sum over the connections from this place, of a table as `/proc/net/tcp` has it.
fn unacknowledged(table: &str, address: IpAddr, port: u16) -> u64 {
    let IpAddr::V4(address) = address else { return 0 };
    let local = format!("{:08X}:{port:04X}", u32::from_le_bytes(address.octets()));
    let rows = table.lines().skip(1).filter_map(|line| {
        // Number, local address, peer, state, bytes to be sent and to be read.
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
    fn what_is_not_acknowledged_is_added_up_over_the_relays_connections() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when
   0: 01014D0A:2329 00000000:0000 0A 00000005:00000000 00:00000000 00000000     0
   1: 01014D0A:2329 02024D0A:9C40 01 00000100:00000000 01:00000014 00000000     0
   2: 01014D0A:2329 02024D0A:9C42 01 0000000A:00000003 01:00000014 00000000     0
   3: 01034D0A:9C44 02034D0A:0050 01 00000FFF:00000000 01:00000014 00000000     0
";
        assert_eq!(unacknowledged(table, IpAddr::V4(RELAY), 9001), 0x10A);
    }
}
