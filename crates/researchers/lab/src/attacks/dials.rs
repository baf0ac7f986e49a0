//! Circuits to addresses that never answer.

use super::attacker::{Attacker, LineId};
use super::circuits::Circuit;
use super::{Attack, AttackError};
use onion::cell::Command;
use onion::cell::relay::{RelayCommand, RelayFormat};
use onion::cell_model::{CellModel, Handshake, Tor};
use onion::circuit::NextHop;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Addresses of the attacker, with a link each.
const LINES: usize = 24;

/// The number of addresses that never answer.
const HOLES: u8 = 16;

/// Maximum number of circuits that are being built, or wait to be extended.
const AT_ONCE: usize = 256;

/// Maximum number of waiting circuits. Beyond it, the oldest is destroyed.
const WAITING: usize = 20_000;

/// What happens to waiting circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Nothing: each requires a separate connection.
    Wait,
    /// They all wait for a few connections, and the oldest are destroyed.
    Destroy,
}

/// Makes the relay connect to addresses where TCP may be established, but never TLS.
pub(super) struct BlackHoles {
    after: After,
    /// Listeners whose connections are never accepted.
    holes: Vec<(SocketAddr, TcpListener)>,
    waiting: VecDeque<Circuit>,
    asked: u64,
}

impl BlackHoles {
    pub(super) fn new(after: After) -> Result<Self, AttackError> {
        let hole = |number: u8| {
            let listener = TcpListener::bind((Ipv4Addr::new(127, 67, 0, number), 0))?;
            Ok((listener.local_addr()?, listener))
        };
        let holes = (1..=HOLES).map(hole).collect::<Result<Vec<_>, std::io::Error>>()?;
        Ok(Self { after, holes, waiting: VecDeque::new(), asked: 0 })
    }

    /// A relay that does not exist.
    fn unreachable_relay(&mut self, attacker: &mut Attacker) -> Option<NextHop> {
        let count = self.holes.len() as u64;
        let place = usize::try_from(self.asked % count.max(1)).ok()?;
        let (address, _) = self.holes.get(place)?;
        // Each is a different relay, or one of the same few.
        let (rsa, ed25519) = match self.after {
            After::Wait => (attacker.random(), attacker.random()),
            After::Destroy => ([place.to_be_bytes()[7]; 20], [place.to_be_bytes()[7]; 32]),
        };
        self.asked += 1;
        let ids = RelayIds { rsa: RsaId(rsa), ed25519: Some(Ed25519Id(ed25519)) };
        Some(NextHop { address: *address, ids, onion_key: [9; 32] })
    }
}

impl Attack for BlackHoles {
    fn act(&mut self, attacker: &mut Attacker) {
        let lines = attacker.keep(LINES);
        for line in lines {
            if attacker.building() < AT_ONCE && attacker.can_send(line) {
                attacker.begin(line, &[]);
            }
        }
        let most = if self.after == After::Wait { WAITING / 10 } else { WAITING };
        while self.waiting.len() > most
            && let Some(oldest) = self.waiting.pop_front()
        {
            oldest.destroy(attacker);
        }
    }

    fn handle_built(&mut self, attacker: &mut Attacker, mut circuit: Circuit) {
        let Some(hop) = self.unreachable_relay(attacker) else { return };
        // The engine's own EXTEND2, whose layers are then those of the circuit.
        let half = <Tor as CellModel>::Handshake::ntor(&hop, [9; 32]);
        if let Ok(body) = onion::circuit::extend_body::<Tor>(&hop, &half, RelayFormat::V0)
            && let Ok(message) = onion::cell::relay::RelayMessage::parse(&body)
        {
            let (early, extend) = (Command::RELAY_EARLY, RelayCommand::EXTEND2);
            circuit.send_in(attacker, early, extend, 0, message.data);
            self.waiting.push_back(circuit);
        }
    }

    fn handle_lost(&mut self, line: LineId) {
        self.waiting.retain(|circuit| circuit.line != line);
    }
}
