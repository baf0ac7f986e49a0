//! One relay measured by a team, told to the user, and turned into a report.

use crate::arguments::TeamArguments;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output::Output;
use coordinator::{Estimate, Outcome, Params};
use lab::{CpuReading, RelaySaid};
use measurer::{Approach, Progress, Request, Team, TeamError, TeamOptions, TeamResult};
use netdoc::Fingerprint;
use onion::measure::pump::Target;
use onion::{Duration, Instant, Rate};
use report::{Mode, RelayReport, SecondPoint, Spread};
use serde_json::json;

/// What a measurement's parameters are to be.
#[must_use]
pub fn params(arguments: &TeamArguments) -> Params {
    Params {
        seconds: arguments.seconds,
        sockets: arguments.sockets,
        check_share: arguments.check_share,
        ..TeamOptions::default().params
    }
}

/// Refuses arguments that describe no team.
///
/// # Errors
/// [`Error::Usage`], with the argument.
pub fn check(arguments: &TeamArguments) -> Result<(), Error> {
    let rates = [("guess", Some(arguments.guess)), ("capacity", arguments.capacity)];
    for (name, mbit) in rates {
        if let Some(mbit) = mbit.filter(|mbit| !mbit.is_finite() || *mbit <= 0.0) {
            return Err(Error::Usage(format!("--{name} {mbit}: not a rate above zero")));
        }
    }
    params(arguments).validate().map_err(|error| Error::Usage(error.to_string()))
}

/// A team as the arguments describe it.
///
/// # Errors
/// [`Error`] if they describe none, or its measurers cannot be had.
pub fn team(arguments: &TeamArguments, output: &Output) -> Result<Team, Error> {
    check(arguments)?;
    output.doing("making keys, and finding out what this machine can do");
    let team = Team::new(TeamOptions {
        measurers: arguments.measurers,
        pumps: None,
        capacity: arguments.capacity.map(Rate::from_mbit_per_s),
        address: arguments.own_address,
        params: params(arguments),
        always_authenticate: arguments.authenticate,
    })?;
    let each = team.capacities().next().unwrap_or_default().as_mbit_per_s();
    output.step(match arguments.measurers {
        1 => format!("team: one measurer of {each:.0} Mbit/s"),
        count => format!("team: {count} measurers of {each:.0} Mbit/s each"),
    });
    Ok(team)
}

/// The relay that is measured, as the user knows it.
pub struct Subject {
    /// What it calls itself, or its fingerprint.
    pub nickname: String,
    /// Its RSA identity.
    pub fingerprint: Fingerprint,
    /// The limit that it is known to have.
    pub limit: Option<Rate>,
    /// How it is to be measured.
    pub request: Request,
}

impl Subject {
    /// What links must prove the relay to be.
    #[must_use]
    pub fn ids(fingerprint: Fingerprint, ed25519: Option<[u8; 32]>) -> onion::identity::RelayIds {
        onion::identity::RelayIds {
            rsa: onion::identity::RsaId(*fingerprint.as_bytes()),
            ed25519: ed25519.map(onion::identity::Ed25519Id),
        }
    }

    /// Where it is, and who.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.request.target
    }
}

/// A second of a round, as it was told.
struct Told {
    round: u32,
    index: u32,
    measured: Rate,
    /// When it ended, by the clock of what the relay says.
    ended: Option<Instant>,
}

/// Measures one relay, telling each second. `said` gathers what the relay says meanwhile, if it can be heard.
///
/// # Errors
/// [`TeamError`] if the team cannot measure. That the measurement failed is no error but a result.
pub fn measure(
    team: &mut Team,
    subject: &Subject,
    mut said: Option<&mut RelaySaid<'_>>,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<(TeamResult, RelayReport), TeamError> {
    let seconds = team.options().params.seconds;
    let mut told: Vec<Told> = Vec::new();
    let mut started: Option<Instant> = None;
    let mut cpu: (Option<CpuReading>, Option<CpuReading>) = (None, None);
    let name = &subject.nickname;
    let mut on_progress = |progress: Progress| {
        match progress {
        Progress::Preparing { round, allocated, sockets, circuits } => output.doing(format!(
            "{name}: round {round}: opening {circuits} circuits on {sockets} sockets for {:.0} Mbit/s",
            allocated.as_mbit_per_s()
        )),
        Progress::Started { round, .. } => {
            started = said.as_ref().map(|said| said.now());
            cpu = (said.as_ref().and_then(|said| said.cpu()), None);
            output.doing(format!("{name}: round {round}: started"));
        }
        Progress::Second { round, index, measured } => {
            let mbit_per_s = measured.as_mbit_per_s();
            let second = index + 1;
            output.doing(format!(
                "{name}: round {round}, second {second} of {seconds}: {mbit_per_s:.1} Mbit/s"
            ));
            output.record(|| {
                json!({
                    "type": "second", "nickname": name,
                    "fingerprint": subject.fingerprint.to_string(), "round": round,
                    "second": index, "measured_mbit_per_s": mbit_per_s,
                })
            });
            cpu.1 = said.as_ref().and_then(|said| said.cpu());
            let ended = started.map(|start| start + Duration::from_secs(u64::from(second)));
            told.push(Told { round, index, measured, ended });
        }
    }
    };
    let result = team.measure(&subject.request, &mut on_progress, interrupt.requested())?;
    if let (Some(said), Some(end)) = (&mut said, told.last().and_then(|told| told.ended)) {
        // Its word on the last second comes within the next one.
        said.gather_until(end + Duration::from_millis(1200));
    }
    let series: Vec<(SecondPoint, Option<Rate>)> = told
        .iter()
        .map(|told| {
            let relay_said =
                said.as_ref().zip(told.ended).and_then(|(s, end)| s.second_ending(end));
            let point = SecondPoint {
                round: told.round,
                second: told.index,
                measured_mbit_per_s: told.measured.as_mbit_per_s(),
                relay_said_mbit_per_s: relay_said.map(Rate::as_mbit_per_s),
            };
            (point, relay_said)
        })
        .collect();
    let relay_cpu_share = cpu.0.zip(cpu.1).and_then(|(before, after)| after.share_since(before));
    let report = report_of(subject, &result.outcome, &series, seconds);
    let report = doubt_if_starved(RelayReport { relay_cpu_share, ..report });
    Ok((result, report))
}

