//! Relays with the defences of a consensus: a team does not trigger them.

use super::{limited, relay};
use crate::common::{
    Claims, Options, Team, exclusive, heartbeat, log, measure, network, observe, options,
    own_connections_to, request, team, wait_for, warnings_since,
};
use authority::one_relay::Request;
use coordinator::{Defences, Params};
use lab::{Network, NetworkSpec, Node, RelaySpec};
use netdoc::consensus::Consensus;
use onion::Duration;
use std::net::TcpStream;

/// The defences by the consensus.
fn defences(network: &Network) -> Defences {
    let text = network.consensus().expect("an answer").expect("a consensus");
    let consensus = Consensus::parse(text.as_bytes()).expect("well-formed");
    Defences::from_consensus_params(|name| consensus.params.get(name))
}

#[test]
fn a_relay_with_the_live_networks_defences_is_measured_without_triggering_them() {
    let _turn = exclusive();
    let spec = NetworkSpec {
        extra_torrc_authorities: vec![
            "ConsensusParams DoSConnectionEnabled=1 DoSConnectionMaxConcurrentCount=50 \
             DoSConnectionConnectRate=20 DoSConnectionConnectBurst=40 DoSCircuitCreationEnabled=1 \
             DoSCircuitCreationBurst=60 circ_max_cell_queue_size=1750 \
             circ_max_cell_queue_size_out=1500"
                .to_owned(),
        ],
        ..NetworkSpec::new(vec![
            limited("limited", 200.0),
            RelaySpec::new("free"),
            RelaySpec::new("flooded"),
        ])
    };
    let network = network(&spec);
    let defences = defences(&network);
    assert_eq!(defences.max_connections, Some(50));
    assert_eq!(defences.max_client_circuits, Some(60));
    assert_eq!(defences.queue_limit_cells, 1500);
    let mut claims = Claims::default();

    claims.claim("the number of sockets is within the limit", || {
        let node = relay(&network, "limited");
        let base = options(4);
        let params = Params { sockets: 160, ..base.params };
        let team = team(Options { params, ..base });
        undisturbed(&team, &Request { defences, ..request(node, 220.0) }, node);
    });
    claims.claim("if more circuits are needed than a client may open, links authenticate as a relay's, and none is refused", || {
        let node = relay(&network, "free");
        let team = team(Options { measurers: 4, ..options(4) });
        let circuits = undisturbed(&team, &Request { defences, ..request(node, 2500.0) }, node);
        assert!(circuits > 60, "{circuits} circuits show nothing");
    });
    claims.claim("the relay refuses circuits of a team that ignores the limits", || {
        let node = relay(&network, "flooded");
        let base = options(4);
        let params = Params { setup_timeout: Duration::from_secs(10), ..base.params };
        let team = team(Options { measurers: 4, params, ..base });
        // Repetitions would fail in the same way.
        let careless = Request { repeats_failures: false, ..request(node, 2500.0) };
        let result = measure(&team, &careless, &mut |_| {});
        let circuits = team.circuits();
        let after = heartbeat(node).defences;
        eprintln!("  {circuits} circuits: {}; {after}", result.outcome);
        assert!(circuits > 60, "{circuits} circuits show nothing");
        assert!(!is_calm(&after), "{after}");
    });
    claims.claim("the relay rejects too many connections", || {
        let node = relay(&network, "flooded");
        let rejected = |text: &str| !text.contains(" 0 connections rejected");
        assert!(!rejected(&heartbeat(node).defences));
        let open: Vec<_> = (0..80).map(|_| TcpStream::connect(node.or_addr())).collect();
        let after = wait_for("a rejection", || {
            Some(heartbeat(node).defences).filter(|text| rejected(text))
        });
        drop(open);
        eprintln!("  {after}");
    });
    network.stop().expect("nothing left");
    claims.conclude();
}

