//! Measurement policies and the kill switch, through the command line. Relays are at public addresses, in network namespaces without
//! a route to anywhere else.

use dirmgr::fixture::{Authority, authorities, descriptor};
use lab::wan::{Host, HostSpec, Wan, WanSpec};
use netdoc::{Ed25519Id, RsaId};
use rustix::process::Signal;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use testbin::team::{dated_consensus, make_key, measurer_of, start_measurer, write_measurer};
use testbin::{Ended, Running, Scratch, lacking, number, text};

/// An address for documentation (RFC 5737), which is public for consent.
const RELAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;

fn time(unix_s: u64) -> String {
    netdoc::write::date_time(unix_s)
}

/// The lines of a policy.
#[derive(Clone)]
struct Policy {
    valid_after: u64,
    valid_until: u64,
    hours: Option<(u64, u64)>,
    relay_mbit: u32,
    measurer: String,
    more: String,
}

impl Policy {
    /// Valid since yesterday, for all hours.
    fn new(measurer: &str) -> Self {
        let now = link::unix_time_s();
        Self {
            valid_after: now - DAY_S,
            valid_until: now + DAY_S,
            hours: None,
            relay_mbit: 10,
            measurer: measurer.to_owned(),
            more: String::new(),
        }
    }

    fn text(&self) -> String {
        let Self { valid_after, valid_until, relay_mbit, measurer, more, .. } = self;
        let hours = self.hours.map(|(from, to)| format!("hours {from}-{to}\n"));
        format!(
            "flashflow-measurement-policy 1\nscope consensus\nannouncement 2026-01-01 https://example.org/announced\n\
             valid-after {after}\nvalid-until {until}\n{hours}relay-rate {after} {relay_mbit}\nnetwork-rate 1000\n\
             measurer {measurer} 100\n{more}",
            after = time(*valid_after),
            until = time(*valid_until),
            hours = hours.unwrap_or_default(),
        )
    }
}

/// Files of an authority, and policies that it signs.
struct Signer<'s> {
    scratch: &'s Scratch,
    authority: &'static Authority,
}

impl<'s> Signer<'s> {
    fn new(scratch: &'s Scratch, authority: &'static Authority) -> Self {
        fs::write(scratch.path("certificate"), &authority.certificate).expect("written");
        fs::write(scratch.path("signing_key"), authority.signing_key_pem()).expect("written");
        Self { scratch, authority }
    }

    fn identity(&self) -> RsaId {
        self.authority.name().0
    }

    /// Signs a policy with the command line.
    fn sign(&self, policy: &Policy, file: &str) {
        fs::write(self.scratch.path("draft"), policy.text()).expect("written");
        let files = ["--certificate", "certificate", "--key", "signing_key"];
        let signed = self.scratch.run(&[&["policy", "sign", "draft"][..], &files].concat());
        signed.assert_code(0);
        fs::write(self.scratch.path(file), signed.out.join("\n") + "\n").expect("written");
    }

    /// Writes a consensus with this relay, whose descriptor has this digest.
    fn consensus(&self, relay: &RsaId, address: SocketAddr, digest: &str) {
        let sample = include_str!("../../../engine/netdoc/tests/data/consensus-ns");
        // An annotation is not signed.
        let sample = &sample[sample.find("network-status-version").expect("the first line")..];
        let (head, _) = sample.split_once("\nr ").expect("a relay");
        let (_, foot) = sample.split_once("\ndirectory-footer").expect("a footer");
        let (foot, _) = foot.split_once("directory-signature").expect("signed");
        let mut bytes = [0; 32];
        bytes[..20].copy_from_slice(&relay.0);
        // Of 20 bytes: zeros that follow change nothing.
        let identity = Ed25519Id(bytes).to_string();
        let mut text = format!("{head}\n");
        writeln!(
            text,
            "r relay {} {digest} 2020-02-28 21:39:07 {} {} 0\n\
             s Fast Running Stable Valid\nv Tor 0.4.9.11\nw Bandwidth=1000\np reject 1-65535",
            &identity[..27],
            address.ip(),
            address.port(),
        )
        .expect("memory");
        let mut text = dated_consensus(&format!("{text}directory-footer{foot}"), 0);
        self.authority.sign(&mut text);
        fs::write(self.scratch.path("consensus"), text).expect("written");
    }
}

/// A counter of the kernel for the network of a host: TCP connections that it opened, or segments that arrived.
fn tcp_counter(host: &Host, name: &str) -> u64 {
    let read = || fs::read_to_string("/proc/thread-self/net/snmp").expect("the kernel's counters");
    let text = host.run(read).expect("its network");
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let place = names.split(' ').position(|known| known == name).expect("a counter of TCP");
    values.split(' ').nth(place).and_then(|value| value.parse().ok()).expect("a number")
}

