//! The items: what a paper shows, the commands that repeat it, and the rules that compare the results.

use super::file_error;
use cli::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Paper {
    Flashflow,
    Conflux,
    PathSelection,
    Circuitstart,
    Kist,
}

impl Paper {
    pub(super) const ALL: [Self; 5] =
        [Self::Flashflow, Self::Conflux, Self::PathSelection, Self::Circuitstart, Self::Kist];

    /// The name of its page.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Flashflow => "flashflow",
            Self::Conflux => "conflux",
            Self::PathSelection => "path-selection",
            Self::Circuitstart => "circuitstart",
            Self::Kist => "kist",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Flashflow => "FlashFlow (Traudt, Jansen and Johnson, 2021)",
            Self::Conflux => "Conflux and ConfluxM (Kristel, Lučanský and Kotuliak)",
            Self::PathSelection => "Path selection metrics (Panchenko, Pimenidis and Renner, 2008)",
            Self::Circuitstart => "CircuitStart (Döpmann and Tschorsch, 2018)",
            Self::Kist => "KIST (Jansen and others, 2014 and 2018)",
        }
    }
}

/// A figure, table or claim of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    pub(super) id: String,
    pub(super) paper: Paper,
    pub(super) shows: String,
    #[serde(default)]
    pub(super) commands: Vec<String>,
    #[serde(default, rename = "virtual")]
    pub(super) is_virtual: bool,
    /// Why there is no result, or what it leaves out.
    #[serde(default)]
    pub(super) open: Option<String>,
    #[serde(default)]
    pub(super) numbers: Vec<Number>,
}

/// A number of the paper, and where ours is.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Number {
    pub(super) what: String,
    pub(super) unit: String,
    pub(super) paper: f64,
    /// The type of the line.
    #[serde(default = "case")]
    pub(super) line: String,
    /// Fields that the line has.
    #[serde(default, rename = "where")]
    fields: BTreeMap<String, Value>,
    field: String,
    #[serde(flatten)]
    pub(super) rule: Rule,
}

fn case() -> String {
    "case".to_owned()
}

/// When a number agrees with the paper's.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rule {
    /// Neither is more than this many times the other.
    Factor(f64),
    /// They differ by at most this much.
    Difference(f64),
    /// Both are above zero, or both below. The value must be true.
    Sign(bool),
    /// Ours is at most the paper's.
    AtMost(bool),
    /// Ours is at least the paper's.
    AtLeast(bool),
}

impl Rule {
    pub(super) fn holds(self, ours: f64, paper: f64) -> bool {
        match self {
            Self::Factor(factor) => ours * factor >= paper && ours <= paper * factor,
            Self::Difference(most) => (ours - paper).abs() <= most,
            Self::Sign(_) => ours * paper > 0.0,
            Self::AtMost(_) => ours <= paper,
            Self::AtLeast(_) => ours >= paper,
        }
    }

    pub(super) fn in_words(self) -> String {
        match self {
            Self::Factor(factor) => format!("factor {factor}"),
            Self::Difference(most) => format!("± {most}"),
            Self::Sign(_) => "same sign".to_owned(),
            Self::AtMost(_) => "at most".to_owned(),
            Self::AtLeast(_) => "at least".to_owned(),
        }
    }
}

impl Item {
    /// Whether a result can be recorded: there are commands, and numbers to look for.
    pub(super) const fn is_recorded(&self) -> bool {
        !self.commands.is_empty() && !self.numbers.is_empty()
    }

    pub(super) fn needs_data(&self) -> bool {
        self.commands.iter().any(|command| command.contains("DATA"))
    }
}

impl Number {
    /// Our number in these lines.
    pub(super) fn find(&self, lines: &[Value]) -> Option<f64> {
        let is_it = |line: &&Value| {
            line["type"] == self.line.as_str()
                && self.fields.iter().all(|(name, value)| &line[name] == value)
        };
        lines.iter().find(is_it)?.pointer(&format!("/{}", self.field))?.as_f64()
    }
}

/// Reads the items.
pub(super) fn read(path: &Path) -> Result<Vec<Item>, Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Items {
        items: Vec<Item>,
    }
    let text = fs::read_to_string(path).map_err(file_error("read the items", path))?;
    let wrong = |problem: String| Error::Config { path: path.to_owned(), problem };
    let Items { items } = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut ids = BTreeSet::new();
    for item in &items {
        if !ids.insert(item.id.as_str()) {
            return Err(wrong(format!("two items are called {}", item.id)));
        }
        if !item.is_recorded() && item.open.is_none() {
            return Err(wrong(format!(
                "{} has neither commands with numbers nor a reason why not (`open`)",
                item.id
            )));
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_judge_by_what_they_say() {
        for (rule, good, bad) in [
            (Rule::Factor(1.5), [140.0, 70.0], [151.0, 66.0]),
            (Rule::Difference(5.0), [104.9, 95.1], [105.1, 94.0]),
            (Rule::Sign(true), [1.0, 1e9], [-1.0, 0.0]),
            (Rule::AtMost(true), [100.0, -1.0], [100.1, 1e9]),
            (Rule::AtLeast(true), [100.0, 1e9], [99.9, -1.0]),
        ] {
            assert!(good.iter().all(|ours| rule.holds(*ours, 100.0)), "{rule:?}");
            assert!(!bad.iter().any(|ours| rule.holds(*ours, 100.0)), "{rule:?}");
        }
    }

    #[test]
    fn the_items_of_the_documentation_are_all_there() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/papers/items.toml");
        let items = read(&path).expect("items");
        assert_eq!(items.len(), 49);
        for paper in Paper::ALL {
            assert!(items.iter().any(|item| item.paper == paper), "{paper:?}");
        }
    }

    #[test]
    fn a_number_is_found_by_all_its_fields() {
        let number: Number = toml::from_str(
            "what = 'x'\nunit = 's'\npaper = 2\nwhere = { name = 'a', hops = 3 }\nfield = 'took_s'\nfactor = 2.0",
        )
        .expect("a number");
        let lines = ["a", "b"].map(
            |name| serde_json::json!({"type": "case", "name": name, "hops": 3, "took_s": 1.5}),
        );
        assert_eq!(number.find(&lines), Some(1.5));
        assert_eq!(number.find(&lines[1..]), None);
    }
}
