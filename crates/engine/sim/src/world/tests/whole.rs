use super::small::{FAST, Small, models};
use crate::world::markov::{Observation, State};
use crate::world::{Delay, Ending, Fetch, MarkovModel, Models, Record, Size, Users};
use onion::flow::hop::HopWindows;
use onion::router::RateLimit;
use onion::router::schedule::SchedulerConfig;
use onion::{Duration, Rate};
use std::sync::Arc;
use std::vec::Vec;

const MIB: u32 = 1 << 20;

fn last_s(record: &Record) -> f64 {
    assert_eq!(record.ending, Ending::Complete, "{record:?}");
    record.last_byte.expect("it is complete").as_secs_f64()
}

#[test]
fn a_run_depends_on_the_seed_and_not_on_the_distribution_of_hosts() {
    let users = Users::Markov(Arc::new(models()), 1.0);
    let small = Small::new().losing(0.005).fast_relays(6);
    let small = small.client(users.clone()).client(users).fetcher(MIB, 5).fetcher(50_000, 5);
    let alone = small.run(15, 1, 42);
    assert!(alone.records.len() > 50, "{}", alone.records.len());
    for parts in [2, 3, 7] {
        let together = small.run(15, parts, 42);
        assert_eq!(together.records, alone.records, "{parts} parts");
        assert_eq!(together.figures, alone.figures, "{parts} parts");
    }
    assert_ne!(small.run(15, 1, 43).records, alone.records);
}

#[test]
fn losses_delay_transfers_and_never_corrupt_them() {
    let small = Small::new().fast_relays(3).fetcher(MIB, 10);
    let clean = small.run(60, 1, 1);
    let lossy = small.losing(0.02).run(60, 1, 1);
    assert_eq!((clean.records.len(), lossy.records.len()), (10, 10));
    let total = |records: &[Record]| records.iter().map(last_s).sum::<f64>();
    let (clean_s, lossy_s) = (total(&clean.records), total(&lossy.records));
    assert!(lossy_s > 1.2 * clean_s, "{lossy_s} {clean_s}");
    assert_eq!(clean.figures.iter().map(|figure| figure.lost_flights).sum::<u64>(), 0);
    assert!(lossy.figures.iter().map(|figure| figure.lost_flights).sum::<u64>() > 20);
}

/// The rate of one download of 8 MiB in Mbit/s, and the rate on the wire.
fn one_download(small: Small) -> f64 {
    let records = small.fetcher(8 * MIB, 1).run(60, 1, 3).records;
    let [record] = &records[..] else { panic!("{} records", records.len()) };
    f64::from(8 * MIB) * 8e-6 / last_s(record)
}

#[test]
fn the_bottleneck_limits_the_rate() {
    let narrow = Rate::from_bit_per_s(4_000_000);
    let open = |relay: usize| if relay == 1 { narrow } else { FAST };
    let hosts =
        (0..3).fold(Small::new(), |small, place| small.relay(open(place), place == 2, |_| ()));
    let by_host = one_download(hosts);
    let limit = RateLimit { rate: narrow, burst_bytes: 100_000 };
    let limited = Small::new()
        .relay(FAST, false, |_| ())
        .relay(FAST, false, |relay| relay.limit = Some(limit))
        .relay(FAST, true, |_| ());
    let by_limit = one_download(limited);
    // 514 bytes every 1,028 µs.
    let slow =
        |relay: &mut crate::world::RelayConfig| relay.cell_cost = Duration::from_micros(1028);
    let busy =
        Small::new().relay(FAST, false, |_| ()).relay(FAST, false, slow).relay(FAST, true, |_| ());
    let by_processor = one_download(busy);
    let free = one_download(Small::new().fast_relays(3));
    // Cells are 3 % longer than their data, segments 5 % longer than cells.
    assert!((3.2..3.75).contains(&by_host), "{by_host}");
    assert!((3.5..3.9).contains(&by_limit), "{by_limit}");
    assert!((3.5..3.9).contains(&by_processor), "{by_processor}");
    assert!(free > 10.0, "{free}");
}

#[test]
fn with_hop_windows_cells_queue_at_the_source_and_not_at_the_bottleneck() {
    let limit = RateLimit { rate: Rate::from_bit_per_s(4_000_000), burst_bytes: 50_000 };
    // The mean delay of a cell at each relay, and the time of the download.
    let run = |windows: [Option<HopWindows>; 3]| {
        let small =
            windows.into_iter().enumerate().fold(Small::new(), |small, (place, windows)| {
                small.relay(FAST, place == 2, |relay| {
                    relay.limit = (place == 1).then_some(limit);
                    relay.hop_windows =
                        windows.map(|windows| windows.flows(SchedulerConfig::INTERVAL));
                })
            });
        let result = small.fetcher(4 * MIB, 1).run(60, 1, 3);
        let waits = |relay: usize| {
            let figures = &result.figures[relay];
            figures.waited_cell_s * 514.0 / figures.relayed_bytes as f64
        };
        ([1, 2, 3].map(waits), last_s(&result.records[0]))
    };
    let on = Some(HopWindows::CircuitStartAgain);
    let ([_, without, _], took_without) = run([None; 3]);
    let ([_, with, exit], took_with) = run([on; 3]);
    // 1,000 cells in flight end to end, of which 970 leave per second.
    assert!(without > 0.3, "{without} s");
    assert!(with < 0.25 * without && exit > with, "{with} s, and {exit} s at the exit");
    assert!(took_with < 1.2 * took_without, "{took_with} s and {took_without} s");
    // Without windows at the bottleneck relay nothing changes.
    let ([_, mixed, _], took_mixed) = run([on, None, on]);
    assert!((mixed - without).abs() < 0.1 * without, "{mixed} s");
    assert!((took_mixed - took_without).abs() < 0.1 * took_without, "{took_mixed} s");
}

