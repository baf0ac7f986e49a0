//! Metrics of the daemons: the text format of Prometheus, and a server for a scraper.
//!
//! The crate `prometheus-client` writes OpenMetrics, in which the name of each counter ends with `_total`. The relay's metrics have C
//! tor's names, some of which do not, so that dashboards for C tor work unchanged.

mod server;

pub use server::Server;

use std::fmt::{Display, Write as _};
use std::sync::OnceLock;

/// The content type of the text format.
pub const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The build of this program: version, commit and target.
static BUILD: OnceLock<[&str; 3]> = OnceLock::new();

/// Sets the build of this program, which `flashflow_build_info` exports.
pub fn declare_build(version: &'static str, commit: &'static str, target: &'static str) {
    // Only the program's main function calls this, once.
    let _ = BUILD.set([version, commit, target]);
}

/// Formats metrics as text.
#[derive(Debug, Default)]
pub struct Text(String);

// Writing to a string does not fail.
impl Text {
    /// Declares a metric. Its values follow.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A value of the metric that was declared last, with its labels.
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "counter", help);
        self.value(name, &[], value);
    }

    /// A gauge without labels. Without a value it is only declared.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl Into<Option<u64>>) {
        self.head(name, "gauge", help);
        if let Some(value) = value.into() {
            self.value(name, &[], value);
        }
    }

    /// The program's build, as the labels of a metric that is always 1.
    fn build(&mut self, [version, commit, target]: [&str; 3]) {
        let name = "flashflow_build_info";
        self.head(name, "gauge", "Version, commit and target of the program.");
        self.value(name, &[("version", version), ("commit", commit), ("target", target)], 1);
    }

    /// The whole text.
    #[must_use]
    pub fn into_string(mut self) -> String {
        if let Some(build) = BUILD.get() {
            self.build(*build);
        }
        self.0
    }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_is_exported_as_labels() {
        let mut text = Text::default();
        text.build(["1.2.3", "0123abcd", "x86_64-unknown-linux-gnu"]);
        let value = "flashflow_build_info{version=\"1.2.3\",commit=\"0123abcd\",target=\"x86_64-unknown-linux-gnu\"} 1\n";
        assert!(text.into_string().ends_with(value));
    }

    #[test]
    fn label_values_are_escaped() {
        let mut text = Text::default();
        text.counter("bytes_total", "Bytes", 5);
        text.head("up", "gauge", "Whether it answers");
        text.value("up", &[("name", "a\"b\\c\nd"), ("type", "x")], 1);
        text.gauge("absent", "Nothing", None);
        let expected = "# HELP bytes_total Bytes\n# TYPE bytes_total counter\nbytes_total 5\n\
            # HELP up Whether it answers\n# TYPE up gauge\nup{name=\"a\\\"b\\\\c\\nd\",type=\"x\"} 1\n\
            # HELP absent Nothing\n# TYPE absent gauge\n";
        assert_eq!(text.into_string(), expected);
    }
}
