//! Options of several commands.

use clap::Args;
use measurer::PortRange;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An IP address and a port. `localhost` is the only name that needs no look-up: it is always loopback (RFC 6761, section 6.3).
///
/// # Errors
/// The text is not an address. The error has the accepted format.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
    if let Some(port) = local {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "no IP address with a port, such as 127.0.0.1:7001 or [::1]:7001; host names are not looked up".to_owned()
    })
}

/// Options of a measurement.
#[derive(Clone, Debug, Args)]
pub struct TeamArguments {
    /// Length of a measurement in seconds, 3 to 600. Below 10 s, the initial burst of a relay inflates the result.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=600))]
    pub seconds: u32,
    /// Number of measurers, which are threads of this process, 1 to 64.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub measurers: u32,
    /// Capacity of each measurer, in Mbit/s. By default it is measured.
    #[arg(long, value_name = "MBIT")]
    pub capacity: Option<f64>,
    /// Maximum number of sockets to the relay, over all measurers.
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sockets: u32,
    /// First guess of the capacity of a relay, in Mbit/s. A low guess costs more rounds, a high guess more load.
    #[arg(long, default_value_t = 100.0, value_name = "MBIT")]
    pub guess: f64,
    /// Share of cells whose content is verified; 0.008 is one in 125.
    #[arg(long, default_value_t = coordinator::CHECK_SHARE, value_name = "SHARE")]
    pub check_share: f64,
    /// Address at which the relay reaches the measurers. By default the source address of the route to the relay.
    #[arg(long, value_name = "ADDRESS")]
    pub own_address: Option<IpAddr>,
    /// Ports at which the relay reaches the measurers, such as 20000-20999. By default any.
    #[arg(long, value_name = "FIRST-LAST")]
    pub landing_ports: Option<PortRange>,
    /// Authenticate links as a relay does, even where that is not needed.
    #[arg(long)]
    pub authenticate: bool,
    /// Whether the measured relays are known to have no clients
    /// ([`Params::may_have_clients`](coordinator::Params::may_have_clients)). No argument: the command decides.
    #[arg(skip)]
    pub no_clients: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_address_and_localhost_is_one() {
        for (text, expected) in [
            ("127.0.0.1:7001", "127.0.0.1:7001"),
            ("[::1]:7001", "[::1]:7001"),
            ("localhost:7001", "127.0.0.1:7001"),
        ] {
            assert_eq!(
                socket_address(text).map(|socket_address| socket_address.to_string()),
                Ok(expected.to_owned())
            );
        }
        for text in ["example.org:7001", "localhost", "localhost:x", "127.0.0.1", "::1:7001:", ""] {
            let error = socket_address(text).expect_err(text);
            assert!(error.contains("127.0.0.1:7001") && error.contains("not looked up"), "{error}");
        }
    }
}
