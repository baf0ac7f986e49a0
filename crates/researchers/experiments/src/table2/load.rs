//! What clients want of a network.

use std::fmt;
use std::str::FromStr;

/// In percent of all capacity; `None` if clients take all that they get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load(pub(super) Option<u32>);

impl Load {
    /// As a share of all capacity.
    pub(super) fn share(self) -> Option<f64> {
        self.0.map(|percent| f64::from(percent) / 100.0)
    }
}

impl FromStr for Load {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "saturated" {
            return Ok(Self(None));
        }
        let percent = text.parse().ok().filter(|percent| (1..=1000).contains(percent));
        let problem = || "a load is 1 to 1000 percent, or `saturated`".to_owned();
        percent.map(|percent| Self(Some(percent))).ok_or_else(problem)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(percent) => write!(f, "{percent} %"),
            None => f.write_str("saturated"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_percent_or_saturated() {
        assert_eq!("50".parse(), Ok(Load(Some(50))));
        assert_eq!("saturated".parse(), Ok(Load(None)));
        assert!(["0", "1001", "half", ""].iter().all(|text| text.parse::<Load>().is_err()));
    }
}
