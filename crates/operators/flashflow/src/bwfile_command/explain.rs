//! `flashflow bwfile explain`: why a relay has its weight, or none.

use super::bad;
use clap::Args;
use cli::Error;
use dashboard::weights;
use link::unix_time_s;
use netdoc::Fingerprint;
use netdoc::bwfile::LATEST;
use onion::Rate;
use onion::identity::RsaId;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;
use store::{Audience, Reader, RelayRow};
use terminal::{Exit, Output};

/// Number of measurements that are considered.
const MEASUREMENTS: usize = 50;

/// Explain why a relay has its weight, or none, from the coordinator's store and its newest bandwidth file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow bwfile explain 8A18112151D6C0361C098DF1A9E7A8507A3F1475 --store bandwidth/store.db
  flashflow bwfile explain relay7 --store bandwidth/store.db --file bandwidth/latest.v3bw --json

Exit status: 0 done; 1 the relay is not in the store, or the store cannot be read; 2 wrong arguments.")]
pub(super) struct ExplainOptions {
    /// Fingerprint or unique nickname of the relay.
    #[arg(value_name = "RELAY")]
    relay: String,
    /// The store: `store.db` in the coordinator's folder of bandwidth files.
    #[arg(long, value_name = "FILE")]
    store: PathBuf,
    /// The bandwidth file. By default `latest.v3bw` in the folder of the store, if it exists.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// Why a relay has its weight.
    Explanation {
        /// The relay.
        fingerprint: String,
        /// Its nickname.
        nickname: &'a str,
        /// Its weight in the bandwidth file; `null` without a vote.
        weight_kb_s: Option<u64>,
        /// Its last estimate, in bytes per second.
        capacity_byte_s: Option<u64>,
        /// When it was estimated, in Unix seconds.
        estimated_unix_s: Option<u64>,
        /// The explanation, in sentences.
        words: &'a [String],
    },
}

pub(super) fn run(options: &ExplainOptions, output: &Output) -> Result<Exit, Error> {
    let reader = Reader::open(&options.store)?;
    let relay = find(&reader, &options.relay)?;
    let default = options.store.with_file_name(LATEST);
    let file = options.file.clone().or_else(|| default.exists().then_some(default));
    let line = match &file {
        Some(path) => Some(weights(path, relay.rsa).map_err(|problem| bad(path, &problem))?),
        None => None,
    };
    let measurements = reader.measurements_of(relay.rsa, MEASUREMENTS)?;
    let explainer = reader.explainer(Audience::Operator, unix_time_s())?;
    let explanation = explainer.explain(&relay, &measurements, line)?;
    output.result(explanation.join("\n"), || Line::Explanation {
        fingerprint: relay.rsa.to_string(),
        nickname: &relay.nickname,
        weight_kb_s: line.flatten().filter(|line| line.is_voted).map(|line| line.bw_kb_s),
        capacity_byte_s: relay.capacity.map(Rate::as_byte_per_s),
        estimated_unix_s: relay.estimated_unix_s,
        words: &explanation,
    });
    Ok(Exit::Done)
}

fn find(reader: &Reader, name: &str) -> Result<RelayRow, Error> {
    if let Ok(fingerprint) = name.parse::<Fingerprint>() {
        let found = reader.relay(RsaId(*fingerprint.as_bytes()))?;
        let unknown = || Error::Failed(format!("the store has no relay {fingerprint}"));
        return found.ok_or_else(unknown);
    }
    let mut found = reader.relays_called(name)?;
    match (found.pop(), found.len()) {
        (Some(relay), 0) => Ok(relay),
        (None, _) => Err(Error::Failed(format!("the store has no relay {name}"))),
        (Some(_), others) => {
            let problem =
                format!("{} relays call themselves {name}: give a fingerprint", others + 1);
            Err(Error::Failed(problem))
        }
    }
}
