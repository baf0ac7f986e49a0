//! The team of a command, and the display of a measurement.

use crate::arguments::TeamArguments;
use crate::error::Error;
use crate::output::Output;
use coordinator::{Account, Observations, Params, ProcessorTime, Record, RelaySelfReport, Waited};
use measurer::{LocalTeam, TeamOptions};
use onion::{Duration, Instant, Rate};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Value, json};

/// What is printed with `--json` while a relay is measured.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line<'a> {
    /// A second is complete.
    Second {
        /// The relay's nickname, or its fingerprint.
        nickname: &'a str,
        /// The relay's RSA fingerprint in hex.
        fingerprint: &'a str,
        /// The round, counted from 1.
        round: u32,
        /// The second, counted from 0.
        second: u32,
        /// The cells that returned in it, over all measurers, with 514 bytes each.
        measured_mbit_per_s: f64,
    },
    /// What limited a measurer's sockets in a second; printed after the seconds of a measurement.
    Account {
        /// The relay's nickname, or its fingerprint.
        nickname: &'a str,
        /// The relay's RSA fingerprint in hex.
        fingerprint: String,
        /// The round, counted from 1.
        round: u32,
        /// The second, counted from 0.
        second: u32,
        /// The measurer's number in the team, from 0.
        measurer: usize,
        /// Where most of its cells were queued.
        waited: Waited,
        /// The statistics of its kernel.
        #[schemars(schema_with = "account_schema")]
        account: &'a Account,
    },
}

/// The schema of an [`Account`]: numbers, some of which may be missing.
fn account_schema(_: &mut SchemaGenerator) -> Schema {
    let example = json!(Account::default());
    let field = |value: &Value| match value {
        Value::Null => json!({"type": ["integer", "null"], "minimum": 0}),
        _ => json!({"type": "integer", "minimum": 0}),
    };
    let fields = example.as_object().into_iter().flatten();
    let properties: Value =
        fields.clone().map(|(name, value)| (name.clone(), field(value))).collect();
    let required: Vec<&String> = fields.map(|(name, _)| name).collect();
    json_schema!({
        "type": "object", "properties": properties, "required": required,
        "description": "Statistics of the measurer's kernel on its sockets to the relay in the second (TCP_INFO)",
    })
}

/// The parameters of a measurement.
#[must_use]
pub fn params(arguments: &TeamArguments) -> Params {
    Params {
        seconds: arguments.seconds,
        sockets: arguments.sockets,
        check_share: arguments.check_share,
        may_have_clients: !arguments.no_clients,
        ..Params::default()
    }
}

/// Rejects invalid arguments of a team.
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

fn options(arguments: &TeamArguments) -> TeamOptions {
    TeamOptions {
        measurers: arguments.measurers,
        capacity: arguments.capacity.map(Rate::from_mbit_per_s),
        address: arguments.own_address,
        landing_ports: arguments.landing_ports.clone(),
        pumps: None,
    }
}

/// The team that the arguments describe.
///
/// # Errors
/// [`Error`] if the arguments are invalid, or measurers are not available.
pub fn local_team(arguments: &TeamArguments, output: &Output) -> Result<LocalTeam, Error> {
    check(arguments)?;
    output.doing("making keys, and measuring the capacity of this machine");
    let team = LocalTeam::new(&options(arguments))?;
    show_team(arguments.measurers, team.capacity(), output);
    Ok(team)
}

fn show_team(measurers: u32, each: Rate, output: &Output) {
    let each = each.as_mbit_per_s();
    output.step(match measurers {
        1 => format!("team: one measurer of {each:.0} Mbit/s"),
        count => format!("team: {count} measurers of {each:.0} Mbit/s each"),
    });
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

/// Shows the progress of the measurement of the relay with this nickname and identity.
pub fn show_progress(name: &str, id: &str, progress: coordinator::Progress, output: &Output) {
    match progress {
        coordinator::Progress::Preparing { round, allocated, sockets } => {
            let mbit_per_s = allocated.as_mbit_per_s();
            output.doing(format!(
                "{name}: round {round}: opening {sockets} sockets for {mbit_per_s:.0} Mbit/s"
            ));
        }
        coordinator::Progress::Started { round } => {
            output.doing(format!("{name}: round {round}: started"));
        }
        coordinator::Progress::Second { round, index, of, measured } => {
            let mbit_per_s = measured.as_mbit_per_s();
            let second = index + 1;
            output.progress(format!(
                "{name}: round {round}, second {second} of {of}: {mbit_per_s:.1} Mbit/s"
            ));
            output.record(|| Line::Second {
                nickname: name,
                fingerprint: id,
                round,
                second: index,
                measured_mbit_per_s: mbit_per_s,
            });
        }
    }
}

/// Prints the kernels' statistics of the measurers' sockets in each second, as JSON only.
pub fn show_accounts(record: &Record, output: &Output) {
    for round in &record.rounds {
        for second in &round.seconds {
            for (assignment, account) in round.allocation.assignments.iter().zip(&second.accounts) {
                let Some(account) = account else { continue };
                output.record(|| Line::Account {
                    nickname: &record.relay.nickname,
                    fingerprint: record.relay.ids.rsa.to_string(),
                    round: round.number,
                    second: second.second,
                    measurer: assignment.measurer.0,
                    waited: account.waited(),
                    account,
                });
            }
        }
    }
}

/// A witness of the measurements of one relay.
pub struct Watch<W> {
    witness: W,
    limit: Option<Rate>,
    /// The start of the last round, by the witness's clock.
    started: Option<Instant>,
    /// The relay's process at the start of the last round, and at its last second.
    processor: (Option<ProcessorReading>, Option<ProcessorReading>),
    /// The end of each reported second, by the witness's clock.
    seconds: Vec<(u32, u32, Instant)>,
}

impl<W: RelayWitness> Watch<W> {
    /// A witness of a relay with this known limit.
    pub const fn new(witness: W, limit: Option<Rate>) -> Self {
        Self { witness, limit, started: None, processor: (None, None), seconds: Vec::new() }
    }

    /// Follows a measurement.
    pub fn handle_progress(&mut self, progress: coordinator::Progress) {
        match progress {
            coordinator::Progress::Preparing { .. } => {}
            coordinator::Progress::Started { .. } => {
                self.started = Some(self.witness.now());
                self.processor = (self.witness.processor(), None);
            }
            coordinator::Progress::Second { round, index, .. } => {
                self.processor.1 = self.witness.processor();
                let ended =
                    self.started.map(|started| started + Duration::from_secs(u64::from(index) + 1));
                self.seconds.extend(ended.map(|ended| (round, index, ended)));
            }
        }
    }

    /// Collects the relay's report on the last second. Call it at the end of a measurement.
    pub fn handle_end(&mut self) {
        if let Some((_, _, end)) = self.seconds.last() {
            // That report arrives within the next second.
            self.witness.gather_until(*end + Duration::from_millis(1200));
        }
    }

    /// The observations of the witness after the last measurement.
    pub fn observations(&self) -> Observations {
        let heard = |&(round, second, end): &(u32, u32, Instant)| {
            let rate = self.witness.second_ending(end)?;
            Some(RelaySelfReport { round, second, rate })
        };
        let processor = self.processor.0.zip(self.processor.1).and_then(|(before, after)| {
            ProcessorTime::within(after.used.saturating_sub(before.used), after.at - before.at)
        });
        let hearsay = self.seconds.iter().filter_map(heard).collect();
        Observations { limit: self.limit, processor, hearsay }
    }
}
