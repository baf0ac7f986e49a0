//! What was found of one relay under one attack, and what follows from it.

use super::honest::Stretch;
use super::name_leak::{self, NameLeak};
use super::plan::Side;
use crate::reporting::median;
use lab::attacks::{Kind, Reads, Spent};
use lab::processors::Load;
use onion::Duration;
use report::experiment::{Case, CaseVerdict, Value};

/// Of honest throughput, kept at least.
pub(super) const THROUGHPUT: f64 = 0.8;

/// Of honest circuits, kept at least.
pub(super) const ALIVE: f64 = 0.99;

/// Of honest requests to its directory, answered at least.
pub(super) const ANSWERED: f64 = 0.95;

/// Shares that differ by less are the same: these are a few seconds on a shared machine.
const THROUGHPUT_SCATTER: f64 = 0.05;
const ALIVE_SCATTER: f64 = 0.01;
const READ_SCATTER: f64 = 0.05;

/// Times that differ by less are the same: a factor, and milliseconds.
const BUILD_SCATTER: (f64, f64) = (1.25, 25.0);

/// Memory that differs by less is the same, in MiB.
const MEMORY_SCATTER_MIB: f64 = 8.0;

/// What one relay did under one attack.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    pub(super) side: Side,
    pub(super) peace: Stretch,
    pub(super) attacked: Stretch,
    /// What an honest client got of the relay's directory.
    pub(super) reads_peace: Reads,
    pub(super) reads: Reads,
    /// Of the circuits that stood when the attack began: alive at its end, and all.
    pub(super) stood: (usize, usize),
    /// Memory before the attack and the most ever, in MiB.
    pub(super) before_mib: f64,
    pub(super) peak_mib: f64,
    pub(super) bound_mib: f64,
    /// Processor time of the relay.
    pub(super) peace_cpu: Duration,
    pub(super) attacked_cpu: Duration,
    /// Who had the processors during the attack.
    pub(super) load: Load,
    pub(super) spent: Spent,
    /// What the relay's sockets received from attackers by the kernel, at least, and their most connections at a time.
    pub(super) witnessed_bytes: u64,
    pub(super) witnessed_connections: usize,
    /// Where names were probed: what answers reveal, or why they reveal nothing.
    pub(super) told: Option<Result<NameLeak, String>>,
}

impl Finding {
    pub(super) fn name(&self) -> String {
        format!("{} on {}", self.kind.word(), self.side.word())
    }

    /// What honest downloads kept of their rate in peace.
    pub(super) fn throughput_share(&self) -> f64 {
        self.attacked.mean_mbit() / self.peace.mean_mbit()
    }

    /// Of the circuits that stood and those that were asked for during the attack: how many live at its end.
    pub(super) fn alive_share(&self) -> f64 {
        share(self.stood.0 + self.attacked.alive, self.stood.1 + self.attacked.asked)
    }

    /// What the attacker sent, in Mbit/s.
    pub(super) fn attacker_mbit(&self) -> f64 {
        megabytes(self.spent.sent_bytes) * 8.0 / self.attacked.seconds.max(1e-9)
    }

    fn grown_mib(&self) -> f64 {
        self.peak_mib - self.before_mib
    }

    /// What did not hold.
    fn failings(&self) -> Vec<String> {
        let mut failings = Vec::new();
        let share = self.throughput_share();
        if share.is_nan() || share < THROUGHPUT {
            failings.push(format!("{:.0} % of honest throughput", share * 100.0));
        }
        let share = self.alive_share();
        if share < ALIVE {
            failings.push(format!(
                "{:.1} % of honest circuits ({} of {} that stood, {} of {} asked for{})",
                share * 100.0,
                self.stood.0,
                self.stood.1,
                self.attacked.alive,
                self.attacked.asked,
                reasons(&self.attacked)
            ));
        }
        let Reads { asked, answered, .. } = self.reads;
        if self.reads.share() < ANSWERED {
            failings.push(format!("{answered} of {asked} honest directory requests answered"));
        }
        if self.grown_mib() > self.bound_mib {
            failings.push(format!(
                "{:.0} MiB more memory than before, with a bound of {:.0}",
                self.grown_mib(),
                self.bound_mib
            ));
        }
        if let Some(told) = self.told()
            && told.by_ttl > name_leak::BY_TTL
        {
            failings.push(format!(
                "lifetimes in answers ({:?} s) distinguish {:.0} % of names that others have asked for from names that nobody has",
                told.ttls_s,
                told.by_ttl * 100.0
            ));
        }
        failings
    }

