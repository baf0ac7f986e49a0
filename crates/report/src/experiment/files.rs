//! An experiment's files.

use super::ExperimentReport;
use crate::write::{self, ReportError};
use std::path::{Path, PathBuf};

/// The files that [`ExperimentReport::write`] made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page, for people.
    pub html: PathBuf,
    /// The cases.
    pub csv: PathBuf,
    /// Everything.
    pub json: PathBuf,
    /// The figures, in the report's order.
    pub figures: Vec<WrittenFigure>,
}

/// The files of one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFigure {
    /// Its points.
    pub csv: PathBuf,
    /// The picture.
    pub svg: PathBuf,
}

impl ExperimentReport {
    /// Writes the report into a folder, which is made if it isn't there: `NAME.html`, `NAME.csv`
    /// with the cases and `NAME.json` with everything; for each figure its points as
    /// `NAME-FIGURE.csv` and its picture as `NAME-FIGURE.svg`.
    ///
    /// Each file replaces an earlier one whole or not at all; the page comes last, so that it
    /// is never older than the data next to it.
    ///
    /// # Errors
    ///
    /// If a file can't be made; the message names it and says what to do.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<Written, ReportError> {
        let folder = folder.as_ref();
        std::fs::create_dir_all(folder)
            .map_err(|source| ReportError::Write { path: folder.to_owned(), source })?;
        let names = self.file_names();
        let [html, csv, json] = [names.html, names.csv, names.json].map(|name| folder.join(name));
        let mut figures = Vec::with_capacity(self.figures.len());
        for (figure, name) in self.figures.iter().zip(names.figures) {
            let [csv, svg] = [name.csv, name.svg].map(|name| folder.join(name));
            write_table(&csv, figure.points_csv())?;
            write::write(&svg, figure.to_svg().as_bytes())?;
            figures.push(WrittenFigure { csv, svg });
        }
        write_table(&csv, self.cases_csv())?;
        write::write(&json, self.to_json().as_bytes())?;
        write::write(&html, self.to_html().as_bytes())?;
        Ok(Written { html, csv, json, figures })
    }

    /// What the files are called: letters, digits, `-` and `_`, whatever the names of the
    /// experiment and its figures are.
    pub(super) fn file_names(&self) -> Written {
        let stem = stem(&self.name, "experiment");
        let mut taken: Vec<String> = Vec::new();
        for (figure, n) in self.figures.iter().zip(1..) {
            let mut name = self::stem(&figure.name, &format!("figure-{n}"));
            while taken.contains(&name) {
                name = format!("{name}-{n}");
            }
            taken.push(name);
        }
        let figures = taken.iter().map(|name| WrittenFigure {
            csv: format!("{stem}-{name}.csv").into(),
            svg: format!("{stem}-{name}.svg").into(),
        });
        let [html, csv, json] =
            ["html", "csv", "json"].map(|kind| PathBuf::from(format!("{stem}.{kind}")));
        Written { html, csv, json, figures: figures.collect() }
    }
}

fn write_table(path: &Path, table: std::io::Result<Vec<u8>>) -> Result<(), ReportError> {
    let table = table.map_err(|source| ReportError::Write { path: path.to_owned(), source })?;
    write::write(path, &table)
}

fn stem(name: &str, otherwise: &str) -> String {
    let harmless = |char: char| match char {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => char,
        _ => '-',
    };
    let stem: String = name.chars().take(80).map(harmless).collect();
    if stem.is_empty() { otherwise.into() } else { stem }
}
