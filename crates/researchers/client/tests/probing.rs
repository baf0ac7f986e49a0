//! Probing circuits of C tor.

use crate::common::{Ours, PATIENCE, exit, network};
use client::model::{Observations, Pair};
use client::path::{PathRules, select_probe_path};
use client::probe::{self, ProbePlan, Probed, Subject};
use client::strategy::Uniform;
use client::{Directories, Event, NetDir, Settings};
use lab::{Content, ContentServer, Network, download};
use onion::Duration;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn netdir(network: &Network, folder: &Path, relays: usize) -> std::sync::Arc<NetDir> {
    let is_enough = |netdir: &NetDir| netdir.relays().len() >= relays;
    let authorities = network.directory_addrs();
    let folder = folder.join("probe");
    probe::learn(
        authorities,
        Directories::default(),
        BTreeSet::new(),
        folder,
        PATIENCE,
        is_enough,
        || false,
    )
    .expect("known")
}

#[test]
fn each_hop_of_circuits_of_two_to_four_hops_answers_probes_and_links_get_rtts() {
    let network = network(vec![exit("exita"), exit("exitb")]);
    let folder = tempfile::tempdir().expect("a folder");
    let netdir = netdir(&network, folder.path(), 5);
    let mut rng = StdRng::seed_from_u64(1);
    let rules = PathRules { distinct_subnets: false };
    let mut subject = |hops| {
        Subject::new(
            &select_probe_path(&netdir, &Uniform, rules, None, hops, &mut rng).expect("a path"),
        )
    };
    let subjects: Vec<Subject> = [2, 3, 4, 3].into_iter().map(&mut subject).collect();
    let plan = ProbePlan {
        rounds: 3,
        gap: Duration::from_millis(5),
        pause: Duration::from_millis(5),
        ..ProbePlan::default()
    };
    let mut all: Vec<Probed> = Vec::new();
    let each = |probed| {
        all.push(probed);
        true
    };
    probe::run(plan, subjects, &netdir, each, || false).expect("run");
    assert_eq!(all.len(), 4);
    let mut seen = Observations::default();
    for (probed, hops) in all.iter().zip([2, 3, 4, 3]) {
        assert_eq!(probed.failure, None, "{probed:?}");
        assert_eq!((probed.path.len(), probed.hop_times.len()), (hops, hops));
        assert!(probed.hop_times.is_sorted() && probed.hop_times[0] > Duration::ZERO);
        assert!(probed.rtts.iter().all(|of_hop| of_hop.len() == 3), "{probed:?}");
        assert!(probed.link_time > Duration::ZERO || probed.path[0] != all[0].path[0]);
        seen.add(&probed.observed());
    }
    let model = seen.model(1);
    // Links on one machine have almost no latency. If a far hop answered first, there is no value for the link.
    let mut measured = BTreeSet::new();
    for observed in all.iter().map(Probed::observed) {
        for (pair, rtts) in observed.path.windows(2).zip(observed.rtts.windows(2)) {
            assert!(model.links().contains_key(&Pair::new(pair[0], pair[1])));
            if rtts[0] <= rtts[1] {
                measured.insert(Pair::new(pair[0], pair[1]));
            }
        }
    }
    let with_rtt = model.links().iter().filter(|(_, link)| link.rtt_ms.is_some());
    assert_eq!(with_rtt.map(|(pair, _)| *pair).collect::<BTreeSet<_>>(), measured);
    assert!(model.links().len() >= 3 && !measured.is_empty(), "{model:?}");
    assert!(!model.is_empty());
}

#[test]
fn a_killed_relay_is_a_failure_and_not_a_low_number() {
    let network = network(vec![exit("exita"), exit("exitb")]);
    let folder = tempfile::tempdir().expect("a folder");
    let netdir = netdir(&network, folder.path(), 5);
    let killed = network.node("exita").expect("there");
    let of = |rsa: [u8; 20]| netdir.find(&netdoc::RsaId(rsa)).expect("listed");
    let [first, second, ..] = network.authorities() else { panic!("no authorities") };
    let path = [of(first.rsa()), of(killed.rsa()), of(second.rsa())];
    let healthy = [of(first.rsa()), of(second.rsa())];
    killed.kill();
    let subjects = vec![Subject::new(&path), Subject::new(&healthy)];
    let plan = ProbePlan { pause: Duration::from_millis(1), ..ProbePlan::default() };
    let mut all: Vec<Probed> = Vec::new();
    let each = |probed| {
        all.push(probed);
        true
    };
    probe::run(plan, subjects, &netdir, each, || false).expect("run");
    assert!(all[0].failure.is_some() && all[0].setup().is_none(), "{:?}", all[0]);
    assert!(all[0].rtts.iter().all(Vec::is_empty) && all[0].throughput_kb_s.is_none());
    assert_eq!(all[1].failure, None, "{:?}", all[1]);
}

#[test]
fn a_client_by_latency_probes_its_circuits_and_downloads_are_complete() {
    let network = network(vec![exit("exita"), exit("exitb"), exit("exitc")]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = Settings::new(network.directory_addrs(), folder.path().join("client"));
    settings.choices.by_latency = true;
    let mut ours = Ours::start_with(settings);
    let mut latest: BTreeMap<u64, Duration> = BTreeMap::new();
    while latest.len() < 2 {
        let (circuit, rtt) = ours.wait_for("answer", |event| match event {
            Event::CircuitAnswered { circuit, rtt } => Some((*circuit, *rtt)),
            _ => None,
        });
        assert!(rtt > Duration::ZERO);
        latest.insert(circuit, rtt);
    }
    let server = ContentServer::start().expect("a server");
    let from = ("127.0.0.1", server.address().port());
    for seed in 0..5 {
        let content = Content { len: 50_000, seed };
        let done = download(ours.proxy.socks(), from, content, "same", PATIENCE);
        assert!(done.expect("downloaded").is_right);
    }
    let is_stream = |event: &&Event| matches!(event, Event::StreamClosed { .. });
    assert!(ours.all_events().iter().filter(is_stream).count() <= 5, "probes are no streams");
}
