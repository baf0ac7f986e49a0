//! The circuits of `flashflow-lab probe`, and what they show about relays.

use coordinator::{CircuitOutcome, ProbedCircuit, ServiceSuspicion, ServiceTest};
use documents::{Error, read};
use onion::Rate;
use onion::identity::RsaId;
use report::plural;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::{MeasuredRelays, Reader};
use terminal::note;

/// A line of `flashflow-lab probe --json`.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Circuit {
        ended_unix_s: u64,
        took_ms: f64,
        path: Vec<RsaId>,
        throughput_kb_s: Option<f64>,
        failure: Option<String>,
    },
    #[serde(other)]
    Other,
}

/// A circuit of a file.
#[derive(Debug, PartialEq)]
struct Circuit {
    began_unix_s: u64,
    ended_unix_s: u64,
    path: Vec<RsaId>,
    outcome: CircuitOutcome,
}

impl Circuit {
    fn parse(line: &[u8]) -> Result<Option<Self>, serde_json::Error> {
        let line = serde_json::from_slice(line)?;
        let Line::Circuit { ended_unix_s, took_ms, path, throughput_kb_s, failure } = line else {
            return Ok(None);
        };
        let rate = |kb_s: f64| Rate::from_mbit_per_s(kb_s * 8.0 / 1000.0);
        let outcome = match failure {
            Some(_) => CircuitOutcome::Failed,
            None => CircuitOutcome::Worked { download: throughput_kb_s.map(rate) },
        };
        let took = Duration::try_from_secs_f64(took_ms / 1000.0).unwrap_or_default();
        let began_unix_s = ended_unix_s.saturating_sub(took.as_secs() + 1);
        Ok(Some(Self { began_unix_s, ended_unix_s, path, outcome }))
    }
}

/// What the circuits of these files show, without those during which a relay was measured, by the store. Without a store, rates do not
/// count: a relay that is slow by its estimate would be suspected.
pub(super) fn test(files: &[PathBuf], store: Option<&Reader>) -> Result<ServiceTest, cli::Error> {
    let mut circuits = Vec::new();
    for path in files {
        read_circuits(path, &mut circuits)?;
    }
    if circuits.is_empty() {
        let problem = "the files of --probes have no circuits: give the output of `flashflow-lab probe --json`";
        return Err(cli::Error::Failed(problem.to_owned()));
    }
    circuits.sort_by_key(|circuit| circuit.ended_unix_s);
    let since_unix_s = circuits.iter().map(|circuit| circuit.began_unix_s).min().unwrap_or(0);
    let measured = match store {
        Some(store) => store.measured_relays(since_unix_s)?,
        None => MeasuredRelays::default(),
    };
    let mut test = ServiceTest::default();
    for Circuit { began_unix_s, ended_unix_s, path, outcome } in &circuits {
        let circuit = ProbedCircuit {
            ended_unix_s: *ended_unix_s,
            path,
            outcome: *outcome,
            slowest_estimate: measured.slowest_estimate(path, *began_unix_s),
        };
        test.add(&circuit, |relay| measured.overlap(relay, *began_unix_s, *ended_unix_s));
    }
    Ok(test)
}

fn read_circuits(path: &Path, circuits: &mut Vec<Circuit>) -> Result<(), Error> {
    let damaged = add_circuits(&read(path, "read the circuits")?, circuits);
    if let [(line, problem), ..] = &damaged[..] {
        let skipped = plural(damaged.len() as u64, "damaged line");
        note(format!(
            "{}: {skipped} skipped, the first is line {line} of the file: {problem}",
            path.display()
        ));
    }
    Ok(())
}

/// Adds the circuits of a file, and returns the numbers of the lines that cannot be read, with the reasons: a prober that was killed leaves
/// half a line, to which the next one appends.
fn add_circuits(text: &[u8], circuits: &mut Vec<Circuit>) -> Vec<(usize, serde_json::Error)> {
    let mut damaged = Vec::new();
    let lines = (1..).zip(text.split(|byte| *byte == b'\n'));
    for (number, line) in lines.filter(|(_, line)| !line.trim_ascii().is_empty()) {
        match Circuit::parse(line) {
            Ok(circuit) => circuits.extend(circuit),
            Err(problem) => damaged.push((number, problem)),
        }
    }
    damaged
}

/// The evidence of ordinary circuits that a relay serves measurements and not clients.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Evidence {
    /// The position in paths: `first hop`, `middle hop`, `last hop`; `null` for all.
    position: Option<&'static str>,
    /// The end of the first circuit, in Unix seconds.
    since_unix_s: u64,
    /// The end of the last one, in Unix seconds.
    until_unix_s: u64,
    /// Circuits that count since then.
    circuits: u32,
    /// Those of them that failed, or were slower than a tenth of the median and of the smallest estimate of their relays.
    bad: u32,
    /// Different other relays of the bad circuits, up to 64.
    neighbours: u32,
    /// The share of bad circuits in the network.
    network_bad_share: f64,
    /// The probability, at most, that an honest relay ever looks like that in a year.
    by_chance: f64,
}

impl From<&ServiceSuspicion> for Evidence {
    fn from(suspicion: &ServiceSuspicion) -> Self {
        Self {
            position: suspicion.position.map(coordinator::HopPosition::in_words),
            since_unix_s: suspicion.since_unix_s,
            until_unix_s: suspicion.until_unix_s,
            circuits: suspicion.circuits,
            bad: suspicion.bad,
            neighbours: suspicion.neighbours,
            network_bad_share: suspicion.network_bad_share,
            by_chance: suspicion.by_chance,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_circuits_are_read_and_others_skipped() {
        let relay = "A".repeat(40);
        let line = |more: &str| {
            format!(
                r#"{{"type":"circuit","ended_unix_s":100,"took_ms":1500.0,"path":["{relay}"],{more}}}"#
            )
        };
        let parsed = |line: &str| Circuit::parse(line.as_bytes()).expect("a line");
        let with = |outcome| {
            Some(Circuit {
                began_unix_s: 98,
                ended_unix_s: 100,
                path: vec![RsaId([0xaa; 20])],
                outcome,
            })
        };
        let worked = parsed(&line(r#""throughput_kb_s":125.0,"failure":null"#));
        let download = Some(Rate::from_byte_per_s(125_000));
        assert_eq!(worked, with(CircuitOutcome::Worked { download }));
        // What arrived before a failure does not count.
        let failed = parsed(&line(r#""throughput_kb_s":125.0,"failure":"lost""#));
        assert_eq!(failed, with(CircuitOutcome::Failed));
        assert_eq!(parsed(r#"{"type":"summary","circuits":3}"#), None);
        assert!(Circuit::parse(line(r#""throughput_kb_s":"fast""#).as_bytes()).is_err());
        let (mut circuits, good) = (Vec::new(), line(r#""failure":null"#));
        // Half a line with the next one behind it, and a byte that is no text.
        let text = format!("{good}\n\n{{\"type\":\"cir{good}\r\n{good}\n{good}\n{good}");
        let mut text = text.into_bytes();
        let last_line = text.len() - good.len();
        text[last_line - good.len() + 9] = 0xff;
        let damaged = add_circuits(&text, &mut circuits);
        let [(3, half), (5, byte)] = &damaged[..] else { panic!("{damaged:?}") };
        assert!([half, byte].iter().all(|problem| problem.column() > 0), "{half}; {byte}");
        assert_eq!(circuits.len(), 3);
    }
}
