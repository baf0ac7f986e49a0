//! `flashflow dashboard`: serves the contents of a coordinator's store.

use authority::log::{self, LogArguments};
use clap::Args;
use cli::Error;
use dashboard::{Options, Server};
use link::unix_time_s;
use netdoc::bwfile::LATEST;
use schemars::JsonSchema;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use store::{Reader, StoreError};
use terminal::{Exit, Interrupt, Output, socket_address};

/// Serve a coordinator's progress and results: web pages, JSON, and metrics for Prometheus.
///
/// The dashboard reads the coordinator's store and never changes it. The coordinator need not run. Future slots are not in the store,
/// so the dashboard cannot show them. There is no password: keep it on loopback, or behind a reverse proxy with authentication.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow dashboard --store bandwidth/store.db
  flashflow dashboard --store bandwidth/store.db --listen 127.0.0.1:8080 --host-name bw.example.org

From another host: ssh -L 7300:127.0.0.1:7300 HOST, then open http://127.0.0.1:7300/. /metrics is for Prometheus. /health answers
200 if the coordinator has written to the store in the last two hours, else 503.

Exit status: 0 interrupted; 1 the address is in use, or the store cannot be read; 2 wrong arguments.")]
pub(crate) struct DashboardOptions {
    /// The store: `store.db` in the coordinator's folder of bandwidth files.
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// The bandwidth file. By default `latest.v3bw` in the folder of the store.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Address to listen on. It must be a loopback address, unless --allow-others is given.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7300", value_parser = socket_address)]
    listen: SocketAddr,
    /// Allow an address that other hosts reach. They can read everything, because there is no password.
    #[arg(long)]
    allow_others: bool,
    /// Accepted host name in requests, such as that of a reverse proxy; may be repeated.
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    #[command(flatten)]
    log: LogArguments,
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The dashboard is ready.
    Listening {
        /// Its address, with the port that was taken.
        address: SocketAddr,
    },
}

pub(crate) fn run(
    options: &DashboardOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    log::start(options.log, output);
    if !options.listen.ip().is_loopback() && !options.allow_others {
        return Err(Error::Usage(format!(
            "--listen {}: other hosts could read the dashboard, and there is no password. Use an address of loopback, or add \
             --allow-others",
            options.listen
        )));
    }
    check_store(&options.store)?;
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
    log::announce(output, format!("listening on http://{address}/"), || Line::Listening {
        address,
    });
    if !address.ip().is_loopback() {
        tracing::warn!(
            "anybody who can connect to {address} can read the dashboard, because there is no password"
        );
    }
    server.run(|| interrupt.is_requested())?;
    Ok(Exit::Done)
}

/// Refuses a file that is not a store. A missing file is accepted, since the coordinator may create it later, unless there is a store of
/// another name in its folder: then this name is a mistake.
fn check_store(store: &Path) -> Result<(), Error> {
    let folder =
        store.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match Reader::open(store) {
        Ok(_) => Ok(()),
        Err(StoreError::Missing { .. }) if folder.is_dir() => {
            if let Some(other) = store_in(folder) {
                let (store, other) = (store.display(), other.display());
                return Err(Error::Failed(format!(
                    "there is no store {store}, but {other} is one: use --store {other}"
                )));
            }
            let store = store.display();
            tracing::warn!(
                "there is no store {store} yet: requests get status 503 until a coordinator has created it"
            );
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// A store in this folder.
fn store_in(folder: &Path) -> Option<PathBuf> {
    let files = folder.read_dir().ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "db")).collect();
    files.sort();
    files.into_iter().find(|path| Reader::open(path).is_ok())
}