/// A relay, a measurer and a coordinator, each on its own host.
struct World<'s> {
    scratch: &'s Scratch,
    signer: Signer<'s>,
    wan: Wan,
    relay: Running,
    fingerprint: RsaId,
    address: SocketAddr,
    measurer_key: String,
    coordinator_key: String,
}

impl<'s> World<'s> {
    fn new(scratch: &'s Scratch) -> Self {
        let hosts = [
            HostSpec::new("coordinator", Ipv4Addr::new(192, 0, 2, 1)),
            HostSpec::new("measurer", Ipv4Addr::new(203, 0, 113, 1)),
            HostSpec::new("relay", RELAY),
        ];
        let wan = Wan::start(&WanSpec::new(hosts.into())).expect("up");
        let coordinator_key = make_key(scratch, "c.key");
        let measurer_key = make_key(scratch, "m.key");
        let address = RELAY.to_string();
        let arguments = ["relay", "--nickname", "relay", "--address", &address, "--keys", "keys"];
        let options = ["--coordinator", &coordinator_key, "--json"];
        let command = scratch.command(&[&arguments[..], &options].concat());
        let run = || Running::new(command);
        let mut relay = wan.host("relay").expect("it").run(run).expect("a process");
        let listening = relay.wait_for_record("listening", |_| true);
        let fingerprint = text(&listening, "fingerprint").parse().expect("one");
        let address = text(&listening, "address").parse().expect("an address");
        let signer = Signer::new(scratch, &authorities()[0]);
        signer.consensus(&fingerprint, address, "fT1lwALw2cmUMK6Otfxu5FIrrSc");
        fs::write(scratch.path("opt-in"), format!("{fingerprint}\n")).expect("written");
        fs::write(scratch.path("none"), "").expect("written");
        Self { scratch, signer, wan, relay, fingerprint, address, measurer_key, coordinator_key }
    }

    fn host(&self, name: &str) -> &Host {
        self.wan.host(name).expect("one of three")
    }

    /// The settings of a policy for a measurer.
    fn policy_of_measurer(&self, file: &str, more: &str) -> String {
        let identity = self.signer.identity();
        format!(
            "policy = \"{file}\"\npolicy_authority = \"{identity}\"\nconsensus = \"consensus\"\n{more}"
        )
    }

    fn write_measurer(&self, more: &str) {
        write_measurer(self.scratch, "m", "203.0.113.1:7100", &self.coordinator_key);
        let path = self.scratch.path("m.toml");
        let config = fs::read_to_string(&path).expect("written");
        fs::write(path, config + more).expect("written");
    }

    /// Starts a measurer. With a policy, waits until it has read the consensus.
    fn start_measurer(&self, more: &str) -> Running {
        self.write_measurer(more);
        let start = || start_measurer(self.scratch, "m.toml").0;
        let mut measurer = self.host("measurer").run(start).expect("a process");
        if more.contains("policy") {
            measurer.wait_for_error("the consensus", |line| {
                line.contains("the measurement policy applies to 1 relay of the consensus")
            });
        }
        measurer
    }

    /// Runs a coordinator once, with these settings.
    fn coordinate(&self, more: &str) -> Ended {
        let config = format!(
            "key = \"c.key\"\nout = \"bandwidth\"\nconsensus = \"consensus\"\ncertificates = \"certificate\"\n\
             authority_identities = [\"{}\"]\nseconds = 5\nguess_mbit_per_s = 30\n{more}\n{}",
            self.signer.identity(),
            measurer_of("203.0.113.1:7100", &self.measurer_key)
        );
        fs::write(self.scratch.path("c.toml"), config).expect("written");
        let command =
            self.scratch.command(&["coordinator", "--config", "c.toml", "--once", "--json"]);
        let run = || Running::new(command);
        self.host("coordinator").run(run).expect("a process").end()
    }

    fn policy_of_coordinator(&self, file: &str, more: &str) -> String {
        let identity = self.signer.identity();
        format!("policy = \"{file}\"\npolicy_authority = \"{identity}\"\n{more}")
    }

    fn end(self) {
        self.relay.stop();
    }
}

/// The hours of a day without this one and the next, so that the test does not depend on the minute.
fn other_hours() -> (u64, u64) {
    let hour = link::unix_time_s() / HOUR_S % 24;
    ((hour + 3) % 24, (hour + 6) % 24)
}

