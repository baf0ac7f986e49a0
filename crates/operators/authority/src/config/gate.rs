//! The sections of `coordinator.toml` for bandwidth files: their gate and their header.

use documents::countries::Countries;
use documents::gate::Limits;
use netdoc::bwfile::{HeaderKey, SCANNER_COUNTRY};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// Where Debian's package `tor-geoipdb` has the countries of addresses.
pub const USUAL_TABLE: &str = "/usr/share/tor/geoip";

/// The gate of bandwidth files.
#[derive(Debug)]
pub struct Gate {
    /// The limits.
    pub limits: Limits,
    /// The votes of other authorities: a file or a folder. `None` if the authority of the consensus is asked.
    pub votes: Option<PathBuf>,
    /// Nickname or v3 identity of our own authority, whose vote does not count.
    pub own: Option<String>,
    /// The countries of addresses.
    pub countries: Option<Countries>,
    /// The bandwidth files of teams at other places.
    pub places: Vec<PathBuf>,
}

/// The settings other than limits.
#[derive(Debug, Deserialize)]
struct Sources {
    votes: Option<PathBuf>,
    own: Option<String>,
    geoip: Option<PathBuf>,
    #[serde(default)]
    places: Vec<PathBuf>,
}

impl Gate {
    /// From the section, whose paths are resolved by `resolve`.
    ///
    /// # Errors
    /// A setting is wrong or unknown, or the table of countries cannot be used.
    pub fn new(
        mut table: toml::Table,
        resolve: &impl Fn(&Path) -> PathBuf,
    ) -> Result<Self, String> {
        let wrong = |error: toml::de::Error| format!("[gate]: {}", error.message());
        let mut sources = toml::Table::new();
        for name in ["votes", "own", "geoip", "places"] {
            if let Some(value) = table.remove(name) {
                sources.insert(name.to_owned(), value);
            }
        }
        let limits: Limits = table.try_into().map_err(wrong)?;
        limits.validate().map_err(|problem| format!("[gate]: {problem}"))?;
        let Sources { votes, own, geoip, places } = sources.try_into().map_err(wrong)?;
        let usual = || Some(PathBuf::from(USUAL_TABLE)).filter(|path| path.exists());
        let geoip = geoip.map(|path| resolve(&path)).or_else(usual);
        let countries = geoip.map(|path| Countries::read(&[path])).transpose();
        let countries = countries.map_err(|error| format!("[gate]: {error}"))?;
        let places = places.iter().map(|path| resolve(path)).collect();
        Ok(Self { limits, votes: votes.map(|path| resolve(&path)), own, countries, places })
    }
}

/// The section `[header]`: keys of sbws that only an operator knows.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    scanner_country: Option<String>,
    destinations_countries: Option<Vec<String>>,
    tor_version: Option<String>,
    dirauth_nickname: Option<String>,
}

impl Header {
    /// Keys and values for the header of a bandwidth file.
    pub(super) fn pairs(self) -> Result<Vec<(String, String)>, String> {
        let Self { scanner_country, destinations_countries, tor_version, dirauth_nickname } = self;
        let pairs = [
            (SCANNER_COUNTRY, scanner_country),
            ("destinations_countries", destinations_countries.map(|countries| countries.join(","))),
            ("tor_version", tor_version),
            ("dirauth_nickname", dirauth_nickname),
        ];
        let given = pairs.into_iter().filter_map(|(key, value)| Some((key, value?)));
        let checked = given.map(|(key, value)| {
            let known = HeaderKey::find(key);
            known.map_or(Ok(()), |known| known.check(&value))?;
            Ok((key.to_owned(), value))
        });
        checked.collect::<Result<_, String>>().map_err(|problem| format!("[header]: {problem}"))
    }
}
