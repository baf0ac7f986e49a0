//! Exit policies in descriptors (dir-spec.txt, sections 2.1.1 and 2.1.3).

use onion::router::{Addresses, ExitConfig, ExitRule};
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// The longest port list in a summary: authorities refuse longer ones
/// (`MAX_EXITPOLICY_SUMMARY_LEN`).
const SUMMARY_MAX: usize = 1_000;
/// A larger IPv6 network than this counts as all of IPv6, as in tor's summaries.
const LARGE_NETWORK_BITS: u8 = 7;

fn is_for_all_ports(rule: &ExitRule) -> bool {
    *rule.ports.start() <= 1 && *rule.ports.end() == u16::MAX
}

/// The lines `accept` and `reject` of a descriptor, which apply to IPv4: the policy's rules,
/// followed by `reject *:*`.
///
/// ```
/// use onion::router::{ExitConfig, ExitPolicy};
/// use relay::descriptor::exit_lines;
///
/// assert_eq!(exit_lines(None), ["reject *:*"]);
/// let rules = ["accept *:443", "accept6 *:80"].map(|rule| rule.parse().expect("a rule"));
/// let exit = ExitConfig { policy: ExitPolicy::new(rules.to_vec()), ..ExitConfig::default() };
/// assert_eq!(exit_lines(Some(&exit)), ["accept *:443", "reject *:*"]);
/// ```
#[must_use]
pub fn exit_lines(exit: Option<&ExitConfig>) -> Vec<String> {
    let mut lines = Vec::new();
    // An exit that accepts nothing is none: authorities only check for a final `reject *:*`.
    let policy = exit.map(|exit| &exit.policy).filter(|policy| !policy.is_closed());
    for rule in policy.into_iter().flat_map(|policy| policy.rules()) {
        match rule.addresses {
            Addresses::Any | Addresses::AnyIpv4 => {
                let rule = ExitRule { addresses: Addresses::Any, ..rule.clone() };
                lines.push(rule.to_string());
                if is_for_all_ports(&rule) {
                    return lines;
                }
            }
            Addresses::Net(IpAddr::V4(_), _) => lines.push(rule.to_string()),
            Addresses::AnyIpv6 | Addresses::Net(IpAddr::V6(_), _) => {}
        }
    }
    lines.push("reject *:*".to_owned());
    lines
}

/// The value of the line `ipv6-policy`: the ports that are accepted for most IPv6 addresses. `None`
/// if there are none. Rules about single networks are ignored, like small ones in tor.
///
/// ```
/// use onion::router::{ExitConfig, ExitPolicy};
/// use relay::descriptor::ipv6_summary;
///
/// let rules = ["accept *:80", "accept6 *:443"].map(|rule| rule.parse().expect("a rule"));
/// let policy = ExitPolicy::new(rules.to_vec());
/// let exit = ExitConfig { policy, ipv6: true, ..ExitConfig::default() };
/// assert_eq!(ipv6_summary(Some(&exit)).as_deref(), Some("accept 80,443"));
/// let only_ipv4 = ExitConfig { ipv6: false, ..exit };
/// assert_eq!(ipv6_summary(Some(&only_ipv4)), None);
/// ```
#[must_use]
pub fn ipv6_summary(exit: Option<&ExitConfig>) -> Option<String> {
    let exit = exit.filter(|exit| exit.ipv6)?;
    let mut verdicts: Vec<Option<bool>> = vec![None; usize::from(u16::MAX) + 1];
    for rule in exit.policy.rules() {
        let is_large = match rule.addresses {
            Addresses::Any | Addresses::AnyIpv6 => true,
            Addresses::Net(IpAddr::V6(_), bits) => bits < LARGE_NETWORK_BITS,
            Addresses::AnyIpv4 | Addresses::Net(IpAddr::V4(_), _) => false,
        };
        if is_large {
            let ports = usize::from(*rule.ports.start())..=usize::from(*rule.ports.end());
            for verdict in &mut verdicts[ports] {
                verdict.get_or_insert(rule.accepts);
            }
        }
    }
    let ports_that = |wanted: bool| {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for port in 1..=u16::MAX {
            if verdicts[usize::from(port)].unwrap_or(false) != wanted {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == port => *last = *last.start()..=port,
                _ => ranges.push(port..=port),
            }
        }
        ranges.iter().map(written).collect::<Vec<_>>().join(",")
    };
    let (accepted, rejected) = (ports_that(true), ports_that(false));
    if accepted.is_empty() {
        return None;
    }
    // The shorter list, as in tor; everything is "accept 1-65535".
    if rejected.is_empty() || accepted.len() <= rejected.len() {
        // If the list is too long, the last ports are omitted: the relay would still accept them.
        let cut = accepted.get(..SUMMARY_MAX).and_then(|head| head.rsplit_once(','));
        let head = cut.map_or(&*accepted, |(head, _)| head);
        return Some(format!("accept {head}"));
    }
    // Rejected ports must not be omitted.
    (rejected.len() <= SUMMARY_MAX).then(|| format!("reject {rejected}"))
}

