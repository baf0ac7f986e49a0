//! Our link to a relay, replayed.

use super::{OwnedCell, but_netinfo, cells, feed, find, output};
use onion::cell::msg::{NetInfo, encode_versions_cell};
use onion::cell::{CircId, Command, FrameError, LinkProtocol};
use onion::identity::{Ed25519Id, RsaId};
use onion::link::{Authentication, CertError, Channel, ChannelError};
use proptest::prelude::*;
use std::sync::Arc;
use testkit::vectors::{Scene, identity_link, link_to_relay};

fn channel(scene: &Scene, authentication: Authentication) -> Channel {
    let tls = scene.tls(&identity_link().rsa_sha256);
    let (random, now_s) = (scene.array("random"), scene.u64("unix_time_s"));
    Channel::initiator(scene.expected_peer(), authentication, &tls, random, now_s).expect("usable")
}

fn as_relay(scene: &Scene) -> Channel {
    channel(scene, Authentication::AsRelay(Arc::new(identity_link())))
}

fn anonymous(scene: &Scene) -> Channel {
    channel(scene, Authentication::Anonymous)
}

#[test]
fn the_link_opens_with_the_recorded_output() {
    let scene = link_to_relay();
    let mut channel = as_relay(&scene);
    feed(&mut channel, scene.get("heard")).expect("honest");
    assert!(channel.is_open());
    assert_eq!(channel.protocol(), Some(LinkProtocol::V5));
    assert_eq!(channel.peer().map(|peer| peer.ids), Some(scene.expected_peer().ids));
    assert_eq!(but_netinfo(&output(&mut channel)), but_netinfo(scene.get("said")));
}

#[test]
fn the_link_opens_for_anonymous_clients() {
    let scene = link_to_relay();
    let mut channel = anonymous(&scene);
    feed(&mut channel, scene.get("heard")).expect("honest");
    assert!(channel.is_open());
    let said = output(&mut channel);
    let said = cells(&said);
    assert_eq!(super::commands(&said), [Command::VERSIONS, Command::NETINFO]);
    let info = NetInfo::parse(&find(&said, Command::NETINFO).body).expect("well-formed");
    let other = Some(scene.address("address").ip());
    assert_eq!(info, NetInfo { timestamp: 0, other, mine: vec![] }, "as tor's clients");
}

/// An unmodified relay ignores the unknown version: the link is the same as without it.
#[test]
fn hop_windows_are_offered_in_versions_and_absent_with_c_tor() {
    let scene = link_to_relay();
    let mut channel = anonymous(&scene).offering_feedback();
    feed(&mut channel, scene.get("heard")).expect("honest");
    assert!(channel.is_open());
    assert_eq!(channel.protocol(), Some(LinkProtocol::V5));
    let said = output(&mut channel);
    let offer = encode_versions_cell(&LinkProtocol::SUPPORTED_WITH_FEEDBACK);
    assert!(said.starts_with(&offer), "and nothing before");
    let said = cells(&said);
    assert_eq!(super::commands(&said), [Command::VERSIONS, Command::NETINFO]);
}

#[test]
fn a_link_has_hop_windows_if_both_sides_offer_them() {
    let both = LinkProtocol::offer(true);
    for (ours, theirs, expected) in [
        (both, both, LinkProtocol::V5WithFeedback),
        (both, LinkProtocol::offer(false), LinkProtocol::V5),
        (LinkProtocol::offer(false), both, LinkProtocol::V5),
    ] {
        assert_eq!(LinkProtocol::highest(ours, theirs.iter().copied()), Some(expected));
    }
}

#[test]
fn netinfo_contains_time_and_addresses() {
    let scene = link_to_relay();
    let own = [[10, 0, 0, 7].into(), [0x20; 16].into()];
    let mut channel = as_relay(&scene).at_addresses(&own);
    feed(&mut channel, scene.get("heard")).expect("honest");
    assert!(channel.is_canonical(), "C tor confirms that it has the address which we dialled");
    let said = cells(&output(&mut channel));
    let info = NetInfo::parse(&find(&said, Command::NETINFO).body).expect("well-formed");
    let timestamp = scene.u64("unix_time_s").try_into().expect("before 2106");
    let other = Some(scene.address("address").ip());
    assert_eq!(info, NetInfo { timestamp, other, mine: own.to_vec() });
}

