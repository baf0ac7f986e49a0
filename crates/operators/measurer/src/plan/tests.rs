use super::*;
use crate::member::Nonce;
use onion::identity::{RelayIds, RsaId};
use onion::measure::load::Target;
use proptest::prelude::*;

const FAR_AWAY: Duration = Duration::from_millis(200);
const TRANSIT: RoundMode = RoundMode::Transit { always_authenticate: false };
const ECHO: RoundMode = RoundMode::Echo { nonce: Nonce([1; 32]) };

fn order(mode: RoundMode, defences: Defences, sockets: u32, mbit: f64, sharing: u32) -> RoundOrder {
    let ids = RelayIds { rsa: RsaId([1; 20]), ed25519: None };
    RoundOrder {
        target: Target { address: SocketAddr::from(([127, 0, 0, 1], 9001)), ids },
        mode,
        defences,
        sockets,
        rate: Rate::from_mbit_per_s(mbit),
        seconds: 30,
        held_back_s: None,
        few_circuits_s: 0,
        check_one_in: NonZeroU32::MIN,
        rtt: None,
        sharing,
        setup_timeout: FAR_AWAY,
        stall_timeout: FAR_AWAY,
    }
}

#[test]
fn a_few_circuits_sustain_a_queue_at_a_near_relay() {
    let transit = Load::plan(&order(TRANSIT, Defences::default(), 8, 9000.0, 1), Duration::ZERO);
    assert_eq!(transit.few_circuits(), CIRCUITS_FOR_QUEUE_MAX);
    let echo = Load::plan(&order(ECHO, Defences::default(), 8, 3000.0, 1), Duration::ZERO);
    assert_eq!(echo.sockets * echo.circuits_per_socket, CIRCUITS_FOR_QUEUE_MAX);
}

impl Load {
    fn few_circuits(&self) -> u32 {
        few_sockets(self.sockets) * self.few_per_socket
    }
}

/// The derivation is at [`CIRCUITS_FOR_SHARE`].
#[test]
fn more_circuits_give_a_share_of_a_relay_that_others_use() {
    let plan = |defences, mbit, sharing| {
        let load = Load::plan(&order(TRANSIT, defences, 8, mbit, sharing), Duration::ZERO);
        assert!(!load.must_authenticate, "{load:?}");
        (load.sockets * load.circuits_per_socket, load.few_circuits())
    };
    let open = Defences::default();
    assert_eq!(plan(open, 59.0, 1), (128, 2));
    assert_eq!(plan(open, 3000.0, 1), (128, 14));
    assert_eq!(plan(open, 59.0, 2), (64, 2), "two measurers at one address");
    assert_eq!(plan(open, 3.0, 1), (16, 2), "a slow relay");
    // A client of today's network may create 56 circuits, of which some may be needed again.
    assert_eq!(plan(Defences::from_consensus_params(live), 59.0, 1), (40, 2));
    // The growth that a verdict permits presumes 5.3 times as many.
    for mbit in [59.0, 300.0, 1000.0, 3000.0] {
        let (all, few) = plan(open, mbit, 1);
        assert!(f64::from(all) >= 5.3 * f64::from(few), "{all} and {few} at {mbit} Mbit/s");
    }
    let named = RoundMode::Transit { always_authenticate: true };
    let load =
        Load::plan(&order(named, Defences::from_consensus_params(live), 8, 59.0, 1), FAR_AWAY);
    assert_eq!(load.sockets * load.circuits_per_socket, 128, "the defence applies to clients");
}

/// The bytes in the windows of all circuits that measurers of 10 Gbit/s open together on 160 sockets.
fn windows_bytes(measurers: u32, rtt: Duration) -> u64 {
    let defences = Defences::from_consensus_params(live);
    let load = Load::plan(&order(TRANSIT, defences, 160 / measurers, 10_000.0, 1), rtt);
    let circuits = load.sockets * load.circuits_per_socket * measurers;
    u64::from(circuits * defences.window_cap_cells()) * CELL_LEN as u64
}

