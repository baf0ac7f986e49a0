//! Relays that share a machine begin at the same instant.

use link::Clock;
use onion::{Duration, Instant};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// From the last one's arrival until the gate is open: as long as each needs to hear of it.
const NOTICE: Duration = Duration::from_millis(300);

/// A gate before which measurements wait for each other.
///
/// It opens when all that have a [`Pass`] are there, but no later than any of them can wait. Whoever comes after that goes through at once.
#[derive(Clone, Debug)]
pub struct Gate(Arc<Inner>);

/// A place at a gate. Dropping it gives it up: nobody waits for a measurement that has failed before.
#[derive(Debug)]
pub struct Pass {
    gate: Gate,
    place: usize,
    has_arrived: bool,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Places that are not given up.
    places: usize,
    arrived: usize,
    opens: Option<Instant>,
    /// Who came before it was open.
    on_time: BTreeSet<usize>,
}

impl Pass {
    /// Which of the gate's places it is, from zero.
    #[must_use]
    pub const fn place(&self) -> usize {
        self.place
    }

    /// Stands before the gate, and can wait so long.
    pub fn arrive(&mut self, longest: Duration) {
        let mut state = self.gate.state();
        let now = self.gate.0.clock.now();
        if !self.has_arrived {
            self.has_arrived = true;
            state.arrived += 1;
            if state.opens.is_none_or(|opens| now < opens) {
                state.on_time.insert(self.place);
            }
        }
        state.open_by(now + longest);
        self.gate.open_if_complete(&mut state);
    }

    /// How long until the gate is open: zero from then on. `None` if nobody has come yet.
    #[must_use]
    pub fn left(&self) -> Option<Duration> {
        let opens = self.gate.state().opens?;
        Some(opens.saturating_since(self.gate.0.clock.now()))
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if !self.has_arrived {
            let mut state = self.gate.state();
            state.places -= 1;
            self.gate.open_if_complete(&mut state);
        }
    }
}

impl Gate {
    /// With so many places.
    #[must_use]
    pub fn new(places: usize) -> (Self, Vec<Pass>) {
        let on_time = BTreeSet::new();
        let state = Mutex::new(State { places, arrived: 0, opens: None, on_time });
        let gate = Self(Arc::new(Inner { clock: Clock::start(), state }));
        let pass = |place| Pass { gate: gate.clone(), place, has_arrived: false };
        let passes = (0..places).map(pass).collect();
        (gate, passes)
    }

    /// Whether who has this place stood before the gate when it opened: all of whom that is so went through it at the same instant.
    #[must_use]
    pub fn was_on_time(&self, place: usize) -> bool {
        self.state().on_time.contains(&place)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nobody panics while holding it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_if_complete(&self, state: &mut State) {
        if state.arrived > 0 && state.arrived >= state.places {
            state.open_by(self.0.clock.now() + NOTICE);
        }
    }
}

impl State {
    fn open_by(&mut self, at: Instant) {
        self.opens = Some(self.opens.map_or(at, |opens| opens.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn two() -> (Pass, Pass) {
        let (_, mut passes) = Gate::new(2);
        let second = passes.pop().expect("two");
        (passes.pop().expect("two"), second)
    }

    #[test]
    fn the_gate_opens_for_all_at_once_when_the_last_has_come() {
        let (mut first, mut second) = two();
        assert_eq!(first.left(), None);
        first.arrive(LONG);
        assert!(first.left() > Some(NOTICE) && second.left() > Some(NOTICE));
        second.arrive(LONG);
        assert!(first.left() <= Some(NOTICE));
        assert!([0, 1].iter().all(|place| first.gate.was_on_time(*place)));
    }

    #[test]
    fn nobody_waits_for_one_that_has_given_up_or_longer_than_he_can() {
        let (mut first, second) = two();
        first.arrive(LONG);
        drop(second);
        assert!(first.left() <= Some(NOTICE));
        assert_eq!([0, 1].map(|place| first.gate.was_on_time(place)), [true, false]);
        let (mut first, second) = two();
        drop(second);
        first.arrive(LONG);
        assert!(first.left() <= Some(NOTICE));
        let (mut first, second) = two();
        first.arrive(Duration::ZERO);
        assert_eq!((first.left(), second.left()), (Some(Duration::ZERO), Some(Duration::ZERO)));
        let mut late = second;
        late.arrive(LONG);
        let on_time = [&first, &late].map(|it| it.gate.was_on_time(it.place()));
        assert_eq!(on_time, [true, false], "the first had begun");
    }

    #[test]
    fn who_comes_twice_has_one_place() {
        let (mut first, second) = two();
        first.arrive(LONG);
        first.arrive(LONG);
        assert!(second.left() > Some(NOTICE));
    }
}
