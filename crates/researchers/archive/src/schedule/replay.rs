//! Replays the views of a dataset in order: plans the first view of each day, and admits relays that appear later.

use super::capacities::Capacities;
use super::{Arrivals, Expected, ScheduleOptions, ScheduleSeries, plan};
use crate::dataset::Dataset;
use crate::error::ArchiveError;
use crate::rows::{Origin, RelayId, Relays, Status};
use crate::times::{DAY_S, minute};
use coordinator::period::Bounds;
use coordinator::plan::{Admission, Machine, Plan, Seed};
use coordinator::{HistoryPolicy, Priority};
use onion::identity::RsaId;
use onion::{Duration, Rate};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Plans each day of a dataset, and replays the arrival of new relays. `progress` gets the number of completed months and of all
/// months. An interrupted replay returns the completed months.
///
/// # Errors
/// The dataset has no views of the network, or has views of several origins and the options name none, or cannot be read.
pub fn series(
    dataset: &Dataset,
    options: &ScheduleOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<ScheduleSeries, ArchiveError> {
    let mut relays = Relays::default();
    let capacities = Capacities::new(dataset, options.around_s, &mut relays)?;
    let mut replay = Replay {
        options,
        capacities,
        origin: options.origin,
        last_seen_unix_s: Vec::new(),
        day: None,
        measured_unix_s: BTreeMap::new(),
        found: ScheduleSeries::default(),
    };
    let months = dataset.parts("statuses")?;
    for (index, (month, _)) in months.iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let rows = dataset.read(month, &mut relays)?;
        replay.month(rows, &mut relays)?;
        progress(index + 1, months.len());
    }
    if replay.found.days.is_empty() && !stop.load(Ordering::Relaxed) {
        return Err(ArchiveError::Missing(
            "the dataset has no views of the network at that time; import consensuses, Onionoo's details or relay lists".to_owned(),
        ));
    }
    replay.found.waits_s.sort_unstable();
    Ok(replay.found)
}

struct Replay<'a> {
    options: &'a ScheduleOptions,
    capacities: Capacities<'a>,
    origin: Option<Origin>,
    /// By relay.
    last_seen_unix_s: Vec<Option<u32>>,
    day: Option<Day>,
    /// Time of the last measurement of each relay in the daemon's plan.
    measured_unix_s: BTreeMap<RsaId, u64>,
    found: ScheduleSeries,
}

/// A period of a day, and the plans of its relays.
struct Day {
    bounds: Bounds,
    /// Old relays at random, new ones in the first slots with room: section 4.3 of the paper.
    first_slots: Plan,
    /// The daemon's plan.
    memoryless: Plan,
    new_relay: Rate,
}

