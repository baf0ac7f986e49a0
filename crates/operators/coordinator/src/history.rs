//! Results of earlier periods, and their use in the current one (§4.2).

use crate::allocation::MeasurerId;
use crate::campaign::Priority;
use crate::failure::Failure;
use crate::measurer_path::PathSeen;
use crate::mode::Mode;
use crate::record::{End, Record, RoundRecord};
use crate::stats::Percentile;
use crate::turn::ROUNDS_ALLOWED;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use onion::identity::RsaId;
use onion::{Duration, Rate};
use serde::{Deserialize, Serialize};

/// The policy for the use of earlier results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPolicy {
    /// An estimate of this age or older is no longer used. The paper: a month.
    pub valid_for: Duration,
    /// The percentile of last month's capacities that a relay without an estimate gets. The paper: 75th.
    pub percentile: Percentile,
    /// The guess if there are no measurements yet. Not in the paper.
    pub default: Rate,
    /// The minimum guess. A smaller one costs a round for each doubling and saves no significant capacity, and zero
    /// cannot be doubled. Not in the paper.
    pub least: Rate,
    /// The time for which a relay that could not be measured again keeps its weight. A slot can be at the beginning of
    /// one period and at the end of the next, so this is more than two periods of up to a day. The limit prevents a relay
    /// from keeping an old estimate by declining every time. C tor, too, drops it after three days. Not in the paper.
    pub kept_for: Duration,
    /// Declines of a relay ([`Failure::is_decline`]) that are less than this apart count as one, since a path that is
    /// broken for an hour may cost several measurements. The first in a row since the last estimate has no effect, the
    /// second halves the estimate that is kept, and from the third on none is kept. Not in the paper.
    pub declines_apart: Duration,
    /// The number of measurements that a participating relay allows the coordinator in any 24 hours. Once a relay has
    /// accepted this number, "not now" is not a decline.
    pub rounds_allowed: u32,
}

impl Default for HistoryPolicy {
    fn default() -> Self {
        Self {
            valid_for: Duration::from_secs(30 * 24 * 3600),
            percentile: Percentile::P75,
            default: Rate::from_bit_per_s(50_000_000),
            least: Rate::from_bit_per_s(1_000_000),
            kept_for: Self::kept_over(Duration::from_secs(24 * 3600)),
            declines_apart: Duration::from_secs(6 * 3600),
            rounds_allowed: ROUNDS_ALLOWED,
        }
    }
}

impl HistoryPolicy {
    /// The longest period in which a randomised plan measures each relay before its estimate expires
    /// ([`Bounds::due_by`](crate::period::Bounds::due_by)). An estimate from the beginning of a period must be kept until
    /// the first quarter of the next one is over.
    pub const PERIOD_MAX: Duration = Duration::from_secs(48 * 3600);

    /// The default policy if each relay is measured once in a period of this length. [`kept_for`](Self::kept_for) is
    /// two periods and six hours, at most three days; [`declines_apart`](Self::declines_apart) is a quarter of a
    /// period.
    #[must_use]
    pub fn over(period: Duration) -> Self {
        let (kept_for, declines_apart) = (Self::kept_over(period), period / 4);
        Self { kept_for, declines_apart, ..Self::default() }
    }

    /// See [`over`](Self::over).
    #[must_use]
    pub fn kept_over(period: Duration) -> Duration {
        const GRACE: Duration = Duration::from_secs(6 * 3600);
        const FORGOTTEN: Duration = Duration::from_secs(3 * 24 * 3600);
        (period * 2 + GRACE).min(FORGOTTEN)
    }
}

/// An estimate of an earlier period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastEstimate {
    /// *z*, as measured, before any limits on weights.
    pub capacity: Rate,
    /// The time, in Unix seconds.
    pub measured_unix_s: u64,
    /// How the relay was loaded, if known.
    pub mode: Option<Mode>,
    /// Whether it was conclusive, if known.
    pub is_conclusive: Option<bool>,
    /// The number of sockets with which the next measurement should begin, if known: the number that this one needed,
    /// or half of it if this one had that number from its first round on. A relay that needs more sockets than its
    /// distance suggests thus takes a single round, or two every other time. If its path improves, the number falls
    /// again after some periods. Sockets reduce the rate of C tor.
    pub sockets: Option<u32>,
}

