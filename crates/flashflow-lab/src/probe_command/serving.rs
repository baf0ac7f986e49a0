//! `flashflow-lab probe serve`: what probes download from.

use clap::Subcommand;
use cli::Error;
use client::probe::{ProbeError, ProbeServer};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use terminal::{Exit, Interrupt, Output};

/// How soon it is noticed that the server has ended by itself.
const STEP: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
pub(crate) enum ProbeAction {
    /// Be the server that probes download from (--server), until told to end.
    ///
    /// It sends as many bytes as it is asked for to whoever can connect: let it listen where nobody but your exits can.
    #[command(after_help = "Example:
  flashflow-lab probe serve --listen 127.0.0.1:8080 &
  flashflow-lab probe --network /tmp/net --server 127.0.0.1:8080 --bytes 400000

Once it listens, it says where; with --json as a line of `type` serving, with `address`.")]
    Serve {
        /// Where to listen; port 0 for any that is free.
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
    output
        .result(format!("serving at {address}"), || json!({"type": "serving", "address": address}));
    while !interrupt.wait(STEP) {
        if !server.is_running() {
            return Err(ProbeError::Machine("the server has ended".to_owned()).into());
        }
    }
    Ok(Exit::Done)
}
