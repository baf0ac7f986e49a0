//! The daemon: measures each relay at its slot of a secret plan, period after period (paper §4.3).

use super::agreed::Seeds;
use super::agreeing::Party;
use super::campaign::{ALIVE_S, Common, Found, LATENCY, Measuring};
use super::relays::{self, Relay};
use super::{config::Config, suspects};
use super::{greet, interrupted, publish, reload_if_asked, see, tell};
use cli::Error;
use coordinator::agreement::Agreed;
use coordinator::plan::{Seed, TeamRoom};
use coordinator::{Arrival, Counts, History, RelayId, Rota};
use documents::Documents;
use link::unix_time_s;
use onion::Duration;
use onion::identity::RsaId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;
use std::{fs, thread};
use store::{Entry, Past, Progress};
use terminal::Exit;

/// A period that cannot begin, such as when the authority is down, is tried again after so long.
const RETRY: Duration = Duration::from_secs(60);

/// In shorter periods, which only laboratories have, each relay is measured once.
const MEMORYLESS_S: u64 = 3600;

/// Periods follow each other without gaps from the beginning of 1970, so that a coordinator that is started anew is in the
/// same one, and all coordinators are.
#[derive(Clone, Copy)]
struct Period {
    begin_unix_s: u64,
    length_s: u64,
    slot_s: u64,
}

impl Period {
    fn at(now_unix_s: u64, config: &Config) -> Self {
        let length_s = config.period.as_secs().max(1);
        let begin_unix_s = now_unix_s - now_unix_s % length_s;
        Self { begin_unix_s, length_s, slot_s: config.slot_s.max(1) }
    }

    const fn end_unix_s(&self) -> u64 {
        self.begin_unix_s + self.length_s
    }

    /// Whether it is over, or was never on: a clock that was ahead, and is right now.
    const fn is_over(&self, now_unix_s: u64) -> bool {
        now_unix_s >= self.end_unix_s() || now_unix_s + self.slot_s < self.begin_unix_s
    }

    fn slots(&self) -> u32 {
        u32::try_from(self.length_s / self.slot_s).unwrap_or(u32::MAX)
    }

    fn slot(&self, now_unix_s: u64) -> u32 {
        let passed_s = now_unix_s.saturating_sub(self.begin_unix_s);
        u32::try_from(passed_s / self.slot_s).unwrap_or(u32::MAX)
    }

    /// By which slot a relay has to be measured whose estimate of this time holds; `None` if that is not in this period, since it was measured in the period
    /// before. Its estimate holds for two periods and a quarter at least ([`HistoryPolicy`](coordinator::HistoryPolicy)).
    fn due_by(&self, measured_unix_s: u64) -> Option<u32> {
        if measured_unix_s + self.length_s >= self.begin_unix_s {
            return None;
        }
        let by = measured_unix_s + 2 * self.length_s;
        Some(self.slot(by.max(self.begin_unix_s + self.length_s / 4)))
    }
}

/// Measures until the user asks for the end, and agrees with other authorities' coordinators meanwhile on the seeds to come.
pub(super) fn run(common: Common<'_>, generator_started: u64) -> Result<Exit, Error> {
    let seeds = Seeds::open(&common.config.seed)?;
    let Some(authorities) = &common.config.authorities else {
        return periods(common, &seeds, generator_started);
    };
    let party = Party::start(common, authorities, &seeds)?;
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| party.run(&is_over));
        let _over = Over(&is_over);
        periods(common, &seeds, generator_started)
    })
}

/// Says so when it is dropped, also in a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn periods(common: Common<'_>, seeds: &Seeds, generator_started: u64) -> Result<Exit, Error> {
    let Common { config, output, interrupt, .. } = common;
    loop {
        let period = Period::at(unix_time_s(), config);
        tell_seeds(common, seeds)?;
        let done = Watch { common, period, seeds, generator_started }.play();
        if interrupt.is_requested() {
            return Ok(interrupted(output));
        }
        let now = unix_time_s();
        let rest = if period.is_over(now) { 0 } else { period.end_unix_s() - now };
        let rest = Duration::from_secs(rest);
        let wait = match &done {
            Err(error) => {
                output.error(error);
                RETRY.min(rest)
            }
            Ok(_) => rest,
        };
        interrupt.wait(wait);
    }
}

/// Records the seeds of periods that are over, so that anybody can check the plan. One that was drawn in the middle of a period
/// was not its seed.
fn tell_seeds(Common { config, journal, .. }: Common<'_>, seeds: &Seeds) -> Result<(), Error> {
    let drawn = fs::metadata(&config.seed).and_then(|it| it.modified()).ok();
    let drawn = drawn.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    journal.tell_seeds(unix_time_s(), |begin_unix_s| {
        if let Some(agreed) = seeds.agreed(begin_unix_s) {
            return Some(*agreed.seed.as_bytes());
        }
        let is_of_it = drawn.is_some_and(|drawn| drawn.as_secs() < begin_unix_s);
        is_of_it.then(|| *seeds.own(begin_unix_s).as_bytes())
    })
}

