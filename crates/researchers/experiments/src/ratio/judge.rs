//! The claims about a measured relay with clients, and their verdicts.

use super::seen::{BACK, MeasuredSecond, Window};
use crate::reporting::median;
use report::experiment::{
    Axis, Case, CaseVerdict, ExperimentFigure, On, Role, Series, TrafficSecond,
};

/// The ends of cases' names.
pub(super) const SUM: &str = "sum as forwarded";
pub(super) const CLIENTS: &str = "clients as forwarded";
pub(super) const HELD: &str = "clients held to their share";
const GRANTED: &str = "clients have their share";
const BACK_SOON: &str = "clients recover";
const FORWARDED: &str = "forwarded as the limit";
pub(super) const ESTIMATE: &str = "estimate as forwarded";

/// The tolerance of reported over counted traffic, and of clients over their share. The kernel also counts TLS: 0.1 % with full
/// records, 4 % with one record for each cell.
const TOLERANCE: f64 = 0.05;

/// Time in which clients must recover.
const BACK_WITHIN_S: f64 = 2.0;

impl Window {
    /// The clients' median rate without a measurement, in Mbit/s.
    pub(super) fn level(&self) -> f64 {
        median(self.alone.iter().copied()).unwrap_or_default()
    }

    /// *x*·*r*/(1−*r*): the clients' share in a second, where *x* is what the kernel counted.
    fn allowed(&self, second: &MeasuredSecond) -> f64 {
        second.returned * self.ratio / (1.0 - self.ratio)
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
        cases.into_iter().chain(self.forwarded()).collect()
    }

    fn name(&self, what: &str) -> String {
        format!("r = {}: {what}", self.ratio)
    }

    /// Claims that the reported sum of measurement and clients is what was forwarded according to the kernel, in total and in the
    /// median second.
    fn sum(&self) -> Case {
        let (case, off) = self.compared(SUM, "sum", |second| {
            (second.measured + second.reported, second.returned + second.handed)
        });
        if case.verdict == CaseVerdict::Held && off > TOLERANCE {
            return Case { verdict: CaseVerdict::Missed, ..case };
        }
        case
    }

    /// Claims that the reported traffic of clients is what was forwarded to them, in total only: in so little traffic,
    /// seconds that begin at other times on the second clock differ visibly.
    fn clients(&self) -> Case {
        let (case, _) =
            self.compared(CLIENTS, "clients' part", |second| (second.reported, second.handed));
        let part = self.median_of(|second| second.handed / (second.returned + second.handed));
        case.column("clients_part", part).column("downloads", self.downloads)
    }

    /// Compares the reported with the true mean over all seconds. Also returns the relative error of the median second.
    fn compared(
        &self,
        name: &str,
        what: &str,
        pair: impl Fn(&MeasuredSecond) -> (f64, f64),
    ) -> (Case, f64) {
        let mean = |all: f64| all / as_f64(self.during.len());
        let reported = mean(self.during.iter().map(|second| pair(second).0).sum());
        let truth = mean(self.during.iter().map(|second| pair(second).1).sum());
        let off = self.median_of(|second| {
            let (reported, truth) = pair(second);
            (reported / truth - 1.0).abs()
        });
        let bounds = 1.0 - TOLERANCE..=1.0 + TOLERANCE;
        let case = Case::judged(self.name(name), truth, Some(reported), bounds);
        let (verdict, off_percent) = (case.verdict, off * 100.0);
        let detail = format!(
            "the median second's {what} differs by {off_percent:.2} % from the kernel's count"
        );
        (case.ended(verdict, detail).column("median_difference", off), off)
    }

    /// Claims that clients have no more than their share.
    fn held(&self) -> Case {
        let over = self.median_of(|second| second.received / self.allowed(second));
        let received = self.median_of(|second| second.received);
        let allowed = self.median_of(|second| self.allowed(second));
        let is_held = over <= 1.0 + TOLERANCE;
        Case { ratio: Some(over), ..Case::new(self.name(HELD), Some(allowed), Some(received)) }
            .ended(
                CaseVerdict::of(is_held),
                "the truth is their share, the estimate what they received",
            )
    }

