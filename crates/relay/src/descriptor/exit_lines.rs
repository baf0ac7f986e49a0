//! An exit policy as a descriptor says it (dir-spec.txt, sections 2.1.1 and 2.1.3).

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

/// What tor rejects with `ExitPolicyRejectPrivate`: addresses that mean nothing, or another machine
/// than the client thinks.
const PRIVATE: [&str; 8] = [
    "0.0.0.0/8",
    "169.254.0.0/16",
    "127.0.0.0/8",
    "192.168.0.0/16",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "100.64.0.0/10",
    "224.0.0.0/4",
];
/// Longest summary: longer ones are refused by authorities (`MAX_EXITPOLICY_SUMMARY_LEN`).
const SUMMARY_MAX: usize = 1_000;

/// Which addresses a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Whom {
    All,
    AllV4,
    AllV6,
    Private,
    /// An IPv4 address or network, as written.
    V4(String),
    /// Anything smaller than all of IPv6.
    SomeV6,
}

/// One rule of tor's kind: `accept *:80`, `reject 10.0.0.0/8:*`, `accept6 *:443`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    accepts: bool,
    whom: Whom,
    ports: RangeInclusive<u16>,
}

impl Rule {
    fn parse(line: &str) -> Option<Self> {
        let (verb, pattern) = line.trim().split_once(char::is_whitespace)?;
        let (accepts, only_v6) = match verb {
            "accept" => (true, false),
            "reject" => (false, false),
            "accept6" => (true, true),
            "reject6" => (false, true),
            _ => return None,
        };
        let (address, ports) = pattern.trim().rsplit_once(':')?;
        let (network, mask) =
            address.split_once('/').map_or((address, None), |(n, m)| (n, Some(m)));
        let whom = match (network, only_v6) {
            ("*", false) => Whom::All,
            ("*" | "*6", true) | ("*6", false) => Whom::AllV6,
            ("*4", false) => Whom::AllV4,
            ("private", false) => Whom::Private,
            _ => match network.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(v6) => {
                    v6.parse::<Ipv6Addr>().ok()?;
                    if mask == Some("0") { Whom::AllV6 } else { Whom::SomeV6 }
                }
                None if only_v6 => return None,
                None => {
                    network.parse::<Ipv4Addr>().ok()?;
                    Whom::V4(address.to_owned())
                }
            },
        };
        let ports = match (ports, ports.split_once('-')) {
            ("*", _) => 1..=u16::MAX,
            (_, Some((first, last))) => first.parse().ok()?..=last.parse().ok()?,
            (port, None) => port.parse().ok()?..=port.parse().ok()?,
        };
        (!ports.is_empty() && *ports.start() > 0).then_some(Self { accepts, whom, ports })
    }

    fn verb(&self) -> &'static str {
        if self.accepts { "accept" } else { "reject" }
    }

    fn is_for_all_ports(&self) -> bool {
        self.ports == (1..=u16::MAX)
    }
}