#[test]
fn the_link_opens_in_pieces_of_any_length() {
    let scene = link_to_relay();
    let heard = scene.get("heard");
    for piece_len in [1, 2, 3, 5, 7, 11, 64, 513, 514, 515] {
        let mut channel = as_relay(&scene);
        for piece in heard.chunks(piece_len) {
            assert!(!channel.is_open());
            feed(&mut channel, piece).expect("honest");
        }
        assert!(channel.is_open(), "in pieces of {piece_len}");
        assert_eq!(but_netinfo(&output(&mut channel)), but_netinfo(scene.get("said")));
    }
}

#[test]
fn an_incomplete_stream_does_not_open_the_link_and_is_no_error() {
    let scene = link_to_relay();
    let heard = scene.get("heard");
    for at in 0..heard.len() {
        let mut channel = anonymous(&scene);
        let (first, second) = heard.split_at(at);
        feed(&mut channel, first).expect("no error yet");
        assert!(!channel.is_open(), "after {at} bytes");
        feed(&mut channel, second).expect("honest");
        assert!(channel.is_open(), "cut at {at}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cut_opens_the_link(cuts in prop::collection::vec(1usize..700, 0..40)) {
        let scene = link_to_relay();
        let mut channel = as_relay(&scene);
        let mut rest = scene.get("heard");
        for cut in cuts {
            let (piece, later) = rest.split_at(cut.min(rest.len()));
            feed(&mut channel, piece).expect("honest");
            rest = later;
        }
        feed(&mut channel, rest).expect("honest");
        prop_assert!(channel.is_open());
        let said = output(&mut channel);
        prop_assert_eq!(but_netinfo(&said), but_netinfo(scene.get("said")));
    }
}

/// The result of receiving these cells in this order.
fn outcome(scene: &Scene, order: &[&OwnedCell]) -> Result<bool, ChannelError> {
    let mut channel = as_relay(scene);
    let stream: Vec<u8> = order.iter().flat_map(|cell| cell.bytes()).collect();
    let result = feed(&mut channel, &stream);
    if result.is_err() {
        // Not even the honest handshake saves it.
        let _ = feed(&mut channel, scene.get("heard"));
        assert!(!channel.is_open());
    }
    result.map(|()| channel.is_open())
}

#[test]
fn cells_in_another_order_are_refused() {
    let scene = link_to_relay();
    let cells = cells(scene.get("heard"));
    let [versions, certs, challenge, netinfo] = &cells[..] else { panic!("{cells:?}") };
    let unexpected = |command| Err(ChannelError::Unexpected(command));
    let outcome = |order: &[&OwnedCell]| outcome(&scene, order);

    assert_eq!(outcome(&[versions, certs, challenge, netinfo]), Ok(true));
    assert_eq!(outcome(&[versions, netinfo]), unexpected(Command::NETINFO));
    assert_eq!(outcome(&[versions, challenge, netinfo]), unexpected(Command::NETINFO));
    // Without a challenge there is nothing to answer.
    let unanswerable = Err(ChannelError::CannotAuthenticate);
    assert_eq!(outcome(&[versions, certs, netinfo]), unanswerable);
    assert_eq!(outcome(&[versions, certs, certs]), unexpected(Command::CERTS));
    let twice = [versions, challenge, challenge];
    assert_eq!(outcome(&twice), unexpected(Command::AUTH_CHALLENGE));
    for early in [Command::RELAY, Command::CREATE2, Command::DESTROY, Command::AUTHENTICATE] {
        let cell = OwnedCell { circ_id: CircId::new(7), ..OwnedCell::new(early, &[0; 60]) };
        assert_eq!(outcome(&[versions, &cell]), unexpected(early));
    }
    // Circuit IDs have two bytes until VERSIONS, so others begin with command zero.
    for first in [certs, challenge, netinfo] {
        let error = FrameError::NotVersions(Command::PADDING);
        assert_eq!(outcome(&[first, versions]), Err(ChannelError::Frame(error)));
    }
    // A second VERSIONS cell has the wide header, if any.
    let mut again = vec![0, 0];
    again.extend(versions.bytes());
    let mut channel = as_relay(&scene);
    feed(&mut channel, &versions.bytes()).expect("honest");
    assert_eq!(feed(&mut channel, &again), unexpected(Command::VERSIONS).map(|_: bool| ()));
}

#[test]
fn padding_between_cells_is_ignored() {
    let scene = link_to_relay();
    let cells = cells(scene.get("heard"));
    for padding in [Command::PADDING, Command::VPADDING] {
        for place in 1..=cells.len() - 1 {
            let mut stuffed = cells.clone();
            stuffed.insert(place, OwnedCell::new(padding, &[0; 3]));
            let stuffed: Vec<&OwnedCell> = stuffed.iter().collect();
            assert_eq!(outcome(&scene, &stuffed), Ok(true), "{padding} at {place}");
        }
    }
}

#[test]
fn old_versions_alone_are_refused() {
    let scene = link_to_relay();
    let mut channel = anonymous(&scene);
    let error = feed(&mut channel, &encode_versions_cell(&[1, 2, 3]));
    assert_eq!(error, Err(ChannelError::NoCommonVersion));
}

#[test]
fn another_relay_is_refused() {
    let scene = link_to_relay();
    let honest = scene.expected_peer();
    let mut other_rsa = honest;
    other_rsa.ids.rsa = RsaId([1; 20]);
    let mut other_ed25519 = honest;
    other_ed25519.ids.ed25519 = Some(Ed25519Id([1; 32]));
    for expected in [other_rsa, other_ed25519] {
        let (tls, now_s) = (scene.tls(&[]), scene.u64("unix_time_s"));
        let mut channel =
            Channel::initiator(expected, Authentication::Anonymous, &tls, [0; 24], now_s)
                .expect("usable");
        let error = feed(&mut channel, scene.get("heard"));
        let (expected, found) = (expected.ids, honest.ids);
        assert_eq!(error, Err(ChannelError::WrongIdentity { expected, found }));
    }
    let mut unknown_ed25519 = honest;
    unknown_ed25519.ids.ed25519 = None;
    let (tls, now_s) = (scene.tls(&[]), scene.u64("unix_time_s"));
    let mut channel =
        Channel::initiator(unknown_ed25519, Authentication::Anonymous, &tls, [0; 24], now_s)
            .expect("usable");
    feed(&mut channel, scene.get("heard")).expect("the RSA identity suffices");
}

#[test]
fn expired_certificates_are_refused() {
    let scene = link_to_relay();
    let much_later = scene.u64("unix_time_s") + 10 * 365 * 24 * 3600;
    let (expected, tls) = (scene.expected_peer(), scene.tls(&[]));
    let mut channel =
        Channel::initiator(expected, Authentication::Anonymous, &tls, [0; 24], much_later)
            .expect("usable");
    let error = feed(&mut channel, scene.get("heard"));
    assert!(matches!(error, Err(ChannelError::Certs(CertError::NotValidNow { .. }))), "{error:?}");
}

#[test]
fn no_flipped_bit_causes_another_identity_or_a_panic() {
    let scene = link_to_relay();
    let ids = scene.expected_peer().ids;
    let mut heard = scene.get("heard").to_vec();
    for at in 0..heard.len() {
        let mask = 1 << (at % 8);
        heard[at] ^= mask;
        let mut channel = anonymous(&scene);
        let mut rest = &heard[..];
        // A cell may come out, where NETINFO's place or length is not what it was.
        while let Ok(Some(_)) = channel.handle_bytes(&mut rest) {}
        if channel.is_open() {
            assert_eq!(channel.peer().map(|peer| peer.ids), Some(ids), "byte {at}");
        }
        heard[at] ^= mask;
    }
}
