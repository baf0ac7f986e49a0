//! A range of ports.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// The ports at which return relays listen, so that a firewall can admit exactly these: `20000-20999`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRange(RangeInclusive<u16>);

/// A text that is no [`PortRange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a range of ports: write the first and the last port, 1 to 65535, such as 20000-20999")]
pub struct BadPortRange;

impl PortRange {
    /// The number of ports.
    #[must_use]
    pub const fn count(&self) -> usize {
        (*self.0.end() - *self.0.start()) as usize + 1
    }

    /// The first port.
    #[must_use]
    pub const fn first(&self) -> u16 {
        *self.0.start()
    }

    /// Whether the range has this port.
    #[must_use]
    pub const fn contains(&self, port: u16) -> bool {
        *self.0.start() <= port && port <= *self.0.end()
    }

    /// Whether the range has a port of another one.
    #[must_use]
    pub const fn overlaps(&self, other: &Self) -> bool {
        *self.0.start() <= *other.0.end() && *other.0.start() <= *self.0.end()
    }

    /// The port with this number, counted from the first one and, after the last one, from there again.
    pub(crate) fn port(&self, number: usize) -> u16 {
        let offset = u16::try_from(number % self.count()).unwrap_or(0);
        self.0.start() + offset
    }
}

impl FromStr for PortRange {
    type Err = BadPortRange;

    fn from_str(text: &str) -> Result<Self, BadPortRange> {
        let (first, last) = text.split_once('-').ok_or(BadPortRange)?;
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = port(first).zip(port(last)).ok_or(BadPortRange)?;
        if first <= last { Ok(Self(first..=last)) } else { Err(BadPortRange) }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.start(), self.0.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_two_ports_in_order() {
        let range: PortRange = "20000-20002".parse().expect("a range");
        assert_eq!((range.count(), range.to_string().as_str()), (3, "20000-20002"));
        assert_eq!([0, 1, 2, 3].map(|number| range.port(number)), [20000, 20001, 20002, 20000]);
        assert_eq!("1-65535".parse::<PortRange>().map(|range| range.count()), Ok(65535));
        for bad in ["", "20000", "2-1", "0-5", "1-65536", "a-b", "1-2-3", "-5"] {
            assert_eq!(bad.parse::<PortRange>(), Err(BadPortRange), "{bad}");
        }
    }
}