    fn told(&self) -> Option<&NameLeak> {
        self.told.as_ref()?.as_ref().ok()
    }

    pub(super) fn held(&self) -> bool {
        self.failings().is_empty()
    }

    /// Why it says nothing, if it does not: an attack that never came, or peace that was none.
    fn problem(&self) -> Option<String> {
        if self.witnessed_bytes == 0
            && self.witnessed_connections == 0
            && !self.kind.comes_by_another()
            && !self.kind.is_on_exit()
        {
            return Some("the kernel has seen nothing of the attack at the relay".to_owned());
        }
        if let Some(Err(problem)) = &self.told {
            return Some(problem.clone());
        }
        if self.kind.has_requests() && self.spent.requests == 0 {
            return Some("no directory request was part of the attack".to_owned());
        }
        let Reads { asked, answered, .. } = self.reads_peace;
        if asked == 0 || share((answered + 1).min(asked), asked) < ANSWERED {
            return Some(format!(
                "in peace {answered} of {asked} directory requests were answered"
            ));
        }
        let Stretch { asked, alive, .. } = self.peace;
        // Of few, one that is lost by chance is more than a hundredth.
        if asked == 0 || share((alive + 1).min(asked), asked) < ALIVE {
            let why = reasons(&self.peace);
            return Some(format!("in peace {alive} of {asked} circuits were built{why}"));
        }
        let mean = self.peace.mean_mbit();
        (mean <= 0.0).then(|| "in peace nothing was downloaded".to_owned())
    }

