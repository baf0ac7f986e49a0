use super::*;
use alloc::format;
use proptest::prelude::*;

fn policy(rules: &[&str]) -> ExitPolicy {
    ExitPolicy::new(rules.iter().map(|rule| rule.parse().expect("a rule")).collect())
}

fn allows(policy: &ExitPolicy, to: &str) -> bool {
    policy.allows(to.parse().expect("an address"))
}

#[test]
fn the_first_matching_rule_decides() {
    let policy =
        policy(&["reject 10.0.0.0/8:*", "accept 10.1.2.3:80", "accept *:80-81", "reject *:81"]);
    assert!(allows(&policy, "11.0.0.1:80") && allows(&policy, "11.0.0.1:81"));
    assert!(!allows(&policy, "10.1.2.3:80"));
    assert!(allows(&policy, "[2001:db8::1]:80"));
    assert!(!allows(&policy, "11.0.0.1:82"), "what no rule fits");
    assert!(!policy.is_closed() && ExitPolicy::default().is_closed());
}

#[test]
fn address_families_are_distinguished() {
    let policy =
        policy(&["accept *4:1", "accept6 *:2", "accept *6:3", "accept *:4", "accept [::1]:5"]);
    assert!(allows(&policy, "1.1.1.1:1") && !allows(&policy, "[2::]:1"));
    assert!(!allows(&policy, "1.1.1.1:2") && allows(&policy, "[2::]:2"));
    assert!(!allows(&policy, "1.1.1.1:3") && allows(&policy, "[2::]:3"));
    assert!(allows(&policy, "1.1.1.1:4") && allows(&policy, "[2::]:4"));
    assert!(allows(&policy, "[::1]:5") && !allows(&policy, "0.0.0.1:5"));
}

#[test]
fn private_networks_are_rejected_in_every_notation() {
    let own: IpAddr = [203, 0, 113, 9].into();
    let policy = ExitPolicy::accept_all().rejecting_private(&[own]);
    for to in [
        "127.0.0.1",
        "10.9.8.7",
        "192.168.0.1",
        "172.31.0.1",
        "169.254.1.1",
        "0.0.0.0",
        "203.0.113.9",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fc00::1]",
        "[ff02::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:203.0.113.9]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "198.18.0.1",
        "198.19.255.255",
        "[2002:7f00:1::1]",
        "[2002:0a00:1::1]",
        "[2001:0:4136:e378::1]",
        "[2001:2::1]",
        "[64:ff9b:1::a00:1]",
        "[::ffff:198.18.0.1]",
    ] {
        assert!(!allows(&policy, &format!("{to}:80")), "{to}");
    }
    for to in ["198.17.0.1", "198.20.0.1", "[2001:1::1]", "[2001:3::1]", "[2003::1]"] {
        assert!(allows(&policy, &format!("{to}:80")), "{to}");
    }
    for to in ["203.0.113.8", "172.32.0.1", "8.8.8.8", "[2001:db8::1]", "[::ffff:8.8.8.8]"] {
        assert!(allows(&policy, &format!("{to}:80")), "{to}");
    }
}

#[test]
fn public_addresses_are_not_private() {
    for other in ["198.18.0.1", "2002:a00:1::1", "2001::1", "2001:2::1"] {
        let ip = other.parse().expect("an address");
        assert!(!is_private(ip) && is_refused(ip), "{other}");
    }
}

