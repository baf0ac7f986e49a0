//! `flashflow bench relay`: what relaying costs us and stock tor, beside a forwarder that does nothing
//! but TLS.

use super::subjects::{Sample, Stage, Subject, median, median_gbit_per_cpu_s};
use crate::error::{Error, Exit};
use crate::interrupt::Interrupt;
use crate::output::Output;
use link::tls::TlsConfigs;
use link::{Forge, pump, unix_time_s};
use onion::Duration;
use onion::cell::CELL_LEN;
use onion::measure::pump::CELLS_PER_RECORD;
use serde_json::json;

/// What is measured in each run, in this order; the forwarder comes after them.
const SUBJECTS: [Subject; 2] = [Subject::Tor, Subject::OursTransit];

/// How long the forwarder runs each time.
const FORWARDING: Duration = Duration::from_secs(2);

pub(super) fn run(
    seconds: u32,
    runs: u32,
    capacity_mbit: f64,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let forge = Forge::new([7; 32], unix_time_s())?;
    let tls = TlsConfigs::new(&forge)?;
    let mut stage = Stage::start(seconds, Some(capacity_mbit), output, interrupt)?;
    let (mut samples, mut forwarder) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        let Some(more) = stage.run(&SUBJECTS, run..=run, output, interrupt)? else {
            stage.stop()?;
            return Ok(Exit::Interrupted);
        };
        samples.extend(more);
        let forwarded = pump::forward(&tls, CELLS_PER_RECORD * CELL_LEN, FORWARDING)?;
        let gbit_per_cpu_s = forwarded.gbit_per_cpu_s();
        output.result(
            format!("run {run}: TLS forwarder: {gbit_per_cpu_s:.3} Gbit per CPU second"),
            || {
                json!({
                    "type": "run", "run": run, "relay": "tls_forwarder",
                    "gbit_per_cpu_s": gbit_per_cpu_s, "bytes": forwarded.bytes,
                    "cpu_s": forwarded.cpu.as_secs_f64(),
                })
            },
        );
        forwarder.push(gbit_per_cpu_s);
    }
    stage.stop()?;
    output.quiet();
    conclude(&samples, forwarder, seconds, runs, output);
    Ok(Exit::Done)
}

fn conclude(samples: &[Sample], forwarder: Vec<f64>, seconds: u32, runs: u32, output: &Output) {
    let [tor, ours] = SUBJECTS.map(|subject| median_gbit_per_cpu_s(samples, subject));
    let limit = median(forwarder);
    let (ratio, of_limit) = (ours / tor, ours / limit);
    output.result(
        format!(
            "median: ours {ours:.3}, stock tor {tor:.3}, TLS forwarder {limit:.3} Gbit per CPU second; \
             ratio {ratio:.3}; {of_limit:.3} of the forwarder"
        ),
        || {
            json!({
                "type": "summary", "ours_gbit_per_cpu_s": ours, "tor_gbit_per_cpu_s": tor,
                "tls_forwarder_gbit_per_cpu_s": limit, "ratio": ratio,
                "share_of_tls_forwarder": of_limit, "runs": runs, "seconds": seconds,
            })
        },
    );
}