/// Each policy that permits nothing, with what the refusal says.
fn refusing(world: &World<'_>) -> Vec<(&'static str, Policy, &'static str)> {
    let sound = Policy::new(&world.measurer_key);
    let now = link::unix_time_s();
    let more = |line: String| Policy { more: line, ..sound.clone() };
    vec![
        ("expired", Policy { valid_until: now - 60, ..sound.clone() }, "policy was valid until"),
        ("early", Policy { valid_after: now + HOUR_S, ..sound.clone() }, "policy is valid from"),
        ("hours", Policy { hours: Some(other_hours()), ..sound.clone() }, "permits load from"),
        (
            "fingerprint",
            more(format!("opt-out {}\n", world.fingerprint)),
            "fingerprint is on the opt-out",
        ),
        ("address", more("opt-out 198.51.100.0/24\n".to_owned()), "as 198.51.100.0/24"),
        ("contact", more("opt-out-contact flashflow:no\n".to_owned()), "by its ContactInfo"),
    ]
}

#[test]
fn a_coordinator_sends_nothing_against_a_policy() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let world = World::new(&scratch);
    // The measurer would load the relay.
    let measurer = world.start_measurer("opt_in = \"opt-in\"\n");
    let (descriptor, digest) = descriptor(&world.fingerprint, "me <me AT example> FlashFlow:NO");
    fs::write(scratch.path("descriptors"), descriptor).expect("written");
    let is_quiet = || {
        let arrived = tcp_counter(world.host("relay"), "InSegs");
        assert_eq!(arrived, 0, "the kernel of the relay's host has counted segments");
    };
    for (name, policy, part) in refusing(&world) {
        let is_contact = name == "contact";
        let more = if is_contact { "descriptors = \"descriptors\"\n" } else { "" };
        if is_contact {
            world.signer.consensus(&world.fingerprint, world.address, &digest);
        }
        world.signer.sign(&policy, "policy");
        let ended = world.coordinate(&world.policy_of_coordinator("policy", more));
        ended.assert_refused(&["no relay may be measured", part]);
        is_quiet();
    }
    let sound = Policy::new(&world.measurer_key);
    // Not signed, signed by another authority, and changed after it was signed.
    fs::write(scratch.path("policy"), sound.text()).expect("written");
    let refused = |parts: &[&str]| {
        world.coordinate(&world.policy_of_coordinator("policy", "")).assert_refused(parts);
        is_quiet();
    };
    refused(&["policy", "it is not signed"]);
    let other = Signer::new(&scratch, &authorities()[1]);
    other.sign(&sound, "policy");
    refused(&[&other.identity().to_string(), "has signed it, not"]);
    let signer = Signer::new(&scratch, &authorities()[0]);
    signer.sign(&sound, "policy");
    let signed = fs::read_to_string(scratch.path("policy")).expect("signed");
    fs::write(scratch.path("policy"), signed.replace("network-rate 1000", "network-rate 9000"))
        .expect("written");
    refused(&["changed after it was signed"]);
    // No share for the team, and a relay that has opted in and declines.
    signer.sign(&Policy::new(&"00".repeat(32)), "policy");
    refused(&["no line `measurer`"]);
    signer.sign(&Policy { more: "opt-out 198.51.100.2\n".to_owned(), ..sound }, "policy");
    let ended = world.coordinate(&world.policy_of_coordinator("policy", "opt_in = \"opt-in\"\n"));
    ended.assert_refused(&["declines to be measured"]);
    is_quiet();
    measurer.stop();
    world.end();
}

