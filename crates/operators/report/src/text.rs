//! Formats numbers and untrusted text.

use std::fmt;

/// Placeholder for an unknown value.
pub(crate) const NOTHING: &str = "–";

/// Text in HTML, between tags or in a quoted attribute.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        self.0.chars().map(harmless).try_for_each(|char| match char {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            char => f.write_char(char),
        })
    }
}

/// Text as one line without terminal control sequences.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(harmless).collect()
}

/// Control characters control a terminal. Directional characters make text look like other text.
fn harmless(char: char) -> char {
    match char {
        '\n' | '\r' | '\t' => ' ',
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        char if char.is_control() => '\u{fffd}',
        char => char,
    }
}

/// The number, unless it is infinite or NaN.
pub(crate) fn finite(number: Option<f64>) -> Option<f64> {
    number.filter(|number| number.is_finite())
}

/// A rate in Mbit/s, without its unit.
pub(crate) fn mbit(rate: Option<f64>) -> String {
    match finite(rate) {
        None => NOTHING.into(),
        Some(rate) if rate != 0.0 && rate.abs() < 1.0 => format!("{rate:.3}"),
        Some(rate) => format!("{rate:.1}"),
    }
}

/// A share in percent: an integer, or two decimals below one percent.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if !percent.is_finite() {
        return NOTHING.into();
    }
    if percent > 0.0 && percent < 0.995 {
        format!("{:.2} %", percent.max(0.01))
    } else {
        format!("{percent:.0} %")
    }
}

/// The quotient of two rates.
pub(crate) fn quotient(ratio: Option<f64>) -> String {
    finite(ratio).map_or_else(|| NOTHING.into(), |ratio| format!("{ratio:.3}"))
}

/// A number with about four digits.
pub(crate) fn readable(number: f64) -> String {
    match number.abs() {
        0.0 => "0".into(),
        size if size < 0.001 => format!("{number:.1e}"),
        size if size < 10.0 => format!("{number:.3}"),
        size if size < 100.0 => format!("{number:.2}"),
        _ => format!("{number:.1}"),
    }
}

/// A range of rates in Mbit/s.
pub(crate) fn range(low: f64, high: f64) -> String {
    format!("{}–{}", mbit(Some(low)), mbit(Some(high)))
}

/// An integer with its digits in groups of three.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with a noun, such as “1 round” and “3 rounds”.
#[must_use]
pub fn plural(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(number), if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped_between_tags_and_in_attributes() {
        let text = Escaped("<b title=\"x\" id='y'>&").to_string();
        assert_eq!(text, "&lt;b title=&quot;x&quot; id=&#39;y&#39;&gt;&amp;");
    }

    #[test]
    fn terminal_control_characters_are_replaced() {
        assert_eq!(plain("a\u{1b}[2J\u{9b}b\nc\u{202e}d"), "a\u{fffd}[2J\u{fffd}b c\u{fffd}d");
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [0.0, 0.000_001, 0.0042, 0.01, 0.714, 1.002].map(percent),
            ["0 %", "0.01 %", "0.42 %", "1 %", "71 %", "100 %"]
        );
        assert_eq!(percent(f64::NAN), NOTHING);
        assert_eq!(
            [0, 12, 123, 1234, 1_234_567].map(count),
            ["0", "12", "123", "1,234", "1,234,567"]
        );
        assert_eq!(
            [Some(0.0), Some(0.0123), Some(249.96), Some(f64::NAN), None].map(mbit),
            ["0.0", "0.012", "250.0", "–", "–"]
        );
        assert_eq!(quotient(Some(f64::INFINITY)), "–");
        assert_eq!(plural(1, "round"), "1 round");
    }
}