#[test]
fn data_queues_in_kernels_with_vanilla_and_in_circuit_queues_with_kist() {
    let narrow = Rate::from_bit_per_s(8_000_000);
    // The mean delay of a cell at the exit, whose next hop is the bottleneck relay: in its queues, and then in
    // its kernel.
    let run = |scheduler: SchedulerConfig| {
        let mut small = Small::new().relay(FAST, false, |_| ()).relay(narrow, false, |_| ()).relay(
            FAST,
            true,
            |relay| relay.scheduler = scheduler,
        );
        for _ in 0..6 {
            small = small.fetcher(4 * MIB, 1);
        }
        let result = small.run(20, 1, 5);
        let figures = &result.figures[3];
        [figures.waited_cell_s, figures.kernel_waited_cell_s]
            .map(|waited| waited * 514.0 / figures.relayed_bytes as f64)
    };
    let [queues, kernel] = run(SchedulerConfig::vanilla());
    let [queues_of_kist, kernel_of_kist] = run(SchedulerConfig::kist(SchedulerConfig::INTERVAL));
    assert!(kernel > 2.0 * kernel_of_kist, "{kernel} s and {kernel_of_kist} s");
    assert!(queues_of_kist > 1.3 * queues, "{queues_of_kist} s and {queues} s");
    // Exits stop reading a stream whose circuit has a long queue. They do not know about data in the kernel.
    let (all, all_of_kist) = (queues + kernel, queues_of_kist + kernel_of_kist);
    assert!(all_of_kist < all, "{all_of_kist} s and {all} s");
}

#[test]
fn clients_share_a_bottleneck_relay_equally() {
    let narrow = Rate::from_bit_per_s(8_000_000);
    let mut small = Small::new().relay(FAST, false, |_| ()).relay(narrow, false, |_| ()).relay(
        FAST,
        true,
        |_| (),
    );
    for _ in 0..4 {
        small = small.fetcher(4 * MIB, 1);
    }
    let records = small.run(60, 1, 5).records;
    // All begin within two seconds, and need 18.
    let times: Vec<f64> = records.iter().map(last_s).collect();
    assert_eq!(times.len(), 4);
    let (least, most) =
        times.iter().fold((f64::MAX, 0.0f64), |(a, b), time| (a.min(*time), b.max(*time)));
    assert!(least > 14.0 && most < 22.0, "{times:?}");
}

#[test]
fn streams_follow_their_traffic_model() {
    let users = Users::Markov(Arc::new(models()), 1.0);
    let result = Small::new().fast_relays(3).client(users).run(60, 1, 8);
    assert!(result.records.len() > 100, "{}", result.records.len());
    for record in &result.records {
        assert_eq!(record.ending, Ending::Complete, "{record:?}");
        assert_eq!(record.bytes % 1434, 0, "{record:?}");
    }
}

#[test]
fn a_download_is_aborted_at_its_timeout() {
    let slow = Rate::from_bit_per_s(100_000);
    let small = (0..3).fold(Small::new(), |small, place| small.relay(slow, place == 2, |_| ()));
    let records = small.fetcher(8 * MIB, 1).run(150, 1, 9).records;
    let endings: Vec<Ending> = records.iter().map(|record| record.ending).collect();
    assert_eq!(endings, [Ending::TimedOut]);
    assert!(records[0].bytes > 0 && records[0].last_byte.is_none());
}

/// TGen's `stallout`: the exit's line is too slow for a cell in that time.
#[test]
fn only_a_stalled_download_is_aborted_at_its_stallout() {
    let ended = |rate: Rate| {
        let stallout = Some(Duration::from_secs(5));
        let size = Size { weight: 1.0, bytes: MIB, timeout: None, stallout };
        let pauses = [Duration::from_secs(10)].into();
        let fetch = Fetch { pauses, count: Some(1), sizes: [size].into() };
        let small = Small::new().fast_relays(2).relay(rate, true, |_| ());
        let records = small.client(Users::Fetch(Arc::new(fetch))).run(40, 1, 1).records;
        records.iter().map(|record| record.ending).collect::<Vec<_>>()
    };
    assert_eq!(ended(FAST), [Ending::Complete]);
    assert_eq!(ended(Rate::from_bit_per_s(200)), [Ending::TimedOut]);
}

/// Without a limit the client would begin flows endlessly at one instant, and no window would end.
#[test]
fn users_of_a_model_without_pauses_start_a_bounded_number_of_flows() {
    let start = State { transitions: [(1.0, 1)].into(), emissions: Vec::new() };
    let at_once = (1.0, Observation::ToServer, Delay::Uniform(0.0, 0.0));
    let state = State { transitions: [(1.0, 1)].into(), emissions: [at_once].into() };
    let flow = MarkovModel { states: [start, state].into(), start: 0 };
    // No streams: only the limit on beginnings applies.
    let endless = Models { flow, ..Models::default() };
    let small = Small::new().fast_relays(3).client(Users::Markov(Arc::new(endless), 1.0));
    assert_eq!(small.run(3, 1, 1).records, []);
}
