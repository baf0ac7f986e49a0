use crate::input::Input;
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::circuit::{Builder, NextHop, Step};
use onion::crypto::{LayerKeys, RelayHop};
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use std::sync::OnceLock;
use testkit::vectors::{self, Scene};

/// Cells in any order, some of them the recorded relay's own, some sealed with its keys: the circuit
/// is built only by the recorded answer of the second hop.
pub fn two_hop(data: &[u8]) {
    static SCENE: OnceLock<Scene> = OnceLock::new();
    let scene = SCENE.get_or_init(vectors::circuit);
    let ids = RelayIds {
        rsa: RsaId(scene.array("next_rsa")),
        ed25519: Some(Ed25519Id(scene.array("next_ed25519"))),
    };
    let address = scene.address("next_address");
    let next = NextHop { address, ids, onion_key: scene.array("next_onion_key") };
    let circ_id = CircId::of_initiator(1);
    let mut two_hop: Builder =
        Builder::two_hops(circ_id, next, scene.array("x"), scene.array("ephemeral_secret"));
    let answer = &scene.bodies("created2")[0][2..66];

    let mut input = Input::new(data);
    let mut relay: Option<RelayHop> = None;
    while !input.is_empty() {
        let mut body = [0; BODY_LEN];
        let mut proves_itself = false;
        let command = match input.u8() % 5 {
            0 => {
                body.copy_from_slice(scene.bodies("created_fast")[0]);
                Command::CREATED_FAST
            }
            1 => {
                body.copy_from_slice(scene.bodies("extended2")[0]);
                proves_itself = true;
                Command::RELAY
            }
            // A message that the relay itself could send.
            kind @ 2..=3 => {
                let command = RelayCommand(input.u8());
                let stream_id = input.u16();
                let len = usize::from(input.u16()) % 499;
                let mut data = input.take(len).to_vec();
                if kind == 3 {
                    data.splice(0..0, [[0, 64].as_slice(), answer].concat());
                    data.truncate(498);
                }
                proves_itself = data.get(2..66) == Some(answer);
                let message = RelayMessage { command, stream_id, data: &data };
                body = message.to_body().expect("it fits");
                if let Some(relay) = &mut relay {
                    relay.originate(&mut body);
                }
                Command::RELAY
            }
            _ => {
                let (command, len) = (Command::new(input.u8()), usize::from(input.u16()));
                let taken = input.take(len.min(BODY_LEN));
                body[..taken.len()].copy_from_slice(taken);
                command
            }
        };
        let had_first = two_hop.first_hop_keys().is_some();
        match two_hop.handle_cell(command, &body) {
            Ok(Step::Send { command, .. }) => {
                assert_eq!(command, Command::RELAY_EARLY);
                assert!(!had_first, "the circuit is extended once");
                relay = two_hop.first_hop_keys().and_then(LayerKeys::tor1).map(RelayHop::new);
            }
            Ok(Step::Built) => {
                assert!(had_first && proves_itself, "built without proof");
                return;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                return; // the owner abandons it
            }
        }
        assert_eq!(two_hop.create().is_some(), two_hop.first_hop_keys().is_none());
    }
}