#[test]
fn windows_carry_relays_of_10_25_and_40_gbit_s_in_transit_over_150_ms() {
    let in_flight = |gbit: f64, rtt: Duration| {
        // A cell makes the trip to the relay, and from there to a landing.
        Rate::from_mbit_per_s(gbit * 1000.0).bytes_in(rtt * 2)
    };
    let rtt = Duration::from_millis(150);
    for (gbit, measurers) in [(10.0, 3), (25.0, 8), (40.0, 12)] {
        assert!(windows_bytes(measurers, rtt) >= in_flight(gbit, rtt), "{gbit} Gbit/s");
    }
    let far = Duration::from_millis(300);
    assert!(windows_bytes(12, far) < in_flight(40.0, far), "with all circuits of all sockets");
}

/// The parameters of the live consensus of July 2026.
fn live(name: &str) -> Option<i32> {
    Some(match name {
        "circ_max_cell_queue_size" => 1750,
        "circ_max_cell_queue_size_out" => 1500,
        "DoSConnectionEnabled" | "DoSCircuitCreationEnabled" => 1,
        "DoSConnectionMaxConcurrentCount" => 50,
        "DoSCircuitCreationBurst" => 60,
        _ => return None,
    })
}

#[test]
fn the_consensus_bounds_windows_and_sockets() {
    let defences = Defences::from_consensus_params(live);
    assert_eq!(defences.window_cap_cells(), 1349);
    assert_eq!(defences.sockets(160), 46);
    assert_eq!(Defences::default().window_cap_cells(), 2249);
    let fallback = Defences::from_consensus_params(|name| {
        (name == "circ_max_cell_queue_size").then_some(1750)
    });
    assert_eq!(fallback.queue_limit_cells, 1750);
}

#[test]
fn links_authenticate_if_clients_would_be_refused() {
    let defences = Defences::from_consensus_params(live);
    let modest = Load::plan(&order(TRANSIT, defences, 23, 100.0, 2), FAR_AWAY);
    assert!(!modest.must_authenticate, "{modest:?}");
    let large = Load::plan(&order(TRANSIT, defences, 23, 3000.0, 2), FAR_AWAY);
    assert!(large.must_authenticate && large.circuits_per_socket > 1, "{large:?}");
    let undefended = Load::plan(&order(TRANSIT, Defences::default(), 23, 3000.0, 2), FAR_AWAY);
    assert!(!undefended.must_authenticate);
    let named = RoundMode::Transit { always_authenticate: true };
    assert!(Load::plan(&order(named, defences, 23, 100.0, 2), FAR_AWAY).must_authenticate);
    // A participating relay knows its measurers by their keys.
    assert!(!Load::plan(&order(ECHO, defences, 23, 3000.0, 2), FAR_AWAY).must_authenticate);
}

/// A relay that closes all circuits as idle at once sees each of them twice.
#[test]
fn retried_circuits_do_not_exceed_the_limit_for_clients() {
    let defences = Defences::from_consensus_params(live);
    for (sockets, sharing, tries) in [(20, 1, 20), (40, 1, 16), (23, 2, 5), (56, 1, 0), (18, 3, 0)]
    {
        let load = Load::plan(&order(TRANSIT, defences, sockets, 1.0, sharing), Duration::ZERO);
        assert!(!load.must_authenticate && load.circuits_per_socket == 1, "{load:?}");
        assert_eq!(load.second_tries, tries, "{sockets} sockets of each of {sharing}");
        let pumps: Vec<Load> = load.split(3).collect();
        assert_eq!(pumps.iter().map(|pump| pump.second_tries).sum::<u32>(), tries);
    }
    // A measurer that does not count as a client may retry all of them.
    let named = RoundMode::Transit { always_authenticate: true };
    for (mode, defences) in [(named, defences), (TRANSIT, Defences::default())] {
        let load = Load::plan(&order(mode, defences, 56, 1.0, 1), Duration::ZERO);
        assert_eq!(load.second_tries, 56);
    }
}

