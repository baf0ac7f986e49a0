use super::Country;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// Why a table of countries cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CountriesError {
    /// The file cannot be read.
    #[error(
        "cannot read the table of countries {}: {source}; Debian's package `tor-geoipdb` has one at \
         /usr/share/tor/geoip",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// A malformed line.
    #[error(
        "line {line} of the table of countries {}: {problem}; tor's format has `FIRST,LAST,CC` there, with \
         addresses, or numbers for IPv4",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The reason.
        problem: String,
    },
    /// The file has no ranges.
    #[error("the table of countries {} is empty", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// An invalid MaxMind file.
    #[error("the table of countries {}: {problem}", path.display())]
    MaxMind {
        /// The file.
        path: PathBuf,
        /// The reason.
        problem: String,
    },
}

/// Address ranges with their countries.
#[derive(Debug, Default)]
pub struct Countries {
    /// First and last address as IPv6 numbers (IPv4 mapped), ascending, not overlapping.
    ranges: Vec<(u128, u128, Country)>,
    maxmind: Vec<maxminddb::Reader<Vec<u8>>>,
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Countries {
    /// Reads these files: `.mmdb` files in MaxMind's format, others in tor's.
    ///
    /// # Errors
    /// [`CountriesError`] names file and line.
    pub fn read(paths: &[PathBuf]) -> Result<Self, CountriesError> {
        let mut all = Self::default();
        for path in paths {
            let unreadable = |source| CountriesError::Unreadable { path: path.clone(), source };
            let bytes = fs::read(path).map_err(unreadable)?;
            if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("mmdb")) {
                let problem = |error: maxminddb::MaxMindDbError| error.to_string();
                let reader = maxminddb::Reader::from_source(bytes).map_err(|error| {
                    CountriesError::MaxMind { path: path.clone(), problem: problem(error) }
                })?;
                all.maxmind.push(reader);
            } else {
                all.add(&String::from_utf8_lossy(&bytes), path)?;
            }
        }
        Ok(all)
    }

    /// Parses tor's format.
    ///
    /// # Errors
    /// [`CountriesError`] names the line; the file is called `text`.
    pub fn parse(text: &str) -> Result<Self, CountriesError> {
        let mut all = Self::default();
        all.add(text, Path::new("text"))?;
        Ok(all)
    }

    fn add(&mut self, text: &str, path: &Path) -> Result<(), CountriesError> {
        let before = self.ranges.len();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let wrong = |problem| CountriesError::Line { path: path.to_owned(), line, problem };
            let (low, high, country) = range(content).map_err(wrong)?;
            // `??` marks addresses without a known country.
            self.ranges.extend(country.map(|country| (low, high, country)));
        }
        if self.ranges.len() == before {
            return Err(CountriesError::Empty { path: path.to_owned() });
        }
        self.ranges.sort_unstable();
        let overlap = self.ranges.windows(2).find(|pair| pair[0].1 >= pair[1].0);
        match overlap {
            Some(pair) => Err(CountriesError::Line {
                path: path.to_owned(),
                line: 0,
                problem: format!("two ranges overlap at {}", Ipv6Addr::from_bits(pair[1].0)),
            }),
            None => Ok(()),
        }
    }

    /// The country of an address, if known.
    #[must_use]
    pub fn find(&self, address: IpAddr) -> Option<Country> {
        let at = number(address);
        let behind = self.ranges.partition_point(|(low, ..)| *low <= at);
        let found = behind.checked_sub(1).and_then(|place| self.ranges.get(place));
        let found = found.filter(|(_, high, _)| at <= *high).map(|(.., country)| *country);
        found.or_else(|| self.maxmind.iter().find_map(|reader| look_up(reader, address)))
    }

    /// Whether the table contains this country. Always true for MaxMind files, which have no index
    /// of countries.
    #[must_use]
    pub fn has(&self, country: Country) -> bool {
        !self.maxmind.is_empty() || self.ranges.iter().any(|(.., other)| *other == country)
    }
}

/// Parses `FIRST,LAST,CC`; no country for `??`.
fn range(content: &str) -> Result<(u128, u128, Option<Country>), String> {
    let mut fields = content.split(',');
    let mut next = |what| fields.next().ok_or_else(|| format!("it has no {what}"));
    let (low, high) = (next("first address")?, next("last address")?);
    let country = next("country")?.trim();
    let (low, high) = (address(low)?, address(high)?);
    if high < low {
        return Err("the last address is before the first".to_owned());
    }
    let country = match country {
        "??" => None,
        code => Some(code.parse()?),
    };
    Ok((low, high, country))
}

/// Parses an address, or an IPv4 address as a number.
fn address(text: &str) -> Result<u128, String> {
    let text = text.trim();
    let by_number = || text.parse().ok().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let found = text.parse().ok().or_else(by_number);
    found.map(number).ok_or_else(|| format!("`{text}` is not an address"))
}

fn look_up(reader: &maxminddb::Reader<Vec<u8>>, address: IpAddr) -> Option<Country> {
    let found = reader.lookup(address).ok()?;
    let country: maxminddb::geoip2::Country<'_> = found.decode().ok()??;
    country.country.iso_code?.parse().ok()
}
