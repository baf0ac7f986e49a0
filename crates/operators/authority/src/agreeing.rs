//! The agreement on each period's seed with the coordinators of other authorities.

use super::Common;
use super::agreed::Seeds;
use super::config::{Authorities, Authority, Config, ConfiguredMeasurer};
use super::lines::{Left, Line};
use cli::Error;
use control::PeerState;
use control::keys::PublicKey;
use coordinator::agreement::{Agreement, AuthorityKey, Group, Outcome, Part, Times, Timetable};
use coordinator::plan::TeamRoom;
use link::{ClockWatch, unix_time_s};
use onion::{Duration, Rate};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum delay until the end of the process is noticed.
const LATENCY: Duration = Duration::from_millis(200);

/// The maximum number of statements of one message: two commitments and two reveals of each authority.
const STATEMENTS_MAX: usize = 4 * Group::MAX;

/// Our part in the agreements, period after period.
pub(super) struct Party<'env> {
    common: Common<'env>,
    others: &'env [Authority],
    seeds: &'env Seeds,
    authorities: control::Authorities,
    group: Group,
    capacity: Rate,
}

/// The authorities of the configuration.
pub(super) fn group(config: &Config, authorities: &Authorities) -> Result<Group, Error> {
    let keys = authorities.others.iter().map(|other| other.key).chain([config.secret.public()]);
    let times = Times {
        period_s: config.period.as_secs(),
        slot_s: config.slot_s,
        round_s: authorities.round_s,
        is_papers: config.schedule == super::Schedule::Paper,
    };
    Group::new(keys.map(|key| AuthorityKey(key.0)), times)
        .map_err(|error| Error::Failed(error.to_string()))
}

impl<'env> Party<'env> {
    /// Listens for the others.
    pub(super) fn start(
        common: Common<'env>,
        authorities: &'env Authorities,
        seeds: &'env Seeds,
    ) -> Result<Self, Error> {
        let config = common.config;
        let group = group(config, authorities)?;
        let capacity =
            config.measurers.iter().map(ConfiguredMeasurer::bound).sum::<Result<Rate, Error>>()?;
        let Authorities { listen, others, .. } = authorities;
        let routes: Vec<_> = others.iter().map(|other| (other.address, other.key)).collect();
        let authorities = control::Authorities::start(*listen, &config.secret, &routes)?;
        tracing::info!(
            "agreeing on seeds with {} other authorities; listening for them on {}",
            others.len(),
            authorities.address()
        );
        Ok(Self { common, others, seeds, authorities, group, capacity })
    }

    /// Runs the agreement before each period, until the end.
    pub(super) fn run(&self, is_over: &AtomicBool) {
        // Others log a jump.
        let clock = ClockWatch::start();
        let mut table = self.next(unix_time_s());
        loop {
            let now = unix_time_s();
            if clock.poll().is_some() {
                table = self.next(now);
            }
            match table.step(now) {
                // A coordinator that missed the earlier statements must not take part.
                Some(step) if step > 0 => {
                    if now < table.begin_unix_s() {
                        tracing::warn!(
                            "started too late to agree on the seed of the period that begins at Unix time {}; using our own",
                            table.begin_unix_s()
                        );
                    }
                    table = self.next(now.max(table.begin_unix_s()));
                }
                Some(_) => {
                    let has_jumped = self.agree(table, &clock, is_over);
                    table =
                        self.next(if has_jumped { unix_time_s() } else { table.begin_unix_s() });
                }
                None => {
                    self.common.interrupt.wait(LATENCY);
                }
            }
            if self.is_over(is_over) {
                return;
            }
        }
    }

    fn is_over(&self, is_over: &AtomicBool) -> bool {
        is_over.load(Ordering::Relaxed) || self.common.interrupt.is_requested()
    }

    /// The length of all periods.
    fn period_s(&self) -> u64 {
        self.common.config.period.as_secs().max(1)
    }

    /// The start of the agreement for the first period after this time that has none.
    fn next(&self, unix_s: u64) -> Timetable {
        let (config, period_s) = (self.common.config, self.period_s());
        let mut begin_unix_s = unix_s - unix_s % period_s + period_s;
        // After the clock was set back, some have one.
        while self.seeds.agreed(begin_unix_s, period_s).is_some() {
            begin_unix_s += period_s;
        }
        let round_s = config.authorities.as_ref().map_or(1, |authorities| authorities.round_s);
        Timetable::new(begin_unix_s, round_s, self.group.rounds())
    }

