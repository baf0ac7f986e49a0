//! The keys of a bandwidth file's header: all that the specification or sbws 1.9 has, with their values and meanings.

use super::Header;
use crate::text::{self, date_time, decimal};
use std::borrow::Cow;

/// The form of a header's value (bandwidth-file-spec.txt, section 2.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HeaderForm {
    /// A number without sign.
    Number,
    /// `YYYY-MM-DDTHH:MM:SS`, UTC.
    DateTime,
    /// Two capital letters (ISO 3166-1), `ZZ` if unknown.
    Country,
    /// Such letters, separated by commas.
    Countries,
    /// A nickname of a relay or authority.
    Nickname,
    /// Printing ASCII without spaces.
    Text,
}

/// A key of the header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct HeaderKey {
    /// The key.
    pub key: &'static str,
    /// The form of its value.
    pub form: HeaderForm,
    /// The meaning of the value.
    pub meaning: &'static str,
}

const fn key(key: &'static str, form: HeaderForm, meaning: &'static str) -> HeaderKey {
    HeaderKey { key, form, meaning }
}

/// The key of the country of the generator.
pub const SCANNER_COUNTRY: &str = "scanner_country";

/// All known keys, in the order of the specification.
pub const HEADER_KEYS: [HeaderKey; 29] = {
    use HeaderForm::{Countries, Country, DateTime, Nickname, Number, Text};
    [
        key("version", Text, "version of the format"),
        key("software", Text, "program that wrote the file"),
        key("software_version", Text, "its version"),
        key("file_created", DateTime, "when the file was written"),
        key("generator_started", DateTime, "when the program started"),
        key("earliest_bandwidth", DateTime, "time of the oldest result"),
        key("latest_bandwidth", DateTime, "time of the newest result; equals the timestamp"),
        key("number_eligible_relays", Number, "relays with a result that counts"),
        key("minimum_percent_eligible_relays", Number, "per cent of relays that need a result"),
        key("number_consensus_relays", Number, "relays that could have one"),
        key("percent_eligible_relays", Number, "per cent of them that have one"),
        key("minimum_number_eligible_relays", Number, "number of relays that need a result"),
        key(SCANNER_COUNTRY, Country, "country of the generator"),
        key(
            "destinations_countries",
            Countries,
            "countries of the hosts that exchange data with relays",
        ),
        key("recent_consensus_count", Number, "consensuses of the last days"),
        key(
            "recent_priority_list_count",
            Number,
            "lists of relays to measure next, made in the last days",
        ),
        key("recent_priority_relay_count", Number, "relays on these lists"),
        key("recent_measurement_attempt_count", Number, "measurements queued in the last days"),
        key(
            "recent_measurement_failure_count",
            Number,
            "those that failed for reasons of the scanner",
        ),
        key(
            "recent_measurements_excluded_error_count",
            Number,
            "relays without a successful measurement in the last days",
        ),
        key(
            "recent_measurements_excluded_near_count",
            Number,
            "relays whose measurements are too close in time",
        ),
        key(
            "recent_measurements_excluded_old_count",
            Number,
            "relays whose measurements are too old",
        ),
        key("recent_measurements_excluded_few_count", Number, "relays with too few measurements"),
        key(
            "time_to_report_half_network",
            Number,
            "seconds to measure half of the network at the rate of the last days",
        ),
        key("tor_version", Text, "version of the tor that the scanner controls"),
        key("mu", Number, "mean of all relays' bandwidths, bytes per second"),
        key("muf", Number, "mean of all relays' filtered bandwidths, bytes per second"),
        key("dirauth_nickname", Nickname, "authority that votes with the file"),
        key("timestamp", Number, "the first line: Unix seconds of the newest result"),
    ]
};

impl HeaderForm {
    /// What such a value looks like, if `value` is not one.
    fn expected(self, value: &str) -> Option<&'static str> {
        let is_country =
            |code: &str| code.len() == 2 && code.bytes().all(|b| b.is_ascii_uppercase());
        let (is_fine, expected) = match self {
            Self::Number => (decimal::<u64>(value.as_bytes()).is_some(), "a number"),
            Self::DateTime => (date_time(value.as_bytes()).is_some(), "YYYY-MM-DDTHH:MM:SS"),
            Self::Country => (is_country(value), "two capital letters, such as DE"),
            Self::Countries => (
                value.split(',').all(is_country),
                "pairs of capital letters with commas, such as AT,DE",
            ),
            Self::Nickname => (value.parse::<crate::Nickname>().is_ok(), "a nickname"),
            Self::Text => {
                let is_fine = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic());
                (is_fine, "printing ASCII without spaces")
            }
        };
        (!is_fine).then_some(expected)
    }
}

