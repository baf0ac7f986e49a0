//! `flashflow-lab probe serve`: the server of downloads.

use super::Line;
use clap::Subcommand;
use cli::Error;
use client::probe::{ProbeError, ProbeServer};
use std::net::SocketAddr;
use std::time::Duration;
use terminal::{Exit, Interrupt, Output};

/// Interval of checks that the server still runs.
const STEP: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeAction {
    /// Serve downloads for `flashflow-lab probe --server`, until interrupted.
    ///
    /// The server sends any amount of data to anybody who can connect. Make sure that only your exits can reach it.
    #[command(after_help = "Example:
  flashflow-lab probe serve --listen 127.0.0.1:8080 &
  flashflow-lab probe --network /tmp/net --server 127.0.0.1:8080 --bytes 400000

Once it listens, it prints its address; with --json, a line of `type` serving with `address`.")]
    Serve {
        /// Address to listen on; port 0 for any free one.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
        listen: SocketAddr,
    },
}

pub(super) fn run(
    ProbeAction::Serve { listen }: &ProbeAction,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    interrupt.wind_up_in_order();
    let server = ProbeServer::start(*listen)?;
    let address = server.address();
    output.result(format!("serving at {address}"), || Line::Serving { address });
    while !interrupt.wait(STEP) {
        if !server.is_running() {
            return Err(ProbeError::Machine("the server has ended".to_owned()).into());
        }
    }
    Ok(Exit::Done)
}
