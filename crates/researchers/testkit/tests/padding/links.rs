//! Which links are padded.

use super::world::{CIRCUIT, World, config};
use onion::Duration;
use onion::cell::msg::DestroyReason;
use onion::cell::relay::RelayCommand;
use onion::cell::{BODY_LEN, CircId, Command};
use onion::link::Authentication;
use onion::node::Node;
use onion::router::RouterConfig;

const TEN_MINUTES: Duration = Duration::from_mins(10);

impl World {
    fn is_padded(&mut self, index: usize) -> bool {
        !self.pauses_in(index, TEN_MINUTES).is_empty()
    }
}

#[test]
fn links_between_relays_are_padded_only_if_the_consensus_says_so() {
    let mut world = World::new();
    let drop = RelayCommand::DROP;
    let client = world.accept(Authentication::Anonymous);
    world.build(client, CIRCUIT);
    let dialled = client + 1;
    let relay = world.accept_relay();
    world.create(relay, CIRCUIT);
    world.send_message(relay, CIRCUIT, Command::RELAY_EARLY, drop, &[]);
    world.send_message(relay, CIRCUIT, Command::RELAY, drop, &[]);
    world.negotiate(relay, true, 0, 0);
    assert!(!world.is_padded(relay));
    assert_eq!(world.records[dialled].padding, []);

    // As in C tor, links are padded that the peer uses, not those that the router uses.
    world.set_parameters(&[("nf_pad_relays", 1)]);
    assert!(world.is_padded(relay));
    assert_eq!(world.records[dialled].padding, []);
    world.negotiate(relay, false, 0, 0);
    assert!(!world.is_padded(relay), "C tor accepts this from relays, too");

    let theirs = CircId::new(5);
    world.create(dialled, theirs);
    assert!(!world.is_padded(dialled));
    world.send_message(dialled, theirs, Command::RELAY_EARLY, drop, &[]);
    assert!(world.is_padded(dialled));
    world.set_parameters(&[]);
    assert!(!world.is_padded(dialled));
}

#[test]
fn a_clients_link_is_padded_once_a_circuit_extends_beyond_the_router() {
    let mut world = World::new();
    let client = world.accept(Authentication::Anonymous);
    world.create(client, CIRCUIT);
    // Directory requests: the circuit ends at the router.
    for cell in [Command::RELAY_EARLY, Command::RELAY] {
        world.send_message(client, CIRCUIT, cell, RelayCommand::DROP, &[]);
        assert!(!world.is_padded(client));
    }
    let other = CircId::of_initiator(2);
    world.extend(client, other);
    assert!(!world.is_padded(client), "no cell has passed");
    world.send_cell(client, other, Command::RELAY_EARLY, &[8; BODY_LEN]);
    assert!(world.is_padded(client));
    // Padding continues after the circuit.
    world.send_cell(client, other, Command::DESTROY, &[DestroyReason::REQUESTED.get()]);
    assert!(world.is_padded(client));
}

#[test]
fn without_padding_before_usage_padding_starts_with_a_relay_cell_in_either_direction() {
    for is_from_client in [true, false] {
        let mut world = World::new();
        world.set_parameters(&[("nf_pad_before_usage", 0)]);
        let client = world.accept(Authentication::Anonymous);
        world.build(client, CIRCUIT);
        assert!(!world.is_padded(client));
        if is_from_client {
            world.send_cell(client, CIRCUIT, Command::RELAY, &[1; BODY_LEN]);
        } else {
            let theirs = world.created_by_router(client + 1);
            world.send_cell(client + 1, theirs, Command::RELAY, &[2; BODY_LEN]);
        }
        assert!(world.is_padded(client));
    }
}

#[test]
fn the_consensus_turns_padding_off_and_on_unless_the_configuration_disables_it() {
    let (mut world, client) = World::with_client();
    assert!(world.is_padded(client));
    world.set_parameters(&[("nf_ito_low", 0), ("nf_ito_high", 0)]);
    assert!(!world.is_padded(client));
    world.negotiate(client, true, 2000, 3000);
    assert!(!world.is_padded(client));
    world.set_parameters(&[("nf_ito_low", 0)]);
    assert!(world.is_padded(client));

    let mut world = World::with_config(RouterConfig { padding: false, ..config() });
    let client = world.accept(Authentication::Anonymous);
    world.build(client, CIRCUIT);
    world.negotiate(client, true, 0, 0);
    assert!(!world.is_padded(client));
}

#[test]
fn padding_keeps_no_link_open_and_is_not_counted_as_client_traffic() {
    let (mut world, client) = World::with_client();
    let next = client + 1;
    let sent = world.router.totals().client_bytes;
    assert!(world.is_padded(client));
    assert_eq!(world.router.totals().client_bytes, sent);
    world.send_cell(client, CIRCUIT, Command::DESTROY, &[DestroyReason::REQUESTED.get()]);
    let began = world.now;
    let mut open_for = |index: usize| {
        while !world.is_closed(index) {
            world.advance(Duration::from_secs(1));
            assert!(world.now - began < Duration::from_hours(2), "it stays open");
        }
        (world.now - began, world.records[index].padding.last().map(|(at, _)| world.now - *at))
    };
    // Between 3 and 4.5 minutes, and 45 and 75 between relays (padding-spec §2.6, C tor). The router checks
    // every ten seconds.
    let (time, since_padded) = open_for(client);
    assert!((170..290).contains(&time.as_secs()), "{time:?}");
    assert!(since_padded.is_some_and(|since| since < Duration::from_secs(10)));
    let (time, since_padded) = open_for(next);
    assert!((44 * 60..76 * 60).contains(&time.as_secs()), "{time:?}");
    assert_eq!(since_padded, None);
    assert_eq!(world.router.poll_timeout(), None, "no timeout is left");
}

#[test]
fn links_between_relays_are_kept_for_the_time_in_the_consensus() {
    let (mut world, client) = World::with_parameters(&[("nf_conntimeout_relays", 120)]);
    world.close_link(client);
    world.advance(Duration::from_secs(80));
    assert!(!world.is_closed(client + 1));
    world.advance(Duration::from_secs(80));
    assert!(world.is_closed(client + 1));
}

#[test]
fn a_link_to_a_relay_that_does_not_claim_the_dialled_address_is_not_kept_long() {
    let mut world = World::new();
    world.claims.clear();
    let client = world.accept(Authentication::Anonymous);
    world.build(client, CIRCUIT);
    world.close_link(client);
    world.advance(Duration::from_secs(170));
    assert!(!world.is_closed(client + 1));
    world.advance(Duration::from_secs(130));
    assert!(world.is_closed(client + 1));
}

#[test]
fn failed_dials_do_not_block_later_ones() {
    let mut world = World::new();
    let client = world.accept(Authentication::Anonymous);
    world.refuses = true;
    // More than the limit on simultaneous dials.
    for number in 2..400 {
        let circ_id = CircId::of_initiator(number);
        world.send_extend(client, circ_id);
        world.send_cell(client, circ_id, Command::DESTROY, &[0]);
    }
    world.refuses = false;
    world.build(client, CIRCUIT);
    // Established links do not, either.
    for number in 400..800 {
        world.close_link(client + 1);
        world.forget_from(client + 1);
        world.build(client, CircId::of_initiator(number));
    }
}

#[test]
fn a_closed_link_leaves_no_timeout() {
    for millis in (0..9000).step_by(500) {
        let (mut world, client) = World::with_client();
        world.advance(Duration::from_millis(millis));
        world.close_link(client);
        world.close_link(client + 1);
        assert_eq!(world.router.poll_timeout(), None, "after {millis} ms");
    }
}