/// A relay on this machine that reached neither its limit nor the end of its processor was held back
/// by something else: then the estimate is but a lower bound.
fn doubt_if_starved(report: RelayReport) -> RelayReport {
    /// Stock tor passes some nine tenths of its limit; with less than this it does not come near.
    const LIMIT_REACHED: f64 = 0.75;
    const PROCESSOR_REACHED: f64 = 0.9;
    let (Some(estimate), Some(share)) = (report.estimate_mbit_per_s, report.relay_cpu_share) else {
        return report;
    };
    let is_at_limit = report.limit_mbit_per_s.is_some_and(|limit| estimate > LIMIT_REACHED * limit);
    if !report.conclusive || is_at_limit || share > PROCESSOR_REACHED {
        return report;
    }
    let reason = format!(
        "the relay's process got only {:.0} % of a core: this machine, not the relay, was the \
         bottleneck",
        share * 100.0
    );
    let bounds_mbit_per_s = report.bounds_mbit_per_s.map(|(lower, _)| (lower, None));
    RelayReport {
        conclusive: false,
        inconclusive_reason: Some(reason),
        bounds_mbit_per_s,
        ..report
    }
}

fn report_of(
    subject: &Subject,
    outcome: &Outcome,
    series: &[(SecondPoint, Option<Rate>)],
    seconds: u32,
) -> RelayReport {
    let base = RelayReport {
        nickname: subject.nickname.clone(),
        fingerprint: subject.fingerprint.to_string(),
        mode: match subject.request.approach {
            Approach::Transit => Mode::Transit,
            Approach::Echo(_) => Mode::Echo,
        },
        limit_mbit_per_s: subject.limit.map(Rate::as_mbit_per_s),
        seconds,
        series: series.iter().map(|(point, _)| *point).collect(),
        ..RelayReport::default()
    };
    match outcome {
        Outcome::Measured(estimate) => {
            let last = series.iter().filter(|(point, _)| point.round == estimate.rounds);
            let said = median(last.filter_map(|(_, said)| *said));
            RelayReport {
                relay_said_mbit_per_s: said.map(Rate::as_mbit_per_s),
                ..with_estimate(base, estimate)
            }
        }
        Outcome::Failed { round, .. } => {
            RelayReport { rounds: *round, error: Some(outcome.to_string()), ..base }
        }
    }
}

fn with_estimate(base: RelayReport, estimate: &Estimate) -> RelayReport {
    let mbit = |bytes: u64| Rate::from_byte_per_s(bytes).as_mbit_per_s();
    let bounds = estimate.bounds();
    let limit = estimate.params.conclusive_limit(estimate.allocated);
    RelayReport {
        estimate_mbit_per_s: Some(estimate.capacity.as_mbit_per_s()),
        conclusive: estimate.is_conclusive(),
        inconclusive_reason: estimate.inconclusive.map(|reason| reason.to_string()),
        conclusive_limit_mbit_per_s: Some(limit.as_mbit_per_s()),
        bounds_mbit_per_s: Some((
            bounds.lower.as_mbit_per_s(),
            bounds.upper.map(Rate::as_mbit_per_s),
        )),
        spread_mbit_per_s: Some(Spread {
            min: mbit(estimate.spread.min),
            lower_quartile: mbit(estimate.spread.lower_quartile),
            upper_quartile: mbit(estimate.spread.upper_quartile),
            max: mbit(estimate.spread.max),
        }),
        rounds: estimate.rounds,
        cells_checked: estimate.checked_cells,
        ..base
    }
}

/// A line about a measured relay.
#[must_use]
pub fn line(report: &RelayReport) -> String {
    let name = &report.nickname;
    match (report.estimate_mbit_per_s, &report.error) {
        (Some(estimate), _) => {
            let verdict = match &report.inconclusive_reason {
                Some(reason) => format!("inconclusive: {reason}"),
                None => "conclusive".to_owned(),
            };
            let rounds = if report.rounds == 1 { "round" } else { "rounds" };
            let cpu = report.relay_cpu_share.map_or_else(String::new, |share| {
                format!(" (its process at {:.0} % of a core)", share * 100.0)
            });
            format!("{name}: {estimate:.2} Mbit/s after {} {rounds}{cpu}, {verdict}", report.rounds)
        }
        (None, error) => format!("{name}: {}", error.as_deref().unwrap_or("no estimate")),
    }
}

/// The median of rates; the mean of the middle two if their number is even.
fn median(rates: impl IntoIterator<Item = Rate>) -> Option<Rate> {
    let mut bytes: Vec<u64> = rates.into_iter().map(Rate::as_byte_per_s).collect();
    bytes.sort_unstable();
    coordinator::median(&bytes).map(Rate::from_byte_per_s)
}
