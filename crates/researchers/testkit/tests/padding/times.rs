//! The times of padding cells.

use super::world::{CIRCUIT, World};
use onion::Duration;
use onion::cell::{BODY_LEN, CircId, Command};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const HOUR: Duration = Duration::from_hours(1);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn mean(pauses: &[Duration]) -> Duration {
    pauses.iter().sum::<Duration>() / u32::try_from(pauses.len()).expect("few")
}

/// The share of pauses below a bound.
fn part_below(pauses: &[Duration], bound: Duration) -> f64 {
    pauses.iter().filter(|pause| **pause < bound).count() as f64 / pauses.len() as f64
}

#[test]
fn pauses_of_an_idle_link_are_the_maximum_of_two_samples_between_the_limits() {
    let (mut world, client) = World::with_client();
    let pauses = world.pauses_in(client, 12 * HOUR);
    assert!(pauses.iter().all(|pause| (millis(1500)..millis(9500)).contains(pause)));
    // The expected mean is 1500 + 5333 ms (padding-spec §2.3). That of over 6,000 pauses is within about
    // 25 ms of it.
    let middle = mean(&pauses);
    assert!((millis(6700)..millis(6970)).contains(&middle), "{middle:?} of {}", pauses.len());
    for (bound_ms, expected) in [(3500, 0.0625), (5500, 0.25), (7500, 0.5625)] {
        let part = part_below(&pauses, millis(bound_ms));
        assert!((part - expected).abs() < 0.02, "{part} below {bound_ms} ms");
    }
    // Padding cells are not recognizable by a grid of times.
    let off_grid = pauses.iter().filter(|pause| pause.as_millis() % 100 != 0).count();
    assert!(off_grid > pauses.len() / 2);
}

#[test]
fn traffic_in_either_direction_postpones_padding() {
    let (mut world, client) = World::with_client();
    let next = client + 1;
    let theirs = world.created_by_router(next);
    for turn in 0..1000 {
        world.advance(millis(1400));
        match turn % 4 {
            0 => world.send_cell(client, CIRCUIT, Command::RELAY, &[1; BODY_LEN]),
            1 => world.send_cell(next, theirs, Command::RELAY, &[2; BODY_LEN]),
            2 => world.send_cell(client, CircId::LINK, Command::PADDING, &[]),
            _ => world.negotiate(client, true, 0, 0),
        }
    }
    assert_eq!(world.records[client].padding, []);
    assert!(!world.pauses_in(client, millis(9500)).is_empty());
}

#[test]
fn pauses_between_cells_at_random_times_stay_within_the_limits() {
    let (mut world, client) = World::with_client();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..5000 {
        world.advance(millis(u64::from(rng.next_u32() % 12_000)));
        // An observer that records pauses of ten seconds never sees one.
        assert!(world.now - world.peers[client].active_at < millis(9500));
        world.send_cell(client, CIRCUIT, Command::RELAY, &[1; BODY_LEN]);
    }
    let pauses = world.records[client].pauses();
    assert!(pauses.len() > 1000);
    assert!(pauses.iter().all(|pause| (millis(1500)..millis(9500)).contains(pause)));
    // Long pauses are interrupted more often than short ones.
    assert!(mean(&pauses) < millis(6700));
}

#[test]
fn no_padding_is_sent_while_cells_are_queued_and_it_resumes_afterwards() {
    let (mut world, client) = World::with_client();
    let next = client + 1;
    let theirs = world.created_by_router(next);
    world.advance(millis(1));
    world.peers[client].reads = false;
    world.send_cell(next, theirs, Command::RELAY, &[2; BODY_LEN]);
    let received = world.records[client].received.len();
    world.advance(HOUR);
    world.resume(client);
    assert_eq!(world.records[client].padding, []);
    assert_eq!(world.records[client].received.len(), received + 1);
    let pauses = world.pauses_in(client, Duration::from_mins(5));
    assert!(pauses.len() > 30 && pauses.iter().all(|pause| *pause >= millis(1500)));

    // A padding cell is queued like any other; no second one is queued behind it.
    world.peers[client].reads = false;
    assert_eq!(world.pauses_in(client, HOUR), []);
    world.resume(client);
    assert_eq!(world.records[client].padding.len(), 1);
}

#[test]
fn idle_links_wake_the_router_about_once_per_padding_cell() {
    let mut world = World::new();
    for _ in 0..500 {
        let client = world.accept(onion::link::Authentication::Anonymous);
        world.build(client, CIRCUIT);
        world.advance(millis(17));
    }
    world.advance(millis(20_000));
    world.records.iter_mut().for_each(|record| record.padding.clear());
    let before = world.wakeups;
    world.advance(Duration::from_mins(1));
    let cells: usize = world.records.iter().map(|record| record.padding.len()).sum();
    let wakeups = world.wakeups - before;
    assert!((4000..5000).contains(&cells), "{cells} cells");
    assert!(wakeups < cells as u64 + 10 * 60 + 10, "{wakeups} wakeups for {cells} cells");
}
