//! The files of an experiment.

use super::ExperimentReport;
use crate::write::{self, ReportError};
use std::path::{Path, PathBuf};

/// The files that [`ExperimentReport::write`] made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page.
    pub html: PathBuf,
    /// The cases.
    pub csv: PathBuf,
    /// All results as JSON.
    pub json: PathBuf,
    /// The figures, in the order of the report.
    pub figures: Vec<WrittenFigure>,
}

/// The files of one figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenFigure {
    /// The points as CSV.
    pub csv: PathBuf,
    /// The SVG.
    pub svg: PathBuf,
}

impl ExperimentReport {
    /// Writes the report into a folder, and creates the folder if needed: `NAME.html`, `NAME.csv` with the cases, `NAME.json` with
    /// all results, and for each figure `NAME-FIGURE.csv` and `NAME-FIGURE.svg`.
    ///
    /// Files are replaced atomically. The page is written last, so that it is never older than the data next to it.
    ///
    /// # Errors
    ///
    /// A file cannot be written. The message names the file and the remedy.
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

    /// The names of the files. For any names of the experiment and its figures they consist of letters, digits, `-` and `_`.
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