#[test]
fn no_order_causes_a_flood_of_connections_to_a_public_address() {
    let mut greedy = order(ECHO, Defences::default(), 10_000, 3000.0, 1);
    let here = Load::plan(&greedy, FAR_AWAY);
    assert_eq!((here.sockets, here.pace.burst), (10_000, 10_000), "a relay of our own");
    greedy.defences.connect = Pace { burst: 10_000, per_s: NonZeroU32::MAX };
    for public in ["198.51.100.7:9001", "[2001:db8::1]:9001", "[::ffff:198.51.100.7]:9001"] {
        greedy.target.address = public.parse().expect("an address");
        for mode in [ECHO, TRANSIT] {
            greedy.mode = mode;
            let load = Load::plan(&greedy, FAR_AWAY);
            assert_eq!((load.sockets, load.pace), (PUBLIC_SOCKETS_MAX, PUBLIC_PACE));
            // Not even with many pumps, each with a separate pace.
            let pumps = load.pumps(64, greedy.target.address);
            let shares: Vec<Load> = load.split(pumps).collect();
            assert!(shares.iter().map(|share| share.pace.burst).sum::<u32>() <= PUBLIC_PACE.burst);
            let per_s = shares.iter().map(|share| share.pace.per_s.get()).sum::<u32>();
            assert!(per_s <= PUBLIC_PACE.per_s.get(), "{per_s} a second");
        }
    }
    // A lower limit of an honest relay is respected.
    greedy.mode = TRANSIT;
    greedy.defences.connect = Pace { burst: 3, per_s: NonZeroU32::MIN };
    assert_eq!(Load::plan(&greedy, FAR_AWAY).pace, greedy.defences.connect);
}

proptest! {
    #[test]
    fn no_relay_can_make_a_team_exceed_the_limit_on_circuits(
        burst in 1u32..400,
        sockets in 1u32..200,
        mbit in 0.0..10_000.0,
        sharing in 1u32..20,
        pumps in 1u32..20,
    ) {
        let defences = Defences { max_client_circuits: Some(burst), ..Defences::default() };
        let load = Load::plan(&order(TRANSIT, defences, sockets, mbit, sharing), FAR_AWAY);
        let circuits = |load: Load| load.sockets * load.circuits_per_socket;
        prop_assert!(load.second_tries <= circuits(load));
        // The relay closes all circuits of each pump at once.
        let created: u32 = load.split(pumps).map(|pump| circuits(pump) + pump.second_tries).sum();
        prop_assert!(load.must_authenticate || created * sharing <= burst.saturating_sub(RESERVED_FOR_OTHERS));
    }

    #[test]
    fn any_parameters_give_a_valid_plan(value: i32, mbit in 0.0..100_000.0, sockets in 1u32..200) {
        let defences = Defences::from_consensus_params(|_| Some(value));
        prop_assert!(defences.window_cap_cells() >= 1);
        prop_assert!(defences.window_cap_cells() < defences.queue_limit_cells);
        let planned = defences.sockets(sockets);
        prop_assert!((1..=sockets).contains(&planned));
        let load = Load::plan(&order(TRANSIT, defences, planned, mbit, 3), FAR_AWAY);
        prop_assert!(load.circuits_per_socket >= 1 && load.pace.burst >= 1);
    }

    #[test]
    fn pumps_share_the_sockets_evenly(sockets in 1u32..200, pumps in 0u32..20) {
        let whole = Load::plan(&order(ECHO, Defences::default(), sockets, 100.0, 1), FAR_AWAY);
        let shares: Vec<Load> = whole.split(pumps).collect();
        prop_assert_eq!(shares.len(), pumps.clamp(1, sockets) as usize);
        prop_assert_eq!(shares.iter().map(|share| share.sockets).sum::<u32>(), sockets);
        let (most, least) = (shares.iter().map(|share| share.sockets).max(), shares.iter().map(|share| share.sockets).min());
        prop_assert!(least > Some(0) && most.unwrap_or(0) - least.unwrap_or(0) <= 1);
    }
}

#[test]
fn a_host_that_accepts_or_refuses_a_connection_answers() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("bound");
    let answer = |address| probe(address, Duration::from_secs(3));
    assert!(
        matches!(answer(address), ProbeAnswer::Connected(_)),
        "the process has not accepted it"
    );
    drop(listener);
    assert_eq!(answer(address), ProbeAnswer::Refused);
    // No host has this address.
    assert_eq!(answer(SocketAddr::from(([255; 4], 9001))), ProbeAnswer::Silent);
}