/// C tor 0.4.9.11 accepts each of these as its `ExitPolicy`.
#[test]
fn rules_are_parsed_as_by_c_tor() {
    for (text, rules) in [
        ("accept 10.0.0.0/255.0.0.0:*", "accept 10.0.0.0/8:*"),
        ("accept 10.1.2.3/255.255.255.255:80", "accept 10.1.2.3:80"),
        ("accept 1.2.3.4/0.0.0.0:80", "accept 1.2.3.4/0:80"),
        ("reject 10.0.0.0/255.255.128.0:1-1023", "reject 10.0.0.0/17:1-1023"),
        ("accept *", "accept *:*"),
        ("accept *:", "accept *:*"),
        ("accept 10.1.2.3", "accept 10.1.2.3:*"),
        ("accept [2001:db8::1]", "accept [2001:db8::1]:*"),
        ("accept6 *:80", "accept *6:80"),
        ("accept\t *4:80", "accept *4:80"),
        ("accept [10.1.2.3]:80", "accept 10.1.2.3:80"),
        ("accept [::ffff:10.0.0.0]/104:80", "accept 10.0.0.0/8:80"),
        ("accept [::ffff:10.0.0.1]:80", "accept 10.0.0.1:80"),
        ("accept *:80,reject *:81 , accept *:82", "accept *:80;reject *:81;accept *:82"),
        (
            "reject private:25",
            "reject 0.0.0.0/8:25;reject 169.254.0.0/16:25;reject 127.0.0.0/8:25;reject 192.168.0.0/16:25;\
             reject 10.0.0.0/8:25;reject 172.16.0.0/12:25;reject [::]/8:25;reject [fc00::]/7:25;\
             reject [fe80::]/10:25;reject [fec0::]/10:25;reject [ff00::]/8:25",
        ),
    ] {
        let read = ExitRule::parse_list(text).expect(text);
        let read: Vec<_> = read.iter().map(ToString::to_string).collect();
        assert_eq!(read.join(";"), rules, "{text}");
    }
    let all = ExitRule::parse_list("accept private:*, reject *:*").expect("rules");
    let policy = ExitPolicy::new(all);
    assert!(allows(&policy, "10.0.0.1:80") && allows(&policy, "[fc00::1]:80"));
    assert!(!allows(&policy, "100.64.0.1:80") && !allows(&policy, "8.8.8.8:80"));
}

/// C tor 0.4.9.11 rejects all but three of these. It reads `10.0.0.0/` as all of IPv4 and `+5` as 5, and
/// ignores an IPv4 address in a rule about IPv6.
#[test]
fn an_invalid_rule_is_rejected_with_an_example() {
    for rule in [
        "",
        ",",
        "accept",
        "allow *:80",
        "accept *:0",
        "accept *:0-80",
        "accept *:80-79",
        "accept *:+5",
        "accept 10.0.0.0/33:80",
        "accept 10.0.0.0/255.0.255.0:80",
        "accept 10.0.0.0/0.0.0.255:80",
        "accept 10.0.0.0/:80",
        "accept 10.0.0.0/255.0.0:80",
        "accept */8:80",
        "accept 10.0.0:80",
        "accept [::1:80",
        "accept ::1:80",
        "accept [::ffff:10.0.0.0]/64:80",
        "accept6 10.0.0.1:80",
        "accept *:65536",
        "accept [::]/129:1",
        "accept private",
        "accept private/8:80",
        "accept *:80 *:81",
        "accept *:80,allow *:81",
    ] {
        let error = ExitRule::parse_list(rule).expect_err(rule);
        assert!(format!("{error}").contains("accept *:80"), "{error}");
    }
}

proptest! {
    #[test]
    fn rules_survive_a_round_trip(accepts: bool, v4: u32, v6: u128, bits in 0u8..=32, kind in 0..5, a in 1u16.., b in 1u16..) {
        let addresses = match kind {
            0 => Addresses::Any,
            1 => Addresses::AnyIpv4,
            2 => Addresses::AnyIpv6,
            3 => Addresses::Net(Ipv4Addr::from_bits(v4).into(), bits),
            _ => Addresses::Net(Ipv6Addr::from_bits(v6).into(), bits * 4),
        };
        let rule = ExitRule { accepts, addresses, ports: a.min(b)..=a.max(b) };
        let text = format!("{rule}");
        match addresses {
            // It is a rule about IPv4, or invalid.
            Addresses::Net(IpAddr::V6(v6), _) if v6.to_ipv4_mapped().is_some() => {}
            _ => prop_assert_eq!(text.parse(), Ok(rule)),
        }
    }

    #[test]
    fn a_network_contains_the_addresses_with_its_prefix(net: u32, bits in 0u8..=32, other: u32) {
        let net_of = |address: u32| address.checked_shr(32 - u32::from(bits)).unwrap_or(0);
        let addresses = Addresses::Net(Ipv4Addr::from_bits(net).into(), bits);
        let is_in = bits == 0 || net_of(net) == net_of(other);
        prop_assert_eq!(addresses.contain(Ipv4Addr::from_bits(other).into()), is_in);
    }

    #[test]
    fn arbitrary_text_never_panics(text: String) {
        let _ = (text.parse::<ExitRule>(), ExitRule::parse_list(&text));
    }
}
