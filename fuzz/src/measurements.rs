use crate::input::Input;
use coordinator::{Action, Failure, Measurement, MeasurerId, Mode, Outcome, Params, SecondReport};
use onion::{Duration, Instant, Rate};

/// The length of a round in seconds.
const SECONDS: u32 = 6;

struct Run {
    measurement: Measurement,
    now: Instant,
    /// The running round, and its next second.
    running: Option<(u32, u32)>,
    actions: Vec<Action>,
}

/// For any reports in any order, a coordinator ends exactly once, ends without further input if every peer falls silent, starts
/// its rounds in order, and never makes an estimate without data.
pub fn measurement(data: &[u8]) {
    run(data);
}

/// Plays the course of events; returns the last action, or none if there was no measurer.
fn run(data: &[u8]) -> Option<Action> {
    let mut input = Input::new(data);
    let mode = if input.bool() { Mode::Echo } else { Mode::Transit };
    let params = Params {
        seconds: SECONDS,
        max_rounds: 1 + u32::from(input.u8() % 4),
        sockets: 1 + u32::from(input.u8()),
        ..Params::default()
    };
    let rate = |input: &mut Input<'_>| match input.u8() {
        0 => Rate::ZERO,
        255 => Rate::MAX,
        exponent => Rate::from_bit_per_s(u64::from(input.u16()) << (exponent % 40)),
    };
    let guess = rate(&mut input);
    let team: Vec<Rate> = (0..input.u8() % 5).map(|_| rate(&mut input)).collect();
    let size = team.len();
    let Ok(measurement) = Measurement::new(Instant::ORIGIN, params, mode, guess, team) else {
        return None;
    };
    let mut run = Run { measurement, now: Instant::ORIGIN, running: None, actions: Vec::new() };
    run.drain();
    while !input.is_empty() {
        run.apply(&mut input, size);
        run.drain();
        let waits = run.measurement.poll_timeout().is_some();
        assert_eq!(waits, !run.measurement.is_done(), "it is done, or has a timeout");
    }
    if let Some(deadline) = run.measurement.poll_timeout() {
        run.now = run.now.max(deadline);
        run.measurement.handle_timeout(run.now);
        run.drain();
    }
    run.check(params, mode);
    run.actions.pop()
}

impl Run {
    fn drain(&mut self) {
        while let Some(action) = self.measurement.poll_action() {
            match action {
                Action::Start { round } => self.running = Some((round, 0)),
                Action::Stop { .. } | Action::Done(_) => self.running = None,
                Action::Prepare { .. } => {}
            }
            self.actions.push(action);
        }
    }

    fn apply(&mut self, input: &mut Input<'_>, size: usize) {
        let now = self.now;
        let round = self.measurement.round();
        let stranger = MeasurerId(usize::from(input.u8()) % (size + 1));
        match input.u8() % 12 {
            // The honest course: all are ready, then report second by second.
            0..=2 => {
                for assignment in self.measurement.allocation().assignments.clone() {
                    self.measurement.handle_ready(
                        now,
                        assignment.measurer,
                        round,
                        assignment.sockets,
                    );
                }
            }
            3..=5 => {
                let bytes = u64::from(input.u32()) << (input.u8() % 33);
                let clients = u64::from(input.u32());
                for _ in 0..input.u8() % 8 {
                    self.report_all(bytes, clients);
                    self.drain();
                }
            }
            6 => {
                let (told, open) = (u32::from(input.u8() % 4), u32::from(input.u8()));
                self.measurement.handle_ready(now, stranger, told, open);
            }
            7 => {
                let (told, open) = (round + u32::from(input.bool()), u32::from(input.u8()));
                self.measurement.handle_sockets(now, stranger, told, open);
            }
            8 => {
                let (second, bytes, checked_cells) = (input.u32(), input.u64(), input.u64());
                let second = if input.bool() { second % SECONDS } else { second };
                let round = round.wrapping_add(u32::from(input.u8() % 3)).wrapping_sub(1);
                let report = SecondReport { round, second, bytes, checked_cells, account: None };
                self.measurement.handle_second(now, stranger, report);
                let bytes = input.u64();
                self.measurement.handle_client_second(now, round, second, bytes);
            }
            9 => self.measurement.handle_busy(stranger, round, 1.0),
            10 => {
                let detail = String::new();
                let failure = match input.u8() % 3 {
                    0 => Failure::MeasurerLost { detail },
                    1 => Failure::ContentCheck { detail },
                    _ => return self.measurement.cancel(now),
                };
                let at = input.bool().then_some(stranger);
                self.measurement.handle_failure(now, at, failure);
            }
            _ => {
                self.now += Duration::from_millis(u64::from(input.u16()));
                self.measurement.handle_timeout(self.now);
            }
        }
    }

    /// All report the next second if the round is running.
    fn report_all(&mut self, bytes: u64, clients: u64) {
        let Some((round, second)) = self.running.filter(|(_, second)| *second < SECONDS) else {
            return;
        };
        self.running = Some((round, second + 1));
        self.now += Duration::from_secs(1);
        let report = SecondReport { round, second, bytes, checked_cells: 1, account: None };
        for assignment in self.measurement.allocation().assignments.clone() {
            self.measurement.handle_second(self.now, assignment.measurer, report);
        }
        if self.measurement.mode() == Mode::Echo {
            self.measurement.handle_client_second(self.now, round, second, clients);
        }
    }

    fn check(&self, params: Params, mode: Mode) {
        assert!(self.measurement.is_done(), "silence ends it");
        let done = self.actions.iter().filter(|action| matches!(action, Action::Done(_)));
        assert_eq!(done.count(), 1);
        let Some([Action::Stop { round: last }, Action::Done(outcome)]) = self.actions.last_chunk()
        else {
            panic!("{:?}", self.actions);
        };
        assert!(*last == self.measurement.round() && *last <= params.max_rounds);
        assert!(!outcome.to_string().is_empty());
        for round in 1..=*last {
            let places = |what: &dyn Fn(&Action) -> bool| -> Vec<usize> {
                let places = self.actions.iter().enumerate().filter(|(_, action)| what(action));
                places.map(|(place, _)| place).collect()
            };
            let prepared =
                places(&|action| matches!(action, Action::Prepare { round: r, .. } if *r == round));
            let started = places(&|action| *action == Action::Start { round });
            let stopped = places(&|action| *action == Action::Stop { round });
            assert!(prepared.len() == 1 && started.len() <= 1 && stopped.len() == 1);
            assert!(started.iter().all(|place| prepared[0] < *place && *place < stopped[0]));
        }
        let Outcome::Measured(estimate) = outcome else { return };
        assert!(estimate.capacity > Rate::ZERO, "an estimate of nothing");
        assert_eq!(estimate.seconds.len(), SECONDS as usize, "of full length");
        let has_clients = mode == Mode::Echo;
        assert!(
            estimate.seconds.iter().all(|second| second.client_reported.is_some() == has_clients)
        );
        if estimate.is_conclusive() {
            assert!(estimate.capacity < params.conclusive_limit(estimate.allocated));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_an_estimate() {
        for (target, name, content) in crate::seeds() {
            if target == "measurement" {
                let Some(Action::Done(outcome)) = run(&content) else { panic!("{name}") };
                let expected = matches!(name, "echo" | "transit" | "saturated");
                assert_eq!(outcome.estimate().is_some(), expected, "{name}: {outcome}");
            }
        }
    }
}
