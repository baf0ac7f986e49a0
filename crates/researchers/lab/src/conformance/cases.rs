//! The cases.

use super::bench::{Abort, Bench, MEASURERS, PeerId, Step};
use crate::peer::Peer;
use onion::Duration;
use onion::cell::msg::{Create2, DestroyReason, HANDSHAKE_NTOR};
use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::identity::{Ed25519Id, RsaId};
use onion::measure::protocol::{ErrorCode, Message, Nonce, Order};

/// More measurements than a relay under test may permit.
const QUOTA_MAX: u32 = 100;

/// The maximum number of circuits on a measurer's link.
const CIRCUITS_MAX: u32 = 16;

/// What parties do, and how a relay must answer.
#[derive(Clone, Copy)]
pub struct Case {
    /// What they do.
    pub name: &'static str,
    /// The result with any implementation of the protocol: the codes of the errors that the coordinator and then a measurer receive, `-`
    /// for none; or else a word.
    pub expected: &'static str,
    pub(super) play: fn(&mut Bench) -> Step<String>,
}

const fn case(
    name: &'static str,
    play: fn(&mut Bench) -> Step<String>,
    expected: &'static str,
) -> Case {
    Case { name, expected, play }
}

/// All cases. The last one uses up the quota of the coordinator.
pub fn all_cases() -> impl Iterator<Item = &'static Case> {
    HONEST.iter().chain(RACES).chain(BREACHES)
}

/// Parties that keep the rules, or whose mistakes are harmless.
const HONEST: &[Case] = &[
    case(
        "cells return decrypted and in order, RELAY_EARLY as RELAY",
        |bench| bench.echoes(200, |number| number == 3),
        "returned",
    ),
    case("12 cells, all RELAY_EARLY", |bench| bench.echoes(12, |_| true), "returned"),
    case("16 circuits, and another after a DESTROY", Bench::another_circuit, "created"),
    case("a measurement completes, and another may follow", Bench::completes, "1 report, again"),
    case("a message on a circuit before an order", Bench::message_on_circuit, "accepted"),
    case("an error on an ordinary link", |bench| bench.first(&own_error().encode()), "-"),
    case("the measurer's link closes", Bench::measurer_leaves, "- -"),
    case("another link in place of a closed one", Bench::replaced, "proven"),
    case("the coordinator's link closes", Bench::coordinator_leaves, "- 18"),
    case("an error from the coordinator", |bench| bench.coordinator_says(&own_error()), "- 18"),
    case("the traffic stops", Bench::silence, "20 20"),
    case("nothing arrives at all", Bench::nothing, "17 17"),
];

/// Parties that break the rules while the relay computes a handshake on another thread, as `flashflow relay` and C tor do. The
/// handshake is invalid: a relay that computes it at once has no such circuit when the next message arrives, and nothing to refuse.
const RACES: &[Case] =
    &[case("a proof right behind CREATE2", |bench| bench.late_proof(Bench::create2), "- 16")];

