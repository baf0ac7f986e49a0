//! Negotiation of padding.

use super::world::{CIRCUIT, World};
use onion::Duration;
use onion::cell::{CircId, Command};

const TEN_MINUTES: Duration = Duration::from_mins(10);

/// The shortest and the longest pause in four hours, in milliseconds.
fn range_ms(world: &mut World, client: usize) -> (u128, u128) {
    let pauses = world.pauses_in(client, Duration::from_hours(4));
    let of = |pause: Option<&Duration>| pause.expect("padded").as_millis();
    (of(pauses.iter().min()), of(pauses.iter().max()))
}

#[test]
fn a_client_can_stop_the_routers_padding_and_start_it_again() {
    let (mut world, client) = World::with_client();
    // C tor clients send this with ReducedConnectionPadding, or without ConnectionPadding.
    world.negotiate(client, false, 0, 0);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
    world.negotiate(client, true, 0, 0);
    let (least, most) = range_ms(&mut world, client);
    assert!((1500..2200).contains(&least) && (9400..9500).contains(&most), "{least}, {most}");
    assert!(
        world.records[client]
            .received
            .iter()
            .all(|(_, command)| *command != Command::PADDING_NEGOTIATE)
    );
}

#[test]
fn a_client_that_stops_padding_first_is_never_padded() {
    let mut world = World::new();
    let client = world.accept(onion::link::Authentication::Anonymous);
    world.negotiate(client, false, 0, 0);
    world.build(client, CIRCUIT);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
}

#[test]
fn clients_can_raise_but_not_lower_the_padding_limits() {
    let (mut world, client) = World::with_client();
    for (asked, (low, high)) in [
        ((20_000, 30_000), (20_000, 30_000)),
        ((1, 2), (1500, 9500)),
        ((5000, 6000), (5000, 9500)),
        ((0, 20_000), (1500, 20_000)),
        // Without an interval, the pause is constant.
        ((12_000, 0), (12_000, 12_001)),
    ] {
        world.negotiate(client, true, asked.0, asked.1);
        // Links are checked ten times a second. This lengthens the first pause by up to 100 ms, since it begins
        // between two checks; the others begin with a cell, at a check.
        world.advance(Duration::from_secs(31));
        let (least, most) = range_ms(&mut world, client);
        let slack = (high - low) / 7;
        assert!((low..=low + slack).contains(&least), "{least} for {asked:?}");
        assert!((high - slack - 1..high).contains(&most), "{most} for {asked:?}");
    }
    // Higher limits in a consensus take precedence, from the next cell on.
    world.negotiate(client, true, 5000, 6000);
    world.set_parameters(&[("nf_ito_low", 7000), ("nf_ito_high", 8000)]);
    world.advance(Duration::from_secs(30));
    let (least, most) = range_ms(&mut world, client);
    assert!((7000..7200).contains(&least) && (7900..8000).contains(&most), "{least}, {most}");
}

#[test]
fn malformed_negotiation_is_ignored() {
    let (mut world, client) = World::with_client();
    let negotiate = Command::PADDING_NEGOTIATE;
    // An unknown version, and unknown commands.
    for body in [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 3, 255, 255, 255, 255]] {
        world.send_cell(client, CircId::LINK, negotiate, &body);
        let pauses = world.pauses_in(client, TEN_MINUTES);
        assert!(pauses.len() > 70, "{} after {body:?}", pauses.len());
    }
    // The circuit ID does not matter, whether such a circuit exists or not.
    for circ_id in [CIRCUIT, CircId::new(7)] {
        world.send_cell(client, circ_id, negotiate, &[0, 1]);
        assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
        world.send_cell(client, circ_id, negotiate, &[0, 2]);
        assert!(!world.pauses_in(client, TEN_MINUTES).is_empty());
    }
    assert!(!world.is_closed(client));
}

#[test]
fn a_link_of_protocol_4_is_not_padded_and_ignores_negotiation() {
    let mut world = World::new();
    let client = world.accept_version_4();
    world.build(client, CIRCUIT);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
    world.negotiate(client, true, 0, 0);
    assert_eq!(world.pauses_in(client, TEN_MINUTES), []);
    assert!(!world.is_closed(client));
}

#[test]
fn negotiation_before_the_link_is_open_closes_it() {
    let mut world = World::new();
    let client = world.accept_early_negotiation();
    assert!(world.is_closed(client));
    assert_eq!(world.records[client].padding, []);
}
