//! The grid.

use super::Options;
use super::fault::{Fault, Moment};
use super::judge::Judged;
use crate::common::or;
use crate::mode::Mode;
use crate::simulated::Shard;
use coordinator::Params;
use lab::wan::{Congestion, Way};
use measurer::TeamOptions;
use onion::Duration;
use std::fmt;

/// A distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) rtt_ms: u32,
    /// Of the packets of each of its two ways.
    pub(super) loss_percent: f64,
    /// What else goes wrong.
    pub(super) fault: Option<Fault>,
    /// From when on, if it begins at some moment.
    pub(super) fault_at: Moment,
    /// How many sockets; found out by the distance if `None`.
    pub(super) sockets: Option<u32>,
}

impl Path {
    /// Each of its two ways, before anything breaks.
    pub(super) fn way(&self) -> Way {
        let one_way = Duration::from_micros(u64::from(self.rtt_ms) * 500);
        let way = Way::with_latency(one_way).losing(self.loss_percent / 100.0);
        self.fault.map_or(way, |it| it.all_the_time(way))
    }

    /// What tells the truth: neither length nor loss.
    pub(super) const NONE: Self =
        Self { rtt_ms: 0, loss_percent: 0.0, fault: None, fault_at: Moment::Middle, sockets: None };

    /// What goes wrong, and when if that is not in the middle; nothing if nothing does.
    pub(super) fn fault_words(&self) -> Vec<&'static str> {
        let at = (self.fault_at != Moment::Middle).then(|| self.fault_at.words());
        self.fault.map(Fault::words).into_iter().chain(at).collect()
    }
}

/// What is measured over distances, and how.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct What {
    pub(super) mode: Mode,
    pub(super) congestion: Congestion,
    /// The relay, by its place among the limits, and its limit in Mbit/s.
    pub(super) relay: usize,
    pub(super) limit: f64,
}

impl What {
    /// Of the file of its run over a path, without the ending.
    pub(super) fn file_name(&self, path: &Path) -> String {
        let Self { mode, congestion, limit, .. } = self;
        let Path { rtt_ms, loss_percent, .. } = path;
        let words = path.fault_words();
        let fault: String = words.iter().map(|it| format!("-{}", it.replace(' ', "-"))).collect();
        format!("{}-{limit}-{rtt_ms}-{loss_percent}-{congestion}{fault}", mode.word())
    }
}

/// A run, and what came of it as soon as it is over.
pub(super) struct Planned {
    pub(super) what: What,
    pub(super) path: Path,
    /// Whether it is to be played here.
    pub(super) is_ours: bool,
    pub(super) over: Option<Judged>,
}

impl Planned {
    pub(super) const fn is_to_play(&self) -> bool {
        self.is_ours && self.over.is_none()
    }
}

pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) rtts_ms: Vec<u32>,
    pub(super) losses_percent: Vec<f64>,
    pub(super) congestions: Vec<Congestion>,
    pub(super) limits: Vec<f64>,
    pub(super) modes: Vec<Mode>,
    pub(super) faults: Vec<Fault>,
    pub(super) fault_at: Moment,
    pub(super) seed: u64,
    shard: Option<Shard>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {} %", self.rtt_ms, self.loss_percent)?;
        self.fault_words().into_iter().try_for_each(|words| write!(f, ", {words}"))
    }
}

impl Plan {
    pub(super) fn new(options: &Options, is_quick: bool) -> Self {
        let every = [Congestion::Bbr, Congestion::Reno, Congestion::Cubic];
        let modes = [Mode::Transit, Mode::Echo];
        Self {
            seconds: options.seconds.unwrap_or(if is_quick { 12 } else { 30 }),
            rtts_ms: or(&options.rtts_ms, is_quick, &[20, 100], &[20, 100, 200, 300]),
            losses_percent: or(
                &options.losses_percent,
                is_quick,
                &[0.0, 0.1],
                &[0.0, 0.02, 0.1, 1.0],
            ),
            congestions: or(&options.congestions, is_quick, &every[..2], &every),
            limits: or(&options.limits, is_quick, &[10.0, 90.0], &[10.0, 90.0, 250.0]),
            modes: or(&options.modes, is_quick, &modes, &modes),
            faults: options.faults.clone(),
            fault_at: options.fault_at,
            seed: options.seed,
            shard: options.shard,
        }
    }

