//! What is claimed of a relay with clients, and whether it was so.

use super::seen::{BACK, MeasuredSecond, Window};
use crate::reporting::median;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series, TrafficSecond,
};

/// How cases' names end.
pub(super) const SUM: &str = "sum as forwarded";
pub(super) const CLIENTS: &str = "clients as forwarded";
pub(super) const HELD: &str = "clients held to their share";
const GRANTED: &str = "clients have what they may";
const BACK_SOON: &str = "clients have it back";
pub(super) const ESTIMATE: &str = "estimate as the limit";

/// How far what is said may be off what the kernel counted, and how far over their share clients may be.
/// The kernel counts TLS as well: 0.1 % in full records, 4 % in one for each cell.
const TOLERANCE: f64 = 0.05;

/// Time until clients must have back what they had.
const BACK_WITHIN_S: f64 = 2.0;

impl Window {
    /// What clients have when nothing is measured, in Mbit/s.
    pub(super) fn level(&self) -> f64 {
        median(self.alone.iter().copied()).unwrap_or_default()
    }

    /// *x*·*r*/(1−*r*): what clients may have in a second, by what really came back.
    fn allowed(&self, second: &MeasuredSecond) -> f64 {
        second.came_back * self.ratio / (1.0 - self.ratio)
    }

    fn median_of(&self, what: impl Fn(&MeasuredSecond) -> f64) -> f64 {
        median(self.during.iter().map(what)).unwrap_or_default()
    }

    /// The claims, as cases.
    pub(super) fn cases(&self) -> Vec<Case> {
        let cases = [
            self.sum(),
            self.clients(),
            self.held(),
            self.granted(),
            self.back(),
            self.estimated(),
        ];
        cases.to_vec()
    }

    fn name(&self, what: &str) -> String {
        format!("r = {}: {what}", self.ratio)
    }

    /// What was said of measurement and clients together is what the kernel says was forwarded: in all, and in
    /// the median second.
    fn sum(&self) -> Case {
        let (case, off) = self.compared(SUM, "sum", |second| {
            (second.measured + second.reported, second.came_back + second.handed)
        });
        if case.verdict == CaseVerdict::Held && off > TOLERANCE {
            return Case { verdict: CaseVerdict::Missed, ..case };
        }
        case
    }

    /// And so it is of clients alone, who are but a part of the sum. There are few of them: what two clocks
    /// cut off at a second's edges shows.
    fn clients(&self) -> Case {
        let (case, _) =
            self.compared(CLIENTS, "clients' part", |second| (second.reported, second.handed));
        let part = self.median_of(|second| second.handed / (second.came_back + second.handed));
        case.column("clients_part", part).column("downloads", self.downloads)
    }

    /// The reported and the true means over all seconds; and by how much the median second is off.
    fn compared(
        &self,
        name: &str,
        what: &str,
        pair: impl Fn(&MeasuredSecond) -> (f64, f64),
    ) -> (Case, f64) {
        let mean = |all: f64| all / as_f64(self.during.len());
        let told = mean(self.during.iter().map(|second| pair(second).0).sum());
        let truth = mean(self.during.iter().map(|second| pair(second).1).sum());
        let off = self.median_of(|second| {
            let (told, truth) = pair(second);
            (told / truth - 1.0).abs()
        });
        let bounds = 1.0 - TOLERANCE..=1.0 + TOLERANCE;
        let case = Case::judged(self.name(name), truth, Some(told), bounds);
        let (verdict, off_percent) = (case.verdict, off * 100.0);
        let detail =
            format!("the median second's {what} is {off_percent:.2} % off what the kernel counted");
        (case.ended(verdict, detail).column("median_difference", off), off)
    }

    /// Clients have no more than their share.
    fn held(&self) -> Case {
        let over = self.median_of(|second| second.received / self.allowed(second));
        let received = self.median_of(|second| second.received);
        let allowed = self.median_of(|second| self.allowed(second));
        let is_held = over <= 1.0 + TOLERANCE;
        Case { ratio: Some(over), ..Case::new(self.name(HELD), Some(allowed), Some(received)) }
            .ended(
                CaseVerdict::of(is_held),
                "truth is what they may have, the estimate what they received",
            )
    }

