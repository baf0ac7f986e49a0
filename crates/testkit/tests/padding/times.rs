//! When cells come.

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

/// The part of them that is shorter.
fn part_below(pauses: &[Duration], bound: Duration) -> f64 {
    pauses.iter().filter(|pause| **pause < bound).count() as f64 / pauses.len() as f64
}

#[test]
fn an_idle_links_pauses_are_the_greater_of_two_drawn_between_the_limits() {
    let (mut world, client) = World::with_client();
    let pauses = world.pauses_in(client, 12 * HOUR);
    assert!(pauses.iter().all(|pause| (millis(1500)..millis(9500)).contains(pause)));
    // Of one end alone: 1500 + 5333 ms (padding-spec §2.3). Over six thousand of them the mean is good
    // to some 25 ms.
    let middle = mean(&pauses);
    assert!((millis(6700)..millis(6970)).contains(&middle), "{middle:?} of {}", pauses.len());
    for (bound_ms, expected) in [(3500, 0.0625), (5500, 0.25), (7500, 0.5625)] {
        let part = part_below(&pauses, millis(bound_ms));
        assert!((part - expected).abs() < 0.02, "{part} below {bound_ms} ms");
    }
    // No grid shows which cells are padding.
    let off_grid = pauses.iter().filter(|pause| pause.as_millis() % 100 != 0).count();
    assert!(off_grid > pauses.len() / 2);
}

#[test]
fn what_passes_either_way_postpones_it() {
    let (mut world, client) = World::with_client();
    let next = client + 1;
    let theirs = world.opened_by_router(next);
    for turn in 0..1000 {
        world.pass(millis(1400));
        match turn % 4 {
            0 => world.say(client, CIRCUIT, Command::RELAY, &[1; BODY_LEN]),
            1 => world.say(next, theirs, Command::RELAY, &[2; BODY_LEN]),
            2 => world.say(client, CircId::LINK, Command::PADDING, &[]),
            _ => world.negotiate(client, true, 0, 0),
        }
    }
    assert_eq!(world.heard[client].padded, []);
    assert!(!world.pauses_in(client, millis(9500)).is_empty());
}

#[test]
fn between_cells_at_any_times_pauses_stay_between_the_limits() {
    let (mut world, client) = World::with_client();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for _ in 0..5000 {
        world.pass(millis(u64::from(rng.next_u32() % 12_000)));
        // Nobody who writes down pauses of ten seconds has seen one.
        assert!(world.now - world.ends[client].active_at < millis(9500));
        world.say(client, CIRCUIT, Command::RELAY, &[1; BODY_LEN]);
    }
    let pauses = world.heard[client].pauses();
    assert!(pauses.len() > 1000);
    assert!(pauses.iter().all(|pause| (millis(1500)..millis(9500)).contains(pause)));
    // Long pauses are interrupted more often than short ones.
    assert!(mean(&pauses) < millis(6700));
}

#[test]
fn nothing_goes_where_cells_wait_and_padding_goes_on_after_them() {
    let (mut world, client) = World::with_client();
    let next = client + 1;
    let theirs = world.opened_by_router(next);
    world.pass(millis(1));
    world.ends[client].reads = false;
    world.say(next, theirs, Command::RELAY, &[2; BODY_LEN]);
    let heard = world.heard[client].came.len();
    world.pass(HOUR);
    world.release(client);
    assert_eq!(world.heard[client].padded, []);
    assert_eq!(world.heard[client].came.len(), heard + 1);
    let pauses = world.pauses_in(client, Duration::from_mins(5));
    assert!(pauses.len() > 30 && pauses.iter().all(|pause| *pause >= millis(1500)));

    // A cell of padding waits as any other does; a second one does not join it.
    world.ends[client].reads = false;
    assert_eq!(world.pauses_in(client, HOUR), []);
    world.release(client);
    assert_eq!(world.heard[client].padded.len(), 1);
}

#[test]
fn thousands_of_idle_links_wake_the_router_once_for_each_cell_and_rarely_besides() {
    let mut world = World::new();
    for _ in 0..500 {
        let client = world.accept(onion::link::Authentication::Anonymous);
        world.build(client, CIRCUIT);
        world.pass(millis(17));
    }
    world.pass(millis(20_000));
    world.heard.iter_mut().for_each(|heard| heard.padded.clear());
    let before = world.wakings;
    world.pass(Duration::from_mins(1));
    let cells: usize = world.heard.iter().map(|heard| heard.padded.len()).sum();
    let wakings = world.wakings - before;
    assert!((4000..5000).contains(&cells), "{cells} cells");
    assert!(wakings < cells as u64 + 10 * 60 + 10, "{wakings} wakings for {cells} cells");
}
