//! A team that measures a relay, and a scanner.

use super::small::{FAST, Small};
use crate::world::{
    Ending, HostId, Part, Probe, Record, ReportContent, Scan, TeamOrder, Users, coordinator_key,
};
use onion::router::RateLimit;
use onion::{Duration, Rate};
use std::string::String;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

const SECONDS: u16 = 8;

/// The server is host 0, followed by three relays, the coordinator and two measurers.
const TARGET: HostId = HostId(1);
const COORDINATOR: HostId = HostId(4);
const MEASURERS: [HostId; 2] = [HostId(5), HostId(6)];

fn net(limit: Rate, coordinators: &[HostId]) -> Small {
    Small::new()
        .relay(FAST, false, |relay| {
            relay.limit = Some(RateLimit { rate: limit, burst_bytes: limit.as_byte_per_s() / 10 });
            relay.measured_by =
                coordinators.iter().map(|coordinator| coordinator_key(*coordinator)).collect();
        })
        .relay(FAST, false, |_| ())
        .relay(FAST, true, |_| ())
        .member(FAST)
        .member(FAST)
        .member(FAST)
}

#[derive(Debug, Default)]
struct Seen {
    refused: Option<String>,
    /// By second, over both measurers.
    measured_bytes: Vec<u64>,
    client_bytes: Vec<u64>,
}

/// One measurement at this rate of each measurer, beginning after some seconds.
fn measure(small: &Small, each: Rate, begin_s: u64) -> Seen {
    measure_in_halves(small, each, begin_s, None)
}

/// The measurement, with every other link beginning at this second.
fn measure_in_halves(small: &Small, each: Rate, begin_s: u64, held_back_s: Option<u32>) -> Seen {
    let mut part: Part = small.parts(1, 1).remove(0);
    let mut seen = Seen { measured_bytes: vec![0; SECONDS.into()], ..Seen::default() };
    let pass = |part: &mut Part| part.pass_window(|_| panic!("all hosts are here"));
    while part.now_ns() < begin_s * 1_000_000_000 {
        pass(&mut part);
    }
    part.order(
        COORDINATOR,
        TeamOrder::Ask {
            measurement: 7,
            target: TARGET,
            measurers: MEASURERS.into(),
            seconds: SECONDS,
            sockets: 20,
        },
    );
    let mut ready = 0;
    while part.now_ns() < (begin_s + 20) * 1_000_000_000 {
        pass(&mut part);
        for report in part.take_reports() {
            assert_eq!(report.measurement, 7);
            match report.content {
                ReportContent::Accepted => {
                    for host in MEASURERS {
                        let (sockets, seconds) = (10, SECONDS.into());
                        let measurement = 7;
                        part.order(
                            host,
                            TeamOrder::Prepare {
                                measurement,
                                target: TARGET,
                                rate: each,
                                sockets,
                                seconds,
                                held_back_s,
                            },
                        );
                    }
                }
                ReportContent::Refused(why) => seen.refused = Some(why),
                ReportContent::Ready(sockets) => {
                    assert_eq!(sockets, 10);
                    ready += 1;
                    if ready == 2 {
                        for host in MEASURERS {
                            part.order(host, TeamOrder::Start { measurement: 7 });
                        }
                    }
                }
                ReportContent::Sockets(_) => {}
                ReportContent::Second { second, bytes } => {
                    seen.measured_bytes[second as usize] += bytes;
                }
                ReportContent::Client { second, sent_bytes, .. } => {
                    seen.client_bytes.push(sent_bytes);
                    if second + 1 == u32::from(SECONDS) {
                        for host in [MEASURERS[0], MEASURERS[1], COORDINATOR] {
                            part.order(host, TeamOrder::Stop { measurement: 7 });
                        }
                    }
                }
            }
        }
    }
    seen
}

fn median_mbit(bytes: &[u64]) -> f64 {
    let mut sorted = bytes.to_vec();
    sorted.sort_unstable();
    sorted[sorted.len() / 2] as f64 * 8e-6
}