    /// Claims that clients have at least their share, or their demand if that is less.
    fn granted(&self) -> Case {
        let level = self.level();
        let due = self.median_of(|second| self.allowed(second).min(level));
        let received = self.median_of(|second| second.received);
        let comparison = if due < level { "less than" } else { "at least" };
        let case = Case::judged(self.name(GRANTED), due, Some(received), BACK..=f64::INFINITY);
        let verdict = case.verdict;
        case.ended(
            verdict,
            format!("their share is {comparison} their demand of {level:.1} Mbit/s"),
        )
    }

    /// Claims that clients are back at their level soon after the end, and stay there.
    fn back(&self) -> Case {
        let level = self.level();
        let later = median(self.after.iter().skip(2).copied());
        let is_back = self.back_after_s.is_some_and(|after| after <= BACK_WITHIN_S)
            && later.is_some_and(|later| later >= BACK * level);
        let detail = match self.back_after_s {
            Some(after) => {
                format!(
                    "the first second at {BACK} of their level ended {after:.2} s after the measurement"
                )
            }
            None => format!("no second at {BACK} of their level"),
        };
        Case::new(self.name(BACK_SOON), Some(level), later)
            .ended(CaseVerdict::of(is_back), detail)
            .column("back_after_s", self.back_after_s)
    }

    /// Claims that our relay forwards what its limit permits, in the median second.
    fn forwarded(&self) -> Option<Case> {
        let forwarded = self.median_of(|second| second.returned + second.handed);
        let case = || {
            Case::judged(self.name(FORWARDED), self.limit, Some(forwarded), 0.9..=1.0 + TOLERANCE)
        };
        self.keeps_to_limit.then(case)
    }

    /// Claims that the estimate is what the relay forwarded in the median second. C tor forwards less than its limit.
    fn estimated(&self) -> Case {
        let truth = self.median_of(|second| second.returned + second.handed);
        Case::judged(self.name(ESTIMATE), truth, Some(self.estimate), 0.9..=1.05)
            .column("limit_mbit_per_s", self.limit)
            .column("relay_cpu_share", self.cpu_share)
    }

    /// Figure 7 of the paper.
    pub(super) fn figure(&self) -> ExperimentFigure {
        let clients_only = |second: f64, client: f64| TrafficSecond {
            second,
            measurement_mbit_per_s: 0.0,
            client_mbit_per_s: client,
        };
        let numbers = |count: usize| (0..u32::try_from(count).unwrap_or(u32::MAX)).map(f64::from);
        let (before, length) = (as_f64(self.before.len()), as_f64(self.during.len()));
        let mut seconds: Vec<TrafficSecond> = numbers(self.before.len())
            .zip(&self.before)
            .map(|(number, client)| clients_only(number - before, *client))
            .collect();
        seconds.extend(numbers(self.during.len()).zip(&self.during).map(|(number, second)| {
            TrafficSecond {
                second: number,
                measurement_mbit_per_s: second.returned,
                client_mbit_per_s: second.received,
            }
        }));
        let after = numbers(self.after.len()).zip(&self.after);
        seconds.extend(after.map(|(number, client)| clients_only(length + number, *client)));
        let last = self.after.last().copied().unwrap_or_default();
        seconds.push(clients_only(length + as_f64(self.after.len()), last));

        let title = format!("A relay with clients while it is measured, r = {}", self.ratio);
        let name = format!("figure-7-r-{}", self.ratio).replace('.', "-");
        let middle = |what: &dyn Fn(&MeasuredSecond) -> f64| -> Vec<(f64, f64)> {
            let points = numbers(self.during.len()).zip(&self.during);
            points.map(|(number, second)| (number + 0.5, what(second))).collect()
        };
        let figure = ExperimentFigure::traffic(&name, &title, &seconds, 0.0, length)
            .with(Series::line(
                "the clients' share",
                Role::Muted,
                middle(&|second| self.allowed(second)),
            ))
            .with(Series::dots(
                "clients, as the relay reports",
                Role::Truth,
                middle(&|second| second.reported),
            ))
            .mark(On::Y, self.limit, "limit of the relay", Role::Truth)
            .caption(
                "The rates at which the sockets of measurers and clients received in each second, according to the kernel; dots \
                 are the relay's reports of its clients. In the first second, the relay uses the burst of its rate limit.",
            );
        let x = Axis::new("seconds since the measurement began");
        ExperimentFigure { x, ..figure }
    }