impl HeaderKey {
    /// The known key with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        HEADER_KEYS.iter().find(|known| known.key == name)
    }

    /// Checks a value.
    ///
    /// # Errors
    /// What was expected, in words that follow the key.
    pub fn check(&self, value: &str) -> Result<(), String> {
        self.form.expected(value).map_or(Ok(()), |expected| {
            Err(format!("{}={}: expected {expected}", self.key, text::excerpt(value.as_bytes())))
        })
    }
}

impl Header {
    /// All lines after the timestamp, as keys and values: those with a field first, in the order in which they are written.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, Cow<'_, str>)> {
        let text = |value: &'_ Option<String>| value.clone();
        let time = |value: Option<u64>| value.map(text::iso);
        let number = |value: Option<u64>| value.map(|number| number.to_string());
        let known = [
            ("version", text(&self.version)),
            ("software", text(&self.software)),
            ("software_version", text(&self.software_version)),
            ("file_created", time(self.file_created)),
            ("generator_started", time(self.generator_started)),
            ("earliest_bandwidth", time(self.earliest_bandwidth)),
            ("latest_bandwidth", time(self.latest_bandwidth)),
            ("number_eligible_relays", number(self.number_eligible_relays)),
            ("minimum_number_eligible_relays", number(self.minimum_number_eligible_relays)),
            ("number_consensus_relays", number(self.number_consensus_relays)),
            ("percent_eligible_relays", number(self.percent_eligible_relays)),
            ("minimum_percent_eligible_relays", number(self.minimum_percent_eligible_relays)),
        ];
        let known = known.into_iter().filter_map(|(key, value)| Some((key, Cow::Owned(value?))));
        let other = self.other.iter();
        known.chain(other.map(|(key, value)| (key.as_str(), Cow::Borrowed(value.as_str()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BandwidthFile;
    use crate::bwfile::KNOWN_HEADERS;
    use std::collections::BTreeSet;

    /// The header of a directory authority's vote of July 2026, as `bandwidth-file-headers` has it (file of sbws 1.9.0).
    const LIVE: &str = "1785144986 version=1.9.0 destinations_countries=AT dirauth_nickname=tor26 \
        earliest_bandwidth=2026-06-29T09:36:43 file_created=2026-07-27T09:36:29 generator_started=2026-07-22T12:04:18 \
        latest_bandwidth=2026-07-27T09:36:26 minimum_number_eligible_relays=5900 minimum_percent_eligible_relays=60 mu=1566357 \
        muf=2437513 number_consensus_relays=9834 number_eligible_relays=11225 percent_eligible_relays=114 \
        recent_consensus_count=118 recent_measurements_excluded_error_count=236 recent_measurements_excluded_few_count=0 \
        recent_measurements_excluded_near_count=0 recent_measurements_excluded_old_count=0 recent_priority_list_count=51 \
        recent_priority_relay_count=25175 scanner_country=AT software=sbws software_version=1.9.0 \
        time_to_report_half_network=1059699 tor_version=0.4.9.11";

    #[test]
    fn each_key_of_a_live_header_is_known_and_its_value_fits() {
        let text = format!("{}\n=====\n", LIVE.split_whitespace().collect::<Vec<_>>().join("\n"));
        let parsed = BandwidthFile::parse(text.as_bytes()).expect("a header");
        assert_eq!(parsed.skipped, []);
        let found: Vec<(&str, Cow<'_, str>)> = parsed.file.header.pairs().collect();
        assert_eq!(found.len(), 26);
        for (key, value) in found {
            let known = HeaderKey::find(key).expect(key);
            assert_eq!(known.check(&value), Ok(()));
        }
        let keys: BTreeSet<&str> = HEADER_KEYS.iter().map(|known| known.key).collect();
        assert_eq!(keys.len(), HEADER_KEYS.len(), "a key is there twice");
        assert!(KNOWN_HEADERS.iter().all(|key| keys.contains(key)));
    }

    #[test]
    fn values_of_another_form_are_refused() {
        for (key, value) in [
            ("scanner_country", "at"),
            ("scanner_country", "AUT"),
            ("destinations_countries", "AT,"),
            ("destinations_countries", "AT;DE"),
            ("mu", "1.5"),
            ("time_to_report_half_network", "-1"),
            ("dirauth_nickname", "tor 26"),
            ("file_created", "2026-07-27"),
            ("tor_version", ""),
        ] {
            let problem = HeaderKey::find(key).expect(key).check(value).expect_err(value);
            assert!(problem.starts_with(key) && problem.contains("expected"), "{problem}");
        }
        for (key, value) in
            [("destinations_countries", "AT,DE,ZZ"), ("tor_version", "0.5.0.0-alpha-dev")]
        {
            assert_eq!(HeaderKey::find(key).expect(key).check(value), Ok(()));
        }
    }
}