impl PastEstimate {
    /// The estimate that a record provides for later periods; `None` if it has none.
    #[must_use]
    pub fn of(record: &Record) -> Option<Self> {
        let End::Measured { capacity, inconclusive, .. } = record.end else { return None };
        Some(Self {
            capacity,
            measured_unix_s: record.ended_unix_s,
            mode: Some(record.mode),
            is_conclusive: Some(inconclusive.is_none()),
            sockets: next_sockets(&record.rounds),
        })
    }

    /// Its age; zero for one from the future.
    #[must_use]
    pub const fn age(&self, now_unix_s: u64) -> Duration {
        Duration::from_secs(now_unix_s.saturating_sub(self.measured_unix_s))
    }
}

/// See [`PastEstimate::sockets`]; `None` if no round tried half of its sockets first.
fn next_sockets(rounds: &[RoundRecord]) -> Option<u32> {
    let last = rounds.last().filter(|round| round.schedule.held_back_s.is_some())?;
    let (first, last) = (rounds.first()?.allocation.sockets(), last.allocation.sockets());
    Some(if last > first { last } else { last / 2 })
}

/// The source of a guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuessSource {
    /// The relay's own last estimate: an old relay.
    LastEstimate,
    /// The distribution of last month's capacities: a new relay, or one without a recent measurement.
    Distribution,
    /// The configured default: no relay was measured last month.
    Default,
}

/// *z₀* of the first round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guess {
    /// The expected capacity.
    pub capacity: Rate,
    /// Its source.
    pub source: GuessSource,
    /// The minimum number of sockets of the first round; 0 if unknown.
    pub sockets_min: u32,
    /// The relay's largest result of the last three days; zero without any.
    pub recent: Rate,
}

impl Guess {
    /// The queue position of a relay with this guess.
    #[must_use]
    pub const fn priority(&self) -> Priority {
        match self.source {
            GuessSource::LastEstimate => Priority::Known,
            GuessSource::Distribution | GuessSource::Default => Priority::New,
        }
    }
}

/// The last estimate of each relay, and the measurers' observations of their paths to it.
///
/// A period in which a relay could not be measured does not change the expectation. A relay is old until its last
/// estimate has reached the age [`valid_for`](HistoryPolicy::valid_for), however often it has failed since. Then it is
/// treated as new.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    last: BTreeMap<RsaId, PastEstimate>,
    /// The latest results of each relay by their times, in Unix seconds.
    recent: BTreeMap<RsaId, BTreeMap<u64, Rate>>,
    /// The last failure of each relay that shows something about it, in Unix seconds.
    refuted: BTreeMap<RsaId, u64>,
    /// The declines of each relay, in order.
    declines: BTreeMap<RsaId, BTreeSet<Decline>>,
    /// The times at which each relay accepted the coordinator's orders, in Unix seconds.
    orders: BTreeMap<RsaId, BTreeSet<u64>>,
    /// When a consensus listed each relay first, in Unix seconds.
    first_seen: BTreeMap<RsaId, u64>,
    /// With the time of each, in Unix seconds.
    paths: BTreeMap<RsaId, BTreeMap<MeasurerId, (PathSeen, u64)>>,
}

/// A measurement that a relay declined, or may have declined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decline {
    /// The time, in Unix seconds.
    pub at_unix_s: u64,
    /// The kind: an explicit decline, or possibly a broken path.
    pub kind: DeclineKind,
}

/// The kind of a decline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeclineKind {
    /// The relay answered "not now": it is busy, or the coordinator has used up its measurements.
    NotNow,
    /// Possibly a broken path ([`Failure::may_be_path`]).
    Path,
    /// The relay made a measurer look wrong, or reported that it has no room.
    Accusation,
}

impl Decline {
    /// The kind of a failure; `None` if it is not a decline.
    #[must_use]
    pub const fn from_failure(failure: &Failure, at_unix_s: u64) -> Option<Self> {
        let kind = match failure {
            _ if failure.is_not_now() => DeclineKind::NotNow,
            _ if failure.may_be_path() => DeclineKind::Path,
            _ if failure.is_decline() => DeclineKind::Accusation,
            _ => return None,
        };
        Some(Self { at_unix_s, kind })
    }
}

/// The window in which estimates and refusals of relays are compared. The limit of a relay applies to any 24 hours.
const QUOTA_WINDOW_S: u64 = 24 * 3600;

