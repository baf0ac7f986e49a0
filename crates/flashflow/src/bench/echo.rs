//! `flashflow bench echo`: what echoing costs a relay, beside stock tor that relays the same cells.

use crate::error::{Error, Exit};
use crate::interrupt::Interrupt;
use crate::measuring;
use crate::network;
use crate::output::Output;
use crate::own_relay::{OwnRelay, OwnRelaySpec};
use control::keys::SecretKey;
use lab::NetworkSpec;
use link::Clock;
use measurer::{Approach, Coordinator, Defences, Progress, Request, Team};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::pump::Target;
use onion::{Duration, Rate};
use serde_json::json;

/// What is measured in each run, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Tor,
    OursEcho,
    OursTransit,
}

impl Subject {
    const ALL: [Self; 3] = [Self::Tor, Self::OursEcho, Self::OursTransit];

    const fn relay(self) -> &'static str {
        match self {
            Self::Tor => "tor",
            Self::OursEcho | Self::OursTransit => "ours",
        }
    }

    const fn mode(self) -> &'static str {
        match self {
            Self::OursEcho => "echo",
            Self::Tor | Self::OursTransit => "transit",
        }
    }
}

/// What one relay did in one run, in the seconds that were looked at.
#[derive(Clone, Copy, Debug)]
struct Sample {
    subject: Subject,
    seconds: u32,
    bytes: u64,
    cpu: Duration,
    /// The measurement's result.
    estimate: Rate,
}

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "no run moves 2^53 bytes")]
    fn gbit_per_cpu_s(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu.as_secs_f64()
    }

    /// Of one core.
    fn cpu_share(&self) -> f64 {
        self.cpu.as_secs_f64() / f64::from(self.seconds)
    }
}

/// Where a subject is, and how it is measured.
struct Place {
    request: Request,
    pid: u32,
}

pub(super) fn run(
    seconds: u32,
    runs: u32,
    capacity: Option<f64>,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let arguments = super::arguments(seconds, capacity);
    let mut team = measuring::team(&arguments, output)?;
    let network = network::start(&NetworkSpec::new(network::relays(Some(1), &[0.0])?), output)?;
    interrupt.wind_up_in_order();
    let folder = tempfile::tempdir().map_err(|source| Error::File {
        what: "make a temporary folder in",
        path: std::env::temp_dir(),
        source,
    })?;
    let key = SecretKey::generate()?;
    output.doing("starting our relay");
    let spec = OwnRelaySpec {
        nickname: "ours".to_owned(),
        limit: None,
        coordinator: key.public().to_string(),
        authorities: Vec::new(),
        client_percent: None,
        is_open_exit: false,
    };
    let ours = OwnRelay::start(spec, folder.path(), Clock::start())?;
    let tor = &network.relays()[0];
    let ids = RelayIds { rsa: RsaId(tor.rsa()), ed25519: Some(Ed25519Id(tor.ed25519())) };
    let tor_target = Target { address: tor.or_addr(), ids };
    let place = |subject: Subject| {
        let (target, pid) = match subject {
            Subject::Tor => (tor_target, tor.pid()),
            Subject::OursEcho | Subject::OursTransit => (ours.target, ours.process.pid()),
        };
        let approach = match subject {
            Subject::OursEcho => {
                Approach::Echo(Coordinator { key_seed: key.seed(), rounds_max: u32::MAX })
            }
            Subject::Tor | Subject::OursTransit => Approach::Transit,
        };
        let guess = Rate::from_mbit_per_s(arguments.guess);
        Place { request: Request { target, guess, defences: Defences::default(), approach }, pid }
    };

    let mut samples: Vec<Sample> = Vec::new();
    for run in 1..=runs {
        for subject in Subject::ALL {
            let sample = sample(&mut team, subject, &place(subject), run, output, interrupt);
            if interrupt.is_requested() {
                output.quiet();
                network.stop()?;
                return Ok(Exit::Interrupted);
            }
            let sample = sample?;
            tell(run, &sample, output);
            samples.push(sample);
        }
    }
    network.stop()?;
    output.quiet();
    conclude(&samples, seconds, runs, output);
    Ok(Exit::Done)
}

