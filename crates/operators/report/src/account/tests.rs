use super::*;
use coordinator::{MeasurerId, SecondRecord, allocate};
use onion::Rate;

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Four sockets that are limited by the relay's window for this part of a second.
fn account(rwnd_limited_ms: u64) -> Account {
    Account {
        elapsed: ms(1000),
        pump_time: ms(1000),
        socket_time: ms(4000),
        sockets: 4,
        busy: ms(4000),
        rwnd_limited: ms(rwnd_limited_ms),
        sent_bytes: 9998,
        retransmitted_bytes: 2,
        outstanding_bytes: rwnd_limited_ms,
        unacked_bytes: rwnd_limited_ms / 10,
        min_rtt: Some(ms(20)),
        mean_rtt: Some(ms(24)),
        throttled: ms(250),
        busiest: ms(500),
        ..Account::default()
    }
}

/// A round of two measurers, the team's second and third.
fn round(accounts: &[Vec<Option<Account>>]) -> RoundRecord {
    let rate = Rate::from_mbit_per_s(10.0);
    let mut allocation = allocate(rate.scaled(2.0), &[rate; 2], 8);
    for (place, assignment) in allocation.assignments.iter_mut().enumerate() {
        assignment.measurer = MeasurerId(place + 1);
    }
    let second = |(second, accounts): (u32, &Vec<Option<Account>>)| SecondRecord {
        second,
        returned_bytes: vec![Some(1), Some(1)],
        client_bytes: None,
        relay_reported: None,
        accounts: accounts.clone(),
    };
    RoundRecord {
        schedule: coordinator::Schedule::PLAIN,
        number: 3,
        guess: rate,
        allocation,
        started_unix_s: None,
        checked_cells: 0,
        bottlenecks: Vec::new(),
        seconds: (0..).zip(accounts).map(second).collect(),
    }
}

#[test]
fn a_round_has_an_account_of_each_measurer_over_the_seconds_with_statistics() {
    let seconds = [
        vec![Some(account(4000)), None],
        vec![],
        vec![Some(account(2000)), None],
        vec![None, None],
    ];
    let round = round(&seconds);
    assert_eq!(round.allocation.assignments.len(), 2, "both take part");
    let found = RoundAccount::from_round(&round, 0, 1).expect("two seconds");
    assert_eq!((found.round, found.measurer, found.seconds, found.sockets), (3, 1, 2, 4));
    assert_eq!((found.rwnd_limited_share, found.congestion_share), (0.75, 0.25));
    assert_eq!((found.outstanding_bytes, found.throttled_share), (3000, 0.25));
    assert_eq!(RoundAccount::from_round(&round, 1, 2), None);
}

#[test]
fn an_account_is_described_in_words() {
    let round = round(&[vec![Some(account(3000)), None]]);
    let found = RoundAccount::from_round(&round, 0, 1).expect("a second");
    assert_eq!(
        found.in_words(),
        "cells were queued mostly at the relay or on the return path; held back by the relay’s window 75 %, congestion 25 % (with little to send 0 %), \
         our buffer 0 %, the assigned rate 25 %; busiest thread 50 %; of the cells not returned yet the relay has acknowledged 90 %; \
         retransmitted 0.02 %, out of order on the return path 0 %; round trip: minimum 20.0 ms, mean 24.0 ms"
    );
    let without = RoundAccount { min_rtt_ms: None, ..found };
    assert!(!without.in_words().contains("round trips"));
}
