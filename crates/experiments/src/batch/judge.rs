//! What runs come to.

use crate::reporting::{self, pair};
use crate::simulated::{
    Change, Interval, Played, in_words, over_seeds, per_second, run_case, runs, sizes, times,
};
use report::experiment::{Case, CaseVerdict, ExperimentReport, Promise};

/// The column that distinguishes means over seeds from single runs.
const WHAT: &str = "what";

/// How a figure of a run is had, if it has it.
type Getter = Box<dyn Fn(&Played) -> Option<f64>>;

/// A figure of a run: how it is called in tables, in words, its unit, and how it is had.
struct Quantity {
    column: String,
    words: String,
    unit: &'static str,
    of: Getter,
}

const TEXT: &str = include_str!("../../../../docs/experiments/batch.md");

pub(super) fn report(names: &[&str], all: &[Played], notes: Vec<String>) -> ExperimentReport {
    let mut loads: Vec<u32> = all.iter().map(|it| it.point.load_percent).collect();
    loads.sort_unstable();
    loads.dedup();
    let quantities = quantities(all);
    let mut cases = Vec::new();
    for load in &loads {
        for quantity in &quantities {
            cases.extend(names.iter().filter_map(|name| mean(all, name, *load, quantity)));
            let (Some(first), others) = (names.first(), names.get(1..).unwrap_or_default()) else {
                continue;
            };
            let beside = |name: &&str| difference(all, (first, name), *load, quantity);
            cases.extend(others.iter().filter_map(beside));
        }
    }
    cases.extend(all.iter().map(run_case));
    let mut figures = times(all, "times", names, &loads);
    figures.push(per_second(all, "throughput", names, &loads));
    figures.retain(|figure| !figure.series.is_empty());
    let mut report = reporting::report("batch", TEXT);
    report.notes.splice(0..0, notes);
    ExperimentReport {
        parameters: parameters(names, all),
        answer: answer(names, all, &loads),
        promise: Promise::Decided { held: !all.is_empty(), rule: reporting::rule(TEXT) },
        cases,
        figures,
        ..report
    }
}

/// Whether it is about means over seeds, and not about one run.
pub(super) fn is_comparison(case: &Case) -> bool {
    case.columns.iter().any(|(name, _)| name == WHAT)
}

fn quantities(all: &[Played]) -> Vec<Quantity> {
    let mut quantities = Vec::new();
    for bytes in sizes(all) {
        let kib = bytes / 1024;
        let size = in_words(bytes);
        let first = move |it: &Played| it.size(bytes)?.first_byte().median();
        let last = move |it: &Played| it.size(bytes)?.last_byte().median();
        quantities.push(Quantity {
            column: format!("first_byte_{kib}_kib_s"),
            words: format!("median time to the first byte of {size}"),
            unit: "s",
            of: Box::new(first),
        });
        quantities.push(Quantity {
            column: format!("last_byte_{kib}_kib_s"),
            words: format!("median time to the last byte of {size}"),
            unit: "s",
            of: Box::new(last),
        });
    }
    let mut add = |column: &str, words: &str, unit, of: fn(&Played) -> Option<f64>| {
        let (column, words) = (column.to_owned(), words.to_owned());
        quantities.push(Quantity { column, words, unit, of: Box::new(of) });
    };
    add("failed_percent", "failed downloads", "%", |it| Some(it.failed_share()? * 100.0));
    add("sent_mbit_per_s", "what relays sent, median of seconds", "Mbit/s", |it| {
        Some(it.sent_median_mbit_per_s())
    });
    add("goodput_mbit_per_s", "what clients got", "Mbit/s", |it| Some(it.goodput_mbit_per_s));
    add("utilisation_percent", "of what relays could send", "%", |it| Some(it.utilisation * 100.0));
    add("queue_ms", "mean time of a cell in relays' queues", "ms", |it| Some(it.queue_ms));
    add("kernel_queue_ms", "behind them in relays' kernels", "ms", |it| it.kernel_queue_ms);
    add("congestion_ms", "in both together", "ms", Played::congestion_ms);
    quantities
}

fn case(name: String, (load, quantity): (u32, &Quantity), it: Interval, detail: String) -> Case {
    Case::new(name, None, None)
        .ended(CaseVerdict::Held, detail)
        .column(WHAT, quantity.column.as_str())
        .column("load_percent", load)
        .column("mean", it.mean)
        .column("half_width_95", it.half_width.unwrap_or(f64::NAN))
        .column("seeds", it.count)
}

