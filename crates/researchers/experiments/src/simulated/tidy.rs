//! The table of a batch: one value a row, for pandas and R.

use super::comparison::Quantity;
use super::{Change, RunResult, mean_over_seeds, runs};
use report::experiment::{Table, Value};

/// `kind` is `run` for the value of a seed, `mean` for a mean over seeds, and `change` for the change from the variant `against`.
const COLUMNS: [&str; 10] = [
    "kind",
    "variant",
    "against",
    "load_percent",
    "seed",
    "metric",
    "unit",
    "value",
    "half_width_95",
    "seeds",
];

/// All values of these runs.
pub(crate) fn tidy_table(all: &[RunResult], names: &[&str], loads: &[u32]) -> Table {
    let mut rows = Vec::new();
    for quantity in &Quantity::all(all) {
        let metric: Value = quantity.column.as_str().into();
        for (load, name) in
            loads.iter().flat_map(|load| names.iter().map(move |name| (*load, *name)))
        {
            for run in runs(all, name, load) {
                let Some(value) = (quantity.of)(run).filter(|value| value.is_finite()) else {
                    continue;
                };
                rows.push(vec![
                    "run".into(),
                    name.into(),
                    Value::Null,
                    load.into(),
                    run.key.seed.into(),
                    metric.clone(),
                    quantity.unit.into(),
                    value.into(),
                    Value::Null,
                    Value::Null,
                ]);
            }
            let mean = mean_over_seeds(all, name, load, &quantity.of);
            let against = names.first().filter(|first| **first != name);
            let change =
                against.map(|first| Change::between(all, first, name, load, &quantity.of).percent);
            for (kind, against, unit, interval) in
                [("mean", None, quantity.unit, Some(mean)), ("change", against, "%", change)]
            {
                let Some(interval) = interval.filter(|interval| interval.count > 0) else {
                    continue;
                };
                rows.push(vec![
                    kind.into(),
                    name.into(),
                    against.map_or(Value::Null, |first| (*first).into()),
                    load.into(),
                    Value::Null,
                    metric.clone(),
                    unit.into(),
                    interval.mean.into(),
                    interval.half_width.map_or(Value::Null, Value::from),
                    interval.count.into(),
                ]);
            }
        }
    }
    Table { columns: COLUMNS.into(), rows }
}