/// One period.
#[derive(Clone, Copy)]
struct Watch<'env> {
    common: Common<'env>,
    period: Period,
    seeds: &'env Seeds,
    generator_started: u64,
}

/// What is known of the network, and of its past.
struct Known {
    documents: Documents,
    history: History,
    relays: Vec<Relay>,
}

/// What an earlier process has done in the period.
type Pasts = BTreeMap<RsaId, Past>;

impl Watch<'_> {
    fn play(self) -> Result<Exit, Error> {
        let Common { config, journal, output, interrupt, .. } = self.common;
        output.doing("asking the measurers, and fetching the consensus");
        let begin_unix_s = self.period.begin_unix_s;
        let pasts = journal.take_up(begin_unix_s)?;
        let (length_s, slot_s) = (self.period.length_s, self.period.slot_s);
        let period = store::Period { begin_unix_s, length_s, slot_s, seed: None };
        journal.note(Entry::Period(period));
        let mut known = self.look()?;
        let capacities = greet(self.common)?;
        // By what they have just said.
        self.put_together(&mut known);
        let capacity = capacities.iter().copied().sum();
        let room = TeamRoom { capacity, at_once_max: self.at_once_max() };
        let (seed, teams, own) = self.plan_by(room);
        let (found, known) = thread::scope(|scope| {
            let mut measuring = Measuring::new(scope, self.common, capacities, begin_unix_s, true);
            let mut places = BTreeMap::new();
            let now = self.period.slot(unix_time_s());
            let arrivals = self.arrivals(&known, &pasts);
            let factor = config.params.excess_factor();
            let teams = (teams.as_slice(), own);
            let slots = self.period.slots();
            let mut rota = if self.period.length_s >= MEMORYLESS_S {
                Rota::memoryless(&seed, slots, teams, factor, &arrivals, now)
            } else {
                Rota::among(&seed, slots, teams, factor, &arrivals, now)
            };
            take_up(&mut measuring, &mut places, &known, &pasts);
            output.step(format!(
                "a period of {} slots: {}",
                self.period.slots(),
                in_words(rota.counts())
            ));
            self.tell_progress(rota.counts());
            let (common, together) = (self.common, known.relays.iter());
            let together = together.map(|it| (it.id(), it.together)).collect();
            scope.spawn(move || suspects::look(common, begin_unix_s, &together));
            let (mut refreshed, mut told) = (unix_time_s(), unix_time_s());
            loop {
                let now = unix_time_s();
                let is_ended = self.period.is_over(now) || measuring.is_broken();
                if measuring.is_over() && (is_ended || interrupt.is_requested()) {
                    break;
                }
                let slot = self.period.slot(now);
                measuring.in_slot(slot);
                // Also where there is nothing to be done: who looks on knows that somebody is there.
                if now.abs_diff(told) >= ALIVE_S {
                    told = now;
                    self.tell_progress(rota.counts());
                }
                let is_reloaded = reload_if_asked(self.common);
                if !is_ended && !interrupt.is_requested() {
                    let mut machines: BTreeMap<RsaId, Vec<_>> = BTreeMap::new();
                    for due in rota.poll_due(slot) {
                        if let Some(place) = places.get(&due.relay) {
                            let turn = (*place, due.standing, due.turn);
                            machines.entry(due.machine).or_default().push(turn);
                        }
                    }
                    machines.values().for_each(|turns| measuring.add_machine(turns));
                    // A clock may be set back.
                    let is_due = now >= refreshed + config.refresh.as_secs() || now < refreshed;
                    if is_reloaded || is_due {
                        refreshed = now;
                        // The old ones do until there are newer ones.
                        match self.look() {
                            Ok(newer) => known = newer,
                            Err(error) => output.error(&error),
                        }
                        rota.handle_consensus(&self.arrivals(&known, &pasts), slot + 1);
                        take_up(&mut measuring, &mut places, &known, &pasts);
                        measuring.check_up();
                        output.step(in_words(rota.counts()));
                        self.tell_progress(rota.counts());
                        journal.tidy(config, now);
                        if let Err(error) = self.write(&known, measuring.found()) {
                            output.error(&error);
                        }
                    }
                }
                if let Some(end) = measuring.proceed(LATENCY)
                    && let Some(id) = measuring.id(end.relay)
                {
                    rota.handle_end(id, end.follows, slot);
                    self.tell_progress(rota.counts());
                }
            }
            if measuring.is_broken()
                && let Err(error) = self.write(&known, measuring.found())
            {
                output.error(&error);
            }
            measuring.end().map(|found| (found, known))
        })?;
        if interrupt.is_requested() {
            // What was measured is not lost with the period.
            self.write(&known, &found)?;
            return Ok(Exit::Interrupted);
        }
        let written = self.write(&known, &found)?;
        Ok(tell(&found.records, written.as_ref(), output))
    }

    /// The seed of the period, all teams that plan by it, and which is ours: with what it really has, whatever was told.
    fn plan_by(&self, room: TeamRoom) -> (Seed, Vec<TeamRoom>, usize) {
        let begin_unix_s = self.period.begin_unix_s;
        let Some(Agreed { seed, teams, own, .. }) = self.seeds.agreed(begin_unix_s) else {
            return (self.seeds.own(begin_unix_s), vec![room], 0);
        };
        let rooms = teams.into_iter().enumerate();
        let rooms = rooms.map(|(place, (_, told))| if place == own { room } else { told });
        (seed, rooms.collect(), own)
    }

    fn look(&self) -> Result<Known, Error> {
        let Common { config, team, journal, .. } = self.common;
        let documents = relays::documents(config, unix_time_s())?;
        self.seeds.set_shared_random(documents.consensus.shared_random.map(|it| it.value));
        see(self.common, &documents)?;
        let history = journal.history(&team.keys())?;
        let expectations = history.expectations(config.history_policy(), unix_time_s());
        let relays = relays::relays(&documents, config, &expectations)?;
        let mut known = Known { documents, history, relays };
        self.put_together(&mut known);
        Ok(known)
    }

    fn put_together(&self, known: &mut Known) {
        let (config, at_once_max) = (self.common.config, self.at_once_max());
        relays::put_together(&mut known.relays, &known.documents, config, at_once_max);
    }

    fn at_once_max(&self) -> u32 {
        self.common.team.at_once_max(self.common.config)
    }

    /// A turn that an earlier process began and did not end, or that was to follow, is to be done.
    fn arrivals(&self, known: &Known, pasts: &Pasts) -> Vec<Arrival> {
        let (policy, now) = (self.common.config.history_policy(), unix_time_s());
        // One without an estimate that holds is to be measured in this period.
        let due_by = |relay: &Relay| match known.history.kept(&policy, relay.id(), None, now) {
            Some(kept) => self.period.due_by(kept.measured_unix_s),
            None => Some(u32::MAX),
        };
        let arrival = |relay: &Relay| {
            let past = pasts.get(&relay.id());
            let first = relay.first_turn(self.common.config);
            Arrival {
                relay: relay.id(),
                together: relay.together,
                standing: relay.guess.standing(),
                turn: past.and_then(|it| it.follows).unwrap_or(first),
                is_done: past.is_some_and(|it| it.is_done),
                due_by: due_by(relay),
            }
        };
        known.relays.iter().map(arrival).collect()
    }

    fn tell_progress(&self, counts: Counts) {
        let (at_unix_s, period_unix_s) = (unix_time_s(), self.period.begin_unix_s);
        self.common.journal.note(Entry::Progress(Progress { at_unix_s, period_unix_s, counts }));
    }

    fn write(
        &self,
        known: &Known,
        found: &Found,
    ) -> Result<Option<netdoc::bwfile::Written>, Error> {
        let Known { documents, history, .. } = known;
        let begun_unix_s = self.period.begin_unix_s;
        publish(self.common, documents, history, found, begun_unix_s, self.generator_started)
    }
}