fn written(ports: &RangeInclusive<u16>) -> String {
    let (first, last) = (ports.start(), ports.end());
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// The lines `accept` and `reject` of a descriptor, which are about IPv4: first what protects private
/// addresses, then the policy's own lines; at the end all else is rejected.
///
/// Lines that are no rules are left out: whoever reads the configuration refuses them before.
///
/// ```
/// use relay::descriptor::exit_lines;
///
/// assert_eq!(exit_lines(&[], true), ["reject *:*"]);
/// let lines = exit_lines(&["accept *:443".to_owned(), "accept6 *:80".to_owned()], false);
/// assert_eq!(lines, ["accept *:443", "reject *:*"]);
/// ```
#[must_use]
pub fn exit_lines(policy: &[String], rejects_private: bool) -> Vec<String> {
    let rules: Vec<_> = policy.iter().filter_map(|line| Rule::parse(line)).collect();
    let mut lines = Vec::new();
    if rejects_private && rules.iter().any(|rule| rule.accepts) {
        lines.extend(PRIVATE.map(|network| format!("reject {network}:*")));
    }
    for rule in &rules {
        let ports = if rule.is_for_all_ports() { "*".to_owned() } else { written(&rule.ports) };
        let verb = rule.verb();
        match &rule.whom {
            Whom::All | Whom::AllV4 => {
                lines.push(format!("{verb} *:{ports}"));
                if rule.is_for_all_ports() {
                    return lines;
                }
            }
            Whom::V4(network) => lines.push(format!("{verb} {network}:{ports}")),
            Whom::Private => {
                lines.extend(PRIVATE.map(|network| format!("{verb} {network}:{ports}")));
            }
            Whom::AllV6 | Whom::SomeV6 => {}
        }
    }
    lines.push("reject *:*".to_owned());
    lines
}

/// The value of the line `ipv6-policy`: for which ports most IPv6 addresses are accepted. `None` if
/// for none.
///
/// Rules about single networks are not looked at, as tor does with small ones.
///
/// ```
/// use relay::descriptor::ipv6_summary;
///
/// let policy = ["accept *:80", "accept6 *:443", "reject *:*"].map(str::to_owned);
/// assert_eq!(ipv6_summary(&policy).as_deref(), Some("accept 80,443"));
/// assert_eq!(ipv6_summary(&["accept *4:80".to_owned()]), None);
/// ```
#[must_use]
pub fn ipv6_summary(policy: &[String]) -> Option<String> {
    let mut verdicts: Vec<Option<bool>> = vec![None; usize::from(u16::MAX) + 1];
    for rule in policy.iter().filter_map(|line| Rule::parse(line)) {
        if matches!(rule.whom, Whom::All | Whom::AllV6) {
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
    // The shorter one, as tor does; everything is "accept 1-65535".
    let (verb, ports) = if rejected.is_empty() || accepted.len() <= rejected.len() {
        ("accept", accepted)
    } else {
        ("reject", rejected)
    };
    // Cut at a comma: of accepted ports too few are named then, of rejected ones none may be missing.
    match ports.get(..SUMMARY_MAX) {
        Some(head) if ports.len() > SUMMARY_MAX => (verb == "accept")
            .then(|| format!("accept {}", head.rsplit_once(',').map_or(head, |(h, _)| h))),
        _ => Some(format!("{verb} {ports}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn lines_are_about_ipv4_protect_private_addresses_and_end_with_a_verdict_on_all() {
        let lines = exit_lines(
            &policy(&[
                "reject 192.0.2.0/24:25",
                "accept *:20-23",
                "accept6 *:80",
                "accept *4:443",
                "reject [2001:db8::]/32:*",
                "accept private:8080",
                "nonsense",
            ]),
            true,
        );
        assert_eq!(lines[..8], PRIVATE.map(|network| format!("reject {network}:*")));
        assert_eq!(lines[8..11], ["reject 192.0.2.0/24:25", "accept *:20-23", "accept *:443"]);
        assert_eq!(lines[11], "accept 0.0.0.0/8:8080");
        assert_eq!(lines.last().map(String::as_str), Some("reject *:*"));
        let open = exit_lines(&policy(&["accept *:*", "reject *:25"]), false);
        assert_eq!(open, ["accept *:*"], "nothing comes after a rule for all");
        assert_eq!(exit_lines(&policy(&["reject *:25"]), true), ["reject *:25", "reject *:*"]);
    }

    #[test]
    fn a_summary_names_the_shorter_list_of_ports() {
        let summary = |lines: &[&str]| ipv6_summary(&policy(lines));
        assert_eq!(summary(&["accept *:*"]).as_deref(), Some("accept 1-65535"));
        assert_eq!(summary(&["reject *:25", "accept *:*"]).as_deref(), Some("reject 25"));
        assert_eq!(summary(&["accept6 *:80-81", "accept *:82"]).as_deref(), Some("accept 80-82"));
        assert_eq!(summary(&["reject6 *:*", "accept *:80"]), None);
        assert_eq!(summary(&["accept [2001:db8::]/32:80"]), None, "too few addresses");
        assert_eq!(summary(&["accept [::]/0:80"]).as_deref(), Some("accept 80"));
        let many: Vec<_> = (1..2_000).map(|port| format!("accept *:{}", 2 * port)).collect();
        let text = ipv6_summary(&many).expect("a summary");
        assert!(text.len() <= SUMMARY_MAX + 7 && text.starts_with("accept 2,4,6"));
        assert!(text.ends_with(|last: char| last.is_ascii_digit()));
    }

    #[test]
    fn what_is_no_rule_is_none() {
        for bad in [
            "",
            "accept",
            "accept *",
            "permit *:80",
            "accept *:0",
            "accept *:9-1",
            "accept *:65536",
            "accept6 10.0.0.0/8:80",
            "accept example.org:80",
            "accept [::1:80",
        ] {
            assert_eq!(Rule::parse(bad), None, "{bad}");
        }
    }
}
