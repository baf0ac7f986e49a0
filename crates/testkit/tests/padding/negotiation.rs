//! What peers ask for.

use super::world::{CIRCUIT, World};
use onion::Duration;
use onion::cell::{CircId, Command};

const TEN_MINUTES: Duration = Duration::from_mins(10);

/// The shortest and the longest pause of a while, in milliseconds.
fn range_ms(world: &mut World, client: usize) -> (u128, u128) {
    let pauses = world.pauses_in(client, Duration::from_hours(4));
    let of = |pause: Option<&Duration>| pause.expect("padded").as_millis();
    (of(pauses.iter().min()), of(pauses.iter().max()))
}

#[test]
fn a_client_that_pads_less_stops_ours_and_can_start_it_again() {
    let (mut world, client) = World::with_client();
    // What stock clients say with ReducedConnectionPadding, or without ConnectionPadding.
    world.negotiate(client, false, 0, 0);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
    world.negotiate(client, true, 0, 0);
    let (least, most) = range_ms(&mut world, client);
    assert!((1500..2200).contains(&least) && (9400..9500).contains(&most), "{least}, {most}");
    assert!(world.heard[client].came.iter().all(|(_, it)| *it != Command::PADDING_NEGOTIATE));
}

#[test]
fn a_client_that_stops_it_with_its_first_words_is_never_padded() {
    let mut world = World::new();
    let client = world.accept(onion::link::Authentication::Anonymous);
    world.negotiate(client, false, 0, 0);
    world.build(client, CIRCUIT);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
}

#[test]
fn limits_can_be_raised_and_not_lowered() {
    let (mut world, client) = World::with_client();
    for (asked, (low, high)) in [
        ((20_000, 30_000), (20_000, 30_000)),
        ((1, 2), (1500, 9500)),
        ((5000, 6000), (5000, 9500)),
        ((0, 20_000), (1500, 20_000)),
        // Where there is nothing between them nothing is drawn.
        ((12_000, 0), (12_000, 12_001)),
    ] {
        world.negotiate(client, true, asked.0, asked.1);
        // Links are looked at ten times a second: that makes the first pause longer by up to 100 ms, since it
        // begins between two looks. The others begin with a cell, at one.
        world.pass(Duration::from_secs(31));
        let (least, most) = range_ms(&mut world, client);
        let slack = (high - low) / 7;
        assert!((low..=low + slack).contains(&least), "{least} for {asked:?}");
        assert!((high - slack - 1..high).contains(&most), "{most} for {asked:?}");
    }
    // A consensus that asks for more goes before, from the next cell on.
    world.negotiate(client, true, 5000, 6000);
    world.set(&[("nf_ito_low", 7000), ("nf_ito_high", 8000)]);
    world.pass(Duration::from_secs(30));
    let (least, most) = range_ms(&mut world, client);
    assert!((7000..7200).contains(&least) && (7900..8000).contains(&most), "{least}, {most}");
}

#[test]
fn what_has_no_meaning_is_ignored() {
    let (mut world, client) = World::with_client();
    let negotiate = Command::PADDING_NEGOTIATE;
    // Another version, and neither start nor stop.
    for body in [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 3, 255, 255, 255, 255]] {
        world.say(client, CircId::LINK, negotiate, &body);
        let pauses = world.pauses_in(client, TEN_MINUTES);
        assert!(pauses.len() > 70, "{} after {body:?}", pauses.len());
    }
    // The ID of a circuit makes no difference, whether there is such a one or not.
    for circ_id in [CIRCUIT, CircId::new(7)] {
        world.say(client, circ_id, negotiate, &[0, 1]);
        assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
        world.say(client, circ_id, negotiate, &[0, 2]);
        assert!(!world.pauses_in(client, TEN_MINUTES).is_empty());
    }
    assert!(!world.is_closed(client));
}

#[test]
fn a_link_of_version_4_has_no_padding_and_nothing_to_negotiate() {
    let mut world = World::new();
    let client = world.accept_version_4();
    world.build(client, CIRCUIT);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
    world.negotiate(client, true, 0, 0);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
    assert!(!world.is_closed(client));
}

#[test]
fn who_negotiates_before_the_link_is_open_loses_it() {
    let mut world = World::new();
    let client = world.accept_hasty();
    assert!(world.is_closed(client));
    assert_eq!(world.heard[client].padded, []);
}