/// As long as an estimate is not replaced by a lower bound. The crate `store` has the same rule.
const MONTH_S: u64 = 30 * 24 * 3600;

/// If the paths to at least this number of relays break at one time, and to more relays than were measured then, the
/// cause is the team's network and not the relays.
const WIDESPREAD_MIN: usize = 5;

/// Results of this age or less are recent: a relay that falls a little each day is noticed.
const RECENT_S: u64 = 3 * 24 * 3600;

/// The number of recent results of a relay that are kept: more than a relay has in [`RECENT_S`].
const RECENT_MAX: usize = 16;

impl History {
    /// Adds a result, conclusive or not, with its time in Unix seconds, of which only [recent](Guess::recent) ones
    /// matter.
    pub fn add_recent(&mut self, relay: RsaId, measured_unix_s: u64, capacity: Rate) {
        let recent = self.recent.entry(relay).or_default();
        let known = recent.entry(measured_unix_s).or_insert(capacity);
        *known = capacity.max(*known);
        if recent.len() > RECENT_MAX {
            recent.pop_first();
        }
    }

    /// Adds an estimate. Of several estimates of a relay the newest counts, in whatever order they arrive. Of equally
    /// old ones, the first to arrive counts.
    pub fn add(&mut self, relay: RsaId, estimate: PastEstimate) {
        self.add_recent(relay, estimate.measured_unix_s, estimate.capacity);
        let last = self.last.entry(relay).or_insert(estimate);
        if last.measured_unix_s < estimate.measured_unix_s {
            *last = estimate;
        }
    }

    /// A consensus that was read at this time, in Unix seconds, lists the relay.
    pub fn see(&mut self, relay: RsaId, at_unix_s: u64) {
        let first = self.first_seen.entry(relay).or_insert(at_unix_s);
        *first = at_unix_s.min(*first);
    }

    /// When a consensus listed the relay first, in Unix seconds.
    #[must_use]
    pub fn first_seen(&self, relay: RsaId) -> Option<u64> {
        self.first_seen.get(&relay).copied()
    }

    /// Adds a failure that shows something about the relay ([`Failure::is_about_relay`]). Earlier estimates no longer
    /// count, in this period and later ones, until there is a new one.
    pub fn refute(&mut self, relay: RsaId, at_unix_s: u64) {
        let last = self.refuted.entry(relay).or_insert(at_unix_s);
        *last = at_unix_s.max(*last);
    }

    /// Adds all that a measurement, started at this time in Unix seconds, shows about its relay. A lower bound
    /// ([`Record::wants_another_turn`]) does not replace a greater estimate of the last month. Otherwise the measurement that is
    /// added last counts: one with a later date is from a wrong clock.
    pub fn add_record(&mut self, record: &Record, started_unix_s: u64) {
        let relay = record.relay.ids.rsa;
        if let Some(estimate) = PastEstimate::of(record) {
            self.add_recent(relay, estimate.measured_unix_s, estimate.capacity);
            let is_above = |last: &PastEstimate| {
                last.capacity > estimate.capacity
                    && last.measured_unix_s.saturating_add(MONTH_S) >= estimate.measured_unix_s
            };
            if !(record.wants_another_turn() && self.last(relay).is_some_and(is_above)) {
                self.last.insert(relay, estimate);
            }
        }
        if let Some(failure) = record.failure() {
            if failure.is_about_relay() {
                self.refute(relay, record.ended_unix_s);
            }
            if let Some(decline) = Decline::from_failure(failure, record.ended_unix_s) {
                self.decline(relay, decline);
            }
        }
        if record.mode == Mode::Echo && !record.failure().is_some_and(Failure::is_not_now) {
            self.order(relay, started_unix_s);
        }
    }

    /// Adds a decline of a relay. It counts until there is a newer estimate.
    pub fn decline(&mut self, relay: RsaId, decline: Decline) {
        self.declines.entry(relay).or_default().insert(decline);
    }

    /// Adds that a relay accepted an order of the coordinator. It counts against the relay's limit, whatever the
    /// result.
    pub fn order(&mut self, relay: RsaId, at_unix_s: u64) {
        self.orders.entry(relay).or_default().insert(at_unix_s);
    }