    /// Agrees on a seed, unless the process ends meanwhile or the clock is set. Returns whether it was.
    fn agree(&self, table: Timetable, clock: &ClockWatch, is_over: &AtomicBool) -> bool {
        let begin_unix_s = table.begin_unix_s();
        // The measurers' reports before the current period.
        let at_once_max = self.common.team.at_once_max(self.common.config.at_once_max);
        let room = TeamRoom { capacity: self.capacity, at_once_max };
        let offer = match self.seeds.offer(begin_unix_s, self.period_s(), room) {
            Ok(offer) => offer,
            Err(error) => {
                // A different contribution after a restart would be a lie.
                super::log_error(&error, self.common.output);
                tracing::warn!(
                    "no part in the agreement on the seed of the period that begins at Unix time {begin_unix_s}"
                );
                return false;
            }
        };
        let key_seed = self.common.config.secret.seed();
        let mut agreement = Agreement::new(self.group.clone(), &key_seed, begin_unix_s, offer);
        let mut committed = BTreeSet::from([agreement.own()]);
        let mut problems: BTreeMap<AuthorityKey, String> = BTreeMap::new();
        let mut sent = Vec::new();
        let (mut is_broken_off, mut has_jumped) = (false, false);
        while !agreement.handle_step(table.step(unix_time_s()).unwrap_or(0)) {
            let statements = agreement.statements();
            if statements != sent {
                sent.clone_from(&statements);
                self.authorities.send(statements);
            }
            for (PublicKey(from), state) in self.authorities.receive(LATENCY) {
                let from = AuthorityKey(from);
                match handle_state(&mut agreement, from, state) {
                    Ok(()) => drop(problems.remove(&from)),
                    Err(problem) => drop(problems.insert(from, problem)),
                }
            }
            for key in agreement.committed().filter(|key| committed.insert(*key)) {
                tracing::info!("{} has committed to its contribution", self.name(key));
            }
            has_jumped = clock.poll().is_some();
            is_broken_off = self.is_over(is_over) || has_jumped;
            if is_broken_off {
                break;
            }
        }
        self.authorities.send(Vec::new());
        if !is_broken_off {
            self.conclude(begin_unix_s, agreement.outcome(), &problems);
        }
        has_jumped
    }

    fn conclude(
        &self,
        begin_unix_s: u64,
        outcome: Outcome,
        problems: &BTreeMap<AuthorityKey, String>,
    ) {
        let Outcome { agreed, parts, unconfirmed } = outcome;
        let mut without: Vec<Left> = Vec::new();
        for (key, part) in parts.iter().filter(|(_, part)| **part != Part::Took) {
            let name = self.name(*key);
            let problem =
                problems.get(key).map(|problem| format!(" ({problem})")).unwrap_or_default();
            tracing::warn!("without {name}, which {part}{problem}");
            without.push(Left { key: key.to_string(), name, why: format!("{part}{problem}") });
        }
        for key in &unconfirmed {
            tracing::warn!(
                "{} may not have received our statements, and may use another seed",
                self.name(*key)
            );
        }
        let members = agreed
            .as_ref()
            .map(|agreed| agreed.teams.iter().map(|(key, _)| *key).collect::<Vec<_>>());
        let mark = agreed.as_ref().map(|agreed| hex::encode(agreed.seed.mark()));
        match (&members, &mark) {
            (Some(members), Some(mark)) => tracing::info!(
                "{} authorities have one seed for the period that begins at Unix time {begin_unix_s}; its mark is {mark}",
                members.len(),
            ),
            _ => tracing::warn!(
                "no common seed for the period that begins at Unix time {begin_unix_s}; using our own"
            ),
        }
        if let Some(agreed) = agreed
            && let Err(error) = self.seeds.keep(begin_unix_s, self.period_s(), agreed)
        {
            // It is known until the process ends.
            super::log_error(&error, self.common.output);
        }
        self.common.output.record(|| {
            let keys =
                |keys: &[AuthorityKey]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
            Line::Agreement {
                period_unix_s: begin_unix_s,
                agreed: members.is_some(),
                members: keys(members.as_deref().unwrap_or_default()),
                without,
                unconfirmed: keys(&unconfirmed),
                mark,
            }
        });
    }

    fn name(&self, key: AuthorityKey) -> String {
        match self.others.iter().find(|other| other.key.0 == key.0) {
            Some(Authority { name: Some(name), .. }) => name.clone(),
            Some(Authority { address, .. }) => format!("the authority at {address}"),
            None => "our own coordinator".to_owned(),
        }
    }
}

/// Handles the news of another authority. The error is the reason why a statement was rejected, or why there are none;
/// it matters only if the authority is excluded in the end.
fn handle_state(
    agreement: &mut Agreement,
    from: AuthorityKey,
    state: PeerState,
) -> Result<(), String> {
    let statements = match state {
        PeerState::Statements(statements) => statements,
        PeerState::Unreachable(problem) => return Err(problem),
    };
    let mut result = Ok(());
    for statement in statements.iter().take(STATEMENTS_MAX) {
        result = result.and(agreement.handle_statement(from, statement));
    }
    result.map_err(|error| error.to_string())
}