fn written(ports: &RangeInclusive<u16>) -> String {
    let (first, last) = (ports.start(), ports.end());
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use onion::router::ExitPolicy;

    fn exit(rules: &[&str]) -> ExitConfig {
        let rules = rules.iter().map(|rule| rule.parse().expect("a rule"));
        let policy = ExitPolicy::new(rules.collect());
        ExitConfig { policy, ipv6: true, ..ExitConfig::default() }
    }

    #[test]
    fn lines_are_about_ipv4_and_end_with_a_verdict_on_all() {
        let lines = |rules: &[&str]| exit_lines(Some(&exit(rules)));
        let mixed = [
            "reject 192.0.2.0/24:25",
            "accept *:20-23",
            "accept6 *:80",
            "accept *4:443",
            "reject [2001:db8::]/32:*",
        ];
        let expected = ["reject 192.0.2.0/24:25", "accept *:20-23", "accept *:443", "reject *:*"];
        assert_eq!(lines(&mixed), expected);
        assert_eq!(lines(&["accept *:*", "reject *:25"]), ["accept *:*"], "the rest has no effect");
        assert_eq!(lines(&["reject 192.0.2.1:25"]), ["reject *:*"], "nothing is accepted");
        let open = exit(&["accept *:80"]);
        let own = "198.51.100.7".parse().expect("an address");
        let policy = open.policy.rejecting_private(&[own]);
        let protected = exit_lines(Some(&ExitConfig { policy, ..exit(&[]) }));
        for line in ["reject 10.0.0.0/8:*", "reject 198.51.100.7:*"] {
            assert!(protected.iter().any(|other| other == line), "{line} in {protected:?}");
        }
        assert!(protected.iter().all(|line| !line.contains('[')), "{protected:?}");
        assert!(protected.ends_with(&["accept *:80".to_owned(), "reject *:*".to_owned()]));
    }

    #[test]
    fn a_summary_names_the_shorter_list_of_ports() {
        let summary = |rules: &[&str]| ipv6_summary(Some(&exit(rules)));
        assert_eq!(ipv6_summary(None), None);
        assert_eq!(summary(&["accept *:*"]).as_deref(), Some("accept 1-65535"));
        assert_eq!(summary(&["reject *:25", "accept *:*"]).as_deref(), Some("reject 25"));
        assert_eq!(summary(&["accept6 *:80-81", "accept *:82"]).as_deref(), Some("accept 80-82"));
        assert_eq!(summary(&["reject6 *:*", "accept *:80"]), None);
        assert_eq!(summary(&["accept *4:80"]), None);
        assert_eq!(summary(&["accept [2001:db8::]/32:80"]), None, "too few addresses");
        assert_eq!(summary(&["accept [::]/0:80"]).as_deref(), Some("accept 80"));
        let many: Vec<_> = (1..2_000).map(|port| format!("accept *:{}", 2 * port)).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let text = summary(&many).expect("a summary");
        assert!(text.len() <= SUMMARY_MAX + 7 && text.starts_with("accept 2,4,6"));
        assert!(text.ends_with(|last: char| last.is_ascii_digit()));
        let rejected: Vec<_> = (1..2_000).map(|port| format!("reject *:{}", 2 * port)).collect();
        let rejected = rejected.iter().map(String::as_str).chain(["accept *:*"]);
        // The list of accepted ports is as long, so neither can be complete.
        let text = summary(&rejected.collect::<Vec<_>>());
        assert!(text.is_none_or(|text| text.starts_with("accept")));
    }
}
