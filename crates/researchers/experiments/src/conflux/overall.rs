//! Averages over sizes, the cost at the exit, and the names of scenes.

use super::judge::{Change, TABLE_I, Times, baseline, rounded, times};
use super::plan::{ClientKind, ConfluxSettings, Method, Scene, Trial};
use crate::simulated::Interval;
use report::experiment::Case;

/// The averages of table I: the reduction of time in percent of two legs against plain Tor, of three, and of three against two.
const TABLE_I_AVERAGES: (f64, f64, f64) = (35.22, 47.88, 20.43);

/// Whether the rule applies to a method: to our legs, over bridges as they are.
pub(super) fn is_judged(method: Method, trials: &[&Trial]) -> bool {
    let is_plain = |trial: &&Trial| trial.scene == Scene::Bridges;
    method.who == ClientKind::Ours && trials.iter().all(is_plain)
}

/// The case with the scene in its name and columns.
pub(super) fn in_scene(case: Case, scene: Scene) -> Case {
    let name = match scene {
        Scene::Bridges => case.name.clone(),
        scene => format!("{}, {}", scene.name(), case.name),
    };
    Case { name, ..case }.column("scene", scene.name())
}

/// The case with the cost at both ends, if it is known.
#[expect(clippy::cast_precision_loss, reason = "far fewer than 2⁵³ messages")]
pub(super) fn with_cost(
    case: Case,
    plan: &ConfluxSettings,
    trials: &[Trial],
    method: Method,
    size_mb: f64,
) -> Case {
    let mean = |method: Method, of: &dyn Fn(&Trial) -> Option<f64>| {
        let its = trials.iter().filter(|trial| trial.method == method && trial.size_mb == size_mb);
        Interval::of(its.filter_map(of).collect::<Vec<f64>>()).mean
    };
    let exit = |trial: &Trial| trial.seen.as_ref().ok()?.exit_peak_kib;
    let early = |trial: &Trial| Some(trial.seen.as_ref().ok()?.client_early_peak? as f64);
    let own = mean(method, &exit);
    if !own.is_finite() {
        return case;
    }
    let plain = baseline(plan).map_or(f64::NAN, |plain| mean(plain, &exit));
    case.column("exit_peak_kib", rounded(own))
        .column("exit_peak_against_tor", rounded(own / plain))
        .column("client_early_peak_messages", rounded(mean(method, &early)))
}

/// The averages of the changes of each method over all sizes, as in table I; none with fewer than two sizes.
pub(super) fn averages(plan: &ConfluxSettings, trials: &[Trial], scene: Scene) -> Vec<Case> {
    if plan.sizes_mb.len() < 2 {
        return Vec::new();
    }
    let methods = plan.methods_in(scene).into_iter().filter(|method| method.legs > 1);
    methods.map(|method| in_scene(average(plan, trials, method), scene)).collect()
}

fn average(plan: &ConfluxSettings, trials: &[Trial], method: Method) -> Case {
    let Method { who, exit, legs } = method;
    let mean = |other: Option<Method>| {
        let change = |size_mb: &f64| -> Option<f64> {
            let of = |method| -> Times { times(trials, method, *size_mb) };
            Some(Change::from_times(&of(method), &of(other?))?.percent)
        };
        let changes: Option<Vec<f64>> = plan.sizes_mb.iter().map(change).collect();
        changes.and_then(|changes| rounded(Interval::of(changes).mean))
    };
    let against_tor = mean(baseline(plan));
    let fewer = Method { legs: legs - 1, ..method };
    let fewer = if legs == 2 { against_tor } else { mean(Some(fewer)) };
    let is_papers = plan.sizes_mb.iter().copied().eq(TABLE_I.map(|row| row.0));
    let (two, three, three_against_two) = TABLE_I_AVERAGES;
    let paper = match (who, legs) {
        (ClientKind::Ours, 2) => Some((two, two)),
        (ClientKind::Ours, 3) => Some((three, three_against_two)),
        _ => None,
    };
    let paper = paper.filter(|_| is_papers);
    let percent =
        |value: Option<f64>| value.map_or("unknown".to_owned(), |value| format!("{value:+.1} %"));
    let detail = format!(
        "{} against plain Tor, {} against one leg fewer",
        percent(against_tor),
        percent(fewer)
    );
    Case::reported(format!("average over sizes, {method}"), detail)
        .column("statistic", "average over sizes")
        .column("legs", legs)
        .column("client", who.name())
        .column("exit", exit.name())
        .column("change_against_tor_percent", against_tor)
        .column("change_against_one_leg_fewer_percent", fewer)
        .column("change_paper_percent", paper.map(|paper| -paper.0))
        .column("change_against_one_leg_fewer_paper_percent", paper.map(|paper| -paper.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conflux::plan::{DownloadFigures, ExitOf};
    use serde_json::Value;

    #[test]
    fn averages_are_of_the_changes_and_not_of_the_times() {
        let method = |who, legs| Method { who, exit: ExitOf::Ours, legs };
        let methods = vec![method(ClientKind::Plain, 1), method(ClientKind::Ours, 2)];
        let plan = ConfluxSettings {
            runs: 1,
            sizes_mb: vec![0.4, 5.0, 10.0],
            scenes: vec![Scene::Uploads],
            methods: methods.clone(),
            is_simulated: true,
            scheduler: None,
            seed: 1,
        };
        let trial = |method: Method, size_mb: f64, took_s: f64| Trial {
            scene: Scene::Uploads,
            method,
            size_mb,
            run: 1,
            capacity_mbit: 1.0,
            seen: Ok(DownloadFigures {
                took_s,
                exit_peak_kib: Some(10.0 * method.legs as f64),
                ..DownloadFigures::default()
            }),
        };
        let times = [(0.4, [1.0, 0.9]), (5.0, [10.0, 6.0]), (10.0, [20.0, 10.0])];
        let trials: Vec<Trial> = times
            .iter()
            .flat_map(|(size, times)| {
                [0, 1].map(|place| trial(methods[place], *size, times[place]))
            })
            .collect();
        let cases = crate::conflux::judge::cases(&plan, &trials);
        assert_eq!(cases.len(), 7);
        let average = cases.last().expect("an average");
        assert_eq!(average.name, "uploads, average over sizes, ours, 2 legs, exit: ours");
        // −10, −40 and −50 %.
        assert_eq!(average.value("change_against_tor_percent"), Some(&Value::from(-33.333)));
        assert_eq!(average.value("change_paper_percent"), Some(&Value::from(-35.22)));
        assert_eq!(cases[1].value("exit_peak_against_tor"), Some(&Value::from(2.0)));
    }
}