    /// And no less than their share or what they want, whichever is less.
    fn granted(&self) -> Case {
        let level = self.level();
        let due = self.median_of(|second| self.allowed(second).min(level));
        let received = self.median_of(|second| second.received);
        let wants = if due < level { "less than they want" } else { "all that they want" };
        let case = Case::judged(self.name(GRANTED), due, Some(received), BACK..=f64::INFINITY);
        let verdict = case.verdict;
        case.ended(verdict, format!("their share is {wants}: {level:.1} Mbit/s"))
    }

    /// They have their level back soon after the end, and keep it.
    fn back(&self) -> Case {
        let level = self.level();
        let later = median(self.after.iter().skip(2).copied());
        let is_back = self.back_after_s.is_some_and(|after| after <= BACK_WITHIN_S)
            && later.is_some_and(|later| later >= BACK * level);
        let detail = match self.back_after_s {
            Some(after) => {
                format!("a second at {BACK} of it has passed {after:.2} s after the end")
            }
            None => format!("never a second at {BACK} of it"),
        };
        Case::new(self.name(BACK_SOON), Some(level), later)
            .ended(CaseVerdict::of(is_back), detail)
            .column("back_after_s", self.back_after_s)
    }

    fn estimated(&self) -> Case {
        Case::judged(self.name(ESTIMATE), self.limit, Some(self.estimate), 0.9..=1.05)
            .column("relay_cpu_share", self.cpu_share)
    }

    /// Figure 7 of the paper.
    pub(super) fn figure(&self) -> ExperimentFigure {
        let quiet = |second: f64, client: f64| TrafficSecond {
            second,
            measurement_mbit_per_s: 0.0,
            client_mbit_per_s: client,
        };
        let numbers = |count: usize| (0..u32::try_from(count).unwrap_or(u32::MAX)).map(f64::from);
        let (before, length) = (as_f64(self.before.len()), as_f64(self.during.len()));
        let mut seconds: Vec<TrafficSecond> = numbers(self.before.len())
            .zip(&self.before)
            .map(|(number, client)| quiet(number - before, *client))
            .collect();
        seconds.extend(numbers(self.during.len()).zip(&self.during).map(|(number, second)| {
            TrafficSecond {
                second: number,
                measurement_mbit_per_s: second.came_back,
                client_mbit_per_s: second.received,
            }
        }));
        let after = numbers(self.after.len()).zip(&self.after);
        seconds.extend(after.map(|(number, client)| quiet(length + number, *client)));
        let last = self.after.last().copied().unwrap_or_default();
        seconds.push(quiet(length + as_f64(self.after.len()), last));

        let title = format!("A relay with clients while it is measured, r = {}", self.ratio);
        let name = format!("figure-7-r-{}", self.ratio).replace('.', "-");
        let middle = |what: &dyn Fn(&MeasuredSecond) -> f64| -> Vec<(f64, f64)> {
            let points = numbers(self.during.len()).zip(&self.during);
            points.map(|(number, second)| (number + 0.5, what(second))).collect()
        };
        let figure = ExperimentFigure::traffic(&name, &title, &seconds, 0.0, length)
            .with(Series::line(
                "what clients may have",
                Role::Muted,
                middle(&|second| self.allowed(second)),
            ))
            .with(Series::dots(
                "clients, as the relay says",
                Role::Truth,
                middle(&|second| second.reported),
            ))
            .mark(On::Y, self.limit, "limit of the relay", Role::Truth)
            .caption(
                "What the sockets of measurers and of clients received, second by second, by the kernel; \
                 dots are what the relay reported of its clients. In the first second the relay spends what its rate \
                 limit lets it save up.",
            );
        let x = Axis::new("seconds from the beginning of the measurement");
        ExperimentFigure { x, ..figure }
    }

