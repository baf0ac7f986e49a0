//! Results of experiments as a folder with a page, tables and data.
//!
//! An experiment answers one question about FlashFlow, such as how accurate its estimates are, with cases that each hold or do not.
//!
//! ```
//! use report::experiment::{Axis, Case, ExperimentFigure, ExperimentReport, On, Promise, Role};
//!
//! let mut report = ExperimentReport {
//!     name: "accuracy".into(),
//!     title: "How accurate are the estimates?".into(),
//!     promise: Promise::Share(0.99),
//!     ..ExperimentReport::default()
//! };
//! let case = Case::judged("echo 250 Mbit/s, run 1", 250.0, Some(243.0), 0.90..=1.05);
//! report.cases.push(case.column("mode", "echo").column("measurers", 2));
//! let ratios: Vec<f64> = report.cases.iter().filter_map(|case| case.ratio).collect();
//! report.figures.push(
//!     ExperimentFigure::distributions(
//!         "figure-6",
//!         "Estimate over limit",
//!         "estimate ÷ limit",
//!         [("250 Mbit/s", ratios.as_slice())],
//!     )
//!     .band(On::X, 0.90, 1.05, "−10 % to +5 %", Role::Truth),
//! );
//! let folder = tempfile::tempdir()?;
//! let written = report.write(folder.path())?;
//! assert!(written.html.ends_with("accuracy.html"));
//! assert!(report.summary_line().starts_with(r#"{"type":"summary","experiment":"accuracy""#));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod files;
mod model;
mod page;
mod summary;
mod tables;
#[cfg(test)]
mod tests;

pub use crate::figure::{
    Axis, Band, ExperimentFigure, Mark, On, PAGE_STYLE, Role, Scale, Series, Style, TrafficSecond,
    cumulative,
};
pub use files::{Written, WrittenFigure};
pub use model::{Case, CaseVerdict, ExperimentReport, Miss, Promise, Table};
/// The value of a case's column: text, a number, a Boolean, or null.
pub use serde_json::Value;
pub use summary::{Fields, Line, Summary};
