//! Measures one relay with a team, and prints and records the result.

use crate::arguments::TeamArguments;
use crate::error::Error;
use crate::interrupt::Interrupt;
use crate::output::Output;
use coordinator::{Facts, Params, ProcessorTime, Record, RelaySelfReport};
use link::unix_time_s;
use measurer::{Progress, Request, Team, TeamError, TeamOptions, TeamResult};
use netdoc::Fingerprint;
use onion::measure::load::Target;
use onion::{Duration, Instant, Rate};
use serde_json::json;

/// The parameters of a measurement.
#[must_use]
pub fn params(arguments: &TeamArguments) -> Params {
    Params {
        seconds: arguments.seconds,
        sockets: arguments.sockets,
        check_share: arguments.check_share,
        ..TeamOptions::default().params
    }
}

/// Rejects arguments that describe no team.
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
    // The arguments have the names of the fields that they set.
    params(arguments).validate().map_err(|error| {
        let (name, value) = (error.name.replace('_', "-"), error.value);
        Error::Usage(format!("--{name} {value}: must lie in {}", error.allowed))
    })
}

/// The team that the arguments describe.
///
/// # Errors
/// [`Error`] if they describe none, or its measurers are not available.
pub fn team(arguments: &TeamArguments, output: &Output) -> Result<Team, Error> {
    check(arguments)?;
    output.doing("making keys, and finding out what this machine can do");
    let team = Team::new(TeamOptions {
        measurers: arguments.measurers,
        capacity: arguments.capacity.map(Rate::from_mbit_per_s),
        address: arguments.own_address,
        params: params(arguments),
        always_authenticate: arguments.authenticate,
        ..TeamOptions::default()
    })?;
    let each = team.capacities().next().unwrap_or_default().as_mbit_per_s();
    output.step(match arguments.measurers {
        1 => format!("team: one measurer of {each:.0} Mbit/s"),
        count => format!("team: {count} measurers of {each:.0} Mbit/s each"),
    });
    Ok(team)
}

/// The measured relay, in the user's terms.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its nickname, or its fingerprint.
    pub nickname: String,
    /// Its RSA identity.
    pub fingerprint: Fingerprint,
    /// Its known limit.
    pub limit: Option<Rate>,
    /// How it is measured.
    pub request: Request,
}

impl Subject {
    /// The identities that links must prove.
    #[must_use]
    pub fn ids(fingerprint: Fingerprint, ed25519: Option<[u8; 32]>) -> onion::identity::RelayIds {
        onion::identity::RelayIds {
            rsa: onion::identity::RsaId(*fingerprint.as_bytes()),
            ed25519: ed25519.map(onion::identity::Ed25519Id),
        }
    }

    /// Its address and identities.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.request.target
    }
}

/// Processor time of a process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessorReading {
    /// When it was read, by the witness's clock.
    pub at: Instant,
    /// The processor time of the process so far.
    pub used: Duration,
}

/// A source of information on a relay other than the measurers, such as its control port.
pub trait RelayWitness {
    /// The time by the witness's clock.
    fn now(&self) -> Instant;

    /// The relay's processor time so far.
    fn processor(&self) -> Option<ProcessorReading>;

    /// Collects what arrives until `deadline`.
    fn gather_until(&mut self, deadline: Instant);

    /// The relay's forwarded traffic in the second that ends nearest to `end`, if that was reported.
    fn second_ending(&self, end: Instant) -> Option<Rate>;
}