    /// What else there is to say.
    pub(super) fn note(&self) -> String {
        format!(
            "With r = {}: clients received {:.1} Mbit/s before, {:.1} while it was measured and \
             {:.1} afterwards; {:.1} Mbit/s came back to the measurers. {} downloads of a stock client came \
             whole meanwhile.",
            self.ratio,
            self.level(),
            self.median_of(|second| second.received),
            median(self.after.iter().copied()).unwrap_or_default(),
            self.median_of(|second| second.came_back),
            self.downloads,
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "nobody plays 2^53 seconds")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        let second = MeasuredSecond {
            measured: 180.0,
            reported: 20.0,
            came_back: 180.0,
            received: 20.0,
            handed: 20.0,
        };
        Window {
            ratio: 0.1,
            limit: 200.0,
            estimate: 200.0,
            alone: vec![40.0; 5],
            before: vec![40.0; 6],
            during: vec![second; 10],
            after: vec![40.0; 5],
            cpu_share: Some(0.3),
            downloads: 7,
            back_after_s: Some(1.0),
        }
    }

    fn verdicts(window: &Window) -> Vec<CaseVerdict> {
        window.cases().iter().map(|case| case.verdict).collect()
    }

    #[test]
    fn a_relay_that_does_as_it_should_is_found_to() {
        assert_eq!(verdicts(&window()), [CaseVerdict::Held; 6]);
        let figure = window().figure();
        assert_eq!(figure.name, "figure-7-r-0-1");
        assert_eq!(figure.series[0].points.len(), 6 + 10 + 5 + 1);
        assert_eq!(figure.series[0].points[6], (0.0, 200.0));
    }

    #[test]
    fn each_claim_is_found_not_to_hold() {
        let missed = |change: &dyn Fn(&mut Window)| {
            let mut window = window();
            change(&mut window);
            let held = |verdict: &CaseVerdict| *verdict == CaseVerdict::Held;
            verdicts(&window).iter().map(held).collect::<Vec<_>>()
        };
        let each = |window: &mut Window, change: fn(&mut MeasuredSecond)| {
            window.during.iter_mut().for_each(change);
        };
        let miscounts = missed(&|it| each(it, |second| second.reported = 0.0));
        assert_eq!(miscounts, [false, false, true, true, true, true]);
        // Of the sum half of so few clients is but 5 %.
        let halves = missed(&|it| each(it, |second| second.reported = 10.5));
        assert_eq!(halves, [true, false, true, true, true, true]);
        let drops = missed(&|it| each(it, |second| second.handed = 18.5));
        assert_eq!(drops, [true, false, true, true, true, true]);
        // An invented rate is not what the measurers received.
        let inflates = missed(&|it| each(it, |second| second.measured = 200.0));
        assert_eq!(inflates, [false, true, true, true, true, true]);
        // What a client has not fetched from the relay's kernel yet is no less forwarded.
        let slow_reader = missed(&|it| each(it, |second| second.received = 19.0));
        assert_eq!(slow_reader, [true; 6]);
        // Nor is it right by turns.
        let by_turns = missed(&|it| {
            for (second, measured) in it.during.iter_mut().zip([150.0, 210.0].iter().cycle()) {
                second.measured = *measured;
            }
        });
        assert_eq!(by_turns, [false, true, true, true, true, true]);
        let lets_through = missed(&|it| {
            each(it, |it| (it.reported, it.handed, it.received) = (40.0, 40.0, 40.0));
        });
        assert_eq!(lets_through, [true, true, false, true, true, true]);
        let starves = missed(&|it| {
            each(it, |it| (it.reported, it.handed, it.received) = (1.0, 1.0, 1.0));
        });
        assert_eq!(starves, [true, true, true, false, true, true]);
        assert_eq!(
            missed(&|it| it.back_after_s = Some(2.5)),
            [true, true, true, true, false, true]
        );
        assert_eq!(missed(&|it| it.after = vec![30.0; 5]), [true, true, true, true, false, true]);
        assert_eq!(missed(&|it| it.estimate = 215.0), [true, true, true, true, true, false]);
    }
}