/// Parties that break the rules. The last one uses up the quota of the coordinator.
pub const BREACHES: &[Case] = &[
    case("an unknown kind", |bench| bench.first(&[7]), "15"),
    case("a message that is too long", |bench| bench.first(&[6; 4097]), "15"),
    case("an order without fields", |bench| bench.first(&[1]), "15"),
    case("PROVEN from a coordinator", |bench| bench.first(&Message::Proven.encode()), "16"),
    case("an order of an unknown coordinator", |bench| bench.signed(Wrong::Key), "2"),
    case("an order for another session", |bench| bench.signed(Wrong::Session), "2"),
    case(
        "an order for another relay",
        |bench| bench.refused(|order| order.target.rsa = RsaId([7; 20])),
        "4",
    ),
    case(
        "an order for another Ed25519 identity",
        |bench| bench.refused(|order| order.target.ed25519 = Some(Ed25519Id([7; 32]))),
        "4",
    ),
    case(
        "an order for no Ed25519 identity",
        |bench| bench.refused(|order| order.target.ed25519 = None),
        "4",
    ),
    case("an order of no seconds", |bench| bench.refused(|order| order.seconds = 0), "11"),
    case("an order of no links", |bench| bench.refused(|order| order.sockets = 0), "11"),
    case("an order of no measurers", |bench| bench.refused(|order| order.measurers.clear()), "11"),
    case(
        "an order of 33 measurers",
        |bench| bench.refused(|order| order.measurers.resize(33, order.measurers[0])),
        "15",
    ),
    case("an order of 18 hours", |bench| bench.refused(|order| order.seconds = u16::MAX), "9"),
    case(
        "an order that has expired",
        |bench| bench.refused(|order| order.expires_unix_s -= 660),
        "5",
    ),
    case(
        "an order that expires in more than an hour",
        |bench| bench.refused(|order| order.expires_unix_s += 3600),
        "6",
    ),
    case("an order a second time", Bench::replay, "7"),
    case("another order on the coordinator's link", |bench| bench.second_order(false), "10 19"),
    case("the same order on the coordinator's link", |bench| bench.second_order(true), "7 19"),
    case("another order on another link", Bench::rival_order, "- -, 10"),
    case(
        "PROVEN on the coordinator's link",
        |bench| bench.coordinator_says(&Message::Proven),
        "16 19",
    ),
    case("a proof without a measurement", Bench::early_proof, "12"),
    case("a proof for another measurement", |bench| bench.proof(Wrong::Nonce), "- 12"),
    case("a measurer that the order does not name", |bench| bench.proof(Wrong::Key), "- 13"),
    case("a proof for another session", |bench| bench.proof(Wrong::Session), "- 3"),
    case(
        "a proof on a link with a circuit",
        |bench| bench.late_proof(|bench, peer| bench.circuit(peer, 1).map(drop)),
        "- 16",
    ),
    case("more links than ordered", Bench::too_many_links, "- 14"),
    case(
        "17 circuits",
        |bench| bench.sends(CIRCUITS_MAX + 1, Command::CREATE_FAST, &[1; 20]),
        "19 19",
    ),
    case("CREATE", |bench| bench.sends(1, Command::CREATE, &[0; 186]), "19 19"),
    case("CREATE2", |bench| bench.sends(1, Command::CREATE2, &[0; 88]), "19 19"),
    case(
        "a message from a measurer",
        |bench| bench.measurer_says(&Message::Proven.encode()),
        "19 16",
    ),
    case("a second proof on a measurer's link", Bench::second_proof, "19 16"),
    case("a malformed message from a measurer", |bench| bench.measurer_says(&[7]), "19 15"),
    case("an error from a measurer", |bench| bench.measurer_says(&own_error().encode()), "19 19"),
    case("more measurements than the quota", Bench::exhaust, "8"),
];

/// An error that a party sends.
const fn own_error() -> Message {
    Message::Error { code: ErrorCode::OTHER, text: String::new() }
}

/// What is wrong with a signature, or with the nonce of a proof.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nonce,
    Key,
    Session,
}

impl Bench {
    /// The error upon the first message of a link.
    fn first(&mut self, body: &[u8]) -> Step<String> {
        let peer = self.peer()?;
        self.at(peer).send(CircId::LINK, Command::MEASURE, body);
        self.error_at_end(peer)
    }

    /// Cells with numbers from 0, some of which are RELAY_EARLY.
    fn echoes(&mut self, count: u8, is_early: fn(u8) -> bool) -> Step<String> {
        let (_, measurer) = self.parties()?;
        let (circ_id, mut keystream) = self.circuit(measurer, 1)?;
        let mut expected = Vec::new();
        for number in 0..count {
            let mut body = [number; BODY_LEN];
            let command = if is_early(number) { Command::RELAY_EARLY } else { Command::RELAY };
            self.at(measurer).send(circ_id, command, &body);
            keystream.apply(&mut body);
            expected.push((circ_id, Command::RELAY, body.to_vec()));
        }
        let cells = |peer: &Peer| -> Vec<_> {
            let on_circuit = peer.received.iter().filter(|cell| cell.0 == circ_id);
            on_circuit.filter(|cell| cell.1 != Command::CREATED_FAST).cloned().collect()
        };
        self.until_peer(measurer, "cells", |peer| cells(peer).len() >= expected.len())?;
        let is_same = cells(self.at(measurer)) == expected;
        Ok(if is_same { "returned" } else { "other cells" }.to_owned())
    }

    fn another_circuit(&mut self) -> Step<String> {
        let (_, measurer) = self.parties()?;
        for number in 1..=CIRCUITS_MAX {
            self.circuit(measurer, number)?;
        }
        let reason = [DestroyReason::REQUESTED.get()];
        self.at(measurer).send(CircId::of_initiator(1), Command::DESTROY, &reason);
        self.circuit(measurer, CIRCUITS_MAX + 1)?;
        Ok("created".to_owned())
    }

