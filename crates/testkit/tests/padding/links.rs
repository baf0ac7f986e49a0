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
    fn is_padded(&mut self, place: usize) -> bool {
        !self.pauses_in(place, TEN_MINUTES).is_empty()
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
    world.say_message(relay, CIRCUIT, Command::RELAY_EARLY, drop, &[]);
    world.say_message(relay, CIRCUIT, Command::RELAY, drop, &[]);
    world.negotiate(relay, true, 0, 0);
    assert!(!world.is_padded(relay));
    assert_eq!(world.heard[dialled].padded, []);

    // As in C tor, what the other side uses is padded, and not what we use ourselves.
    world.set(&[("nf_pad_relays", 1)]);
    assert!(world.is_padded(relay));
    assert_eq!(world.heard[dialled].padded, []);
    world.negotiate(relay, false, 0, 0);
    assert!(!world.is_padded(relay), "C tor takes that from relays, too");

    let theirs = CircId::new(5);
    world.create(dialled, theirs);
    assert!(!world.is_padded(dialled));
    world.say_message(dialled, theirs, Command::RELAY_EARLY, drop, &[]);
    assert!(world.is_padded(dialled));
    world.set(&[]);
    assert!(!world.is_padded(dialled));
}

#[test]
fn a_clients_link_is_padded_from_its_first_circuit_of_several_hops_on() {
    let mut world = World::new();
    let client = world.accept(Authentication::Anonymous);
    world.create(client, CIRCUIT);
    // Directory requests: the circuit ends at the router.
    for cell in [Command::RELAY_EARLY, Command::RELAY] {
        world.say_message(client, CIRCUIT, cell, RelayCommand::DROP, &[]);
        assert!(!world.is_padded(client));
    }
    let other = CircId::of_initiator(2);
    world.extend(client, other);
    assert!(!world.is_padded(client), "nothing has gone through");
    world.say(client, other, Command::RELAY_EARLY, &[8; BODY_LEN]);
    assert!(world.is_padded(client));
    // It stays so when the circuit is gone.
    world.say(client, other, Command::DESTROY, &[DestroyReason::REQUESTED.get()]);
    assert!(world.is_padded(client));
}

#[test]
fn without_padding_before_usage_a_link_waits_for_a_relay_cell_of_either_way() {
    for is_from_client in [true, false] {
        let mut world = World::new();
        world.set(&[("nf_pad_before_usage", 0)]);
        let client = world.accept(Authentication::Anonymous);
        world.build(client, CIRCUIT);
        assert!(!world.is_padded(client));
        if is_from_client {
            world.say(client, CIRCUIT, Command::RELAY, &[1; BODY_LEN]);
        } else {
            let theirs = world.opened_by_router(client + 1);
            world.say(client + 1, theirs, Command::RELAY, &[2; BODY_LEN]);
        }
        assert!(world.is_padded(client));
    }
}

#[test]
fn a_consensus_turns_it_off_and_on_and_a_relay_that_must_not_never_does() {
    let (mut world, client) = World::with_client();
    assert!(world.is_padded(client));
    world.set(&[("nf_ito_low", 0), ("nf_ito_high", 0)]);
    assert!(!world.is_padded(client));
    world.negotiate(client, true, 2000, 3000);
    assert!(!world.is_padded(client));
    world.set(&[("nf_ito_low", 0)]);
    assert!(world.is_padded(client));

    let mut world = World::with(RouterConfig { padding: false, ..config() });
    let client = world.accept(Authentication::Anonymous);
    world.build(client, CIRCUIT);
    world.negotiate(client, true, 0, 0);
    assert!(!world.is_padded(client));
}

#[test]
fn padding_keeps_no_link_open_and_is_nobodys_traffic() {
    let (mut world, client) = World::with_client();
    let next = client + 1;
    let sent = world.router.totals().client_bytes;
    assert!(world.is_padded(client));
    assert_eq!(world.router.totals().client_bytes, sent);
    world.say(client, CIRCUIT, Command::DESTROY, &[DestroyReason::REQUESTED.get()]);
    let began = world.now;
    let mut open_for = |place: usize| {
        while !world.is_closed(place) {
            world.pass(Duration::from_secs(1));
            assert!(world.now - began < Duration::from_hours(2), "it stays open");
        }
        (world.now - began, world.heard[place].padded.last().map(|(at, _)| world.now - *at))
    };
    // Between 3 and 4.5 minutes, and 45 and 75 between relays (padding-spec §2.6, C tor); we look every
    // ten seconds.
    let (time, since_padded) = open_for(client);
    assert!((170..290).contains(&time.as_secs()), "{time:?}");
    assert!(since_padded.is_some_and(|since| since < Duration::from_secs(10)));
    let (time, since_padded) = open_for(next);
    assert!((44 * 60..76 * 60).contains(&time.as_secs()), "{time:?}");
    assert_eq!(since_padded, None);
    assert_eq!(world.router.poll_timeout(), None, "nothing is left");
}

#[test]
fn relays_links_stay_as_long_as_the_consensus_says() {
    let (mut world, client) = World::new_with(&[("nf_conntimeout_relays", 120)]);
    world.hang_up(client);
    world.pass(Duration::from_secs(80));
    assert!(!world.is_closed(client + 1));
    world.pass(Duration::from_secs(80));
    assert!(world.is_closed(client + 1));
}

#[test]
fn who_does_not_say_to_be_where_we_have_dialled_keeps_no_link_for_long() {
    let mut world = World::new();
    world.claims.clear();
    let client = world.accept(Authentication::Anonymous);
    world.build(client, CIRCUIT);
    world.hang_up(client);
    world.pass(Duration::from_secs(170));
    assert!(!world.is_closed(client + 1));
    world.pass(Duration::from_secs(130));
    assert!(world.is_closed(client + 1));
}

#[test]
fn dials_that_come_to_nothing_leave_room_for_others() {
    let mut world = World::new();
    let client = world.accept(Authentication::Anonymous);
    world.refuses = true;
    // More than may be under way at once.
    for number in 2..400 {
        let circ_id = CircId::of_initiator(number);
        world.ask_to_extend(client, circ_id);
        world.say(client, circ_id, Command::DESTROY, &[0]);
    }
    world.refuses = false;
    world.build(client, CIRCUIT);
    // Neither do those that have stood.
    for number in 400..800 {
        world.hang_up(client + 1);
        world.forget_from(client + 1);
        world.build(client, CircId::of_initiator(number));
    }
}

#[test]
fn a_link_that_is_gone_leaves_no_deadline_whenever_it_goes() {
    for millis in (0..9000).step_by(500) {
        let (mut world, client) = World::with_client();
        world.pass(Duration::from_millis(millis));
        world.hang_up(client);
        world.hang_up(client + 1);
        assert_eq!(world.router.poll_timeout(), None, "after {millis} ms");
    }
}
