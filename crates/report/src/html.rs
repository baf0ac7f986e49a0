//! The page. What stands in it besides this file's own words goes through [`frame`], an
//! escaping or number formatter, or [`Figure`].

pub(crate) mod frame;
mod relays;

use crate::plots::{self, ACCURATE, Figure, MOST_IN_OVERVIEW};
use crate::text::mbit;
use crate::{RelayReport, Report};
use frame::{Frame, figure};
use std::fmt;

const EXPLANATION: &str = include_str!("explanation.html");

impl Report {
    /// The report as a page that needs no other file and no network: about 5 MB, most of which is
    /// the script that draws the plots; without plots a few kB.
    #[must_use]
    pub fn to_html(&self) -> String {
        Page::new(self).to_string()
    }
}

struct Page<'a> {
    report: &'a Report,
    overview: Option<Figure>,
    accuracy: Option<Figure>,
    seconds: Vec<Option<Figure>>,
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
        if let Some(overview) = &self.overview {
            f.write_str("<h2>Overview</h2>\n<div class=\"card\">")?;
            let shown = if self.report.relays.len() > MOST_IN_OVERVIEW {
                format!(" Only the first {MOST_IN_OVERVIEW} relays are shown here.")
            } else {
                String::new()
            };
            let caption = format!(
                "Per relay: the estimate with its quartiles, the median of what the relay itself \
                 says it carried, and its configured limit where known.{shown}"
            );
            figure(f, overview, &caption)?;
            f.write_str("</div>\n")?;
        }
        if let Some(accuracy) = &self.accuracy {
            let [low, high] = ACCURATE;
            f.write_str("<h2>Accuracy</h2>\n<div class=\"card\">")?;
            let caption = format!(
                "The share of relays whose estimate is at most so many times their configured \
                 limit. The shaded band, {low:.2} to {high:.2}, is what the FlashFlow paper \
                 promises; the dotted line marks perfect estimates."
            );
            figure(f, accuracy, &caption)?;
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
