//! Renders results as a part of a page.

use super::file_error;
use super::outcome::Outcome;
use cli::Error;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Begins the part of a page that shows a claim.
const BEGIN: &str = "<!-- results: ";
/// Ends the part of a page that shows a claim.
const END: &str = "<!-- end -->";
/// The machine of results that name no other one, as `docs/results/README.md` says.
const USUAL_MACHINE: &str = "2 cores of an AMD EPYC, Linux 6.18";
/// Maximum width of a line.
const WIDTH: usize = 120;

/// The results of all claims, and which of them a page shows.
pub(super) struct Claims {
    results: BTreeMap<String, Vec<Outcome>>,
    shown: BTreeSet<String>,
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = file_error("read", folder);
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(&failed)? {
        paths.push(entry.map_err(&failed)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// The pages of a folder.
pub(super) fn pages_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    Ok(entries(folder)?.into_iter().filter(is_page).collect())
}

impl Claims {
    /// Reads all results.
    pub(super) fn read(data: &Path) -> Result<Self, Error> {
        let mut results = BTreeMap::new();
        for folder in entries(data)? {
            let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let files = entries(&folder)?;
            let mut read =
                files.iter().map(|file| Outcome::read(file)).collect::<Result<Vec<_>, _>>()?;
            // Those of one day are in the order of their names.
            read.sort_by(|a, b| b.date.cmp(&a.date));
            results.insert(name, read);
        }
        Ok(Self { results, shown: BTreeSet::new() })
    }

    /// A claim that no page shows.
    pub(super) fn hidden(&self) -> Option<&str> {
        self.results.keys().find(|claim| !self.shown.contains(*claim)).map(String::as_str)
    }

    /// The page with the results of its claims. A marker may name the columns to show: `<!-- results: claim: column, column -->`.
    pub(super) fn shown(&mut self, path: &Path, page: &str) -> Result<String, Error> {
        let wrong = |problem| Error::Config { path: path.to_owned(), problem };
        let mut text = String::with_capacity(page.len());
        let mut rest = page;
        while let Some((before, from)) = rest.split_once(BEGIN) {
            let Some((marker, (_, after))) = from
                .split_once(" -->")
                .and_then(|(marker, body)| Some((marker, body.split_once(END)?)))
            else {
                return Err(wrong(format!("`{BEGIN}` without ` -->` and `{END}`")));
            };
            let (claim, columns) = marker.split_once(": ").unwrap_or((marker, ""));
            let columns: Vec<&str> = columns.split(", ").filter(|name| !name.is_empty()).collect();
            let Some(results) = self.results.get(claim) else {
                return Err(wrong(format!(
                    "there are no results of {claim}: record one by `flashflow-lab results record {claim} -- COMMAND`"
                )));
            };
            self.shown.insert(claim.to_owned());
            text += before;
            let missing = columns.iter().find(|name| {
                results.iter().all(|result| !result.columns.iter().any(|column| column == *name))
            });
            if let Some(name) = missing {
                return Err(wrong(format!("no result of {claim} has a column `{name}`")));
            }
            let results: Vec<Outcome> =
                results.iter().map(|result| result.with_columns(&columns)).collect();
            // Writing to a string cannot fail.
            let _ = write!(text, "{BEGIN}{marker} -->\n\n{}\n\n{END}", render(&results));
            rest = after;
        }
        Ok(text + rest)
    }
}

/// The results of a claim, the newest first: a row for each if they are single rows of one table.
fn render(results: &[Outcome]) -> String {
    let columns = results.first().map(|result| &result.columns);
    let is_one_table = results.len() > 1
        && results.iter().all(|result| result.rows.len() == 1 && Some(&result.columns) == columns);
    if !is_one_table {
        return results.iter().map(section).collect::<Vec<_>>().join("\n\n");
    }
    let is_one_command = results.windows(2).all(|pair| pair[0].command == pair[1].command);
    let mut head = ["Date", "Commit", "Machine"].map(str::to_owned).to_vec();
    head.extend(columns.into_iter().flatten().cloned());
    if !is_one_command {
        head.push("Command".to_owned());
    }
    let rows = results.iter().map(|result| {
        let mut row = vec![
            result.date.clone(),
            result.commit.clone().unwrap_or_default(),
            surroundings(result),
        ];
        row.extend(result.rows.iter().flatten().map(cell));
        if !is_one_command {
            row.push(format!("`{}`", result.command));
        }
        row
    });
    let mut parts = Vec::new();
    if is_one_command {
        parts.extend(results.first().map(command));
    }
    parts.push(table(&head, rows));
    parts.extend(results.iter().filter(|result| !result.notes.is_empty()).map(notes));
    parts.join("\n\n")
}

/// Where and how the result was obtained. One without a target was not written by `results record`.
fn surroundings(outcome: &Outcome) -> String {
    let typed = outcome.target.is_none().then_some("typed");
    let machine = Some(outcome.machine.as_str()).filter(|machine| *machine != USUAL_MACHINE);
    let parts = [machine, outcome.conditions.as_deref(), typed];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

fn command(outcome: &Outcome) -> String {
    format!("```sh\n{}\n```", outcome.command.replace("; ", "\n"))
}

/// A result with its command and its table.
fn section(outcome: &Outcome) -> String {
    let commit =
        outcome.commit.as_ref().map_or_else(String::new, |commit| format!(", commit {commit}"));
    let seed = outcome.seed.map_or_else(String::new, |seed| format!(", seed {seed}"));
    let colon = if surroundings(outcome).is_empty() { "" } else { ": " };
    let head = format!("**{}**{commit}{seed}{colon}{}.", outcome.date, surroundings(outcome));
    let mut parts = vec![wrapped(&head), command(outcome)];
    if !outcome.columns.is_empty() {
        let rows = outcome.rows.iter().map(|row| row.iter().map(cell).collect());
        parts.push(table(&outcome.columns, rows));
    }
    if !outcome.notes.is_empty() {
        parts.push(notes(outcome));
    }
    parts.join("\n\n")
}

fn table(head: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let mut lines = vec![line(head), format!("|{}", "---|".repeat(head.len()))];
    lines.extend(rows.map(|row| line(&row)));
    lines.join("\n")
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.replace('|', "\\|"),
        Value::Number(number) if !number.is_i64() && !number.is_u64() => {
            rounded(number.as_f64().unwrap_or(f64::NAN))
        }
        value => value.to_string(),
    }
}

/// A number with three decimals, or three significant digits if it is small.
fn rounded(number: f64) -> String {
    let text = format!("{number:.3}");
    let text = if number != 0.0 && number.abs() < 0.1 { format!("{number:.2e}") } else { text };
    match text.parse::<f64>() {
        Ok(rounded) => rounded.to_string(),
        Err(_) => text,
    }
}

/// Paragraphs; items of a list follow each other.
fn notes(outcome: &Outcome) -> String {
    let mut text = String::new();
    for (index, note) in outcome.notes.iter().enumerate() {
        let both_are_items = |before: &String| before.starts_with("- ") && note.starts_with("- ");
        let before = index.checked_sub(1).and_then(|previous| outcome.notes.get(previous));
        text += match before {
            None => "",
            Some(before) if both_are_items(before) => "\n",
            Some(_) => "\n\n",
        };
        text += &wrapped(note);
    }
    text
}

fn wrapped(text: &str) -> String {
    let indent = if text.starts_with("- ") { "\n  " } else { "\n" };
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        // A line must not begin as an item of a list does.
        let is_bound = matches!(word, "-" | "+" | "*") && width > 0;
        if width == 0 {
            width = length;
        } else if width + 1 + length > WIDTH && !is_bound {
            lines += indent;
            width = indent.len() - 1 + length;
        } else {
            lines.push(' ');
            width += 1 + length;
        }
        lines += word;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(date: &str, row: &[&str], note: &str) -> Outcome {
        Outcome {
            command: format!("flashflow-lab bench relay --seconds {}", row.len()),
            machine: "two cores".to_owned(),
            date: date.to_owned(),
            columns: row.iter().map(|text| format!("of {text}")).collect(),
            rows: vec![row.iter().map(|text| Value::from(*text)).collect()],
            notes: vec![note.to_owned()],
            ..Outcome::default()
        }
    }

    #[test]
    fn the_newest_result_comes_first_and_the_page_around_it_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let claim = folder.path().join("relay");
        fs::create_dir(&claim).expect("new");
        outcome("2026-11-25", &["1"], "Old.").write(&claim.join("a.json")).expect("room");
        let target = Some("x86_64-unknown-linux-gnu".to_owned());
        let recorded = Outcome { target, ..outcome("2026-11-26", &["1"], "New.") };
        recorded.write(&claim.join("b.json")).expect("room");
        let mut claims = Claims::read(folder.path()).expect("results");
        assert_eq!(claims.hidden(), Some("relay"));
        let page = "# Relay\n\n<!-- results: relay -->\nstale\n<!-- end -->\n\nText.\n";
        let shown = claims.shown(Path::new("page.md"), page).expect("known");
        let lines: Vec<&str> = shown.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                "# Relay",
                "<!-- results: relay -->",
                "```sh",
                "flashflow-lab bench relay --seconds 1",
                "```",
                "| Date | Commit | Machine | of 1 |",
                "|---|---|---|---|",
                "| 2026-11-26 |  | two cores | 1 |",
                "| 2026-11-25 |  | two cores; typed | 1 |",
                "New.",
                "Old.",
                "<!-- end -->",
                "Text.",
            ]
        );
        assert_eq!(claims.shown(Path::new("page.md"), &shown).expect("known"), shown);
        assert_eq!(claims.hidden(), None);
        let unknown = claims.shown(Path::new("p.md"), "<!-- results: x -->\n<!-- end -->");
        assert!(unknown.expect_err("none").to_string().contains("no results of x"));
        assert!(claims.shown(Path::new("p.md"), "<!-- results: relay -->").is_err());
    }

    #[test]
    fn a_marker_chooses_columns_and_an_unknown_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let claim = folder.path().join("relay");
        fs::create_dir(&claim).expect("new");
        outcome("2026-11-26", &["1", "2"], "New.").write(&claim.join("a.json")).expect("room");
        let mut claims = Claims::read(folder.path()).expect("results");
        let mut show = |columns: &str| {
            let page = format!("<!-- results: relay: {columns} -->\n<!-- end -->\n");
            claims.shown(Path::new("page.md"), &page)
        };
        let shown = show("of 2").expect("a column");
        assert!(shown.contains("\n| of 2 |\n|---|\n| 2 |\n") && !shown.contains("of 1"), "{shown}");
        let unknown = show("of 2, of 3").expect_err("no such column").to_string();
        assert!(unknown.contains("no result of relay has a column `of 3`"), "{unknown}");
    }

    #[test]
    fn numbers_have_three_decimals_or_digits() {
        let numbers = [2.000_035_68, 0.285_537, 0.004_231_9, 0.0, 200.003_568, -0.5].map(rounded);
        assert_eq!(numbers, ["2", "0.286", "0.00423", "0", "200.004", "-0.5"]);
    }

    #[test]
    fn a_damaged_result_is_refused_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.json");
        for (text, what) in [
            ("{}", "missing field"),
            (r#"{"command":"","machine":"","date":"26 November"}"#, "no day"),
            (r#"{"command":"","machine":"","date":"2026-11-26","rows":[[1]]}"#, "1 cells below 0"),
            (r#"{"command":"","machine":"","date":"2026-11-26","values":1}"#, "unknown field"),
        ] {
            fs::write(&path, text).expect("room");
            let error = Outcome::read(&path).expect_err(text).to_string();
            assert!(error.contains("a.json") && error.contains(what), "{error}");
        }
    }
}
