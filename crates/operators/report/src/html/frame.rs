//! Common parts of all pages. Untrusted text is escaped here.

use crate::figure::{ExperimentFigure, PAGE_STYLE};
use crate::text::Escaped;
use std::fmt::{self, Formatter};

const STYLE: &str = include_str!("../style.css");
const SCRIPT: &str = include_str!("../page.js");
/// The page may load nothing: it works offline, and leaks nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// The frame of a page.
pub(crate) struct Frame<'a> {
    pub(crate) title: &'a str,
    pub(crate) generated_unix_s: i64,
    /// Text next to the time, such as versions.
    pub(crate) facts: &'a [String],
    /// Whether the page needs the script of figures.
    pub(crate) has_plots: bool,
}

impl Frame<'_> {
    pub(crate) fn around(
        &self,
        f: &mut Formatter<'_>,
        content: impl FnOnce(&mut Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        write!(
            f,
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"referrer\" content=\"no-referrer\">\n\
             <title>{0}</title>\n<style>\n{STYLE}{1}</style></head>\n<body><main>\n\
             <header><h1>{0}</h1>\n<p class=\"muted\">",
            Escaped(self.title),
            if self.has_plots { PAGE_STYLE } else { "" },
        )?;
        match jiff::Timestamp::from_second(self.generated_unix_s) {
            Ok(time) => write!(f, "{} UTC", time.strftime("%Y-%m-%d %H:%M:%S"))?,
            Err(_) => write!(f, "Unix time {}", self.generated_unix_s)?,
        }
        self.facts.iter().try_for_each(|fact| write!(f, " · {}", Escaped(fact)))?;
        f.write_str("</p></header>\n")?;
        content(f)?;
        f.write_str("</main>\n")?;
        if self.has_plots {
            write!(f, "<script>\n{SCRIPT}</script>\n")?;
        }
        f.write_str("</body></html>\n")
    }
}

/// Numbers in large type, each with a word. Both are trusted and not escaped.
pub(crate) fn tiles(f: &mut Formatter<'_>, tiles: &[(String, &str)]) -> fmt::Result {
    f.write_str("<ul class=\"tiles\">")?;
    tiles.iter().try_for_each(|(number, word)| write!(f, "<li><b>{number}</b>{word}</li>"))?;
    f.write_str("</ul>\n")
}

/// A table of names and values, if there are any.
pub(crate) fn parameters(f: &mut Formatter<'_>, parameters: &[(String, String)]) -> fmt::Result {
    if parameters.is_empty() {
        return Ok(());
    }
    f.write_str("<h2>Parameters</h2>\n<div class=\"card scroll\"><table><tbody>\n")?;
    for (name, value) in parameters {
        writeln!(f, "<tr><th>{}</th><td>{}</td></tr>", Escaped(name), Escaped(value))?;
    }
    f.write_str("</tbody></table></div>\n")
}

/// Paragraphs, if there are any.
pub(crate) fn notes(f: &mut Formatter<'_>, notes: &[String]) -> fmt::Result {
    if notes.is_empty() {
        return Ok(());
    }
    f.write_str("<h2>Notes</h2>\n<div class=\"card\">\n")?;
    notes.iter().try_for_each(|note| writeln!(f, "<p>{}</p>", Escaped(note)))?;
    f.write_str("</div>\n")
}

/// A figure with its caption. `page.js` makes it interactive.
pub(crate) fn figure(f: &mut Formatter<'_>, figure: &ExperimentFigure) -> fmt::Result {
    let (drawn, caption) = (figure.to_html(), Escaped(&figure.caption));
    writeln!(f, "<figure class=\"plot\">{drawn}<figcaption>{caption}</figcaption></figure>")
}

/// A word on a coloured background. The trusted word is also the class in the style sheet.
pub(crate) struct Badge(pub(crate) &'static str);

impl fmt::Display for Badge {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "<span class=\"badge {0}\">{0}</span>", self.0)
    }
}

/// Cells of a row. They must be formatted numbers, because they are not escaped.
pub(crate) fn numbers(f: &mut Formatter<'_>, cells: &[String]) -> fmt::Result {
    cells.iter().try_for_each(|cell| write!(f, "<td class=\"number\">{cell}</td>"))
}