    /// Adds what a measurer of the team has observed of its path to a relay, and when. The newest observation counts. A
    /// measurer that takes no part in a period observes nothing, so its earlier observation remains until its age is
    /// [`valid_for`](HistoryPolicy::valid_for).
    pub fn add_path(
        &mut self,
        relay: RsaId,
        measurer: MeasurerId,
        path: PathSeen,
        seen_unix_s: u64,
    ) {
        let seen = (path, seen_unix_s);
        let last = self.paths.entry(relay).or_default().entry(measurer).or_insert(seen);
        if last.1 < seen_unix_s {
            *last = seen;
        }
    }

    /// A relay's last estimate, of any age.
    #[must_use]
    pub fn last(&self, relay: RsaId) -> Option<&PastEstimate> {
        self.last.get(&relay)
    }

    /// The expectations for relays at the given time.
    #[must_use]
    pub fn expectations(&self, policy: HistoryPolicy, now_unix_s: u64) -> Expectations<'_> {
        let valid =
            self.last.values().filter(|estimate| estimate.age(now_unix_s) < policy.valid_for);
        let mut month: Vec<Rate> = valid.map(|valid| valid.capacity).collect();
        month.sort_unstable();
        let typical = policy.percentile.of(&month);
        Expectations { history: self, policy, now_unix_s, typical }
    }

    /// The estimate that is still valid for a relay after a period with this record; without a record, the relay was
    /// not due. `None` if the record has an estimate of its own.
    ///
    /// The estimate must be recent, and nothing that happened since may show something about the relay. A relay that
    /// refuses to be measured, or fails under the load, has no estimate until it has a new one. After two declines in a
    /// row, half of the estimate is kept, after three none ([`HistoryPolicy::declines_apart`]). A lower bound that
    /// another turn is to replace, since the relay took the full load, does not reduce the earlier weight.
    #[must_use]
    pub fn kept(
        &self,
        policy: &HistoryPolicy,
        relay: RsaId,
        record: Option<&Record>,
        now_unix_s: u64,
    ) -> Option<PastEstimate> {
        match record.map(|record| (&record.end, record.ended_unix_s)) {
            Some((End::Measured { capacity, .. }, _))
                if record.is_some_and(Record::wants_another_turn) =>
            {
                self.kept_for(policy, relay, None, now_unix_s)
                    .filter(|estimate| estimate.capacity > *capacity)
            }
            Some((End::Measured { .. }, _)) => None,
            Some((End::Failed { reason, .. }, at_unix_s)) => {
                self.kept_for(policy, relay, Some((reason, at_unix_s)), now_unix_s)
            }
            None => self.kept_for(policy, relay, None, now_unix_s),
        }
    }

    /// `failure` is the outcome of its last measurement, and the time.
    fn kept_for(
        &self,
        policy: &HistoryPolicy,
        relay: RsaId,
        failure: Option<(&Failure, u64)>,
        now_unix_s: u64,
    ) -> Option<PastEstimate> {
        let holds = !failure.is_some_and(|(failure, _)| failure.is_about_relay());
        let is_young = |estimate: &&PastEstimate| estimate.age(now_unix_s) < policy.kept_for;
        let refuted = self.refuted.get(&relay).copied().filter(|at| *at <= now_unix_s);
        let is_refuted =
            |estimate: &&PastEstimate| refuted.is_some_and(|at| estimate.measured_unix_s < at);
        let last =
            self.last(relay).filter(is_young).filter(|estimate| holds && !is_refuted(estimate))?;
        let latest =
            failure.and_then(|(failure, at_unix_s)| Decline::from_failure(failure, at_unix_s));
        match self.declined(policy, relay, last.measured_unix_s, latest, now_unix_s) {
            0 | 1 => Some(*last),
            2 => Some(PastEstimate { capacity: last.capacity.scaled(0.5), ..*last }),
            _ => None,
        }
    }

    /// The number of declines since then, until now, with the latest time.
    fn declined(
        &self,
        policy: &HistoryPolicy,
        relay: RsaId,
        since_unix_s: u64,
        latest: Option<Decline>,
        now_unix_s: u64,
    ) -> u32 {
        let known = self.declines.get(&relay).into_iter().flatten().copied();
        let mut all: Vec<Decline> = known.chain(latest).collect();
        all.sort_unstable();
        let orders = self.orders.get(&relay);
        let accepted = |at: u64| {
            let window = at.saturating_sub(QUOTA_WINDOW_S)..at;
            orders.map_or(0, |orders| orders.range(window).count())
        };
        let (mut count, mut counted) = (0, None::<u64>);
        for Decline { at_unix_s: at, kind } in all {
            let is_new =
                counted.is_none_or(|before| at - before >= policy.declines_apart.as_secs());
            let is_excused = match kind {
                DeclineKind::NotNow => accepted(at) >= policy.rounds_allowed as usize,
                DeclineKind::Path => self.is_widespread(policy, at),
                DeclineKind::Accusation => false,
            };
            if at > since_unix_s && at <= now_unix_s && is_new && !is_excused {
                (count, counted) = (count + 1, Some(at));
            }
        }
        count
    }

    /// Whether, at this time, paths to more relays broke than were measured. The cause was then the team's own network.
    fn is_widespread(&self, policy: &HistoryPolicy, at_unix_s: u64) -> bool {
        let is_near = |unix_s: u64| unix_s.abs_diff(at_unix_s) < policy.declines_apart.as_secs();
        let is_path =
            |decline: &Decline| decline.kind == DeclineKind::Path && is_near(decline.at_unix_s);
        let broken = self.declines.values().filter(|all| all.iter().any(is_path)).count();
        broken >= WIDESPREAD_MIN
            && broken
                > self.last.values().filter(|estimate| is_near(estimate.measured_unix_s)).count()
    }
}

