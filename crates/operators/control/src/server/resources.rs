//! The sessions, and the capacity that their rounds use.

use super::MakeMember;
use super::status::{MeasurerStatus, MeasurerTotals};
use crate::keys::PublicKey;
use crate::refusal::{Refusal, RefusalCode};
use coordinator::period::SETUP_AHEAD_S;
use coordinator::policy::{Zone, ZoneRate};
use link::Clock;
use measurer::Member;
use measurer::member::MemberError;
use onion::{Instant, Rate};
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The maximum number of concurrent rounds, each of which has its own threads. It limits the number of relays that a
/// team measures at once.
pub const ROUNDS_MAX: u32 = 64;

/// The time to end a round: closing sockets and joining threads.
const ROUND_END_TIMEOUT: Duration = Duration::from_secs(10);

/// The share of a round can be promised to another one in this time before its load ends: the coordinator's, and a little for clocks that
/// differ.
const PROMISED_AHEAD: Duration = Duration::from_millis(SETUP_AHEAD_S as u64 * 1000 + 200);

/// A load begins at most this much later than it was ordered to.
const LATE_MAX: Duration = Duration::from_millis(200);

/// The capacity of a measurer, and its allocation to sessions and rounds.
pub(super) struct Resources {
    capacity: Rate,
    /// The number of sockets to relays for which there are file descriptors.
    sockets_max: u32,
    make: MakeMember,
    clock: Clock,
    state: Mutex<State>,
    /// A round has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    sessions: BTreeSet<PublicKey>,
    rounds: Vec<Entry>,
    /// Members without a round.
    idle: Vec<Box<dyn Member>>,
    /// Identifies entries.
    next: u64,
    totals: MeasurerTotals,
}

struct Entry {
    number: u64,
    coordinator: PublicKey,
    rate: Rate,
    sockets: u32,
    /// The zones of the measurement policy that it loads.
    zones: Vec<Zone>,
    /// It was ordered to stop, and will soon return its share.
    is_ending: bool,
    /// When its load ends, once it was ordered to start.
    load_ends: Option<Instant>,
}

impl Entry {
    /// Whether its share can be promised to another round of a coordinator: one whose load begins later. Only its own coordinator knows
    /// when that is.
    fn is_promised(&self, now: Instant, coordinator: PublicKey) -> bool {
        self.is_ending || self.load_rest(now, coordinator).is_some()
    }

    /// How long its load still lasts, if it is in its last seconds and was ordered by this coordinator.
    fn load_rest(&self, now: Instant, coordinator: PublicKey) -> Option<Duration> {
        let rest = self.load_ends?.saturating_since(now);
        let ends_soon =
            !self.is_ending && self.coordinator == coordinator && rest <= PROMISED_AHEAD;
        ends_soon.then_some(rest)
    }
}

/// A coordinator's only session; dropping it makes room for the next.
pub(super) struct SessionPermit {
    resources: Arc<Resources>,
    coordinator: PublicKey,
}

/// A round's share of the capacity; dropping it returns the share.
pub(super) struct Reservation {
    resources: Arc<Resources>,
    number: u64,
}

/// Dropping it marks the round as stopping: its share may be promised to another round, which then waits for it.
pub(super) struct RunningMark {
    resources: Arc<Resources>,
    number: u64,
}

