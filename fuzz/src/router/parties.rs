//! What coordinators, measurers, clients and other relays send.

use super::{COORDINATOR, MEASURERS, QUEUE_LIMIT_CELLS_MOST, World, circ_id};
use crate::input::Input;
use onion::cell::msg::{Create2, Extend2, HANDSHAKE_NTOR, encode_created2_into, link_specifier};
use onion::cell::relay::{RelayCommand, RelayMessage};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::identity::RelayIds;
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, MeasurerKey, Message, Nonce, Order, Proof,
};
use onion::node::CloseCause;
use onion::router::Parameters;
use testkit::vectors::PARTIES;

impl World {
    pub(super) fn order(&mut self, place: usize, input: &mut Input<'_>) {
        let order = Order {
            coordinator: CoordinatorKey::of_seed(&COORDINATOR),
            target: PARTIES.own.ids(),
            measurers: MEASURERS.iter().map(MeasurerKey::of_seed).collect(),
            seconds: u16::from(input.u8() % 12),
            client_share: ClientShare::DEFAULT,
            sockets: u16::from(input.u8() % 4),
            expires_unix_s: PARTIES.unix_time_s + u64::from(input.u8()) * 20,
            nonce: Nonce([input.u8() % 4; 32]),
        };
        let seed = if input.u8() % 8 == 7 { [0x66; 32] } else { COORDINATOR };
        let Some(end) = self.link(place) else { return };
        let message = Message::Order(order.sign(&seed, &self.ends[end].exported));
        self.say(place, CircId::LINK, Command::MEASURE, &message.encode());
    }

    pub(super) fn prove(&mut self, place: usize, input: &mut Input<'_>) {
        let seeds = [MEASURERS[0], MEASURERS[1], MEASURERS[0], [0x66; 32]];
        let (nonce, seed) = (Nonce([input.u8() % 4; 32]), input.choose(&seeds));
        let Some(end) = self.link(place) else { return };
        let proof = Proof::sign(&seed, nonce, &PARTIES.own.ids(), &self.ends[end].exported);
        self.say(place, CircId::LINK, Command::MEASURE, &Message::Proof(proof).encode());
    }

    /// PADDING_NEGOTIATE, good or bad; or a consensus with other limits.
    pub(super) fn ask_for_padding(&mut self, place: usize, input: &mut Input<'_>) {
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
        self.say(place, circ_id, Command::PADDING_NEGOTIATE, &body);
    }

    /// A message for the router on a circuit.
    pub(super) fn message(&mut self, place: usize, input: &mut Input<'_>) {
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
        // Zero bytes do not name a relay.
        let port = input.u8().wrapping_add(1) % 4;
        let data = extend_data(&PARTIES.other.ids(), port);
        let Some(hop) = self.hop(place, circ_id) else {
            return;
        };
        let is_circuits = [RelayCommand::EXTEND2, RelayCommand::TRUNCATE].contains(&command);
        let message = RelayMessage { command, stream_id: u16::from(!is_circuits), data: &data };
        let Ok(mut body) = message.to_body() else { return };
        hop.client.encrypt(&mut body);
        self.say(place, circ_id, Command::RELAY_EARLY, &body);
    }

    /// A connection that the router dials succeeds or fails.
    pub(super) fn answer_dial(&mut self, place: usize, is_there: bool) {
        let Some(place) = self.link(place).filter(|place| self.ends[*place].is_awaited) else {
            return;
        };
        match is_there {
            true => self.fixture.answer_dial(place, &[]),
            false => self.close(place, CloseCause::Refused),
        }
    }

    /// A next hop answers the last CREATE2.
    pub(super) fn answer_create(&mut self, place: usize, how: u8) {
        let Some(circ_id) = self.link(place).and_then(|place| self.links[place].begun) else {
            return;
        };
        let mut body = Vec::new();
        encode_created2_into(&[how; 64], &mut body);
        let body = if how == 255 { vec![0xff; 8] } else { body };
        self.say(place, circ_id, Command::CREATED2, &body);
        for _ in 0..how % 4 {
            self.say(place, circ_id, Command::RELAY, &[how; BODY_LEN]);
        }
    }
}

fn extend_data(ids: &RelayIds, port: u8) -> Vec<u8> {
    let address = [10, 0, 0, 9, 0, port];
    let link_specifiers: Vec<(u8, &[u8])> =
        vec![(link_specifier::IPV4, &address), (link_specifier::RSA_IDENTITY, &ids.rsa.0)];
    let create = Create2 { handshake_type: HANDSHAKE_NTOR, data: &[7; 84] };
    let mut data = Vec::new();
    Extend2 { link_specifiers, create }.encode_into(&mut data);
    data
}
