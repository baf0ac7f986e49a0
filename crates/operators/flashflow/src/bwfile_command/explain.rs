//! `flashflow bwfile explain`: why a relay has its weight, or none.

mod places;
mod probes;

use super::bad;
use clap::Args;
use cli::Error;
use coordinator::ServiceTest;
use dashboard::weights;
use documents::{Place, read_places};
use link::unix_time_s;
use netdoc::bwfile::LATEST;
use onion::Rate;
use onion::identity::RsaId;
use places::PlaceEstimate;
use probes::Evidence;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use store::{Audience, Reader, RelayRow, explain_service};
use terminal::{Exit, Output, note};

/// Number of measurements that are considered.
const MEASUREMENTS: usize = 50;

/// Explain why a relay has its weight, or none, from the coordinator's store and its newest bandwidth file.
///
/// With --place, also compare the estimate in the store with those of teams at other places. An estimate is far off if it differs by a
/// factor of 1.5 or more from the median of all places.
///
/// With --probes, also test whether the relay serves measurements but not clients; without RELAY, list all relays that are suspected.
/// A suspicion changes no weight. A circuit is bad if it failed, or if its download was slower than a tenth of both the median and the
/// smallest estimate of its relays (with --store). It counts for a relay that is not being measured, once in two hours, if no other relay
/// of it is in doubt (most of that relay's last eight circuits were bad) and one of the prober's last four circuits worked. Let b be the
/// share of bad circuits in the network. If at most b + (1-b)/5 of an honest relay's circuits are bad, in whatever pattern, it is
/// suspected in a year with a probability of at most 0.001.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow bwfile explain 8A18112151D6C0361C098DF1A9E7A8507A3F1475 --store bandwidth/store.db
  flashflow bwfile explain relay7 --store bandwidth/store.db --file bandwidth/latest.v3bw --json
  flashflow bwfile explain relay7 --store bandwidth/store.db --place fr.v3bw --place us.v3bw
  flashflow bwfile explain --probes probes.jsonl --store bandwidth/store.db

Exit status: 0 done; 1 the relay is not in the store, a file cannot be read, or --probes has no circuits; 2 wrong arguments.")]
pub(super) struct ExplainOptions {
    /// Fingerprint or unique nickname of the relay.
    #[arg(value_name = "RELAY", requires = "store", required_unless_present = "probes")]
    relay: Option<String>,
    /// The store: `store.db` in the coordinator's folder of bandwidth files. Circuits during a relay's measurements do not count.
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// The bandwidth file. By default `latest.v3bw` in the folder of the store, if it exists.
    #[arg(long, value_name = "FILE", requires = "relay")]
    file: Option<PathBuf>,
    /// Bandwidth file of a team at another place; may be repeated. Its name is the `scanner_country` in its header, or else its path.
    #[arg(long, value_name = "FILE", requires = "relay")]
    place: Vec<PathBuf>,
    /// File with the lines of `flashflow-lab probe --json`, in any order; may be repeated.
    #[arg(long, value_name = "FILE")]
    probes: Vec<PathBuf>,
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
        /// Why ordinary circuits suggest that it does not serve clients; `null` if they do not.
        suspicion: Option<Evidence>,
        /// Its estimates by this place, which is first, and those of --place; empty without --place.
        places: &'a [PlaceEstimate],
        /// The explanation, in sentences.
        words: &'a [String],
    },
    /// A relay that seems not to serve clients, without RELAY.
    Suspicion {
        /// The relay.
        fingerprint: String,
        /// Why.
        suspicion: Evidence,
        /// The evidence, in sentences.
        words: String,
    },
}

pub(super) fn run(options: &ExplainOptions, output: &Output) -> Result<Exit, Error> {
    let reader = options.store.as_deref().map(Reader::open).transpose()?;
    let test = match &options.probes[..] {
        [] => None,
        files => Some(probes::test(files, reader.as_ref())?),
    };
    match (&options.relay, &options.store, &reader) {
        (Some(relay), Some(store), Some(reader)) => {
            let relay = find(reader, relay)?;
            let default = store.with_file_name(LATEST);
            let file = options.file.clone().or_else(|| default.exists().then_some(default));
            let places = read_places(&options.place).into_iter().collect::<Result<Vec<_>, _>>();
            let places = places.map_err(|unread| unread.error)?;
            explain(&relay, reader, file.as_deref(), &places, test.as_ref(), output)?;
        }
        _ => list(&test.unwrap_or_default(), reader.as_ref(), output)?,
    }
    Ok(Exit::Done)
}

fn explain(
    relay: &RelayRow,
    reader: &Reader,
    file: Option<&Path>,
    places: &[Place],
    test: Option<&ServiceTest>,
    output: &Output,
) -> Result<(), Error> {
    let line = match file {
        Some(path) => Some(weights(path, relay.rsa).map_err(|problem| bad(path, &problem))?),
        None => None,
    };
    let measurements = reader.measurements_of(relay.rsa, MEASUREMENTS)?;
    let explainer = reader.explainer(Audience::Operator, unix_time_s())?;
    let mut explanation = explainer.explain(relay, &measurements, line)?;
    let suspicion = test.and_then(|test| test.suspicion(relay.rsa));
    explanation.extend(
        test.map(|test| {
            explain_service(test.probed(relay.rsa), suspicion.as_ref(), relay.capacity)
        }),
    );
    let mut text = explanation.clone();
    let mut estimates = Vec::new();
    if !places.is_empty() {
        estimates = places::estimates(relay, reader.scanner_country()?, places);
        explanation.push(places::in_words(&estimates));
        text.push("Estimates by place, each with its ratio to their median:".to_owned());
        text.extend(places::table(&estimates));
        text.extend(explanation.last().cloned());
    }
    output.result(text.join("\n"), || Line::Explanation {
        fingerprint: relay.rsa.to_string(),
        nickname: &relay.nickname,
        weight_kb_s: line.flatten().filter(|line| line.is_voted).map(|line| line.bw_kb_s),
        capacity_byte_s: relay.capacity.map(Rate::as_byte_per_s),
        estimated_unix_s: relay.estimated_unix_s,
        suspicion: suspicion.as_ref().map(Evidence::from),
        places: &estimates,
        words: &explanation,
    });
    Ok(())
}

/// Prints all relays that seem not to serve clients.
fn list(test: &ServiceTest, reader: Option<&Reader>, output: &Output) -> Result<(), Error> {
    let mut suspicions = test.suspicions().peekable();
    if suspicions.peek().is_none() {
        note("no relay is suspected");
    }
    for suspicion in suspicions {
        let relay = suspicion.relay;
        let row = reader.map(|reader| reader.relay(relay)).transpose()?.flatten();
        let estimate = row.and_then(|row| row.capacity);
        let words = explain_service(test.probed(relay), Some(&suspicion), estimate);
        output.result(format!("{relay}: {words}"), || Line::Suspicion {
            fingerprint: relay.to_string(),
            suspicion: Evidence::from(&suspicion),
            words: words.clone(),
        });
    }
    Ok(())
}

fn find(reader: &Reader, name: &str) -> Result<RelayRow, Error> {
    if let Ok(fingerprint) = name.parse::<RsaId>() {
        let found = reader.relay(fingerprint)?;
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
