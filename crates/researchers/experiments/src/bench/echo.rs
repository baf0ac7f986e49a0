//! `flashflow-lab bench echo`: processor time of a relay that echoes, compared with C tor that relays the same cells.

use super::lines::EchoLine;
use super::options::{EchoBench, RelayBench};
use super::subjects::{BenchNetwork, Sample, Subject, median_gbit_per_cpu_s};
use crate::error::Result;
use terminal::{Exit, Interrupt, Output};

/// The measurements of each run, in this order.
const SUBJECTS: [Subject; 3] = [Subject::Tor, Subject::OursEcho, Subject::OursTransit];

pub(super) fn run(
    EchoBench { relay: RelayBench { seconds, runs, capacity }, sockets }: &EchoBench,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit> {
    let mut stage = BenchNetwork::start(*seconds, Some(*capacity), output, interrupt)?;
    let counts = match &sockets[..] {
        [] => vec![None],
        sockets => sockets.iter().copied().map(Some).collect(),
    };
    let mut samples = Some(Vec::new());
    for count in counts {
        stage.sockets = count;
        samples = stage.run(&SUBJECTS, 1..=*runs, EchoLine::Run, output, interrupt)?;
        if samples.is_none() {
            break;
        }
    }
    stage.stop()?;
    let Some(samples) = samples else { return Ok(Exit::Interrupted) };
    output.quiet();
    conclude(&samples, *seconds, *runs, output);
    Ok(Exit::Done)
}

fn conclude(samples: &[Sample], seconds: u32, runs: u32, output: &Output) {
    let [tor, ours, transit] = SUBJECTS.map(|subject| median_gbit_per_cpu_s(samples, subject));
    let ratio = ours / tor;
    output.result(
        format!(
            "median: our echo {ours:.3}, C tor in transit {tor:.3} Gbit per CPU second; ratio \
             {ratio:.3}; our relay in transit {transit:.3}"
        ),
        || EchoLine::Summary {
            ours_gbit_per_cpu_s: ours,
            tor_gbit_per_cpu_s: tor,
            ratio,
            ours_transit_gbit_per_cpu_s: transit,
            runs,
            seconds,
        },
    );
}