    #[cfg(test)]
    pub(super) fn example() -> Self {
        Self {
            seconds: 8,
            rtts_ms: vec![20, 100],
            losses_percent: vec![0.0, 0.02],
            congestions: vec![Congestion::Reno, Congestion::Bbr],
            limits: vec![10.0, 90.0],
            modes: vec![Mode::Transit, Mode::Echo],
            faults: vec![Fault::Breaks, Fault::BreaksOut],
            fault_at: Moment::Middle,
            seed: 1,
            shard: None,
        }
    }

    pub(super) fn params(&self) -> Params {
        Params { seconds: self.seconds, ..TeamOptions::default().params }
    }

    pub(super) fn paths(&self) -> impl Iterator<Item = Path> {
        self.rtts_ms.iter().flat_map(|rtt_ms| {
            self.losses_percent.iter().map(|loss_percent| Path {
                rtt_ms: *rtt_ms,
                loss_percent: *loss_percent,
                ..Path::NONE
            })
        })
    }

    /// Those on which something goes wrong.
    pub(super) fn faulty_paths(&self) -> impl Iterator<Item = Path> {
        let rtt_ms = self.rtts_ms.first().copied().unwrap_or_default();
        self.faults.iter().map(move |it| {
            let fault_at = if it.has_moment() { self.fault_at } else { Moment::Middle };
            Path { rtt_ms, fault: Some(*it), fault_at, ..Path::NONE }
        })
    }

    /// All runs, those with the same relays together. Whatever is measured of a relay with one congestion control is in one
    /// part: it has the same truths.
    pub(super) fn planned(&self) -> Vec<Planned> {
        let mut planned = Vec::new();
        let mut group = 0;
        for congestion in self.congestions.iter().copied() {
            for mode in self.modes.iter().copied() {
                for (relay, limit) in self.limits.iter().copied().enumerate() {
                    let what = What { mode, congestion, relay, limit };
                    let is_ours = self.shard.is_none_or(|it| it.takes(group));
                    group += 1;
                    // What breaks for good comes last.
                    let faulty = self.faulty_paths().filter(|_| relay + 1 == self.limits.len());
                    let paths = self.paths().chain(faulty);
                    planned.extend(paths.map(|path| Planned { what, path, is_ours, over: None }));
                }
            }
        }
        planned
    }

    /// Runs in all, without those that tell the truth.
    pub(super) fn runs(&self) -> usize {
        let of_relays = self.paths().count() * self.limits.len();
        (of_relays + self.faults.len()) * self.congestions.len() * self.modes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shard: Option<Shard>) -> Plan {
        Plan { shard, ..Plan::example() }
    }

    #[test]
    fn each_run_has_a_file_of_its_own() {
        let plan = plan(None);
        let planned = plan.planned();
        assert_eq!(planned.len(), plan.runs());
        let mut names: Vec<String> = planned.iter().map(|it| it.what.file_name(&it.path)).collect();
        assert!(names.contains(&"echo-90-20-0-bbr-breaks-on-the-way-out".to_owned()), "{names:?}");
        assert!(names.contains(&"transit-10-100-0.02-reno".to_owned()), "{names:?}");
        let late = Plan { fault_at: Moment::Late, ..plan };
        let late: Vec<String> =
            late.planned().iter().map(|it| it.what.file_name(&it.path)).collect();
        let other = "echo-90-20-0-bbr-breaks-after-three-quarters".to_owned();
        assert!(late.contains(&other) && !names.contains(&other), "{late:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), planned.len());
    }

    #[test]
    fn shards_together_are_all_runs_and_what_is_measured_of_a_relay_is_in_one() {
        let parts: Vec<Vec<Planned>> = ["1/3", "2/3", "3/3"]
            .map(|it| plan(Some(it.parse().expect("a part"))).planned())
            .into();
        for runs in parts[0].iter().zip(&parts[1]).zip(&parts[2]) {
            let ((one, two), three) = runs;
            let takers = [one, two, three].iter().filter(|it| it.is_to_play()).count();
            assert_eq!(takers, 1, "{:?}", one.what);
        }
        for part in &parts {
            for runs in part.chunk_by(|one, other| one.what == other.what) {
                assert!(runs.iter().all(|it| it.is_ours == runs[0].is_ours));
            }
        }
    }
}
