//! `flashflow dashboard`: shows what a coordinator's store holds.

use crate::config::log_to_stderr;
use crate::error::Error;
use clap::Args;
use dashboard::{Options, Server};
use link::unix_time_s;
use netdoc::bwfile::LATEST;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use terminal::{Exit, Interrupt, Output};

/// Show what a coordinator does and has found out: pages for a browser, JSON, metrics for Prometheus.
///
/// It reads the coordinator's store and changes nothing; the coordinator need not run. Coming slots are not in the store, so
/// nobody learns them here. There is no password: leave it on loopback, or put a server before it that asks for one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow dashboard --store bandwidth/store.db
  flashflow dashboard --store bandwidth/store.db --listen 127.0.0.1:8080 --host-name bw.example.org

From elsewhere: ssh -L 7300:127.0.0.1:7300 HOST, then open http://127.0.0.1:7300/. /metrics is for Prometheus; /health says 200 if
the coordinator has told something within two hours.

Exit status: 0 interrupted; 1 the address cannot be had; 2 wrong arguments.")]
pub(crate) struct DashboardOptions {
    /// The store: `store.db` in the coordinator's folder of bandwidth files.
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// The bandwidth file; without it, `latest.v3bw` beside the store.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Where to listen.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7300")]
    listen: SocketAddr,
    /// A name under which browsers may ask for it, if a server before it passes that on; may be given several times.
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    /// Say where it listens as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(
    options: &DashboardOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    log_to_stderr();
    let file = options.file.clone().unwrap_or_else(|| options.store.with_file_name(LATEST));
    let server = Server::bind(
        options.listen,
        Options {
            store: options.store.clone(),
            file,
            hosts: options.host_name.clone(),
            now: unix_time_s,
        },
    )?;
    interrupt.wind_up_in_order();
    let address = server.address();
    output.result(
        format!("listening on http://{address}/"),
        || json!({"type": "listening", "address": address.to_string()}),
    );
    if !address.ip().is_loopback() {
        tracing::warn!("anybody who reaches {address} can read this: there is no password");
    }
    server.run(|| interrupt.is_requested())?;
    Ok(Exit::Done)
}