#[test]
fn a_team_measures_exactly_the_limit_of_a_relay() {
    let limit = Rate::from_mbit_per_s(80.0);
    let seen = measure(&net(limit, &[COORDINATOR]), Rate::from_mbit_per_s(120.0), 0);
    let mbit = median_mbit(&seen.measured_bytes);
    assert!((77.0..81.0).contains(&mbit), "{mbit} {seen:?}");
    assert_eq!(seen.client_bytes.len(), usize::from(SECONDS), "each second is reported");
}

#[test]
fn a_measurer_sends_no_more_than_it_is_assigned() {
    let seen = measure(&net(FAST, &[COORDINATOR]), Rate::from_mbit_per_s(30.0), 0);
    let mbit = median_mbit(&seen.measured_bytes);
    assert!((57.0..60.5).contains(&mbit), "{mbit} {seen:?}");
}

/// A link carries one window per round-trip time, some 30 Mbit/s here: twenty of them less than the relay's
/// capacity, and ten half of that.
#[test]
fn every_second_link_is_silent_until_the_middle() {
    let small = net(FAST, &[COORDINATOR]);
    let seen = measure_in_halves(&small, FAST, 0, Some(4));
    let (first, second) = seen.measured_bytes.split_at(4);
    let (first, second) = (median_mbit(first), median_mbit(second));
    assert!(second > 1.5 * first, "{first} {second} {seen:?}");
}

#[test]
fn a_relay_refuses_a_coordinator_that_it_does_not_know() {
    let seen = measure(&net(FAST, &[HostId(99)]), Rate::from_mbit_per_s(10.0), 0);
    let why = seen.refused.expect("it is refused");
    assert!(why.contains("coordinator"), "{why}");
    assert_eq!(seen.measured_bytes.iter().sum::<u64>(), 0);
}

/// Clients have at most a quarter, and the sum is the relay's capacity.
#[test]
fn clients_keep_their_share_while_their_relay_is_measured() {
    let limit = Rate::from_mbit_per_s(40.0);
    // A hundred downloads of 4 MiB every two seconds would use everything.
    let mut busy = net(limit, &[COORDINATOR]);
    for _ in 0..6 {
        busy = busy.fetcher(4 << 20, 100);
    }
    let seen = measure(&busy, Rate::from_mbit_per_s(60.0), 10);
    let (measured, clients) = (median_mbit(&seen.measured_bytes), median_mbit(&seen.client_bytes));
    assert!((36.0..41.0).contains(&(measured + clients)), "{measured} and {clients}");
    assert!((6.0..=11.0).contains(&clients), "{clients} with {measured}");
}

fn scan(narrow: Rate) -> Vec<Record> {
    let small = Small::new().relay(narrow, false, |_| ()).relay(FAST, false, |_| ()).relay(
        FAST,
        true,
        |_| (),
    );
    let probe = |first: u32, bytes| Probe {
        path: [HostId(first), HostId(3)].into(),
        round_trips: Vec::new(),
        bytes,
        timeout: Duration::from_secs(5),
    };
    let probes = vec![probe(1, 1 << 20), probe(2, 1 << 20), probe(1, 100 << 20), probe(2, 1000)];
    small.client(Users::Scan(Arc::new(Scan { probes, at_once: 1 }))).run(30, 1, 1).records
}

#[test]
fn a_scanner_finds_the_slow_relay_and_continues_after_a_timeout() {
    let records = scan(Rate::from_mbit_per_s(5.0));
    let of =
        |probe| records.iter().find(|record| record.probe == Some(probe)).expect("it has ended");
    let s = |probe| of(probe).last_byte.expect("it completed").as_secs_f64();
    assert!(s(0) > 1.6, "1 MiB takes 1.7 s at 5 Mbit/s: {}", s(0));
    assert!(s(1) < s(0) / 2.0, "{} and {}", s(1), s(0));
    assert_eq!(of(2).ending, Ending::TimedOut);
    assert!(s(3) < 1.0 && records.len() == 4, "{records:?}");
}