    pub(super) fn case(&self) -> Case {
        let number = |value: f64, digits: i32| {
            let scale = 10f64.powi(digits);
            Value::from((value * scale).round() / scale)
        };
        let some = |value: Option<f64>| value.map_or(Value::Null, |value| number(value, 1));
        let case = Case::named(self.name())
            .column("attack", self.kind.word())
            .column("relay", self.side.word())
            .column("honest_throughput_share", number(self.throughput_share(), 3))
            .column("honest_circuits_alive_share", number(self.alive_share(), 4))
            .column("build_time_ms", some(self.attacked.median_build_ms()))
            .column("build_time_peace_ms", some(self.peace.median_build_ms()))
            .column("peak_memory_mib", number(self.peak_mib, 1))
            .column("memory_before_mib", number(self.before_mib, 1))
            .column("attacker_mbit_per_s", number(self.attacker_mbit(), 2))
            .column("held", self.held() && self.problem().is_none())
            .column("honest_peace_mbit_per_s", number(self.peace.mean_mbit(), 2))
            .column("broken_downloads", self.attacked.broken_downloads)
            .column("circuits_stood", self.stood.1)
            .column("circuits_stood_alive", self.stood.0)
            .column("circuits_asked", self.attacked.asked)
            .column("circuits_built_alive", self.attacked.alive)
            .column("directory_answers_share", number(self.reads.share(), 3))
            .column("directory_requests", self.reads.asked)
            .column("directory_answer_ms", some(median(self.reads.ms.iter().copied())))
            .column("directory_answer_peace_ms", some(median(self.reads_peace.ms.iter().copied())))
            .column("relay_cpu_s", number(self.attacked_cpu.as_secs_f64(), 2))
            .column("relay_cpu_peace_s", number(self.peace_cpu.as_secs_f64(), 2))
            .column("relay_waited_percent", number(self.load.waited * 100.0, 1))
            .column("machine_busy_percent", number(self.load.machine * 100.0, 1))
            .column("attacker_cpu_s", number(self.spent.cpu.as_secs_f64(), 2))
            .column("attacker_cells", self.spent.cells)
            .column("attacker_requests", self.spent.requests)
            .column("attacker_connections", self.spent.dialled)
            .column("attacker_links", self.spent.opened)
            .column("attacker_lost", self.spent.lost)
            .column("attacker_received_mb", number(megabytes(self.spent.received_bytes), 2))
            .column("witnessed_mb", number(megabytes(self.witnessed_bytes), 2))
            .column("witnessed_connections", self.witnessed_connections);
        let case = match self.told() {
            Some(told) => case
                .column("names_told_by_time", number(told.by_time, 3))
                .column("names_told_by_ttl", number(told.by_ttl, 3))
                .column("answer_asked_ms", number(told.asked_ms, 1))
                .column("answer_fresh_ms", number(told.fresh_ms, 1))
                .column("ttls_told_s", format!("{:?}", told.ttls_s)),
            None => case,
        };
        if let Some(problem) = self.problem() {
            return case.ended(CaseVerdict::Failed, problem);
        }
        let failings = self.failings();
        let told = format!(
            "throughput {:.0} %, circuits {:.1} %, directory {:.0} %, built in {:.0} ms ({:.0} in peace), {:.0} MiB, {:.1} Mbit/s of attack",
            self.throughput_share() * 100.0,
            self.alive_share() * 100.0,
            self.reads.share() * 100.0,
            self.attacked.median_build_ms().unwrap_or(f64::NAN),
            self.peace.median_build_ms().unwrap_or(f64::NAN),
            self.peak_mib,
            self.attacker_mbit(),
        );
        let told = match self.told() {
            Some(of) => format!(
                "{told}; names told right by the time of answers {:.0} %, by their lifetimes {:.0} %",
                of.by_time * 100.0,
                of.by_ttl * 100.0
            ),
            None => told,
        };
        if failings.is_empty() {
            case.ended(CaseVerdict::Held, told)
        } else {
            let failings = failings.join("; ");
            case.ended(CaseVerdict::Missed, format!("{told}. Not held: {failings}"))
        }
    }

    /// In which columns it is worse than another.
    pub(super) fn worse_than(&self, other: &Self) -> Vec<&'static str> {
        let build = |it: &Self| it.attacked.median_build_ms().unwrap_or(f64::INFINITY);
        let (factor, more) = BUILD_SCATTER;
        let columns = [
            ("throughput", self.throughput_share() < other.throughput_share() - THROUGHPUT_SCATTER),
            ("circuits", self.alive_share() < other.alive_share() - ALIVE_SCATTER),
            ("directory", self.reads.share() < other.reads.share() - READ_SCATTER),
            ("build time", build(self) > build(other) * factor + more),
            ("memory", self.peak_mib > other.peak_mib + MEMORY_SCATTER_MIB),
        ];
        columns.into_iter().filter(|(_, is_worse)| *is_worse).map(|(column, _)| column).collect()
    }
}

/// Why circuits were lost.
fn reasons(stretch: &Stretch) -> String {
    let reasons = stretch.losses.iter().map(|(why, count)| format!("{count}× {why}"));
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) }
}

