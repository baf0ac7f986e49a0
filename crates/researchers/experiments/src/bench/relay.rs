//! `flashflow-lab bench relay`: processor time of our relay and C tor, compared with the least of any relay.

use super::limit::Limit;
use super::lines::RelayLine;
use super::median_of;
use super::options::RelayBench;
use super::quiet::QuietCircuit;
use super::subjects::{BenchNetwork, Sample, Subject, median_gbit_per_cpu_s};
use crate::error::Result;
use crate::reporting::median;
use link::tls::TlsConfigs;
use link::{IdentityIssuer, unix_time_s};
use onion::{Duration, Rate};
use terminal::{Exit, Interrupt, Output};

/// The measurements of each run, in this order, before the limit.
const SUBJECTS: [Subject; 2] = [Subject::Tor, Subject::OursTransit];

/// How long each part of the limit is measured.
const LIMIT: Duration = Duration::from_secs(2);

pub(super) fn run(
    RelayBench { seconds, runs, capacity }: RelayBench,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit> {
    let issuer = IdentityIssuer::new([7; 32], unix_time_s())?;
    let tls = TlsConfigs::new(&issuer)?;
    let mut stage = BenchNetwork::start(seconds, Some(capacity), output, interrupt)?;
    let (mut samples, mut limits) = (Vec::new(), Vec::new());
    for run in 1..=runs {
        let Some(more) = stage.run(&SUBJECTS, run..=run, RelayLine::Run, output, interrupt)? else {
            stage.stop()?;
            return Ok(Exit::Interrupted);
        };
        samples.extend(more);
        let limit = Limit::measure(&tls, LIMIT)?;
        let (bound, forwarder) = (limit.bound(), limit.forwarder);
        output.result(
            format!(
                "run {run}: bound {bound:.3}, TLS forwarder {forwarder:.3} Gbit per CPU second"
            ),
            || RelayLine::Limit {
                run,
                bound_gbit_per_cpu_s: bound,
                tls_forwarder_gbit_per_cpu_s: forwarder,
            },
        );
        limits.push(limit);
    }
    let quiet = quiet_circuits(&mut stage, &samples, output, interrupt);
    stage.stop()?;
    let Some(quiet) = quiet? else { return Ok(Exit::Interrupted) };
    output.quiet();
    conclude(&samples, &limits, &quiet, seconds, runs, output);
    Ok(Exit::Done)
}

/// The round trip of a quiet circuit through a loaded relay.
struct Quiet {
    subject: Subject,
    /// The relay of whose capacity the load is 90 %.
    of: Subject,
    load: Rate,
    /// In milliseconds.
    median_ms: f64,
}

/// Loads each relay with 90 % of C tor's capacity, and ours with 90 % of its own as well; `None` if interrupted.
fn quiet_circuits(
    stage: &mut BenchNetwork,
    samples: &[Sample],
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Option<Vec<Quiet>>> {
    let mut found = Vec::new();
    let [tor, ours] = SUBJECTS;
    for (subject, of) in [(tor, tor), (ours, tor), (ours, ours)] {
        let of_it = samples.iter().filter(|sample| sample.subject == of);
        let capacity = median(of_it.map(|sample| sample.estimate.as_mbit_per_s()));
        let capacity = capacity.unwrap_or(f64::NAN);
        stage.limit(Rate::from_mbit_per_s(0.9 * capacity), output)?;
        let circuit = QuietCircuit::start(stage.target(subject), stage.clock)?;
        let sample = stage.sample(subject, 1, output, interrupt);
        if interrupt.is_requested() {
            output.quiet();
            return Ok(None);
        }
        let sample = sample?;
        let (from, to) = sample.within;
        let mut trips: Vec<f64> = circuit
            .round_trips(from, to)?
            .into_iter()
            .map(|trip| trip.as_secs_f64() * 1e3)
            .collect();
        trips.sort_by(f64::total_cmp);
        let most_ms = trips.get(trips.len() * 19 / 20).copied().unwrap_or(f64::NAN);
        let trips_len = trips.len();
        let median_ms = median(trips).unwrap_or(f64::NAN);
        let quiet = Quiet { subject, of, load: sample.load(), median_ms };
        let (relay, load) = (subject.relay(), quiet.load.as_mbit_per_s());
        output.result(
            format!(
                "{relay} at {load:.0} Mbit/s ({:.0} % of a core): round trip of a quiet circuit \
                 {median_ms:.2} ms (median), {most_ms:.2} ms (95th percentile), {trips_len} samples",
                sample.cpu_share() * 100.0
            ),
            || RelayLine::Quiet {
                relay,
                load_mbit_per_s: load,
                load_of: of.relay(),
                relay_cpu_share: sample.cpu_share(),
                round_trip_median_ms: median_ms,
                round_trip_p95_ms: most_ms,
                round_trips: trips_len,
            },
        );
        found.push(quiet);
    }
    Ok(Some(found))
}

fn conclude(
    samples: &[Sample],
    limits: &[Limit],
    quiet: &[Quiet],
    seconds: u32,
    runs: u32,
    output: &Output,
) {
    let [tor, ours] = SUBJECTS.map(|subject| median_gbit_per_cpu_s(samples, subject));
    let forwarder = median_of(limits, |limit| limit.forwarder);
    let bound = median_of(limits, Limit::bound);
    let (ratio, of_forwarder, of_bound) = (ours / tor, ours / forwarder, ours / bound);
    let trip = |subject: Subject, of: Subject| {
        quiet.iter().find(|quiet| quiet.subject == subject && quiet.of == of)
    };
    let [c_tor, own] = SUBJECTS;
    let median_ms = |quiet: Option<&Quiet>| quiet.map(|quiet| quiet.median_ms);
    output.result(
        format!(
            "median: ours {ours:.3}, C tor {tor:.3}, TLS forwarder {forwarder:.3}, bound {bound:.3} Gbit per CPU \
             second; ratio {ratio:.3}; {of_forwarder:.3} of the forwarder, {of_bound:.3} of the bound"
        ),
        || RelayLine::Summary {
            ours_gbit_per_cpu_s: ours,
            tor_gbit_per_cpu_s: tor,
            tls_forwarder_gbit_per_cpu_s: forwarder,
            ratio,
            share_of_tls_forwarder: of_forwarder,
            bound_gbit_per_cpu_s: bound,
            share_of_bound: of_bound,
            tor_quiet_round_trip_ms: median_ms(trip(c_tor, c_tor)),
            ours_quiet_round_trip_ms: median_ms(trip(own, c_tor)),
            ours_quiet_round_trip_at_own_load_ms: median_ms(trip(own, own)),
            runs,
            seconds,
        },
    );
}
