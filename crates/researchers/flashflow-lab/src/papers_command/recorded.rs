//! What the commands of an item printed.

use super::file_error;
use super::items::Item;
use cli::Error;
use link::unix_time_s;
use report::machine;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};
use terminal::times;

/// Fields that differ from run to run: times on this machine.
const WALL: [&str; 4] = ["wall_ms", "wall_s", "took_ms", "took_s"];
/// Longer values of a field, such as the points of figures, are left out.
const VALUE_MAX: usize = 2000;

/// The result of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Recorded {
    pub(super) id: String,
    pub(super) commands: Vec<String>,
    pub(super) version: String,
    pub(super) commit: String,
    pub(super) target: String,
    pub(super) machine: String,
    /// The day in UTC.
    pub(super) date: String,
    /// Ours, in the order of the item's numbers.
    pub(super) numbers: Vec<f64>,
    /// SHA-256 of `lines`, one compact JSON object after another, each with a line feed.
    pub(super) digest: String,
    /// The summary that the last command printed with `--json`, and lines of the types that the numbers are from, without times on the
    /// machine and without the points of figures.
    pub(super) lines: Vec<Value>,
}

/// Where the result of an item is.
pub(super) fn path(folder: &Path, id: &str) -> PathBuf {
    folder.join("data").join(format!("{id}.json"))
}

fn digest(lines: &[Value]) -> String {
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line.to_string());
        hash.update("\n");
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The lines that are kept, without fields that are not.
fn kept(item: &Item, printed: &str) -> Vec<Value> {
    let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let is_kept = |line: &Value| {
        let types = item.numbers.iter().map(|number| number.line.as_str());
        types.chain(["summary"]).any(|kind| line["type"] == kind)
    };
    lines
        .filter(is_kept)
        .map(|mut line| {
            if let Some(fields) = line.as_object_mut() {
                fields.retain(|name, value| {
                    !WALL.contains(&name.as_str())
                        && name != "cases"
                        && value.to_string().len() <= VALUE_MAX
                });
            }
            line
        })
        .collect()
}

impl Recorded {
    /// From what an item's commands printed.
    pub(super) fn new(item: &Item, printed: &str) -> Result<Self, Error> {
        let lines = kept(item, printed);
        Ok(Self {
            id: item.id.clone(),
            commands: item.commands.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: cli::COMMIT.to_owned(),
            target: cli::TARGET.to_owned(),
            machine: machine(),
            date: times::readable(unix_time_s()).chars().take(10).collect(),
            numbers: numbers(item, &lines)?,
            digest: digest(&lines),
            lines,
        })
    }

    /// Reads a result, and checks that nobody has changed it.
    pub(super) fn read(path: &Path, item: &Item) -> Result<Self, Error> {
        let text = fs::read_to_string(path).map_err(file_error("read", path))?;
        let wrong = |problem: String| Error::Config { path: path.to_owned(), problem };
        let again = format!("record it again by `flashflow-lab papers run {} --again`", item.id);
        let found: Self = serde_json::from_str(&text)
            .map_err(|error| wrong(format!("not a result: {error}; {again}")))?;
        if found.digest != digest(&found.lines) {
            return Err(wrong(format!("its lines were changed after they were recorded; {again}")));
        }
        if found.id != item.id || found.commands != item.commands {
            return Err(wrong(format!("it is of other commands than those of the item; {again}")));
        }
        if found.numbers != numbers(item, &found.lines)? {
            return Err(wrong(format!("its numbers are not those of its lines; {again}")));
        }
        Ok(found)
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_string_pretty(self)?;
        files::replace(path, (text + "\n").as_bytes(), files::Access::Umask)
            .map_err(file_error("write", path))
    }

    pub(super) fn is_of_this_build(&self) -> bool {
        self.commit == cli::COMMIT && !self.commit.ends_with("-dirty")
    }

    /// Whether all numbers agree with the paper's.
    pub(super) fn agrees(&self, item: &Item) -> bool {
        let mut numbers = item.numbers.iter().zip(&self.numbers);
        numbers.all(|(number, ours)| number.rule.holds(*ours, number.paper))
    }
}

fn numbers(item: &Item, lines: &[Value]) -> Result<Vec<f64>, Error> {
    let number = |number: &super::items::Number| {
        number.find(lines).ok_or_else(|| {
            Error::Failed(format!(
                "{}: the command printed no number for `{}`",
                item.id, number.what
            ))
        })
    };
    item.numbers.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> Item {
        toml::from_str(
            "id = 'X-1'\npaper = 'kist'\nshows = 'x'\ncommands = ['flashflow-lab x']\n\
             numbers = [{ what = 'a', unit = 's', paper = 2.0, field = 'a_s', at_most = true }]",
        )
        .expect("an item")
    }

    #[test]
    fn times_and_figures_are_left_out_and_numbers_are_taken_from_the_lines() {
        let points = vec![1; 2000];
        let line =
            serde_json::json!({"type": "case", "a_s": 1.5, "wall_ms": 7.1, "points": points});
        let printed = format!("{line}\nno JSON\n{{\"type\":\"trace\"}}\n");
        let recorded = Recorded::new(&item(), &printed).expect("a number");
        assert_eq!(recorded.lines, [serde_json::json!({"type": "case", "a_s": 1.5})]);
        assert_eq!(recorded.numbers, [1.5]);
        assert!(recorded.agrees(&item()));
        let missing =
            Recorded::new(&item(), "{\"type\":\"case\"}").expect_err("no number").to_string();
        assert!(missing.contains("X-1") && missing.contains("`a`"), "{missing}");
    }

    #[test]
    fn a_changed_digit_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("X-1.json");
        let recorded = Recorded::new(&item(), "{\"type\":\"case\",\"a_s\":1.5}").expect("a number");
        recorded.write(&path).expect("room");
        assert_eq!(Recorded::read(&path, &item()).expect("unchanged"), recorded);
        let text = fs::read_to_string(&path).expect("written");
        for (from, to, what) in [
            ("\"a_s\": 1.5", "\"a_s\": 1.4", "were changed"),
            ("    1.5", "    1.4", "its numbers"),
            ("flashflow-lab x", "flashflow-lab y", "other commands"),
        ] {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            fs::write(&path, changed).expect("room");
            let problem = Recorded::read(&path, &item()).expect_err(what).to_string();
            assert!(problem.contains(what), "{problem}");
        }
    }
}
