//! The result of one attack on one relay, and its verdict.

use super::honest::Service;
use super::name_leak::{self, NameLeak};
use super::plan::{Cell, Plan, Side};
use crate::columns::rounded;
use crate::reporting::median;
use lab::attacks::{Kind, Reads, Spent};
use lab::processors::Load;
use onion::Duration;
use report::experiment::{Case, CaseVerdict, Value};

/// The minimum share of the rate of honest downloads before the attack.
const THROUGHPUT: f64 = 0.8;

/// The minimum share of honest circuits that survive.
const ALIVE: f64 = 0.99;

/// The minimum share of honest directory requests that are answered.
const ANSWERED: f64 = 0.95;

/// Smaller differences of shares are ignored, because an interval is a few seconds on a shared machine.
const THROUGHPUT_SCATTER: f64 = 0.05;
const ALIVE_SCATTER: f64 = 0.01;
const READ_SCATTER: f64 = 0.05;

/// Smaller differences of build times are ignored: a factor plus milliseconds.
const BUILD_SCATTER: (f64, f64) = (1.25, 25.0);

/// Smaller differences of memory are ignored, in MiB.
const MEMORY_SCATTER_MIB: f64 = 8.0;

/// The result of one attack on one relay.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) kind: Kind,
    pub(super) side: Side,
    /// The service before the attack.
    pub(super) undisturbed: Service,
    /// The service during the attack.
    pub(super) attacked: Service,
    /// The results of an honest client of the relay's directory.
    pub(super) reads_before: Reads,
    pub(super) reads: Reads,
    /// Of the circuits that were open when the attack began: the number that are open at its end, and their total.
    pub(super) open_before: (usize, usize),
    /// Memory before the attack, and its maximum since the relay started, in MiB.
    pub(super) before_mib: f64,
    pub(super) peak_mib: f64,
    pub(super) limit_mib: f64,
    /// CPU time of the relay.
    pub(super) cpu_while_undisturbed: Duration,
    pub(super) attacked_cpu: Duration,
    /// The use of the processors during the attack.
    pub(super) load: Load,
    pub(super) spent: Spent,
    /// The kernel's counters at the relay: a lower bound of the bytes received from attackers, and the maximum number of their connections.
    pub(super) witnessed_bytes: u64,
    pub(super) witnessed_connections: usize,
    /// For DNS probing: what the answers reveal, or why there is no result.
    pub(super) leak: Option<Result<NameLeak, String>>,
}

impl Finding {
    fn name(&self) -> String {
        Cell { kind: self.kind, side: self.side }.to_string()
    }

    /// The rate of honest downloads as a share of their rate before the attack.
    pub(super) fn throughput_share(&self) -> f64 {
        self.attacked.mean_mbit() / self.undisturbed.mean_mbit()
    }

    /// The share of circuits that are open at the end, of those open before and those requested during the attack.
    pub(super) fn alive_share(&self) -> f64 {
        share(
            self.open_before.0 + self.attacked.alive,
            self.open_before.1 + self.attacked.requested,
        )
    }

    /// The attacker's mean rate, in Mbit/s.
    pub(super) fn attacker_mbit(&self) -> f64 {
        megabytes(self.spent.sent_bytes) * 8.0 / self.attacked.seconds.max(1e-9)
    }

    fn grown_mib(&self) -> f64 {
        self.peak_mib - self.before_mib
    }