/// Measures one relay, and prints each second. `said` collects the relay's own reports, if available.
///
/// # Errors
/// [`TeamError`] if the team cannot measure. A failed measurement is a result and no error.
pub fn measure(
    team: &mut Team,
    subject: &Subject,
    said: Option<&mut dyn RelayWitness>,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<(TeamResult, Record), TeamError> {
    let mut watch = Watch::new(subject, said, team.options().params.seconds, output);
    let mut on_progress = |progress| watch.handle_progress(progress);
    let result = team.measure(&subject.request, &mut on_progress, interrupt.requested())?;
    let record = Record::new(watch.facts(), result.course.clone(), &result.outcome);
    show_accounts(&record, output);
    Ok((result, record))
}

/// The kernels' accounts of the measurers' sockets, second by second: for programs only.
pub fn show_accounts(record: &Record, output: &Output) {
    for round in &record.rounds {
        for second in &round.seconds {
            for (assignment, account) in round.allocation.assignments.iter().zip(&second.accounts) {
                let Some(account) = account else { continue };
                output.record(|| {
                    json!({
                        "type": "account", "nickname": record.relay.nickname,
                        "fingerprint": record.relay.ids.rsa.to_string(), "round": round.number,
                        "second": second.second, "measurer": assignment.measurer.0,
                        "waited": account.waited(), "account": account,
                    })
                });
            }
        }
    }
}

/// Output and observations while a relay is measured.
struct Watch<'w, 'r> {
    subject: &'w Subject,
    said: Option<&'w mut (dyn RelayWitness + 'r)>,
    seconds: u32,
    output: &'w Output,
    /// The start of each round, in Unix seconds.
    starts: Vec<(u32, u64)>,
    /// The start of the last round, by the witness's clock.
    started: Option<Instant>,
    /// The relay's process at the start of the last round, and at its last second.
    processor: (Option<ProcessorReading>, Option<ProcessorReading>),
    /// Each reported second, and its end, by the witness's clock.
    told: Vec<(u32, u32, Instant)>,
}

impl<'w, 'r> Watch<'w, 'r> {
    fn new(
        subject: &'w Subject,
        said: Option<&'w mut (dyn RelayWitness + 'r)>,
        seconds: u32,
        output: &'w Output,
    ) -> Self {
        Self {
            subject,
            said,
            seconds,
            output,
            starts: Vec::new(),
            started: None,
            processor: (None, None),
            told: Vec::new(),
        }
    }

    fn handle_progress(&mut self, progress: Progress) {
        let (name, output) = (&self.subject.nickname, self.output);
        let said = self.said.as_ref();
        match progress {
            Progress::Preparing { round, allocated, sockets, circuits } => output.doing(format!(
                "{name}: round {round}: opening {circuits} circuits on {sockets} sockets for {:.0} Mbit/s",
                allocated.as_mbit_per_s()
            )),
            Progress::Started { round, unix_time_s } => {
                self.starts.push((round, unix_time_s));
                self.started = said.map(|said| said.now());
                self.processor = (said.and_then(|said| said.processor()), None);
                output.doing(format!("{name}: round {round}: started"));
            }
            Progress::Second { round, index, measured } => {
                let mbit_per_s = measured.as_mbit_per_s();
                let (second, of) = (index + 1, self.seconds);
                output.doing(format!(
                    "{name}: round {round}, second {second} of {of}: {mbit_per_s:.1} Mbit/s"
                ));
                output.record(|| {
                    json!({
                        "type": "second", "nickname": name,
                        "fingerprint": self.subject.fingerprint.to_string(), "round": round,
                        "second": index, "measured_mbit_per_s": mbit_per_s,
                    })
                });
                self.processor.1 = said.and_then(|said| said.processor());
                let ended = self.started.map(|it| it + Duration::from_secs(u64::from(second)));
                self.told.extend(ended.map(|ended| (round, index, ended)));
            }
        }
    }

    /// The observations, after the measurement.
    fn facts(mut self) -> Facts {
        let ended_unix_s = unix_time_s();
        if let (Some(said), Some((_, _, end))) = (&mut self.said, self.told.last()) {
            // Its report on the last second arrives within the next one.
            said.gather_until(*end + Duration::from_millis(1200));
        }
        let said = self.said.as_ref();
        let heard = |&(round, second, end): &(u32, u32, Instant)| {
            let rate = said.and_then(|said| said.second_ending(end))?;
            Some(RelaySelfReport { round, second, rate })
        };
        let processor = self.processor.0.zip(self.processor.1).and_then(|(before, after)| {
            ProcessorTime::within(after.used.saturating_sub(before.used), after.at - before.at)
        });
        let Target { address, ids } = *self.subject.target();
        let Subject { nickname, limit, .. } = self.subject;
        let nickname = nickname.clone();
        Facts {
            relay: coordinator::Subject { nickname, ids, address, limit: *limit },
            ended_unix_s,
            processor,
            hearsay: self.told.iter().filter_map(heard).collect(),
            starts: self.starts,
        }
    }
}
