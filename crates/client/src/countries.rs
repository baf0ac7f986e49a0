//! In which country an address is, and on which continent: for strategies that look at geography.
//!
//! The table comes from a file: tor's own format (`geoip` and `geoip6`, in Debian's package `tor-geoipdb`), or MaxMind's, whose
//! names end in `.mmdb`. What such a table says is where an address is registered, which is not always where the machine stands.

mod continent;
mod table;

pub use continent::Continent;
pub use table::{Countries, CountriesError};

use std::fmt;
use std::str::FromStr;

/// A country, by the two letters of ISO 3166.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Country([u8; 2]);

impl Country {
    /// Its two letters, in upper case.
    #[must_use]
    pub fn code(&self) -> &str {
        // Letters of ASCII alone.
        std::str::from_utf8(&self.0).unwrap_or("??")
    }

    /// Its continent; `None` of codes that are no country's.
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
            _ => Err(format!("`{text}` is no country: two letters, such as DE")),
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