    /// The criteria that are not met.
    fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        let share = self.throughput_share();
        if share.is_nan() || share < THROUGHPUT {
            failures.push(format!("{:.0} % of honest throughput", share * 100.0));
        }
        let share = self.alive_share();
        if share < ALIVE {
            failures.push(format!(
                "{:.1} % of honest circuits ({} of {} open ones, {} of {} requested ones{})",
                share * 100.0,
                self.open_before.0,
                self.open_before.1,
                self.attacked.alive,
                self.attacked.requested,
                reasons(&self.attacked)
            ));
        }
        let Reads { asked, answered, .. } = self.reads;
        if self.reads.share() < ANSWERED {
            failures.push(format!("{answered} of {asked} honest directory requests answered"));
        }
        if self.grown_mib() > self.limit_mib {
            failures.push(format!(
                "{:.0} MiB more memory than before, with a limit of {:.0}",
                self.grown_mib(),
                self.limit_mib
            ));
        }
        if let Some(leak) = self.leak()
            && leak.by_ttl > name_leak::BY_TTL
        {
            failures.push(format!(
                "TTLs in answers ({:?} s) classify {:.0} % of names correctly as requested before or not",
                leak.ttls_s,
                leak.by_ttl * 100.0
            ));
        }
        failures
    }

    fn leak(&self) -> Option<&NameLeak> {
        self.leak.as_ref()?.as_ref().ok()
    }

    pub(super) fn held(&self) -> bool {
        self.failures().is_empty()
    }

    /// The reason that there is no result, if there is none: the attack did not reach the relay, or the service was bad without it.
    fn problem(&self) -> Option<String> {
        if self.witnessed_bytes == 0
            && self.witnessed_connections == 0
            && !self.kind.uses_another_relay()
            && !self.kind.targets_exit()
        {
            return Some("the kernel saw no traffic of the attack at the relay".to_owned());
        }
        if let Some(Err(problem)) = &self.leak {
            return Some(problem.clone());
        }
        if self.kind.uses_requests() && self.spent.requests == 0 {
            return Some("the attack contained no directory request".to_owned());
        }
        let Reads { asked, answered, .. } = self.reads_before;
        if asked == 0 || share((answered + 1).min(asked), asked) < ANSWERED {
            return Some(format!(
                "before the attack, {answered} of {asked} directory requests were answered"
            ));
        }
        let Service { requested, alive, .. } = self.undisturbed;
        // One circuit may fail by chance, which is more than 1 % of a small number.
        if requested == 0 || share((alive + 1).min(requested), requested) < ALIVE {
            let reasons = reasons(&self.undisturbed);
            return Some(format!(
                "before the attack, {alive} of {requested} circuits were built{reasons}"
            ));
        }
        let mean = self.undisturbed.mean_mbit();
        (mean <= 0.0).then(|| "nothing was downloaded before the attack".to_owned())
    }

    pub(super) fn case(&self) -> Case {
        let some = |value: Option<f64>| value.and_then(|value| rounded(value, 1));
        let case = Case::named(self.name())
            .column("attack", self.kind.word())
            .column("relay", self.side.word())
            .column("honest_throughput_share", rounded(self.throughput_share(), 3))
            .column("honest_circuits_alive_share", rounded(self.alive_share(), 4))
            .column("build_time_ms", some(self.attacked.median_build_ms()))
            .column("build_time_before_ms", some(self.undisturbed.median_build_ms()))
            .column("peak_memory_mib", rounded(self.peak_mib, 1))
            .column("memory_before_mib", rounded(self.before_mib, 1))
            .column("attacker_mbit_per_s", rounded(self.attacker_mbit(), 2))
            .column("held", self.held() && self.problem().is_none())
            .column("honest_before_mbit_per_s", rounded(self.undisturbed.mean_mbit(), 2))
            .column("broken_downloads", self.attacked.broken_downloads)
            .column("circuits_open_before", self.open_before.1)
            .column("circuits_open_before_alive", self.open_before.0)
            .column("circuits_requested", self.attacked.requested)
            .column("circuits_requested_alive", self.attacked.alive)
            .column("directory_answers_share", rounded(self.reads.share(), 3))
            .column("directory_requests", self.reads.asked)
            .column("directory_answer_ms", some(median(self.reads.ms.iter().copied())))
            .column(
                "directory_answer_before_ms",
                some(median(self.reads_before.ms.iter().copied())),
            )
            .column("relay_cpu_s", rounded(self.attacked_cpu.as_secs_f64(), 2))
            .column("relay_cpu_before_s", rounded(self.cpu_while_undisturbed.as_secs_f64(), 2))
            .column("relay_waited_percent", rounded(self.load.waited * 100.0, 1))
            .column("machine_busy_percent", rounded(self.load.machine * 100.0, 1))
            .column("attacker_cpu_s", rounded(self.spent.cpu.as_secs_f64(), 2))
            .column("attacker_cells", self.spent.cells)
            .column("attacker_requests", self.spent.requests)
            .column("attacker_connections", self.spent.dialled)
            .column("attacker_links", self.spent.opened)
            .column("attacker_lost", self.spent.lost)
            .column("attacker_received_mb", rounded(megabytes(self.spent.received_bytes), 2))
            .column("witnessed_mb", rounded(megabytes(self.witnessed_bytes), 2))
            .column("witnessed_connections", self.witnessed_connections);
        let case = match self.leak() {
            Some(leak) => case
                .column("names_classified_by_time", rounded(leak.by_time, 3))
                .column("names_classified_by_ttl", rounded(leak.by_ttl, 3))
                .column("answer_asked_ms", rounded(leak.asked_ms, 1))
                .column("answer_fresh_ms", rounded(leak.fresh_ms, 1))
                .column("ttls_s", format!("{:?}", leak.ttls_s)),
            None => case,
        };
        if let Some(problem) = self.problem() {
            return case.ended(CaseVerdict::Failed, problem);
        }
        let failures = self.failures();
        let mut detail = format!(
            "throughput {:.0} %, circuits {:.1} %, directory {:.0} %, build time {:.0} ms ({:.0} before), {:.0} MiB, attacker {:.1} Mbit/s",
            self.throughput_share() * 100.0,
            self.alive_share() * 100.0,
            self.reads.share() * 100.0,
            self.attacked.median_build_ms().unwrap_or(f64::NAN),
            self.undisturbed.median_build_ms().unwrap_or(f64::NAN),
            self.peak_mib,
            self.attacker_mbit(),
        );
        if let Some(leak) = self.leak() {
            detail += &format!(
                "; names classified correctly by the time of answers {:.0} %, by their TTLs {:.0} %",
                leak.by_time * 100.0,
                leak.by_ttl * 100.0
            );
        }
        if failures.is_empty() {
            case.ended(CaseVerdict::Held, detail)
        } else {
            let failures = failures.join("; ");
            case.ended(CaseVerdict::Missed, format!("{detail}. Not held: {failures}"))
        }
    }

    /// The rate of honest downloads in each second, which counts from the start of the attack.
    pub(super) fn points(&self, plan: &Plan) -> Vec<(f64, f64)> {
        let seconds = |from: f64| (1..).map(move |second| from + f64::from(second));
        let before = seconds(-f64::from(plan.undisturbed_s)).zip(self.undisturbed.mbit.clone());
        before.chain(seconds(0.0).zip(self.attacked.mbit.clone())).collect()
    }
}