/// Measures one relay once, and reads what it used of the processors between the end of the first and
/// the end of the last second but one: what begins and ends a measurement is left out.
fn sample(
    team: &mut Team,
    subject: Subject,
    place: &Place,
    run: u32,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Sample, Error> {
    let what = format!("run {run}, {} in {}", subject.relay(), subject.mode());
    let length = team.options().params.seconds;
    output.doing(format!("{what}: preparing"));
    let mut readings: Vec<(Rate, Option<Duration>)> = Vec::new();
    let mut progress = |progress: Progress| match progress {
        Progress::Preparing { .. } => {}
        Progress::Started { .. } => readings.clear(),
        Progress::Second { index, measured, .. } => {
            readings.push((measured, lab::cpu_time(place.pid)));
            let (second, mbit) = (index + 1, measured.as_mbit_per_s());
            output.doing(format!("{what}: second {second} of {length}: {mbit:.0} Mbit/s"));
        }
    };
    let outcome = team.measure(&place.request, &mut progress, interrupt.requested())?.outcome;
    let failed = |why: String| Error::Usage(format!("{what}: the measurement failed: {why}"));
    let estimate = outcome.estimate().ok_or_else(|| failed(outcome.to_string()))?.capacity;
    let looked_at = readings.get(1..readings.len().saturating_sub(1)).unwrap_or_default();
    let before = readings.first().and_then(|(_, cpu)| *cpu);
    let after = looked_at.last().and_then(|(_, cpu)| *cpu);
    let cpu = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    let cpu = cpu.filter(|cpu| !cpu.is_zero());
    let cpu = cpu.ok_or_else(|| failed("its processor time cannot be read".to_owned()))?;
    let bytes = looked_at.iter().map(|(measured, _)| measured.as_byte_per_s()).sum();
    let seconds = u32::try_from(looked_at.len()).unwrap_or(u32::MAX);
    Ok(Sample { subject, seconds, bytes, cpu, estimate })
}

fn tell(run: u32, sample: &Sample, output: &Output) {
    let (relay, mode) = (sample.subject.relay(), sample.subject.mode());
    let (mbit, share) = (sample.estimate.as_mbit_per_s(), sample.cpu_share());
    let gbit_per_cpu_s = sample.gbit_per_cpu_s();
    output.result(
        format!(
            "run {run}: {relay} in {mode}: {gbit_per_cpu_s:.3} Gbit per CPU second; {mbit:.0} Mbit/s \
             with {:.0} % of a core",
            share * 100.0
        ),
        || {
            json!({
                "type": "run", "run": run, "relay": relay, "mode": mode,
                "gbit_per_cpu_s": gbit_per_cpu_s, "rate_mbit_per_s": mbit,
                "relay_cpu_share": share, "bytes": sample.bytes,
                "cpu_s": sample.cpu.as_secs_f64(), "seconds_looked_at": sample.seconds,
            })
        },
    );
}

fn conclude(samples: &[Sample], seconds: u32, runs: u32, output: &Output) {
    let median = |subject: Subject| {
        let of_it = samples.iter().filter(|sample| sample.subject == subject);
        let mut figures: Vec<f64> = of_it.map(Sample::gbit_per_cpu_s).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let [tor, ours, transit] = Subject::ALL.map(median);
    let ratio = ours / tor;
    output.result(
        format!(
            "median: our echo {ours:.3}, stock tor in transit {tor:.3} Gbit per CPU second; ratio \
             {ratio:.3}; our relay in transit {transit:.3}"
        ),
        || {
            json!({
                "type": "summary", "ours_gbit_per_cpu_s": ours, "tor_gbit_per_cpu_s": tor,
                "ratio": ratio, "ours_transit_gbit_per_cpu_s": transit, "runs": runs,
                "seconds": seconds,
            })
        },
    );
}
