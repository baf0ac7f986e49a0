//! The page of an experiment.

use super::model::columns;
use super::{Case, CaseVerdict, ExperimentReport, Value};
use crate::html::frame::{self, Badge, Frame};
use crate::text::{Escaped, NOTHING, count, mbit, quotient, readable};
use std::fmt::{self, Formatter};

impl ExperimentReport {
    /// The report as a self-contained page.
    #[must_use]
    pub fn to_html(&self) -> String {
        Page { report: self }.to_string()
    }
}

struct Page<'a> {
    report: &'a ExperimentReport,
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let report = self.report;
        let mut facts = vec![format!("FlashFlow {}", report.software_version)];
        facts.extend((!report.machine.is_empty()).then(|| report.machine.clone()));
        let frame = Frame {
            title: &report.title,
            generated_unix_s: report.generated_unix_s,
            facts: &facts,
            has_plots: !report.figures.is_empty(),
        };
        frame.around(f, |f| {
            self.answer(f)?;
            self.tiles(f)?;
            self.figures(f)?;
            self.misses(f)?;
            self.cases(f)?;
            frame::parameters(f, &report.parameters)?;
            frame::notes(f, &report.notes)?;
            self.sources(f)
        })
    }
}

impl Page<'_> {
    fn answer(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ExperimentReport { question, answer, promise, .. } = self.report;
        writeln!(f, "<div class=\"card\"><p>{}</p>\n<p class=\"answer\">", Escaped(question))?;
        if let Some(held) = self.report.outcome() {
            write!(f, "{} ", Badge(if held { "held" } else { "missed" }))?;
        }
        writeln!(
            f,
            "{}</p>\n<p class=\"muted\">{}</p></div>",
            Escaped(answer),
            Escaped(&promise.in_words())
        )
    }

    /// The numbers of cases by outcome, if any has one.
    fn tiles(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.report.outcome().is_none() {
            return Ok(());
        }
        let number = |number: usize| count(u64::try_from(number).unwrap_or(u64::MAX));
        let ended = CaseVerdict::ALL.map(|verdict| (self.report.count(verdict), verdict));
        let shown = |(number, verdict): &(usize, CaseVerdict)| {
            *verdict != CaseVerdict::Reported
                && (*number > 0 || matches!(verdict, CaseVerdict::Held | CaseVerdict::Missed))
        };
        let reported = self.report.count(CaseVerdict::Reported);
        let mut tiles = vec![(number(self.report.cases.len() - reported), "cases")];
        let ended = ended.into_iter().filter(shown);
        tiles.extend(ended.map(|(cases, verdict)| (number(cases), verdict.word())));
        frame::tiles(f, &tiles)
    }

    fn figures(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for figure in &self.report.figures {
            writeln!(f, "<h2>{}</h2>\n<div class=\"card\">", Escaped(&figure.title))?;
            frame::figure(f, figure)?;
            f.write_str("</div>\n")?;
        }
        Ok(())
    }

    fn misses(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let unexplained: Vec<&Case> = self.report.unexplained().collect();
        if self.report.misses.is_empty() && unexplained.is_empty() {
            return Ok(());
        }
        f.write_str("<h2>What did not hold</h2>\n<div class=\"card scroll\"><table><tbody>\n")?;
        for miss in &self.report.misses {
            let (case, why) = (Escaped(&miss.case), Escaped(&miss.explanation));
            writeln!(f, "<tr><th>{case}</th><td class=\"why\">{why}</td></tr>")?;
        }
        for case in unexplained {
            writeln!(
                f,
                "<tr><th>{}</th><td class=\"why\"><i>Not explained.</i> {}</td></tr>",
                Escaped(&case.name),
                Escaped(&case.detail)
            )?;
        }
        f.write_str("</tbody></table></div>\n")
    }

    fn cases(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let has_claim = self.report.outcome().is_some();
        writeln!(f, "<h2>{}</h2>", if has_claim { "Cases" } else { "Results" })?;
        if self.report.cases.is_empty() {
            return f.write_str("<p class=\"card\">There are no cases.</p>\n");
        }
        similar(&self.report.cases).iter().try_for_each(|cases| table(f, cases))
    }

    /// The command to reproduce the report, and the data files.
    fn sources(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("<h2>Data</h2>\n<div class=\"card\">")?;
        if !self.report.command.is_empty() {
            writeln!(f, "<p>Made by <code>{}</code></p>", Escaped(&self.report.command))?;
        }
        let names = self.report.file_names();
        let link = |name: &std::path::Path| {
            // Contains only safe characters: see `file_names`.
            let name = name.display();
            format!("<a href=\"{name}\">{name}</a>")
        };
        write!(
            f,
            "<p>Next to this page: the table in {}, everything in {}",
            link(&names.csv),
            link(&names.json)
        )?;
        for (figure, names) in self.report.figures.iter().zip(&names.figures) {
            let title = Escaped(&figure.title);
            write!(f, "; “{title}” in {} and {}", link(&names.csv), link(&names.svg))?;
        }
        f.write_str(".</p></div>\n")
    }
}