/// A network's mean over seeds.
fn mean(all: &[Played], name: &str, load: u32, quantity: &Quantity) -> Option<Case> {
    let it = over_seeds(all, (name, load), &quantity.of);
    let seeds = runs(all, name, load).count();
    let lack =
        if it.count < seeds { format!(" of {seeds}: the others have none") } else { String::new() };
    let detail = format!("{it:.3} {}, {} seeds{lack}", quantity.unit, it.count);
    let title = format!("{name}, load {load} %: {}", quantity.words);
    (it.count > 0).then(|| case(title, (load, quantity), it, detail).column("variant", name))
}

/// How another network differs from the first, seed by seed, in percent of the first.
fn difference(
    all: &[Played],
    (first, other): (&str, &str),
    load: u32,
    quantity: &Quantity,
) -> Option<Case> {
    let it = Change::of(all, (first, other), load, &quantity.of);
    let title = format!("{other} against {first}, load {load} %: {}", quantity.words);
    let change =
        (it.seeds > 0).then(|| case(title, (load, quantity), it.percent, it.to_string()))?;
    Some(change.column("variant", other).column("against", first))
}

fn parameters(names: &[&str], all: &[Played]) -> Vec<(String, String)> {
    let of = |name: &&str| {
        let one = all.iter().find(|it| it.point.variant == **name)?;
        Some(pair(name, one.conditions.clone()))
    };
    names.iter().filter_map(of).collect()
}

/// In a sentence.
fn answer(names: &[&str], all: &[Played], loads: &[u32]) -> String {
    let loads: Vec<String> = loads.iter().map(|it| format!("{it} %")).collect();
    match all.len() {
        0 => "There are no runs yet.".to_owned(),
        count => format!("{count} runs of {} at {}.", names.join(", "), loads.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tornet::results::{Transfers, Unfinished};

    fn played(variant: &str, seed: u64, last_s: f64) -> Played {
        let size = Transfers {
            bytes: 1 << 20,
            first_byte_s: vec![0.1; 3],
            last_byte_s: vec![last_s; 3],
            unfinished: vec![Unfinished::FAILED],
            failed_of_client: vec![0.25],
        };
        Played {
            conditions: "these".to_owned(),
            sizes: vec![size],
            sent_mbit_per_s: vec![100.0],
            ..Played::blank(variant, seed)
        }
    }

    fn found<'a>(report: &'a ExperimentReport, name: &str) -> &'a Case {
        let case = report.cases.iter().find(|it| it.name.contains(name));
        case.unwrap_or_else(|| panic!("{name} in {:?}", report.cases))
    }

    #[test]
    fn differences_are_of_the_same_seeds() {
        // The second network is a tenth faster with each seed, though seeds differ by far more.
        let slow = [(1, 1.0), (2, 10.0), (3, 4.0)];
        let mut all: Vec<Played> = slow.map(|(seed, s)| played("slow", seed, s)).into();
        all.extend(slow.map(|(seed, s)| played("fast", seed, s * 0.9)));
        let report = report(&["slow", "fast"], &all, Vec::new());
        let words = "fast against slow, load 100 %: median time to the last byte of 1 MiB";
        assert!(found(&report, words).detail.starts_with("-10.0 ± 0.0 %"), "{report:?}");
        assert!(found(&report, "slow, load 100 %: failed").detail.starts_with("25.000 ± 0.000 %"));
        let same = found(&report, "fast against slow, load 100 %: what clients got");
        assert!(same.detail.contains("no difference is shown"), "{same:?}");
        assert!(report.held());
    }

    #[test]
    fn seeds_that_have_no_median_are_told_of() {
        let mut all: Vec<Played> = (1..=3).map(|seed| played("slow", seed, 2.0)).collect();
        all.extend((1..=3).map(|seed| played("fast", seed, 1.0)));
        all[5].sizes[0].unfinished = vec![Unfinished::FAILED; 9];
        let report = report(&["slow", "fast"], &all, Vec::new());
        let case = found(&report, "fast against slow, load 100 %: median time to the last byte");
        assert!(case.detail.contains("2 seeds; of 3: with the others one has none"), "{case:?}");
    }

    #[test]
    fn one_seed_shows_nothing_and_no_run_is_said_to_be_none() {
        let all = [played("a", 1, 1.0), played("b", 1, 2.0)];
        let told = report(&["a", "b"], &all, Vec::new());
        let case = found(&told, "b against a, load 100 %: median time to the last byte");
        assert!(case.detail.contains("may be chance"), "{case:?}");
        assert_eq!(report(&["a"], &[], Vec::new()).answer, "There are no runs yet.");
    }
}
