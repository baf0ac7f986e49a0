//! Peers that send more padding than padding-spec permits.

use super::world::{CIRCUIT, LinkIndex, World, config};
use onion::Duration;
use onion::cell::relay::RelayCommand;
use onion::cell::{BODY_LEN, CircId, Command};
use onion::link::Authentication;
use onion::router::{KnownRelays, RouterEvent};
use testkit::vectors;

/// Reports of closed links.
fn reports(world: &mut World) -> Vec<RouterEvent> {
    let is_it = |event: &RouterEvent| matches!(event, RouterEvent::PaddingRefused { .. });
    std::iter::from_fn(|| world.router.poll_event()).filter(is_it).collect()
}

/// Sends until the link is closed, at most this number; returns the number sent.
fn flood(
    world: &mut World,
    link: LinkIndex,
    most: u32,
    mut send: impl FnMut(&mut World, LinkIndex),
) -> u32 {
    for sent in 0..most {
        if world.is_closed(link) {
            return sent;
        }
        send(world, link);
    }
    most
}

#[test]
fn a_link_with_far_more_padding_than_permitted_is_closed_and_reported() {
    let cell = |command: u8| {
        move |world: &mut World, link| {
            world.send_cell(link, CircId::LINK, Command::new(command), &[]);
        }
    };
    let vpadding = |len: usize| {
        move |world: &mut World, link| {
            world.send_cell(link, CircId::LINK, Command::VPADDING, &vec![0; len]);
        }
    };
    let drop = |world: &mut World, link| {
        world.send_message(link, CIRCUIT, Command::RELAY, RelayCommand::DROP, &[]);
    };
    type Send = Box<dyn FnMut(&mut World, LinkIndex)>;
    // Four times 10 s / 1.5 s, and 32; in long cells fewer. 99 and 150 are unknown commands.
    let floods: [(&str, Send, u32); 7] = [
        ("PADDING", Box::new(cell(Command::PADDING.get())), 61),
        ("unknown", Box::new(cell(99)), 61),
        ("NETINFO", Box::new(cell(Command::NETINFO.get())), 61),
        ("PADDING_NEGOTIATE", Box::new(cell(Command::PADDING_NEGOTIATE.get())), 61),
        ("short VPADDING", Box::new(vpadding(0)), 61),
        ("long VPADDING", Box::new(vpadding(16_000)), 2),
        ("DROP", Box::new(drop), 61),
    ];
    for (name, send, expected) in floods {
        let mut world = World::new();
        let link = world.accept(Authentication::Anonymous);
        world.create(link, CIRCUIT);
        assert_eq!(flood(&mut world, link, 1_000, send), expected, "{name}");
        assert_eq!(reports(&mut world), [RouterEvent::PaddingRefused { peer: None }], "{name}");
        assert_eq!(world.router.totals().padding_refused, 1);
        assert_eq!(world.router.open_circuits(), 0);
    }
}

#[test]
fn permitted_padding_keepalives_and_cells_of_closed_circuits_are_no_excess() {
    let (mut world, link) = World::with_client();
    for _ in 0..4_000 {
        world.advance(Duration::from_millis(500));
        world.send_cell(link, CircId::LINK, Command::PADDING, &[]);
    }
    // A client does not know yet that its circuit is closed.
    let gone = CircId::of_initiator(77);
    for _ in 0..2_000 {
        world.send_cell(link, gone, Command::RELAY, &[1; BODY_LEN]);
    }
    assert!(!world.is_closed(link));
    assert_eq!(reports(&mut world), []);
}

#[test]
fn the_permitted_padding_follows_the_consensus() {
    let mut world = World::new();
    world.set_parameters(&[("nf_ito_low", 100), ("nf_ito_high", 200)]);
    let link = world.accept(Authentication::Anonymous);
    let send = |world: &mut World, link| world.send_cell(link, CircId::LINK, Command::PADDING, &[]);
    assert_eq!(flood(&mut world, link, 1_000, send), 433);
}

#[test]
fn a_listed_relay_keeps_its_link_and_another_relay_does_not() {
    let other = vectors::IDENTITIES.other.rsa;
    for (listed, is_closed) in [(vec![other], false), (vec![], true)] {
        let mut config = config();
        config.relays = KnownRelays::default().with_identities(listed);
        let mut world = World::with_config(config);
        let link = world.accept_relay();
        let send =
            |world: &mut World, link| world.send_cell(link, CircId::LINK, Command::PADDING, &[]);
        assert_eq!(flood(&mut world, link, 1_000, send), if is_closed { 61 } else { 1_000 });
        let expected = is_closed.then_some(RouterEvent::PaddingRefused { peer: Some(other) });
        assert_eq!(reports(&mut world), expected.as_slice());
    }
}

#[test]
fn a_relay_that_forwards_the_padding_of_a_client_keeps_its_link() {
    let mut world = World::new();
    let link = world.accept_relay();
    world.create(link, CIRCUIT);
    for _ in 0..1_000 {
        world.send_message(link, CIRCUIT, Command::RELAY, RelayCommand::DROP, &[]);
    }
    assert!(!world.is_closed(link));
}