/// Cases that have the same columns, or those of one another: a table of all would have many empty cells.
fn similar(cases: &[Case]) -> Vec<Vec<&Case>> {
    let mut groups: Vec<(Vec<&str>, Vec<&Case>)> = Vec::new();
    for case in cases {
        let columns: Vec<&str> = case.own_columns().map(|(name, _)| name).collect();
        let contains = |all: &[&str], some: &[&str]| some.iter().all(|name| all.contains(name));
        let group = groups
            .iter_mut()
            .find(|(others, _)| contains(others, &columns) || contains(&columns, others));
        match group {
            Some((others, members)) => {
                if columns.len() > others.len() {
                    *others = columns;
                }
                members.push(case);
            }
            None => groups.push((columns, vec![case])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

/// A table of cases. Columns without any value are left out.
fn table(f: &mut Formatter<'_>, cases: &[&Case]) -> fmt::Result {
    let mut rates = vec![
        Rate("Truth<small>Mbit/s</small>", |case| case.truth_mbit_per_s, mbit),
        Rate("Estimate<small>Mbit/s</small>", |case| case.estimate_mbit_per_s, mbit),
        Rate("Ratio", |case| case.ratio, quotient),
    ];
    rates.retain(|Rate(_, of, _)| cases.iter().any(|case| of(case).is_some()));
    let columns = Column::from_cases(cases);
    let has_verdict = cases.iter().any(|case| case.verdict != CaseVerdict::Reported);
    let has_detail = cases.iter().any(|case| !case.detail.is_empty());
    f.write_str("<div class=\"card scroll\"><table><thead><tr><th>Case</th>")?;
    if has_verdict || has_detail {
        write!(f, "<th>{}</th>", if has_verdict { "Verdict" } else { "Result" })?;
    }
    for Rate(heading, ..) in &rates {
        write!(f, "<th class=\"number\">{heading}</th>")?;
    }
    columns.iter().try_for_each(|column| column.heading(f))?;
    f.write_str("</tr></thead><tbody>\n")?;
    for case in cases {
        write!(f, "<tr><th>{}</th>", Escaped(&case.name))?;
        if has_verdict || has_detail {
            f.write_str("<td class=\"why\">")?;
            let is_judged = case.verdict != CaseVerdict::Reported;
            if is_judged {
                write!(f, "{}", Badge(case.verdict.word()))?;
            }
            if !case.detail.is_empty() {
                let line = if is_judged { "<br>" } else { "" };
                write!(f, "{line}<span class=\"muted\">{}</span>", Escaped(&case.detail))?;
            }
            f.write_str("</td>")?;
        }
        let numbers: Vec<_> = rates.iter().map(|Rate(_, of, show)| show(of(case))).collect();
        frame::numbers(f, &numbers)?;
        columns.iter().try_for_each(|column| column.cell(f, case))?;
        f.write_str("</tr>\n")?;
    }
    f.write_str("</tbody></table></div>\n")
}

/// A column of all experiments: heading, value of a case, and format.
struct Rate(&'static str, fn(&Case) -> Option<f64>, fn(Option<f64>) -> String);

/// A column of this experiment only.
struct Column<'a> {
    name: &'a str,
    is_number: bool,
}

impl<'a> Column<'a> {
    fn from_cases(cases: &[&'a Case]) -> Vec<Self> {
        let column = |name| {
            let values = cases.iter().filter_map(move |case| case.value(name));
            let mut values = values.filter(|value| !value.is_null()).peekable();
            values.peek()?;
            Some(Self { name, is_number: values.all(Value::is_number) })
        };
        columns(cases.iter().copied()).into_iter().filter_map(column).collect()
    }

    fn heading(&self, f: &mut Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, &str); 5] = [
            ("_mbit_per_s", "Mbit/s"),
            ("_gbit_per_s", "Gbit/s"),
            ("_percent", "%"),
            ("_ms", "ms"),
            ("_s", "s"),
        ];
        let with_unit =
            UNITS.iter().find_map(|(end, unit)| Some((self.name.strip_suffix(end)?, *unit)));
        let (name, unit) = with_unit.unwrap_or((self.name, ""));
        let words = name.replace('_', " ");
        let mut chars = words.chars();
        let first = chars.next().map(|char| char.to_uppercase().to_string()).unwrap_or_default();
        let class = if self.is_number { " class=\"number\"" } else { "" };
        write!(f, "<th{class}>{}{}", Escaped(&first), Escaped(chars.as_str()))?;
        if !unit.is_empty() {
            write!(f, "<small>{unit}</small>")?;
        }
        f.write_str("</th>")
    }

    fn cell(&self, f: &mut Formatter<'_>, case: &Case) -> fmt::Result {
        let text = match case.value(self.name) {
            None | Some(Value::Null) => NOTHING.to_owned(),
            Some(Value::Bool(value)) => if *value { "yes" } else { "no" }.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => match (number.as_u64(), number.as_f64()) {
                (Some(number), _) => count(number),
                (None, Some(number)) => readable(number),
                (None, None) => number.to_string(),
            },
            Some(value) => value.to_string(),
        };
        let class = if self.is_number { " class=\"number\"" } else { "" };
        write!(f, "<td{class}>{}</td>", Escaped(&text))
    }
}
