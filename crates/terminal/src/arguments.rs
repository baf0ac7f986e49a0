//! Arguments that several commands take.

use clap::Args;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An IP address and a port. `localhost` is the only name that needs no look-up: it is always loopback (RFC 6761, section 6.3).
///
/// # Errors
/// What to write instead.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse::<u16>().ok());
    if let Some(port) = local {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "no IP address with a port, such as 127.0.0.1:7001 or [::1]:7001; host names are not looked up".to_owned()
    })
}

/// How to measure.
#[derive(Clone, Debug, Args)]
pub struct TeamArguments {
    /// Length of a measurement in seconds, 3 to 600. Under 10, a relay's first burst weighs much.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(3..=600))]
    pub seconds: u32,
    /// Measurers: threads of this process, 1 to 64.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub measurers: u32,
    /// What each measurer can send and receive, in Mbit/s; found out if not given.
    #[arg(long, value_name = "MBIT")]
    pub capacity: Option<f64>,
    /// Most sockets to the relay, over all measurers; fewer are used where fewer do.
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sockets: u32,
    /// What to expect of a relay at first, in Mbit/s; too low costs rounds, too high costs load.
    #[arg(long, default_value_t = 100.0, value_name = "MBIT")]
    pub guess: f64,
    /// Share of cells whose content is checked; 0.008 is one in 125.
    #[arg(long, default_value_t = coordinator::CHECK_SHARE, value_name = "SHARE")]
    pub check_share: f64,
    /// Our own address, where the relay finds the measurers; by default the one towards it.
    #[arg(long, value_name = "ADDRESS")]
    pub own_address: Option<IpAddr>,
    /// Authenticate links as a relay's even where that gains nothing.
    #[arg(long)]
    pub authenticate: bool,
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
            assert_eq!(socket_address(text).map(|it| it.to_string()), Ok(expected.to_owned()));
        }
        for text in ["example.org:7001", "localhost", "localhost:x", "127.0.0.1", "::1:7001:", ""] {
            let error = socket_address(text).expect_err(text);
            assert!(error.contains("127.0.0.1:7001") && error.contains("not looked up"), "{error}");
        }
    }
}