/// Whether a relay's defences were not triggered, by its heartbeat: `0 circuits killed with
/// too many cells, [DoSConnectionEnabled disabled], 0 INTRODUCE2 rejected.`
fn is_calm(defences: &str) -> bool {
    let counts =
        defences.split(',').filter_map(|item| item.split_whitespace().next()?.parse().ok());
    let counts: Vec<u64> = counts.collect();
    assert!(!counts.is_empty(), "{defences}");
    counts.iter().all(|count| *count == 0)
}

/// Measures, and asserts that all sockets and circuits were still open in the third-last second and that the relay logged
/// no warning. Returns the number of circuits.
fn undisturbed(team: &Team, request: &Request, node: &Node) -> u32 {
    let seconds = team.options.params.seconds;
    let log_before = log(node).len();
    let mut alive = None;
    let seen = observe(team, request, node, &mut |second| {
        // A busy relay, and a busy machine, may take a second to answer.
        if second + 3 == seconds {
            alive = Some((own_connections_to(node.or_addr()), heartbeat(node).circuits_open));
        }
    });
    let (estimate, reported) = seen.estimate_and_report();
    let (sockets, circuits) = alive.expect("the third-last second was reported");
    let after = heartbeat(node).defences;
    let (planned, of_them) = (seen.sockets, seen.circuits);
    eprintln!("  {sockets} of {planned} sockets, {circuits} of {of_them} circuits; {after}");
    let outcome = seen.result.outcome.estimate().expect("just seen");
    assert!(estimate >= super::least(outcome) * reported, "{estimate} of {reported}: {outcome}");
    assert!(is_calm(&after), "{after}");
    assert_eq!(warnings_since(node, log_before), Vec::<String>::new());
    // Those of the previous measurement may not be closed yet.
    assert!(sockets >= planned as usize, "{sockets} of {planned} sockets");
    assert!(circuits >= u64::from(of_them), "{circuits} of {of_them} circuits");
    of_them
}

#[test]
fn windows_stay_below_the_queue_limit_that_the_consensus_sets() {
    let _turn = exclusive();
    let spec = NetworkSpec {
        extra_torrc_authorities: vec!["ConsensusParams circ_max_cell_queue_size=400".to_owned()],
        ..NetworkSpec::new(vec![
            limited("limited", 50.0),
            RelaySpec::new("free"),
            // Its load has several circuits, whose windows are larger than the queue limit only at this rate.
            limited("killer", 200.0),
        ])
    };
    let network = network(&spec);
    let defences = defences(&network);
    assert_eq!(defences.queue_limit_cells, 400);
    let mut claims = Claims::default();
    // One socket and less than twice the relay's rate: few circuits, whose windows fill.
    let base = options(4);
    let params = Params { sockets: 1, max_rounds: 1, ..base.params };
    let team = team(Options { measurers: 1, params, ..base });

    claims.claim("a limited relay, whose queues fill, kills no circuit", || {
        let node = relay(&network, "limited");
        undisturbed(&team, &Request { defences, ..request(node, 25.0) }, node);
    });
    claims.claim("an unlimited relay kills no circuit", || {
        let node = relay(&network, "free");
        undisturbed(&team, &Request { defences, ..request(node, 800.0) }, node);
    });
    claims.claim("the limit is in force: larger windows get circuits killed", || {
        let node = relay(&network, "killer");
        let careless = Request { defences: Defences::default(), ..request(node, 100.0) };
        let mut after = String::new();
        // If measurer and relay compete for a processor, a queue may not fill at once.
        for _ in 0..5 {
            let before = log(node).len();
            let result = measure(&team, &careless, &mut |_| {});
            after = heartbeat(node).defences;
            eprintln!("  {}; {:?}\n  {after}", result.outcome, warnings_since(node, before));
            if !is_calm(&after) {
                break;
            }
        }
        // The measurement goes on while half of its circuits are left.
        assert!(!is_calm(&after), "{after}");
    });
    drop(team);
    network.stop().expect("nothing left");
    claims.conclude();
}
