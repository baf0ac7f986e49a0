//! Three authorities of C tor vote by three bandwidth files: the consensus takes the median for each relay, whatever one of them claims. Of three
//! votes, tor's low median is the median.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use lab::{Network, NetworkSpec, Node, RelaySpec};
use link::unix_time_s;
use netdoc::bwfile::{Eligibility, Estimate, NodeIdStyle, Outcome, Settings};
use netdoc::consensus::Consensus;
use netdoc::{BandwidthFile, RsaId};

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(100);

/// The estimates of three honest coordinators for each relay, in KB/s, and the claim of the lying one. It has the first place.
const ESTIMATES: [(&str, [u64; 3], u64); 3] = [
    // Its own relay.
    ("raised", [1000, 1010, 1030], 900_000),
    // A competitor.
    ("lowered", [5000, 5060, 5100], 1),
    ("spared", [2000, 2020, 2060], 2040),
];

/// What an authority's coordinator reports.
#[derive(Clone, Copy)]
enum Report {
    /// The estimate of the coordinator with this number.
    Honest(usize),
    Lie,
    /// It has measured nothing.
    Nothing,
}

fn fingerprint(node: &Node) -> RsaId {
    node.rsa_hex().parse().expect("a fingerprint")
}

/// Gives each authority its own file. All relays that are not in the table have equal estimates.
fn set_files(network: &Network, reports: [Report; 3]) {
    let now = unix_time_s();
    for (authority, report) in network.authorities().iter().zip(reports) {
        let kb_s = |node: &Node| {
            let of_table = ESTIMATES.iter().find(|(name, ..)| *name == node.nickname());
            let Some((_, honest, lie)) = of_table else { return Some(3000) };
            match report {
                Report::Honest(number) => Some(honest[number]),
                Report::Lie => Some(*lie),
                Report::Nothing => None,
            }
        };
        let estimate = |node: &Node| {
            let capacity_bytes_s = kb_s(node)? * 1000;
            Some(Estimate {
                fingerprint: fingerprint(node),
                ed25519: None,
                nickname: node.nickname().parse().expect("a nickname"),
                outcome: Outcome::Measured {
                    capacity_bytes_s,
                    measured_at: now,
                    descriptor_avg_bytes_s: None,
                },
                extra: Vec::new(),
            })
        };
        let estimates: Vec<Estimate> = network.nodes().iter().filter_map(estimate).collect();
        let all = network.nodes().len() as u64;
        let counts = Eligibility { eligible: all, in_consensus: all };
        let settings = Settings::new("0.2.0", now, now);
        let file = BandwidthFile::generate(&estimates, counts, &settings).expect("a file");
        let text = file.to_text(NodeIdStyle::Dollar).expect("lines");
        let path: PathBuf = network.dir().join(format!("{}.v3bw", authority.nickname()));
        std::fs::write(&path, text).expect("written");
        let line = format!("SETCONF V3BandwidthsFile=\"{}\"", path.display());
        authority.control().expect("answers").request(&line).expect("taken");
    }
}

/// The weight of each relay of the table, in KB/s; `None` if it counts as unmeasured.
fn weights(network: &Network, consensus: &str) -> BTreeMap<String, Option<u32>> {
    let parsed: Consensus = Consensus::parse(consensus.as_bytes()).expect("a consensus");
    let of = |(name, ..): &(&str, [u64; 3], u64)| {
        let relay = fingerprint(network.node(name).expect("a relay"));
        let listed = parsed.by_fingerprint(&relay).expect("listed");
        let weight = listed.bandwidth_kb_s.filter(|_| !listed.unmeasured);
        ((*name).to_owned(), weight)
    };
    ESTIMATES.iter().map(of).collect()
}

/// Waits for a consensus with these weights.
fn wait_for(network: &Network, expected: [Option<u32>; 3]) {
    let names = ESTIMATES.map(|(name, ..)| name.to_owned());
    let expected: BTreeMap<String, Option<u32>> = names.into_iter().zip(expected).collect();
    let mut last = None;
    let mut has = |text: &str| {
        let found = weights(network, text);
        let is_it = found == expected;
        last = Some(found);
        is_it
    };
    if let Err(error) = network.wait_for_consensus(None, &mut has, PATIENCE) {
        panic!("{error}: expected {expected:?}, found {last:?}");
    }
}

#[test]
fn the_consensus_takes_the_median_whatever_one_authority_claims() {
    let relays = ESTIMATES.map(|(name, ..)| RelaySpec::new(name));
    let network = Network::start(&NetworkSpec::new(relays.into()), &mut |_| {}).expect("up");

    // Honest coordinators: the estimate in the middle.
    set_files(&network, [0, 1, 2].map(Report::Honest));
    wait_for(&network, [Some(1010), Some(5060), Some(2020)]);

    // One lies: each weight remains between the other two estimates.
    set_files(&network, [Report::Lie, Report::Honest(1), Report::Honest(2)]);
    wait_for(&network, [Some(1030), Some(5060), Some(2040)]);

    // Two lie, a majority: they decide.
    set_files(&network, [Report::Lie, Report::Lie, Report::Honest(2)]);
    wait_for(&network, [Some(900_000), Some(1), Some(2040)]);

    // With two estimates, tor takes no median: the relays count as unmeasured, so that one authority can prevent all weights by silence.
    set_files(&network, [Report::Nothing, Report::Honest(1), Report::Honest(2)]);
    wait_for(&network, [None; 3]);
    network.stop().expect("down");
}
