//! Cells from coordinators, measurers, clients and other relays.

use super::{COORDINATOR, MEASURERS, QUEUE_LIMIT_CELLS_MOST, World, circ_id};
use crate::input::Input;
use onion::cell::msg::encode_created2_into;
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, MeasurerKey, Message, Nonce, Order, Proof,
};
use onion::node::CloseCause;
use onion::router::Parameters;
use testkit::vectors::IDENTITIES;

impl World {
    pub(super) fn send_order(&mut self, index: usize, input: &mut Input<'_>) {
        let order = Order {
            coordinator: CoordinatorKey::of_seed(&COORDINATOR),
            target: IDENTITIES.own.ids(),
            measurers: MEASURERS.iter().map(MeasurerKey::of_seed).collect(),
            seconds: u16::from(input.u8() % 12),
            client_share: ClientShare::DEFAULT,
            sockets: u16::from(input.u8() % 4),
            expires_unix_s: IDENTITIES.unix_time_s + u64::from(input.u8()) * 20,
            nonce: Nonce([input.u8() % 4; 32]),
        };
        let seed = if input.u8() % 8 == 7 { [0x66; 32] } else { COORDINATOR };
        let Some(end) = self.link(index) else { return };
        let message = Message::Order(order.sign(&seed, &self.peers[end].exported));
        self.send_cell(index, CircId::LINK, Command::MEASURE, &message.encode());
    }

    pub(super) fn send_proof(&mut self, index: usize, input: &mut Input<'_>) {
        let seeds = [MEASURERS[0], MEASURERS[1], MEASURERS[0], [0x66; 32]];
        let (nonce, seed) = (Nonce([input.u8() % 4; 32]), input.choose(&seeds));
        let Some(end) = self.link(index) else { return };
        let proof = Proof::sign(&seed, nonce, &IDENTITIES.own.ids(), &self.peers[end].exported);
        self.send_cell(index, CircId::LINK, Command::MEASURE, &Message::Proof(proof).encode());
    }

    /// Sends PADDING_NEGOTIATE, valid or not; or applies consensus parameters with other limits.
    pub(super) fn negotiate_padding(&mut self, index: usize, input: &mut Input<'_>) {
        let (how, low_ms, high_ms) = (input.u8(), input.u16(), input.u16());
        if how % 8 == 7 {
            self.router.set_parameters(Parameters::from_consensus([
                ("circ_max_cell_queue_size", QUEUE_LIMIT_CELLS_MOST.cast_signed()),
                ("nf_ito_low", low_ms.into()),
                ("nf_ito_high", high_ms.into()),
                ("nf_pad_relays", i32::from(how >> 3 & 1)),
                ("nf_pad_before_usage", i32::from(how >> 4 & 1)),
            ]));
            return;
        }
        // Version 0; stop or start, in most cases.
        let mut body = vec![how >> 7, how % 8 % 3];
        body.extend(low_ms.to_be_bytes());
        body.extend(high_ms.to_be_bytes());
        let circ_id = if how & 8 > 0 { circ_id(input) } else { CircId::LINK };
        self.send_cell(index, circ_id, Command::PADDING_NEGOTIATE, &body);
    }

    /// Sends a message to the router on a circuit.
    pub(super) fn send_circuit_message(&mut self, index: usize, input: &mut Input<'_>) {
        let circ_id = circ_id(input);
        let commands = [
            RelayCommand::EXTEND2,
            RelayCommand::EXTEND2,
            RelayCommand::TRUNCATE,
            RelayCommand::BEGIN,
            RelayCommand::BEGIN_DIR,
            RelayCommand::RESOLVE,
            RelayCommand::DROP,
            RelayCommand(input.u8()),
        ];
        let command = input.choose(&commands);
        let port = input.u8().wrapping_add(1) % 4;
        let data = IDENTITIES.extend2([10, 0, 0, 9, 0, port]);
        let Some(hop) = self.hop(index, circ_id) else {
            return;
        };
        let is_for_circuit = [RelayCommand::EXTEND2, RelayCommand::TRUNCATE].contains(&command);
        let message = RelayMessage { command, stream_id: u16::from(!is_for_circuit), data: &data };
        let Ok(mut body) = message.to_body() else { return };
        hop.client.encrypt(&mut body);
        self.send_cell(index, circ_id, Command::RELAY_EARLY, &body);
    }

    /// A connection that the router dials succeeds or fails.
    pub(super) fn answer_dial(&mut self, index: usize, succeeds: bool) {
        let Some(index) = self.link(index).filter(|index| self.peers[*index].is_awaited) else {
            return;
        };
        match succeeds {
            true => self.fixture.answer_dial(index, &[]),
            false => self.close(index, CloseCause::Refused),
        }
    }

    /// A next hop answers the last CREATE2.
    pub(super) fn answer_create(&mut self, index: usize, how: u8) {
        let Some(circ_id) = self.link(index).and_then(|index| self.links[index].created) else {
            return;
        };
        let mut body = Vec::new();
        encode_created2_into(&[how; 64], &mut body);
        let body = if how == 255 { vec![0xff; 8] } else { body };
        self.send_cell(index, circ_id, Command::CREATED2, &body);
        for _ in 0..how % 4 {
            self.send_cell(index, circ_id, Command::RELAY, &[how; BODY_LEN]);
        }
    }
}
