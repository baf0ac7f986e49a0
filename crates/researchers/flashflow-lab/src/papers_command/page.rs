//! The pages: one for each paper, and one with the counts.

use super::items::{Item, Paper};
use super::recorded::Recorded;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The state of an item.
pub(super) fn state(item: &Item, result: Option<&Recorded>) -> &'static str {
    match result {
        Some(result) if result.agrees(item) => "agrees",
        Some(_) => "differs",
        None if item.is_recorded() => "not recorded",
        None => "open",
    }
}

/// Our numbers and the paper's, a line for each.
pub(super) fn comparison(item: &Item, result: &Recorded) -> String {
    let lines = item.numbers.iter().zip(&result.numbers).map(|(number, ours)| {
        let holds = if number.rule.holds(*ours, number.paper) { "" } else { " (differs)" };
        let (what, paper, rule) = (&number.what, number.paper, number.rule.in_words());
        let ours = with_unit(&rounded(*ours), &number.unit);
        format!("  {what}: {ours}, the paper {paper} ({rule}){holds}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A number with its unit, which is `1` for a ratio.
fn with_unit(number: &str, unit: &str) -> String {
    if unit == "1" { number.to_owned() } else { format!("{number} {unit}") }
}

/// A number with four digits.
fn rounded(number: f64) -> String {
    let digits = number.abs().log10().floor().clamp(-9.0, 3.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 12")]
    let decimals = (3.0 - digits) as usize;
    let text = format!("{number:.decimals$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// All pages, by their names.
pub(super) fn pages(items: &[Item], results: &BTreeMap<String, Recorded>) -> Vec<(String, String)> {
    let mut pages = vec![("README.md".to_owned(), front(items, results))];
    pages.extend(
        Paper::ALL.map(|paper| (format!("{}.md", paper.name()), of_paper(paper, items, results))),
    );
    pages
}

fn front(items: &[Item], results: &BTreeMap<String, Recorded>) -> String {
    let count = |paper: Option<Paper>, wanted: &str| {
        let of_paper = items.iter().filter(|item| paper.is_none_or(|paper| item.paper == paper));
        of_paper.filter(|item| state(item, results.get(&item.id)) == wanted).count()
    };
    let mut text = format!(
        "# The papers' figures and tables\n\nWritten by `flashflow-lab papers report` from [items.toml](items.toml) and the results in `data`, which \
         `flashflow-lab papers run` recorded.\nOf {} items, {} differ from the paper, {} have no recorded result, and {} agree.\n\n\
         | Paper | differs | open | agrees |\n|---|---|---|---|\n",
        items.len(),
        count(None, "differs"),
        count(None, "open") + count(None, "not recorded"),
        count(None, "agrees"),
    );
    for paper in Paper::ALL {
        let [differs, agrees] = ["differs", "agrees"].map(|state| count(Some(paper), state));
        let open = count(Some(paper), "open") + count(Some(paper), "not recorded");
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| [{}]({}.md) | {differs} | {open} | {agrees} |",
            paper.title(),
            paper.name()
        );
    }
    text
}

fn of_paper(paper: Paper, items: &[Item], results: &BTreeMap<String, Recorded>) -> String {
    let mut text = format!("# {}\n\nSee [all papers](README.md).\n", paper.title());
    let of_paper = || items.iter().filter(|item| item.paper == paper);
    let recorded = of_paper().filter_map(|item| Some((item, results.get(&item.id)?)));
    let mut recorded: Vec<_> = recorded.collect();
    recorded.sort_by_key(|(item, result)| result.agrees(item));
    for (item, result) in recorded {
        let _ = write!(
            text,
            "\n## {}: {}\n\n{}.\n\n```sh\n{}\n```\n\n{}, commit {}: {}. Digest `{}`.\n\n| | Ours | Paper | Rule | |\n|---|---|---|---|---|\n",
            item.id,
            state(item, Some(result)),
            item.shows,
            result.commands.join("\n"),
            result.date,
            result.commit,
            if item.is_virtual { "the same on every machine" } else { &result.machine },
            &result.digest[..16],
        );
        for (number, ours) in item.numbers.iter().zip(&result.numbers) {
            let verdict = if number.rule.holds(*ours, number.paper) { "agrees" } else { "differs" };
            let (what, rule) = (&number.what, number.rule.in_words());
            let ours = with_unit(&rounded(*ours), &number.unit);
            let paper = with_unit(&number.paper.to_string(), &number.unit);
            let _ = writeln!(text, "| {what} | {ours} | {paper} | {rule} | {verdict} |");
        }
        if let Some(open) = &item.open {
            let _ = writeln!(text, "\nNote: {open}.");
        }
    }
    let open = of_paper().filter(|item| !results.contains_key(&item.id));
    let open: Vec<&str> = open.map(|item| item.id.as_str()).collect();
    if !open.is_empty() {
        let _ = writeln!(
            text,
            "\nWithout a recorded result ([items.toml](items.toml) says why):\n{}.",
            open.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn numbers_have_four_digits_at_most() {
        let numbers = [0.0, 4.808_333, 577.0, 12_345.6, 0.001_234_56, -1.5];
        assert_eq!(numbers.map(rounded), ["0", "4.808", "577", "12346", "0.001235", "-1.5"]);
    }
}