#[expect(clippy::cast_precision_loss, reason = "a count of circuits")]
fn share(part: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "a figure")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch(mbit: f64, asked: usize, alive: usize, build_ms: f64) -> Stretch {
        let build_ms = vec![build_ms; alive];
        Stretch { seconds: 4.0, mbit: vec![mbit; 4], asked, alive, build_ms, ..Stretch::default() }
    }

    fn reads(asked: usize, answered: usize) -> Reads {
        Reads { asked, answered, ms: vec![3.0; answered] }
    }

    fn finding() -> Finding {
        Finding {
            kind: Kind::SniperWide,
            side: Side::Ours,
            peace: stretch(20.0, 50, 50, 10.0),
            attacked: stretch(16.0, 50, 50, 20.0),
            reads_peace: reads(20, 20),
            reads: reads(20, 19),
            stood: (50, 50),
            before_mib: 20.0,
            peak_mib: 84.0,
            bound_mib: 64.0,
            peace_cpu: Duration::ZERO,
            attacked_cpu: Duration::from_secs(1),
            load: Load::default(),
            spent: Spent { sent_bytes: 25_000_000, ..Spent::default() },
            witnessed_bytes: 24_000_000,
            witnessed_connections: 10,
            told: None,
        }
    }

    fn told(by_time: f64, by_ttl: f64) -> Option<Result<NameLeak, String>> {
        let ttls_s = vec![60, 600];
        Some(Ok(NameLeak { by_time, by_ttl, asked_ms: 1.0, fresh_ms: 50.0, ttls_s }))
    }

    #[test]
    fn lifetimes_that_tell_who_has_asked_are_a_failing_and_too_few_answers_no_result() {
        let it = Finding { told: told(1.0, 0.75), ..finding() };
        assert_eq!(it.case().verdict, CaseVerdict::Held, "by chance");
        let it = Finding { told: told(1.0, 0.8), ..finding() };
        assert_eq!(it.case().verdict, CaseVerdict::Missed);
        let it = Finding { told: Some(Err("too few".to_owned())), ..finding() };
        assert_eq!(it.case().verdict, CaseVerdict::Failed);
    }

    #[test]
    fn an_attack_is_held_at_the_bounds_and_not_beyond_any_of_them() {
        let case = finding().case();
        assert_eq!(case.verdict, CaseVerdict::Held, "{}", case.detail);
        let column =
            |name: &str| case.columns.iter().find(|(its, _)| its == name).unwrap().1.clone();
        assert_eq!(column("honest_throughput_share"), Value::from(0.8));
        assert_eq!(column("honest_circuits_alive_share"), Value::from(1.0));
        assert_eq!(column("attacker_mbit_per_s"), Value::from(50.0));
        assert_eq!(column("held"), Value::from(true));
        let missed = [
            Finding { attacked: stretch(15.9, 50, 50, 20.0), ..finding() },
            Finding { attacked: stretch(16.0, 50, 48, 20.0), ..finding() },
            Finding { stood: (48, 50), ..finding() },
            Finding { peak_mib: 84.5, ..finding() },
            Finding { reads: reads(20, 18), ..finding() },
        ];
        for it in missed {
            assert_eq!((it.case().verdict, it.held()), (CaseVerdict::Missed, false), "{it:?}");
        }
        assert!(Finding { stood: (49, 50), ..finding() }.held(), "99 % live");
    }

    #[test]
    fn without_peace_or_without_an_attack_there_is_no_result() {
        let failed = [
            Finding { witnessed_bytes: 0, witnessed_connections: 0, ..finding() },
            Finding { peace: stretch(20.0, 50, 40, 10.0), ..finding() },
            Finding { peace: stretch(0.0, 50, 50, 10.0), ..finding() },
            Finding { reads_peace: reads(20, 10), ..finding() },
            Finding { kind: Kind::DirectoryWork, ..finding() },
        ];
        for it in failed {
            let case = it.case();
            assert_eq!(case.verdict, CaseVerdict::Failed, "{}", case.detail);
            let held = case.columns.iter().find(|(name, _)| name == "held");
            assert_eq!(held.map(|(_, held)| held.clone()), Some(Value::from(false)));
        }
    }

    #[test]
    fn worse_is_worse_by_more_than_chance() {
        let tor = Finding { side: Side::Tor, ..finding() };
        assert!(finding().worse_than(&tor).is_empty());
        let slower =
            Finding { attacked: stretch(14.0, 50, 49, 90.0), peak_mib: 100.0, ..finding() };
        assert_eq!(slower.worse_than(&tor), ["throughput", "build time", "memory"]);
        assert!(tor.worse_than(&slower).is_empty());
        let lost = Finding { stood: (40, 50), ..finding() };
        assert_eq!(lost.worse_than(&tor), ["circuits"]);
    }
}