/// The aspects in which a relay is worse than another, by their cases; `None` if one has no result.
pub(super) fn worse_than(case: &Case, other: &Case) -> Option<Vec<&'static str>> {
    let both = |column: &str| {
        let of = |case: &Case| case.value(column).and_then(Value::as_f64);
        Some((of(case)?, of(other)?))
    };
    let build =
        |case: &Case| case.value("build_time_ms").and_then(Value::as_f64).unwrap_or(f64::INFINITY);
    let less = |column, scatter| both(column).map(|(own, other)| own < other - scatter);
    let (factor, more) = BUILD_SCATTER;
    let memory = both("peak_memory_mib").map(|(own, other)| own > other + MEMORY_SCATTER_MIB);
    let columns = [
        ("throughput", less("honest_throughput_share", THROUGHPUT_SCATTER)?),
        ("circuits", less("honest_circuits_alive_share", ALIVE_SCATTER)?),
        ("directory", less("directory_answers_share", READ_SCATTER)?),
        ("build time", build(case) > build(other) * factor + more),
        ("memory", memory?),
    ];
    let worse = columns.into_iter().filter(|(_, is_worse)| *is_worse);
    Some(worse.map(|(column, _)| column).collect())
}

/// The reasons of lost circuits.
fn reasons(service: &Service) -> String {
    let reasons = service.losses.iter().map(|(reason, count)| format!("{count}× {reason}"));
    let reasons: Vec<String> = reasons.collect();
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) }
}