    /// The clients' rates before, during and after the measurement.
    pub(super) fn note(&self) -> String {
        format!(
            "With r = {}: clients received {:.1} Mbit/s before, {:.1} during and {:.1} after the measurement, and the \
             measurers {:.1} Mbit/s. {} downloads of a C tor client completed.",
            self.ratio,
            self.level(),
            self.median_of(|second| second.received),
            median(self.after.iter().copied()).unwrap_or_default(),
            self.median_of(|second| second.returned),
            self.downloads,
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^53 seconds")]
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
            returned: 180.0,
            received: 20.0,
            handed: 20.0,
        };
        Window {
            ratio: 0.1,
            limit: 200.0,
            keeps_to_limit: false,
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
    fn all_claims_hold_for_a_correct_relay() {
        assert_eq!(verdicts(&window()), [CaseVerdict::Held; 6]);
        let figure = window().figure();
        assert_eq!(figure.name, "figure-7-r-0-1");
        assert_eq!(figure.series[0].points.len(), 6 + 10 + 5 + 1);
        assert_eq!(figure.series[0].points[6], (0.0, 200.0));
        let ours = Window { keeps_to_limit: true, ..window() };
        assert_eq!(verdicts(&ours), [CaseVerdict::Held; 7]);
        let slow = Window { limit: 250.0, ..ours };
        assert_eq!(verdicts(&slow).last(), Some(&CaseVerdict::Missed));
    }

    #[test]
    fn each_claim_can_miss() {
        let missed = |change: &dyn Fn(&mut Window)| {
            let mut window = window();
            change(&mut window);
            let held = |verdict: &CaseVerdict| *verdict == CaseVerdict::Held;
            verdicts(&window).iter().map(held).collect::<Vec<_>>()
        };
        let each = |window: &mut Window, change: fn(&mut MeasuredSecond)| {
            window.during.iter_mut().for_each(change);
        };
        let miscounts = missed(&|window| each(window, |second| second.reported = 0.0));
        assert_eq!(miscounts, [false, false, true, true, true, true]);
        // Half of the clients' traffic is only 5 % of the sum.
        let halves = missed(&|window| each(window, |second| second.reported = 10.5));
        assert_eq!(halves, [true, false, true, true, true, true]);
        let drops = missed(&|window| each(window, |second| second.handed = 18.5));
        assert_eq!(drops, [true, false, true, true, true, true]);
        // An invented rate is not what the measurers received.
        let inflates = missed(&|window| each(window, |second| second.measured = 200.0));
        assert_eq!(inflates, [false, true, true, true, true, true]);
        // Data that a client has not yet read from the relay's kernel was forwarded.
        let slow_reader = missed(&|window| each(window, |second| second.received = 19.0));
        assert_eq!(slow_reader, [true; 6]);
        // Errors of opposite signs do not cancel out.
        let alternating = missed(&|window| {
            for (second, measured) in window.during.iter_mut().zip([150.0, 210.0].iter().cycle()) {
                second.measured = *measured;
            }
        });
        assert_eq!(alternating, [false, true, true, true, true, true]);
        let lets_through = missed(&|window| {
            each(window, |second| {
                (second.reported, second.handed, second.received) = (40.0, 40.0, 40.0);
            });
        });
        assert_eq!(lets_through, [true, true, false, true, true, true]);
        let starves = missed(&|window| {
            each(window, |second| {
                (second.reported, second.handed, second.received) = (1.0, 1.0, 1.0);
            });
        });
        // It forwards less than its estimate.
        assert_eq!(starves, [true, true, true, false, true, false]);
        assert_eq!(
            missed(&|window| window.back_after_s = Some(2.5)),
            [true, true, true, true, false, true]
        );
        assert_eq!(
            missed(&|window| window.after = vec![30.0; 5]),
            [true, true, true, true, false, true]
        );
        assert_eq!(
            missed(&|window| window.estimate = 215.0),
            [true, true, true, true, true, false]
        );
    }
}