    fn completes(&mut self) -> Step<String> {
        let order = Order { seconds: 1, ..self.order()? };
        let (coordinator, measurer) = self.parties_of(&order)?;
        let (circ_id, _) = self.circuit(measurer, 1)?;
        self.at(measurer).send(circ_id, Command::RELAY, &[0; BODY_LEN]);
        self.until_closed(measurer)?;
        if self.error(measurer) != "-" {
            return Err(Abort::Relay(format!("the measurer got {}", self.error(measurer))));
        }
        // On another link than the measurer's end, so perhaps later.
        let is_report = |message: &Message| matches!(message, Message::ClientSecond(..));
        self.until_peer(coordinator, "report", |peer| peer.messages().iter().any(is_report))?;
        let next = self.order()?;
        self.send_order(coordinator, &next);
        let accepted = Message::Accepted { nonce: next.nonce };
        self.until_peer(coordinator, "ACCEPTED", |peer| peer.messages().contains(&accepted))?;
        let mut reports = self.at(coordinator).messages();
        reports.retain(is_report);
        if let Some(wrong) = reports.iter().find(|report| !is_first_second(report)) {
            return Err(Abort::Relay(format!("a wrong report: {wrong:?}")));
        }
        Ok(format!("{} report, again", reports.len()))
    }

    /// A message with another circuit ID than 0 is ignored.
    fn message_on_circuit(&mut self) -> Step<String> {
        let order = self.order()?;
        let (_, answer) = self.ask_until_not(ErrorCode::BUSY, |bench, peer| {
            let (circ_id, message) = (CircId::of_initiator(1), Message::Proven.encode());
            bench.at(peer).send(circ_id, Command::MEASURE, &message);
            bench.send_order(peer, &order);
        })?;
        let is_accepted = answer == (Message::Accepted { nonce: order.nonce });
        Ok(if is_accepted { "accepted".to_owned() } else { format!("{answer:?}") })
    }

