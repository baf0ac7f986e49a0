//! The page of measured relays. All untrusted text passes through [`frame`], an escaping or number formatter, or [`ExperimentFigure`].

pub(crate) mod frame;
mod relays;

use crate::figure::ExperimentFigure;
use crate::plots;
use crate::text::mbit;
use crate::{RelayReport, Report};
use frame::Frame;
use std::fmt;

const EXPLANATION: &str = include_str!("explanation.html");

impl Report {
    /// The report as a self-contained page.
    #[must_use]
    pub fn to_html(&self) -> String {
        Page::new(self).to_string()
    }
}

struct Page<'a> {
    report: &'a Report,
    overview: Option<ExperimentFigure>,
    accuracy: Option<ExperimentFigure>,
    seconds: Vec<Option<ExperimentFigure>>,
}

impl<'a> Page<'a> {
    fn new(report: &'a Report) -> Self {
        Self {
            report,
            overview: plots::overview(&report.relays),
            accuracy: plots::accuracy(&report.relays),
            seconds: report.relays.iter().map(plots::seconds).collect(),
        }
    }

    fn has_plots(&self) -> bool {
        [&self.overview, &self.accuracy].into_iter().chain(&self.seconds).any(Option::is_some)
    }

    fn tiles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relays = &self.report.relays;
        let ended = |word| relays.iter().filter(|relay| relay.verdict().word() == word).count();
        let total: f64 = relays.iter().filter_map(RelayReport::estimate).sum();
        let mut tiles = vec![(relays.len().to_string(), "relays")];
        let words = ["conclusive", "inconclusive", "failed"];
        tiles.extend(words.map(|word| (ended(word).to_string(), word)));
        tiles.push((mbit(Some(total)), "Mbit/s in all"));
        frame::tiles(f, &tiles)
    }

    fn overviews(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for figure in [&self.overview, &self.accuracy].into_iter().flatten() {
            write!(f, "<h2>{}</h2>\n<div class=\"card\">", figure.title)?;
            frame::figure(f, figure)?;
            f.write_str("</div>\n")?;
        }
        Ok(())
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { title, software_version, tor_version, generated_unix_s, .. } = self.report;
        let mut facts = vec![format!("FlashFlow {software_version}")];
        facts.extend(tor_version.as_ref().map(|version| format!("tor {version}")));
        let frame = Frame {
            title,
            generated_unix_s: *generated_unix_s,
            facts: &facts,
            has_plots: self.has_plots(),
        };
        frame.around(f, |f| {
            self.tiles(f)?;
            writeln!(f, "<div class=\"card\">{EXPLANATION}</div>")?;
            relays::results(f, &self.report.relays)?;
            self.overviews(f)?;
            relays::details(f, &self.report.relays, &self.seconds)?;
            relays::weights(f, self.report)?;
            frame::parameters(f, &self.report.parameters)?;
            frame::notes(f, &self.report.notes)
        })
    }
}

#[cfg(test)]
mod tests;
