//! Exit policies as clients know them: the port summaries of microdescriptors and consensuses
//! (dir-spec.txt, sections 3.4.1, `p`, and 3.3, `p` and `p6`).

use crate::text::{decimal, words};

/// Limit on ranges of a summary: what fits into the authorities' limit of 1,000 characters.
const RANGES_MAX: usize = 512;

/// The ports that an exit permits, for most addresses.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PortPolicy {
    /// Whether the ranges are accepted or rejected ports.
    is_accepting: bool,
    /// First and last port of each, ascending, not overlapping.
    ranges: Vec<(u16, u16)>,
}

impl PortPolicy {
    /// Permits nothing: the policy of a relay whose microdescriptor has no `p` line.
    pub const REJECT_ALL: Self = Self { is_accepting: true, ranges: Vec::new() };

    /// Parses `accept` or `reject`, and ports and port ranges separated by commas. `None` unless
    /// the ports are at least 1, ascending and distinct.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut found = words(text);
        let is_accepting = match found.next()? {
            b"accept" => true,
            b"reject" => false,
            _ => return None,
        };
        let list = found.next()?;
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for range in list.split(|byte| *byte == b',') {
            let at = range.iter().position(|byte| *byte == b'-');
            let (low, high) = at.map_or((range, range), |at| (&range[..at], &range[at + 1..]));
            let (low, high) = (decimal::<u16>(low)?, decimal::<u16>(high)?);
            let is_behind = ranges.last().is_none_or(|(_, last)| *last < low);
            if low == 0 || high < low || !is_behind || ranges.len() == RANGES_MAX {
                return None;
            }
            ranges.push((low, high));
        }
        found.next().is_none().then_some(Self { is_accepting, ranges })
    }

    /// Whether streams to this port are permitted, for most addresses. Port 0 never is.
    #[must_use]
    pub fn allows(&self, port: u16) -> bool {
        let behind = self.ranges.partition_point(|(low, _)| *low <= port);
        let is_in = behind.checked_sub(1).is_some_and(|at| port <= self.ranges[at].1);
        port != 0 && is_in == self.is_accepting
    }

    /// Whether no port is permitted: the relay is not an exit.
    #[must_use]
    pub fn rejects_all(&self) -> bool {
        match self.is_accepting {
            true => self.ranges.is_empty(),
            false => {
                let mut next = 1_u32;
                for (low, high) in &self.ranges {
                    if u32::from(*low) > next {
                        return false;
                    }
                    next = u32::from(*high) + 1;
                }
                next > u32::from(u16::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ports_in_the_ranges_are_accepted_or_rejected_and_no_others() {
        let web = PortPolicy::parse(b"accept 80,443,8000-8010").expect("a policy");
        for (port, allowed) in
            [(0, false), (79, false), (80, true), (443, true), (8005, true), (8011, false)]
        {
            assert_eq!(web.allows(port), allowed, "{port}");
        }
        let most = PortPolicy::parse(b"reject 1-25,119").expect("a policy");
        for (port, allowed) in [(0, false), (25, false), (26, true), (119, false), (65535, true)] {
            assert_eq!(most.allows(port), allowed, "{port}");
        }
        assert!(PortPolicy::REJECT_ALL.rejects_all() && !PortPolicy::REJECT_ALL.allows(80));
        let none = PortPolicy::parse(b"reject 1-100,101-65535").expect("a policy");
        assert!(none.rejects_all() && !web.rejects_all() && !most.rejects_all());
        assert!(!PortPolicy::parse(b"reject 1-65534").expect("a policy").rejects_all());
    }

    #[test]
    fn an_invalid_summary_is_rejected() {
        for text in [
            "",
            "accept",
            "accept 0",
            "accept 70000",
            "accept 5-4",
            "accept 5,5",
            "accept 9,3-4",
            "allow 80",
            "accept 80 443",
            "accept 80,",
            "accept -5",
            "accept 1-2-3",
        ] {
            assert_eq!(PortPolicy::parse(text.as_bytes()), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_port_is_allowed_exactly_if_a_range_says_so(
            accepts: bool,
            bounds in prop::collection::btree_set(1_u16.., 2..20),
            port: u16,
        ) {
            let bounds: Vec<u16> = bounds.into_iter().collect();
            let pairs: Vec<_> = bounds.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            let list: Vec<_> = pairs.iter().map(|(a, b)| format!("{a}-{b}")).collect();
            let word = if accepts { "accept" } else { "reject" };
            let text = format!("{word} {}", list.join(","));
            let policy = PortPolicy::parse(text.as_bytes()).expect("a policy");
            let is_in = pairs.iter().any(|(a, b)| (*a..=*b).contains(&port));
            prop_assert_eq!(policy.allows(port), port != 0 && is_in == accepts);
            let allows_any = (1..=u16::MAX).any(|port| policy.allows(port));
            prop_assert_eq!(policy.rejects_all(), !allows_any);
        }

        #[test]
        fn arbitrary_bytes_never_panic(text in "(accept|reject)? ?[0-9,\\- ]{0,40}") {
            let _ = PortPolicy::parse(text.as_bytes());
        }
    }
}