#[expect(clippy::cast_precision_loss, reason = "a count of circuits")]
fn share(part: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

#[expect(clippy::cast_precision_loss, reason = "rounded for display")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(mbit: f64, requested: usize, alive: usize, build_ms: f64) -> Service {
        let build_ms = vec![build_ms; alive];
        let mbit = vec![mbit; 4];
        Service { seconds: 4.0, mbit, requested, alive, build_ms, ..Service::default() }
    }

    fn reads(asked: usize, answered: usize) -> Reads {
        Reads { asked, answered, ms: vec![3.0; answered] }
    }

    fn finding() -> Finding {
        Finding {
            kind: Kind::SniperWide,
            side: Side::Ours,
            undisturbed: service(20.0, 50, 50, 10.0),
            attacked: service(16.0, 50, 50, 20.0),
            reads_before: reads(20, 20),
            reads: reads(20, 19),
            open_before: (50, 50),
            before_mib: 20.0,
            peak_mib: 84.0,
            limit_mib: 64.0,
            cpu_while_undisturbed: Duration::ZERO,
            attacked_cpu: Duration::from_secs(1),
            load: Load::default(),
            spent: Spent { sent_bytes: 25_000_000, ..Spent::default() },
            witnessed_bytes: 24_000_000,
            witnessed_connections: 10,
            leak: None,
        }
    }

    fn leak(by_time: f64, by_ttl: f64) -> Option<Result<NameLeak, String>> {
        let ttls_s = vec![60, 600];
        Some(Ok(NameLeak { by_time, by_ttl, asked_ms: 1.0, fresh_ms: 50.0, ttls_s }))
    }

    #[test]
    fn ttls_that_reveal_requests_are_a_miss_and_too_few_answers_are_no_result() {
        let judged = Finding { leak: leak(1.0, 0.75), ..finding() };
        assert_eq!(judged.case().verdict, CaseVerdict::Held, "by chance");
        let judged = Finding { leak: leak(1.0, 0.8), ..finding() };
        assert_eq!(judged.case().verdict, CaseVerdict::Missed);
        let judged = Finding { leak: Some(Err("too few".to_owned())), ..finding() };
        assert_eq!(judged.case().verdict, CaseVerdict::Failed);
    }

    #[test]
    fn an_attack_is_withstood_at_the_limits_and_not_beyond_any_of_them() {
        let case = finding().case();
        assert_eq!(case.verdict, CaseVerdict::Held, "{}", case.detail);
        let column =
            |name: &str| case.columns.iter().find(|(its, _)| its == name).unwrap().1.clone();
        assert_eq!(column("honest_throughput_share"), Value::from(0.8));
        assert_eq!(column("honest_circuits_alive_share"), Value::from(1.0));
        assert_eq!(column("attacker_mbit_per_s"), Value::from(50.0));
        assert_eq!(column("held"), Value::from(true));
        let missed = [
            Finding { attacked: service(15.9, 50, 50, 20.0), ..finding() },
            Finding { attacked: service(16.0, 50, 48, 20.0), ..finding() },
            Finding { open_before: (48, 50), ..finding() },
            Finding { peak_mib: 84.5, ..finding() },
            Finding { reads: reads(20, 18), ..finding() },
        ];
        for finding in missed {
            assert_eq!(
                (finding.case().verdict, finding.held()),
                (CaseVerdict::Missed, false),
                "{finding:?}"
            );
        }
        assert!(Finding { open_before: (49, 50), ..finding() }.held(), "99 % live");
    }

    #[test]
    fn without_good_service_before_or_without_an_attack_there_is_no_result() {
        let failed = [
            Finding { witnessed_bytes: 0, witnessed_connections: 0, ..finding() },
            Finding { undisturbed: service(20.0, 50, 40, 10.0), ..finding() },
            Finding { undisturbed: service(0.0, 50, 50, 10.0), ..finding() },
            Finding { reads_before: reads(20, 10), ..finding() },
            Finding { kind: Kind::DirectoryWork, ..finding() },
        ];
        for finding in failed {
            let case = finding.case();
            assert_eq!(case.verdict, CaseVerdict::Failed, "{}", case.detail);
            let held = case.columns.iter().find(|(name, _)| name == "held");
            assert_eq!(held.map(|(_, held)| held.clone()), Some(Value::from(false)));
        }
    }

    #[test]
    fn small_differences_are_not_worse() {
        let tor = Finding { side: Side::Tor, ..finding() };
        let worse = |one: &Finding, other: &Finding| worse_than(&one.case(), &other.case());
        assert_eq!(worse(&finding(), &tor), Some(Vec::new()));
        let slower =
            Finding { attacked: service(14.0, 50, 49, 90.0), peak_mib: 100.0, ..finding() };
        assert_eq!(worse(&slower, &tor), Some(vec!["throughput", "build time", "memory"]));
        assert_eq!(worse(&tor, &slower), Some(Vec::new()));
        let lost = Finding { open_before: (40, 50), ..finding() };
        assert_eq!(worse(&lost, &tor), Some(vec!["circuits"]));
    }
}