#[test]
fn a_measurer_sends_nothing_against_its_policy_whatever_a_coordinator_orders() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let world = World::new(&scratch);
    let (descriptor, digest) = descriptor(&world.fingerprint, "flashflow:no");
    fs::write(scratch.path("descriptors"), descriptor).expect("written");
    // As with a stolen key: the coordinator believes that the relay has opted in.
    let ordered = |code: u32, parts: &[&str]| {
        let ended = world.coordinate("opt_in = \"opt-in\"\n");
        ended.assert_code(1);
        let relay = &ended.summary()["relays"][0];
        let error = text(relay, "error");
        let code = format!("it refuses (code {code})");
        for part in [&[code.as_str()], parts].concat() {
            assert!(error.contains(part), "{part}: {error}");
        }
        let opened = tcp_counter(world.host("measurer"), "ActiveOpens");
        assert_eq!(opened, 0, "the kernel of the measurer's host has counted connections");
    };
    let mut cases = refusing(&world);
    let slow = Policy { relay_mbit: 1, ..Policy::new(&world.measurer_key) };
    cases.push(("rate", slow, "are above the measurement policy"));
    cases.push(("share", Policy::new(&"00".repeat(32)), "no line `measurer`"));
    for (name, policy, part) in cases {
        world.signer.consensus(&world.fingerprint, world.address, &digest);
        world.signer.sign(&policy, "policy");
        let measurer = world
            .start_measurer(&world.policy_of_measurer("policy", "descriptors = \"descriptors\"\n"));
        // At another hour it may be measured, so its estimate stays.
        ordered(if name == "hours" { 7 } else { 3 }, &[part]);
        measurer.signal(Signal::TERM);
        let ended = measurer.end();
        assert!(ended.error.contains(part), "{name} is in its own log: {}", ended.error);
    }
    // A relay that its consensus does not list, or at another address.
    world.signer.sign(&Policy::new(&world.measurer_key), "policy");
    let other = RsaId([7; 20]);
    let elsewhere = SocketAddr::new([198, 51, 100, 3].into(), world.address.port());
    for (fingerprint, address, part) in
        [(&other, world.address, "does not list"), (&world.fingerprint, elsewhere, "lists")]
    {
        world.signer.consensus(fingerprint, address, "fT1lwALw2cmUMK6Otfxu5FIrrSc");
        let measurer = world.start_measurer(&world.policy_of_measurer("policy", ""));
        world.signer.consensus(&world.fingerprint, world.address, "fT1lwALw2cmUMK6Otfxu5FIrrSc");
        ordered(3, &[part]);
        measurer.stop();
    }
    // Not signed, and signed by another authority: it does not start.
    let refused = |part: &str| {
        world.write_measurer(&world.policy_of_measurer("policy", ""));
        scratch.run(&["measurer", "--config", "m.toml"]).assert_refused(&["policy", part]);
    };
    fs::write(scratch.path("policy"), Policy::new(&world.measurer_key).text()).expect("written");
    refused("it is not signed");
    Signer::new(&scratch, &authorities()[1]).sign(&Policy::new(&world.measurer_key), "policy");
    refused("has signed it, not");
    // A consensus that the authority has not signed.
    Signer::new(&scratch, &authorities()[0]).sign(&Policy::new(&world.measurer_key), "policy");
    let ours = fs::read_to_string(scratch.path("consensus")).expect("written");
    Signer::new(&scratch, &authorities()[1]).consensus(&world.fingerprint, world.address, &digest);
    world.write_measurer(&world.policy_of_measurer("policy", ""));
    let start = || start_measurer(&scratch, "m.toml").0;
    let mut measurer = world.host("measurer").run(start).expect("a process");
    measurer.wait_for_error("a refusal", |line| line.contains("has not signed it"));
    fs::write(scratch.path("consensus"), ours).expect("written");
    let signer = Signer::new(&scratch, &authorities()[0]);
    signer.consensus(&world.fingerprint, world.address, &digest);
    ordered(7, &["no consensus that is recent enough"]);
    measurer.stop();
    world.end();
}

#[test]
fn a_relay_that_has_not_opted_in_is_measured_within_the_policys_rate() {
    if let Some(what) = lacking() {
        skip::this_test!("it needs {what}");
    }
    let scratch = Scratch::new();
    let world = World::new(&scratch);
    world.signer.sign(&Policy::new(&world.measurer_key), "policy");
    let measurer = world.start_measurer(&world.policy_of_measurer("policy", ""));
    let echo = format!("echo = [\"{}\"]\n", world.fingerprint);
    // A run whose bandwidth file cannot be written fails, although the relay has an estimate.
    fs::create_dir_all(scratch.path("bandwidth/latest.v3bw/in the way")).expect("a folder");
    let ended = world.coordinate(&world.policy_of_coordinator("policy", &echo));
    let relay: &Value = &ended.summary()["relays"][0];
    let estimate = number(relay, "estimate_mbit_per_s");
    assert!(estimate > 5.0 && estimate < 10.5, "10 Mbit/s are permitted: {relay}");
    let reason = text(relay, "inconclusive_reason");
    assert!(reason.contains("10.00 Mbit/s are available"), "no larger load is permitted: {reason}");
    assert!(tcp_counter(world.host("measurer"), "ActiveOpens") > 0);
    ended.assert_code(1);
    assert!(ended.error.contains("latest.v3bw"), "{}", ended.error);

    // The kill switches: nothing starts while a file is there.
    let stopped = scratch.run(&["coordinator", "stop-all", "--config", "c.toml", "--json"]);
    stopped.assert_code(0);
    let ended = world.coordinate(&world.policy_of_coordinator("policy", &echo));
    ended.assert_refused(&["all measurements are stopped", "flashflow coordinator resume"]);
    let resumed =
        || scratch.run(&["coordinator", "resume", "--config", "c.toml", "--json"]).summary();
    assert_eq!(resumed()["was_stopped"], true);
    assert_eq!(resumed()["was_stopped"], false);
    fs::write(scratch.path("m.stop"), "").expect("written");
    let before = tcp_counter(world.host("measurer"), "ActiveOpens");
    let ended = world.coordinate(&world.policy_of_coordinator("policy", &echo));
    ended.assert_refused(&["no measurer of the team can be used", "m.stop exists"]);
    assert_eq!(tcp_counter(world.host("measurer"), "ActiveOpens"), before);
    measurer.stop();
    world.end();
}
