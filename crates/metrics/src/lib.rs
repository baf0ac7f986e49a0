//! Metrics of the daemons: the text format of Prometheus, and a server for a scraper.
//!
//! The crate `prometheus-client` writes OpenMetrics, in which the name of each counter ends with `_total`. The relay's metrics have C
//! tor's names, some of which do not, so that dashboards for C tor work unchanged.

mod server;

pub use server::Server;

use std::fmt::{Display, Write as _};

/// The content type of the text format.
pub const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

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

    /// The whole text.
    #[must_use]
    pub fn into_string(self) -> String {
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
    fn values_have_their_labels_and_labels_are_escaped() {
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