/// After this time, a measurer that was held back is assigned an equal share again, unless it takes part earlier and
/// shows the state of its path.
const LIMIT_VALID_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The expectations for relays at some time.
#[derive(Clone, Debug)]
pub struct Expectations<'h> {
    history: &'h History,
    policy: HistoryPolicy,
    now_unix_s: u64,
    /// The percentile of last month's capacities.
    typical: Option<Rate>,
}

impl Expectations<'_> {
    /// *z₀*: a relay's own last estimate if it is valid, otherwise the percentile of last month's relays (§4.2).
    #[must_use]
    pub fn first_guess(&self, relay: RsaId) -> Guess {
        let is_valid =
            |estimate: &&PastEstimate| estimate.age(self.now_unix_s) < self.policy.valid_for;
        let own = self.history.last(relay).filter(is_valid);
        let (capacity, source) = match (own, self.typical) {
            (Some(own), _) => (own.capacity, GuessSource::LastEstimate),
            (None, Some(typical)) => (typical, GuessSource::Distribution),
            (None, None) => (self.policy.default, GuessSource::Default),
        };
        let sockets_min = own.and_then(|estimate| estimate.sockets).unwrap_or(0);
        let days = self.now_unix_s.saturating_sub(RECENT_S)..=self.now_unix_s;
        let recent = self
            .history
            .recent
            .get(&relay)
            .and_then(|by_day| by_day.range(days).map(|(_, rate)| *rate).max());
        let recent = recent.unwrap_or(Rate::ZERO);
        Guess { capacity: capacity.max(self.policy.least), source, sockets_min, recent }
    }

    /// Recent observations that the measurers of a team, with this capacity each, have of their paths to a relay.
    ///
    /// The relay's own host can make it appear that a path held a measurer back. To prevent a relay from choosing its
    /// measurers, an observation counts for a week, and not at all if it would leave less than half of the team.
    #[must_use]
    pub fn paths(&self, relay: RsaId, team: &[Rate]) -> Vec<(MeasurerId, PathSeen)> {
        let age = |seen_unix_s| Duration::from_secs(self.now_unix_s.saturating_sub(seen_unix_s));
        let seen = |(measurer, (path, seen_unix_s)): (&MeasurerId, &(PathSeen, u64))| {
            let limit = path.limit.filter(|_| age(*seen_unix_s) < LIMIT_VALID_FOR);
            let is_valid = age(*seen_unix_s) < self.policy.valid_for;
            is_valid.then_some((*measurer, PathSeen { limit, ..*path }))
        };
        let paths = self.history.paths.get(&relay).into_iter().flatten();
        let mut paths: Vec<(MeasurerId, PathSeen)> = paths.filter_map(seen).collect();
        let limited = paths.iter().filter(|(_, path)| path.limit.is_some());
        let theirs: Rate = limited.filter_map(|(measurer, _)| team.get(measurer.0)).copied().sum();
        let all: Rate = team.iter().copied().sum();
        if theirs > all.saturating_sub(theirs) {
            paths.iter_mut().for_each(|(_, path)| path.limit = None);
        }
        paths
    }
}

#[cfg(test)]
mod tests;