impl Replay<'_> {
    fn month(&mut self, rows: Vec<Status>, relays: &mut Relays) -> Result<(), ArchiveError> {
        let mut views: BTreeMap<u32, Vec<Status>> = BTreeMap::new();
        for row in rows {
            if row.is_running && !row.is_authority && self.counts(&row)? {
                views.entry(row.valid_after_unix_s).or_default().push(row);
            }
        }
        let ends = views.keys().next().zip(views.keys().next_back());
        let Some((Some(origin), (first, last))) = ends.map(|end| (self.origin, end)) else {
            return Ok(());
        };
        self.capacities.load(((*first).into(), (*last).into()), origin, relays)?;
        self.last_seen_unix_s.resize(relays.len(), None);
        for (unix_s, view) in views {
            if (unix_s.into()..self.options.until_unix_s).is_empty() {
                break;
            }
            self.view(unix_s, &view, relays)?;
        }
        Ok(())
    }

    /// Whether a row has the selected origin.
    fn counts(&mut self, row: &Status) -> Result<bool, ArchiveError> {
        let origin = *self.origin.get_or_insert(row.origin);
        if self.options.origin.is_none() && row.origin != origin {
            let (one, other) = (origin.word(), row.origin.word());
            let problem = format!(
                "the dataset has views of several origins: choose {one} or {other} with --origin"
            );
            return Err(ArchiveError::Missing(problem));
        }
        Ok(row.origin == origin)
    }

    fn view(&mut self, unix_s: u32, view: &[Status], relays: &Relays) -> Result<(), ArchiveError> {
        let is_first = self.last_seen_unix_s.iter().all(Option::is_none);
        let is_new = |last: Option<u32>| {
            let unseen_s = last.map(|last| i64::from(unix_s) - i64::from(last));
            !is_first && unseen_s.is_none_or(|unseen_s| unseen_s > self.options.unseen_s)
        };
        let last_seen =
            |relay: &RelayId| self.last_seen_unix_s.get(relay.0 as usize).copied().flatten();
        let (new, old): (Vec<&Status>, Vec<&Status>) =
            view.iter().partition(|row| is_new(last_seen(&row.relay)));
        if i64::from(unix_s) >= self.options.from_unix_s {
            if self.day.as_ref().is_none_or(|day| day.bounds.is_over(unix_s.into())) {
                self.begin_day(unix_s, &old, relays)?;
                let all: Vec<&Status> = view.iter().collect();
                let (expected, unknown) = self.expected(unix_s, &all, relays);
                let network = plan(unix_s.into(), &expected, unknown, self.options);
                self.found.days.push(network);
            }
            let new: Vec<RsaId> =
                new.iter().filter_map(|row| relays.fingerprint(row.relay)).collect();
            let arrivals = self.admit(unix_s, &new, &old, relays);
            if !is_first {
                self.found.arrivals.push(arrivals);
            }
        }
        for row in view {
            if let Some(last_seen) = self.last_seen_unix_s.get_mut(row.relay.0 as usize) {
                *last_seen = Some(unix_s);
            }
        }
        Ok(())
    }

    /// Relays with their expected capacities, and the number of those whose capacity is unknown.
    fn expected(&self, unix_s: u32, rows: &[&Status], relays: &Relays) -> (Vec<Expected>, usize) {
        let known: Vec<(RsaId, Option<Rate>)> = rows
            .iter()
            .filter_map(|row| Some((relays.fingerprint(row.relay)?, self.capacities.of(row))))
            .collect();
        let unknown = known.iter().filter(|relay| relay.1.is_none()).count();
        let rates: Vec<Rate> = known.iter().filter_map(|relay| relay.1).collect();
        let new = || self.capacities.of_new_relays(unix_s.into(), &rates);
        let guess =
            if unknown == 0 { Rate::ZERO } else { self.options.new_relay.unwrap_or_else(new) };
        (known.into_iter().map(|(id, rate)| (id, rate.unwrap_or(guess))).collect(), unknown)
    }

    fn begin_day(
        &mut self,
        unix_s: u32,
        old: &[&Status],
        relays: &Relays,
    ) -> Result<(), ArchiveError> {
        if let Some(Day { bounds, memoryless, .. }) = self.day.take() {
            for place in memoryless.places() {
                let began_s = bounds.begin_unix_s + u64::from(place.slot) * bounds.slot_s;
                self.measured_unix_s.insert(place.relay, began_s);
            }
        }
        let options = self.options;
        let day = Duration::from_secs(DAY_S.unsigned_abs());
        let bounds = Bounds::at(unix_s.into(), day, options.slot_s.into());
        let (expected, _) = self.expected(unix_s, old, relays);
        let rates: Vec<Rate> = expected.iter().map(|relay| relay.1).collect();
        let new_relay = options
            .new_relay
            .unwrap_or_else(|| self.capacities.of_new_relays(unix_s.into(), &rates));
        if new_relay == Rate::ZERO {
            return Err(ArchiveError::Missing(format!(
                "the dataset has no bandwidths around {}: import descriptors of that time, begin later with --from, or name the capacity to \
                 expect with --new-relay",
                minute(unix_s.into())
            )));
        }
        let seed = Seed::from_bytes([0; 32]).of_period(bounds.begin_unix_s, bounds.length_s);
        let (slots, teams) = (bounds.slots(), [options.team]);
        let machine = |relay: &Expected| Machine::single(relay.0, relay.1);
        // Like the daemon: a relay without a valid estimate is measured in this period.
        let kept_for = HistoryPolicy::over(day).kept_for;
        let due_by = |relay: &RsaId| {
            self.measured_unix_s
                .get(relay)
                .map_or(Some(u32::MAX), |began_s| bounds.due_by(*began_s, kept_for))
        };
        self.day = Some(Day {
            bounds,
            first_slots: Plan::randomised(
                &seed,
                slots,
                &teams,
                options.excess_factor,
                expected.iter().map(machine).collect(),
            ),
            memoryless: Plan::memoryless(
                &seed,
                slots,
                &teams,
                options.excess_factor,
                expected.iter().map(|relay| (machine(relay), due_by(&relay.0))).collect(),
            ),
            new_relay,
        });
        Ok(())
    }

    /// Assigns slots to new relays, and to old ones that the first view of the day did not list.
    fn admit(&mut self, unix_s: u32, new: &[RsaId], old: &[&Status], relays: &Relays) -> Arrivals {
        let mut arrivals =
            Arrivals { unix_s: unix_s.into(), new_relays: new.len(), ..Arrivals::default() };
        let Some(Day { bounds, first_slots, memoryless, new_relay }) = &mut self.day else {
            return arrivals;
        };
        let passed_s = u64::from(unix_s).saturating_sub(bounds.begin_unix_s);
        let from = u32::try_from(passed_s.div_ceil(bounds.slot_s)).unwrap_or(u32::MAX);
        for row in old {
            let Some(id) =
                relays.fingerprint(row.relay).filter(|relay| first_slots.machine(*relay).is_none())
            else {
                continue;
            };
            let machine = Machine::single(id, self.capacities.of(row).unwrap_or(*new_relay));
            first_slots.admit(&machine, Priority::Known, from);
            memoryless.admit_due(&machine, Priority::Known, from, Some(u32::MAX));
        }
        let slot_s = self.options.slot_s;
        let after_s = |admission: Admission| match admission {
            Admission::Placed(slot) => Some((slot - from + 1).saturating_mul(slot_s)),
            Admission::Joined | Admission::NextPeriod => None,
        };
        for relay in new {
            let machine = Machine::single(*relay, *new_relay);
            let by_paper_s = after_s(first_slots.admit(&machine, Priority::New, from));
            let by_daemon_s =
                after_s(memoryless.admit_due(&machine, Priority::New, from, Some(u32::MAX)));
            arrivals.put_off_relays += usize::from(by_paper_s.is_none() || by_daemon_s.is_none());
            let last = |so_far: u32, after_s: Option<u32>| so_far.max(after_s.unwrap_or(0));
            arrivals.measured_after_s = last(arrivals.measured_after_s, by_paper_s);
            arrivals.measured_by_daemon_after_s =
                last(arrivals.measured_by_daemon_after_s, by_daemon_s);
            self.found.waits_s.extend(by_paper_s);
        }
        arrivals
    }
}
