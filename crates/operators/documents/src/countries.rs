//! Countries and continents of addresses, for geographic strategies.
//!
//! The table comes from a file in tor's format (`geoip` and `geoip6` of Debian's package
//! `tor-geoipdb`) or in MaxMind's (`.mmdb`). It contains where an address is registered, which is
//! not always where the host is.

mod continent;
mod table;

pub use continent::Continent;
pub use table::{Countries, CountriesError};

use std::fmt;
use std::str::FromStr;

/// A country, by its ISO 3166 code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Country([u8; 2]);

impl Country {
    /// The code, in upper case.
    #[must_use]
    pub fn code(&self) -> &str {
        // Only ASCII letters.
        std::str::from_utf8(&self.0).unwrap_or("??")
    }

    /// Its continent; `None` for a code that is not assigned.
    #[must_use]
    pub fn continent(self) -> Option<Continent> {
        Continent::of(self)
    }
}

impl FromStr for Country {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match *text.as_bytes() {
            [a, b] if a.is_ascii_alphabetic() && b.is_ascii_alphabetic() => {
                Ok(Self([a.to_ascii_uppercase(), b.to_ascii_uppercase()]))
            }
            _ => Err(format!("`{text}` is not a country: two letters, such as DE")),
        }
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests;