/// Numbers relays that are new, and takes over what is new about the others.
fn take_up(
    measuring: &mut Measuring<'_, '_>,
    places: &mut BTreeMap<RsaId, RelayId>,
    known: &Known,
    pasts: &Pasts,
) {
    for relay in &known.relays {
        match places.get(&relay.id()) {
            Some(place) => measuring.renew(*place, relay.clone()),
            None => {
                let place = measuring.know(relay.clone());
                places.insert(relay.id(), place);
                if let Some(record) = pasts.get(&relay.id()).and_then(|it| it.record.clone()) {
                    measuring.adopt(place, record);
                }
            }
        }
    }
}

/// How far the period is; nothing of what is to come.
fn in_words(counts: Counts) -> String {
    let Counts { waiting, running, done, without_slot } = counts;
    format!(
        "{waiting} relays wait for their slots, {running} are being measured, {done} are done with for this period; \
         {without_slot} have no slot in it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_the_same_for_all_who_are_in_it() {
        let period = |begin_unix_s| Period { begin_unix_s, length_s: 86_400, slot_s: 71 };
        let at = period(1_800_057_600);
        assert_eq!((at.slots(), at.end_unix_s()), (1216, 1_800_144_000));
        assert_eq!([0, 70, 71, 86_399].map(|it| at.slot(at.begin_unix_s + it)), [0, 0, 1, 1216]);
        assert_eq!(at.slot(0), 0, "a clock that was set back");
        // Measured in this period, at the beginning and just before that of the last one, and a day before that.
        let ago = [0, 86_400, 86_401, 129_600, 172_800];
        let due_by = ago.map(|ago| at.due_by(at.begin_unix_s - ago));
        assert_eq!(due_by, [None, None, Some(1216), Some(608), Some(304)]);
        let begin = at.begin_unix_s;
        let over = [begin - 72, begin - 71, begin, begin + 86_399, begin + 86_400];
        assert_eq!(over.map(|now| at.is_over(now)), [true, false, false, false, true]);
    }
}