impl Resources {
    pub(super) fn new(capacity: Rate, sockets_max: u32, make: MakeMember) -> Self {
        Self {
            capacity,
            sockets_max,
            make,
            clock: Clock::start(),
            state: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// The maximum number of sockets of all rounds together.
    pub(super) const fn sockets_max(&self) -> u32 {
        self.sockets_max
    }

    /// The maximum rate of all rounds together.
    pub(super) const fn capacity(&self) -> Rate {
        self.capacity
    }

    /// Adds to the sums since the start.
    pub(super) fn count(&self, add: impl FnOnce(&mut MeasurerTotals)) {
        add(&mut self.lock().totals);
    }

    /// The status, without the opt-in list.
    pub(super) fn status(&self) -> MeasurerStatus {
        let state = self.lock();
        MeasurerStatus {
            capacity: self.capacity,
            reserved: state.rounds.iter().map(|entry| entry.rate).sum(),
            sessions: state.sessions.len(),
            rounds: state.rounds.len(),
            sockets: state.rounds.iter().fold(0, |sum, entry| sum.saturating_add(entry.sockets)),
            sockets_max: self.sockets_max,
            opted_in: 0,
            totals: state.totals.clone(),
        }
    }

    /// Begins a coordinator's session, unless it has one.
    pub(super) fn open_session(self: &Arc<Self>, coordinator: PublicKey) -> Option<SessionPermit> {
        let is_first = self.lock().sessions.insert(coordinator);
        is_first.then(|| SessionPermit { resources: Arc::clone(self), coordinator })
    }

    /// Reserves capacity and sockets for a round. What ending rounds still use counts as free, and so does the rate of a load of the same
    /// coordinator in its last seconds. A round that is alone may try to open more sockets than there is room for. `limits` are those
    /// of the measurement policy, over the rounds of all coordinators: there, a load counts until it has ended.
    pub(super) fn reserve(
        self: &Arc<Self>,
        coordinator: PublicKey,
        rate: Rate,
        sockets: u32,
        limits: &[ZoneRate],
    ) -> Result<(Reservation, RunningMark), Refusal> {
        self.reserve_at(self.clock.now(), coordinator, rate, sockets, limits)
    }

    fn reserve_at(
        self: &Arc<Self>,
        now: Instant,
        coordinator: PublicKey,
        rate: Rate,
        sockets: u32,
        limits: &[ZoneRate],
    ) -> Result<(Reservation, RunningMark), Refusal> {
        let mut state = self.lock();
        for limit in limits {
            let in_zone = |entry: &&Entry| !entry.is_ending && entry.zones.contains(&limit.zone);
            let used: Rate = state.rounds.iter().filter(in_zone).map(|entry| entry.rate).sum();
            if used + rate > limit.rate {
                let reason = format!(
                    "{rate} are above the measurement policy: this measurer's share for {} is {} now, and {used} are in use; the coordinator's \
                     policy may be another one",
                    limit.zone, limit.rate
                );
                return Err(Refusal::new(RefusalCode::NoConsent, reason));
            }
        }
        let staying = || state.rounds.iter().filter(|entry| !entry.is_promised(now, coordinator));
        let used: Rate = staying().map(|entry| entry.rate).sum();
        if rate > self.capacity.saturating_sub(used) {
            let others = staying().filter(|entry| entry.coordinator != coordinator).count();
            let reason = format!(
                "busy: {used} of {} are in use by {} rounds, {others} of them of other \
                 coordinators; {rate} are too much",
                self.capacity,
                staying().count(),
            );
            return Err(Refusal::new(RefusalCode::Busy, reason));
        }
        if state.rounds.len() >= ROUNDS_MAX as usize {
            let reason = format!("busy: {ROUNDS_MAX} rounds are running, which is the maximum");
            return Err(Refusal::new(RefusalCode::Busy, reason));
        }
        // A load in its last seconds still has its sockets.
        let with_sockets = state.rounds.iter().filter(|entry| !entry.is_ending);
        let open = with_sockets.fold(0u32, |sum, entry| sum.saturating_add(entry.sockets));
        if open > 0 && sockets > self.sockets_max.saturating_sub(open) {
            let reason = format!(
                "busy: {open} sockets are in use, and {sockets} more are more than the {} for which there are file descriptors \
                 (LimitNOFILE, `ulimit -n`)",
                self.sockets_max
            );
            return Err(Refusal::new(RefusalCode::Busy, reason));
        }
        let number = state.next;
        state.next += 1;
        let (is_ending, load_ends) = (false, None);
        let zones = limits.iter().map(|limit| limit.zone).collect();
        state.rounds.push(Entry {
            number,
            coordinator,
            rate,
            sockets,
            zones,
            is_ending,
            load_ends,
        });
        let resources = || Arc::clone(self);
        Ok((
            Reservation { resources: resources(), number },
            RunningMark { resources: resources(), number },
        ))
    }

    /// Waits for the end of all rounds, until the timeout.
    pub(super) fn wait_until_idle(&self, longest: Duration) {
        let wait =
            self.ended.wait_timeout_while(self.lock(), longest, |state| !state.rounds.is_empty());
        let (mut state, _) = wait.unwrap_or_else(PoisonError::into_inner);
        state.idle.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No code that holds the lock can panic halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Waits until the rounds whose share it was promised have ended.
    pub(super) fn wait_for_room(&self) -> Result<(), MemberError> {
        let is_pending = |entry: &Entry| entry.is_ending && entry.number < self.number;
        let state = self.resources.lock();
        let wait = self.resources.ended.wait_timeout_while(state, ROUND_END_TIMEOUT, |state| {
            state.rounds.iter().any(is_pending)
        });
        let (_state, timed_out) = wait.unwrap_or_else(PoisonError::into_inner);
        if timed_out.timed_out() {
            return Err(MemberError("an earlier round does not end".to_owned()));
        }
        Ok(())
    }

    /// A member for the round: an idle one, or a new one, which may take a while to create.
    pub(super) fn member(&self) -> Result<Box<dyn Member>, MemberError> {
        let idle = self.resources.lock().idle.pop();
        idle.map_or_else(|| (self.resources.make)(), Ok)
    }

    /// Ends the round, with a reusable member.
    pub(super) fn give_back(self, member: Box<dyn Member>) {
        self.resources.lock().idle.push(member);
    }
}

impl RunningMark {
    /// The round was ordered to begin its load after this delay, for this time. Returns the delay until there is room for the load.
    ///
    /// # Errors
    /// [`RefusalCode::Busy`] if the loads from which its share was promised last longer: the other measurers would not wait.
    pub(super) fn start(&self, delay: Duration, length: Duration) -> Result<Duration, Refusal> {
        self.start_at(self.resources.clock.now(), delay, length)
    }

    fn start_at(
        &self,
        now: Instant,
        delay: Duration,
        length: Duration,
    ) -> Result<Duration, Refusal> {
        let mut state = self.resources.lock();
        let is_own = |entry: &&Entry| entry.number == self.number;
        let Some((own, coordinator)) =
            state.rounds.iter().find(is_own).map(|entry| (entry.rate, entry.coordinator))
        else {
            return Ok(delay);
        };
        let earlier = state.rounds.iter().filter(|entry| entry.number < self.number);
        let rests =
            earlier.filter_map(|entry| Some((entry.rate, entry.load_rest(now, coordinator)?)));
        let rests: Vec<(Rate, Duration)> = rests.collect();
        let staying = state.rounds.iter().filter(|entry| !entry.is_promised(now, coordinator));
        let others: Rate = staying.filter(|entry| !is_own(entry)).map(|entry| entry.rate).sum();
        let used: Rate = rests.iter().map(|(rate, _)| *rate).sum();
        let is_too_much = used + others + own > self.resources.capacity;
        let rest = rests.iter().map(|(_, rest)| *rest).max().filter(|_| is_too_much);
        let room = rest.unwrap_or_default();
        if room > delay + LATE_MAX {
            let reason = format!("busy: an earlier load lasts for {} ms more", room.as_millis());
            return Err(Refusal::new(RefusalCode::Busy, reason));
        }
        let delay = delay.max(room);
        if let Some(entry) = state.rounds.iter_mut().find(|entry| entry.number == self.number) {
            entry.load_ends = Some(now + delay + length);
        }
        Ok(delay)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.resources.lock().rounds.retain(|entry| entry.number != self.number);
        self.resources.ended.notify_all();
    }
}

impl Drop for RunningMark {
    fn drop(&mut self) {
        let mut state = self.resources.lock();
        if let Some(entry) = state.rounds.iter_mut().find(|entry| entry.number == self.number) {
            entry.is_ending = true;
        }
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.resources.lock().sessions.remove(&self.coordinator);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const SOCKETS_MAX: u32 = 100;

    fn resources(capacity: u64) -> Arc<Resources> {
        let make: MakeMember = Box::new(|| Err(MemberError("none".to_owned())));
        Arc::new(Resources::new(Rate::from_bit_per_s(capacity), SOCKETS_MAX, make))
    }

    #[test]
    fn a_coordinator_has_one_session_at_a_time() {
        let resources = resources(1);
        let (one, other) = (PublicKey([1; 32]), PublicKey([2; 32]));
        let permit = resources.open_session(one).expect("the first");
        assert!(resources.open_session(one).is_none() && resources.open_session(other).is_some());
        drop(permit);
        assert!(resources.open_session(one).is_some());
    }

    #[test]
    fn a_refusal_states_the_capacity_in_use() {
        let resources = resources(10_000_000);
        let reserve = |key, mbit| {
            resources.reserve(PublicKey([key; 32]), Rate::from_mbit_per_s(mbit), 1, &[])
        };
        let _held = reserve(1, 8.0).expect("room");
        let refusal = reserve(2, 3.0).map(drop).expect_err("no room");
        assert_eq!(refusal.code, RefusalCode::Busy);
        let expected = "busy: 8.00 Mbit/s of 10.00 Mbit/s are in use by 1 rounds, 1 of them of \
                        other coordinators; 3.00 Mbit/s are too much";
        assert_eq!(refusal.reason, expected);
    }

    #[test]
    fn a_share_can_be_promised_while_its_round_is_ending() {
        let resources = resources(100);
        let reserve = || resources.reserve(PublicKey([1; 32]), Rate::from_bit_per_s(100), 1, &[]);
        let (old, mark) = reserve().expect("room");
        assert!(reserve().is_err());
        drop(mark);
        let (new, _mark) = reserve().expect("promised");
        assert!(reserve().is_err(), "but only once");
        let waits = std::thread::spawn(move || new.wait_for_room());
        drop(old);
        assert_eq!(waits.join().expect("no panic"), Ok(()));
    }

    #[test]
    fn a_share_can_be_promised_to_its_coordinator_in_the_last_seconds_of_its_load() {
        let resources = resources(100);
        let at = |second: u64| Instant::from_millis(1000 * second);
        let reserve_of = |key, second, rate| {
            let rate = Rate::from_bit_per_s(rate);
            resources.reserve_at(at(second), PublicKey([key; 32]), rate, SOCKETS_MAX / 2, &[])
        };
        let reserve = |second, rate| reserve_of(1, second, rate);
        let seconds = Duration::from_secs;
        let (_old, old_mark) = reserve(0, 80).expect("room");
        // From 1 to 31.
        assert_eq!(old_mark.start_at(at(0), seconds(1), seconds(30)), Ok(seconds(1)));
        assert!(reserve(26, 80).is_err(), "five seconds are left");
        assert!(reserve_of(2, 28, 80).is_err(), "another coordinator does not know when it ends");
        let (_new, new_mark) = reserve(27, 80).expect("promised");
        assert!(reserve(27, 80).is_err(), "but only once");
        let refusal = reserve(27, 20).map(drop).expect_err("no sockets");
        assert!(refusal.reason.contains("sockets are in use"), "{}", refusal.reason);
        let start = |second, delay| new_mark.start_at(at(second), seconds(delay), seconds(30));
        assert_eq!(start(28, 1).expect_err("the loads would overlap").code, RefusalCode::Busy);
        assert_eq!(start(28, 3), Ok(seconds(3)), "afterwards");
        let late = new_mark.start_at(at(28), Duration::from_millis(2900), seconds(30));
        assert_eq!(late, Ok(seconds(3)), "a little later than ordered");
        // A load that was stopped needs no room.
        drop(old_mark);
        assert_eq!(start(28, 0), Ok(seconds(0)));
    }

    #[test]
    fn the_sockets_of_all_rounds_are_limited_except_for_a_single_round() {
        let resources = resources(100);
        let reserve =
            |sockets| resources.reserve(PublicKey([1; 32]), Rate::from_bit_per_s(1), sockets, &[]);
        let first = reserve(60).expect("room");
        let second = reserve(40).expect("just enough");
        let refusal = reserve(1).map(drop).expect_err("no room");
        assert_eq!(refusal.code, RefusalCode::Busy);
        assert!(refusal.reason.contains("100 sockets are in use"), "{}", refusal.reason);
        // An ending round has promised its own share.
        let (reservation, mark) = second;
        drop(mark);
        let third = reserve(40).expect("promised");
        drop((reservation, first, third));
        let _alone = reserve(u32::MAX).expect("it may try");
        assert!(reserve(1).is_err());
    }

    #[test]
    fn the_rounds_of_all_coordinators_share_the_limits_of_a_policy() {
        let resources = resources(1000);
        let limit = |zone, rate| ZoneRate { zone, rate: Rate::from_bit_per_s(rate) };
        let host = |last: u8| limit(Zone::Host([198, 51, 100, last].into()), 60);
        let network = limit(Zone::Network([198, 51, 0, 0].into()), 100);
        let reserve = |coordinator, rate, last| {
            let limits = [host(last), network];
            resources.reserve(PublicKey([coordinator; 32]), Rate::from_bit_per_s(rate), 1, &limits)
        };
        let refusal = |coordinator, rate, last| {
            let refusal = reserve(coordinator, rate, last).map(drop).expect_err("above");
            assert_eq!(refusal.code, RefusalCode::NoConsent);
            refusal.reason
        };
        assert!(refusal(1, 61, 7).contains("for 198.51.100.7 is"), "{}", refusal(1, 61, 7));
        let (held, mark) = reserve(1, 40, 7).expect("within");
        // Several orders for one relay, also of another coordinator, and another relay of the network.
        assert!(refusal(1, 21, 7).contains("198.51.100.7"));
        assert!(refusal(2, 21, 7).contains("198.51.100.7"));
        let _second = reserve(2, 20, 7).expect("within");
        assert!(refusal(1, 41, 8).contains("for 198.51.0.0/16 is"), "{}", refusal(1, 41, 8));
        let _third = reserve(1, 40, 8).expect("within");
        // Others are not affected, and a round that has been stopped no longer counts.
        let other = resources.reserve(PublicKey([1; 32]), Rate::from_bit_per_s(800), 1, &[]);
        let _other = other.expect("no limit");
        drop(mark);
        assert!(reserve(1, 40, 7).is_ok());
        drop(held);
    }

    proptest! {
        #[test]
        fn rounds_never_exceed_the_capacity_and_release_it(
            steps in vec((any::<bool>(), 1u64..60), 0..200),
        ) {
            let resources = resources(100);
            let mut held: Vec<(_, u64)> = Vec::new();
            for (takes, rate) in steps {
                let used: u64 = held.iter().map(|(_, rate)| rate).sum();
                if takes {
                    let taken = resources.reserve(PublicKey([0; 32]), Rate::from_bit_per_s(rate), 1, &[]);
                    let fits = used + rate <= 100 && held.len() < ROUNDS_MAX as usize;
                    prop_assert_eq!(taken.is_ok(), fits);
                    held.extend(taken.ok().map(|taken| (taken, rate)));
                } else if !held.is_empty() {
                    held.swap_remove(usize::try_from(rate).unwrap() % held.len());
                }
            }
            drop(held);
            prop_assert!(resources.reserve(PublicKey([0; 32]), Rate::from_bit_per_s(100), 1, &[]).is_ok());
        }
    }
}
