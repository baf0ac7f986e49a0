//! The page. What stands in it besides this file's own words goes through [`Escaped`], a number
//! formatter or [`Figure`].

mod relays;

use crate::plots::{self, ACCURATE, Figure, MOST_IN_OVERVIEW};
use crate::text::{Escaped, mbit};
use crate::{RelayReport, Report};
use std::fmt;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");
/// Nothing may be fetched: the page works, and keeps its secrets, without a network.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      img-src data: blob:";
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

    fn heading(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { title, software_version, tor_version, generated_unix_s, .. } = self.report;
        write!(f, "<header><h1>{}</h1>\n<p class=\"muted\">", Escaped(title))?;
        match jiff::Timestamp::from_second(*generated_unix_s) {
            Ok(time) => write!(f, "{} UTC", time.strftime("%Y-%m-%d %H:%M:%S"))?,
            Err(_) => write!(f, "Unix time {generated_unix_s}")?,
        }
        write!(f, " · FlashFlow {}", Escaped(software_version))?;
        if let Some(version) = tor_version {
            write!(f, " · tor {}", Escaped(version))?;
        }
        f.write_str("</p></header>\n")
    }

    fn tiles(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let relays = &self.report.relays;
        let ended = |word| relays.iter().filter(|relay| relay.verdict().word() == word).count();
        let total: f64 = relays.iter().filter_map(RelayReport::estimate).sum();
        f.write_str("<ul class=\"tiles\">")?;
        write!(f, "<li><b>{}</b>relays</li>", relays.len())?;
        for word in ["conclusive", "inconclusive", "failed"] {
            write!(f, "<li><b>{}</b>{word}</li>", ended(word))?;
        }
        writeln!(f, "<li><b>{}</b>Mbit/s in all</li></ul>", mbit(Some(total)))
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

    fn parameters(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.report.parameters.is_empty() {
            f.write_str("<h2>Parameters</h2>\n<div class=\"card scroll\"><table><tbody>\n")?;
            for (name, value) in &self.report.parameters {
                writeln!(f, "<tr><th>{}</th><td>{}</td></tr>", Escaped(name), Escaped(value))?;
            }
            f.write_str("</tbody></table></div>\n")?;
        }
        if !self.report.notes.is_empty() {
            f.write_str("<h2>Notes</h2>\n<div class=\"card\">\n")?;
            for note in &self.report.notes {
                writeln!(f, "<p>{}</p>", Escaped(note))?;
            }
            f.write_str("</div>\n")?;
        }
        Ok(())
    }
}

impl fmt::Display for Page<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n",
            Escaped(&self.report.title)
        )?;
        self.heading(f)?;
        self.tiles(f)?;
        writeln!(f, "<div class=\"card\">{EXPLANATION}</div>")?;
        relays::results(f, &self.report.relays)?;
        self.overviews(f)?;
        relays::details(f, &self.report.relays, &self.seconds)?;
        relays::weights(f, self.report)?;
        self.parameters(f)?;
        f.write_str("</main>\n")?;
        if self.has_plots() {
            write!(f, "{}\n<script>\n{SCRIPT}</script>\n", plots::script())?;
        }
        f.write_str("</body></html>\n")
    }
}

/// A place for `page.js` to draw in.
fn figure(f: &mut fmt::Formatter<'_>, figure: &Figure, caption: &str) -> fmt::Result {
    let Figure { json, height_px } = figure;
    writeln!(
        f,
        "<figure class=\"plot\"><div style=\"height:{height_px}px\"></div>\
         <script type=\"application/json\">{json}</script>\
         <noscript><p class=\"muted\">Plots need JavaScript.</p></noscript>\
         <figcaption>{caption}</figcaption></figure>"
    )
}

#[cfg(test)]
mod tests;