    fn early_proof(&mut self) -> Step<String> {
        let peer = self.peer()?;
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[0], Nonce([0xee; 32]), &exported);
        self.error_at_end(peer)
    }

    /// The error upon an order with this change. What an earlier case left running must not matter.
    fn refused(&mut self, change: fn(&mut Order)) -> Step<String> {
        let mut order = self.order()?;
        change(&mut order);
        let peer = self.peer()?;
        self.send_order(peer, &order);
        self.error_at_end(peer)
    }

    /// The error upon an order whose signature is by another key, or for another session.
    fn signed(&mut self, wrong: Wrong) -> Step<String> {
        let (order, peer, right) = (self.order()?, self.peer()?, self.subject.coordinator);
        let exported = if wrong == Wrong::Session { [0; 32] } else { self.at(peer).exported };
        let signed = order.sign(if wrong == Wrong::Key { &[9; 32] } else { &right }, &exported);
        self.at(peer).send_message(&Message::Order(signed));
        self.error_at_end(peer)
    }

    fn replay(&mut self) -> Step<String> {
        let order = self.order()?;
        let coordinator = self.coordinator(&order)?;
        self.at(coordinator).close();
        let peer = self.peer()?;
        self.send_order(peer, &order);
        self.error_at_end(peer)
    }

    /// Orders measurements, and calls them off, until one is refused.
    fn exhaust(&mut self) -> Step<String> {
        for _ in 0..QUOTA_MAX {
            let order = self.order()?;
            let (peer, answer) = self.ask_when_idle(&order)?;
            if answer != (Message::Accepted { nonce: order.nonce }) {
                return Ok(self.error(peer));
            }
            self.at(peer).close();
        }
        Ok(format!("{QUOTA_MAX} are accepted"))
    }

    /// A proof that is refused leaves the measurement alone.
    fn proof(&mut self, wrong: Wrong) -> Step<String> {
        let order = self.order()?;
        let (coordinator, peer) = (self.coordinator(&order)?, self.peer()?);
        let exported = if wrong == Wrong::Session { [0; 32] } else { self.at(peer).exported };
        let nonce = if wrong == Wrong::Nonce { Nonce([0xee; 32]) } else { order.nonce };
        let seed = if wrong == Wrong::Key { [9; 32] } else { MEASURERS[0] };
        self.send_proof(peer, &seed, nonce, &exported);
        self.until_closed(peer)?;
        self.require_running(coordinator, &order)?;
        Ok(self.both(coordinator, peer))
    }

    /// A proof after something else.
    fn late_proof(&mut self, before: fn(&mut Self, PeerId) -> Step<()>) -> Step<String> {
        let order = self.order()?;
        let (coordinator, peer) = (self.coordinator(&order)?, self.peer()?);
        before(self, peer)?;
        self.prove(peer, &order, &MEASURERS[0]);
        self.until_closed(peer)?;
        self.require_running(coordinator, &order)?;
        Ok(self.both(coordinator, peer))
    }

    /// The next message is in the same write, so the relay reads it before it has computed the handshake.
    fn create2(&mut self, peer: PeerId) -> Step<()> {
        let mut body = Vec::new();
        Create2 { handshake_type: HANDSHAKE_NTOR, data: &[0x2a; 84] }.encode_into(&mut body);
        self.at(peer).send(CircId::of_initiator(1), Command::CREATE2, &body);
        Ok(())
    }

    fn too_many_links(&mut self) -> Step<String> {
        let order = self.order()?;
        let (coordinator, measurer) = self.parties_of(&order)?;
        let peer = self.peer()?;
        self.prove(peer, &order, &MEASURERS[1]);
        self.until_closed(peer)?;
        // Instead of another proof, since no more links are permitted.
        self.circuit(measurer, 1)?;
        self.require_open(coordinator)?;
        Ok(self.both(coordinator, peer))
    }

    fn second_order(&mut self, is_same: bool) -> Step<String> {
        let order = self.order()?;
        let (coordinator, measurer) = self.parties_of(&order)?;
        let second = if is_same { order } else { self.order()? };
        self.send_order(coordinator, &second);
        self.errors(coordinator, measurer)
    }

    /// An order on another link leaves the measurement alone.
    fn rival_order(&mut self) -> Step<String> {
        let order = Order { sockets: 2, ..self.order()? };
        let (coordinator, measurer) = self.parties_of(&order)?;
        let (rival, other) = (self.peer()?, self.order()?);
        self.send_order(rival, &other);
        self.until_closed(rival)?;
        self.circuit(measurer, 1)?;
        self.require_running(coordinator, &order)?;
        Ok(format!("{}, {}", self.both(coordinator, measurer), self.error(rival)))
    }

    /// A measurer sends cells of circuits 1, 2 and so on.
    fn sends(&mut self, count: u32, command: Command, body: &[u8]) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        for number in 1..=count {
            self.at(measurer).send(CircId::of_initiator(number), command, body);
        }
        self.errors(coordinator, measurer)
    }

    fn coordinator_says(&mut self, message: &Message) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.at(coordinator).send_message(message);
        self.errors(coordinator, measurer)
    }

    fn measurer_says(&mut self, body: &[u8]) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.at(measurer).send(CircId::LINK, Command::MEASURE, body);
        self.errors(coordinator, measurer)
    }

    fn second_proof(&mut self) -> Step<String> {
        let order = self.order()?;
        let (coordinator, measurer) = self.parties_of(&order)?;
        self.prove(measurer, &order, &MEASURERS[0]);
        self.errors(coordinator, measurer)
    }

    /// A measurer that leaves does not end the measurement.
    fn measurer_leaves(&mut self) -> Step<String> {
        let order = Order { sockets: 2, ..self.order()? };
        let (coordinator, measurer) = self.parties_of(&order)?;
        self.at(measurer).close();
        self.pass(Duration::from_millis(500))?;
        self.require_running(coordinator, &order)?;
        Ok(self.both(coordinator, measurer))
    }

    /// A link that is closed no longer counts.
    fn replaced(&mut self) -> Step<String> {
        let order = self.order()?;
        let (_, measurer) = self.parties_of(&order)?;
        self.at(measurer).close();
        // The relay may not have noticed.
        let (_, answer) = self.ask_until_not(ErrorCode::TOO_MANY_SOCKETS, |bench, peer| {
            bench.prove(peer, &order, &MEASURERS[1]);
        })?;
        Ok(if answer == Message::Proven { "proven".to_owned() } else { format!("{answer:?}") })
    }

    fn coordinator_leaves(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.at(coordinator).close();
        self.until_closed(measurer)?;
        Ok(self.both(coordinator, measurer))
    }

    fn silence(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        let (circ_id, _) = self.circuit(measurer, 1)?;
        self.at(measurer).send(circ_id, Command::RELAY, &[0; BODY_LEN]);
        self.errors(coordinator, measurer)
    }

    fn nothing(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.errors(coordinator, measurer)
    }
}

/// Whether this is the report of a measurement's first second, in which one cell was returned to the first of two measurers.
fn is_first_second(message: &Message) -> bool {
    let Message::ClientSecond(second, returned) = message else { return false };
    let [first, other] = &returned[..] else { return false };
    // Perhaps that of CREATED_FAST as well.
    let one_or_two = CELL_LEN as u64..=2 * CELL_LEN as u64;
    second.second == 0 && one_or_two.contains(&first.bytes) && other.bytes == 0
}
