//! The cases.

use super::bench::{Abort, Bench, MEASURERS, PeerId, Step};
use crate::peer::Peer;
use onion::Duration;
use onion::cell::{BODY_LEN, CELL_LEN, CircId, Command};
use onion::identity::{Ed25519Id, RsaId};
use onion::measure::protocol::{ErrorCode, Message, Nonce, Order};

/// More measurements than a relay under test may permit.
const QUOTA_MAX: u32 = 100;

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

/// Parties that keep the rules.
pub const HONEST: &[Case] = &[
    case("cells return decrypted and in order, RELAY_EARLY as RELAY", Bench::echoes, "returned"),
    case("a measurement completes, and another may follow", Bench::completes, "1 report, again"),
    case("the measurer's link closes", Bench::measurer_leaves, "- -"),
    case("the coordinator's link closes", Bench::coordinator_leaves, "- 18"),
    case("the traffic stops", Bench::silence, "20 20"),
    case("nothing arrives at all", Bench::nothing, "17 17"),
];

/// Parties that break them. The last one uses up the quota of the coordinator.
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
    case("another order on the coordinator's link", |bench| bench.second_order(true), "10 19"),
    case("another order on another link", |bench| bench.second_order(false), "- -, 10"),
    case("a proof without a measurement", Bench::early_proof, "12"),
    case("a proof for another measurement", |bench| bench.proof(Wrong::Nonce), "- 12"),
    case("a measurer that the order does not name", |bench| bench.proof(Wrong::Key), "- 13"),
    case("a proof for another session", |bench| bench.proof(Wrong::Session), "- 3"),
    case("a proof on a link with a circuit", Bench::late_proof, "- 16"),
    case("more links than ordered", Bench::too_many_links, "- 14"),
    case("17 circuits", |bench| bench.sends(17, Command::CREATE_FAST, &[1; 20]), "19 19"),
    case("CREATE2", |bench| bench.sends(1, Command::CREATE2, &[0; 88]), "19 19"),
    case("a message from a measurer", |bench| bench.measurer_says(&Message::Proven), "19 16"),
    case("an error from a measurer", Bench::measurer_gives_up, "19 19"),
    case("more measurements than the quota", Bench::exhaust, "8"),
];

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
        self.until_closed(peer)?;
        Ok(self.error(peer))
    }

    fn both(&mut self, coordinator: PeerId, peer: PeerId) -> String {
        format!("{} {}", self.error(coordinator), self.error(peer))
    }

    fn echoes(&mut self) -> Step<String> {
        let (_, measurer) = self.parties()?;
        let (circ_id, mut keystream) = self.circuit(measurer)?;
        let mut expected = Vec::new();
        for number in 0..200u8 {
            let mut body = [number; BODY_LEN];
            let command = if number == 3 { Command::RELAY_EARLY } else { Command::RELAY };
            self.at(measurer).send(circ_id, command, &body);
            keystream.apply(&mut body);
            expected.push((circ_id, Command::RELAY, body.to_vec()));
        }
        let cells = |peer: &Peer| -> Vec<_> {
            let on_circuit = peer.received.iter().filter(|cell| cell.0 == circ_id);
            on_circuit.filter(|cell| cell.1 != Command::CREATED_FAST).cloned().collect()
        };
        let count = expected.len();
        self.until("200 cells", |bench| cells(bench.at(measurer)).len() >= count)?;
        let is_same = cells(self.at(measurer)) == expected;
        Ok(if is_same { "returned" } else { "other cells" }.to_owned())
    }

    fn completes(&mut self) -> Step<String> {
        let order = Order { seconds: 1, ..self.order()? };
        let (coordinator, measurer) = (self.coordinator(&order)?, self.measurer(&order)?);
        let (circ_id, _) = self.circuit(measurer)?;
        self.at(measurer).send(circ_id, Command::RELAY, &[0; BODY_LEN]);
        self.until_closed(measurer)?;
        if self.error(measurer) != "-" {
            return Err(Abort::Relay(format!("the measurer got {}", self.error(measurer))));
        }
        let is_report = |message: &Message| match message {
            Message::ClientSecond(second, returned) => {
                // Each measurer has its bytes: one cell here, and perhaps that of CREATED_FAST.
                let [first, other] = &returned[..] else { return false };
                let one_or_two = CELL_LEN as u64..=2 * CELL_LEN as u64;
                second.second == 0 && one_or_two.contains(&first.bytes) && other.bytes == 0
            }
            _ => false,
        };
        // On another link than the measurer's end, so perhaps later.
        let is_second = |message: &Message| matches!(message, Message::ClientSecond(..));
        self.until("a report", |bench| bench.at(coordinator).messages().iter().any(is_second))?;
        let messages = self.at(coordinator).messages();
        let reports = messages.iter().filter(|message| is_report(message)).count();
        let next = self.order()?;
        self.send_order(coordinator, &next);
        let accepted = Message::Accepted { nonce: next.nonce };
        self.until("another order's acceptance", |bench| {
            bench.at(coordinator).messages().contains(&accepted)
        })?;
        Ok(format!("{reports} report, again"))
    }

    fn early_proof(&mut self) -> Step<String> {
        let peer = self.peer()?;
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[0], Nonce([0xee; 32]), &exported);
        self.until_closed(peer)?;
        Ok(self.error(peer))
    }

    /// The error upon an order with this change. What an earlier case left running must not matter.
    fn refused(&mut self, change: fn(&mut Order)) -> Step<String> {
        let mut order = self.order()?;
        change(&mut order);
        let peer = self.peer()?;
        self.send_order(peer, &order);
        self.until_closed(peer)?;
        Ok(self.error(peer))
    }

    /// The error upon an order whose signature is by another key, or for another session.
    fn signed(&mut self, wrong: Wrong) -> Step<String> {
        let (order, peer, right) = (self.order()?, self.peer()?, self.subject.coordinator);
        let exported = if wrong == Wrong::Session { [0; 32] } else { self.at(peer).exported };
        let signed = order.sign(if wrong == Wrong::Key { &[9; 32] } else { &right }, &exported);
        self.at(peer).send_message(&Message::Order(signed));
        self.until_closed(peer)?;
        Ok(self.error(peer))
    }

    fn replay(&mut self) -> Step<String> {
        let order = self.order()?;
        let coordinator = self.coordinator(&order)?;
        self.at(coordinator).close();
        let peer = self.peer()?;
        self.send_order(peer, &order);
        self.until_closed(peer)?;
        Ok(self.error(peer))
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
        Ok(self.both(coordinator, peer))
    }

    fn late_proof(&mut self) -> Step<String> {
        let order = self.order()?;
        let (coordinator, peer) = (self.coordinator(&order)?, self.peer()?);
        self.circuit(peer)?;
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[0], order.nonce, &exported);
        self.until_closed(peer)?;
        Ok(self.both(coordinator, peer))
    }

    fn too_many_links(&mut self) -> Step<String> {
        let order = self.order()?;
        let coordinator = self.coordinator(&order)?;
        self.measurer(&order)?;
        let peer = self.peer()?;
        let exported = self.at(peer).exported;
        self.send_proof(peer, &MEASURERS[1], order.nonce, &exported);
        self.until_closed(peer)?;
        Ok(self.both(coordinator, peer))
    }

    fn second_order(&mut self, is_same_link: bool) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        let link = if is_same_link { coordinator } else { self.peer()? };
        let order = self.order()?;
        self.send_order(link, &order);
        self.until_closed(link)?;
        if is_same_link {
            return self.errors(coordinator, measurer);
        }
        Ok(format!("{}, {}", self.both(coordinator, measurer), self.error(link)))
    }

    /// A measurer sends cells of circuits 1, 2 and so on.
    fn sends(&mut self, count: u32, command: Command, body: &[u8]) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        for number in 1..=count {
            self.at(measurer).send(CircId::of_initiator(number), command, body);
        }
        self.errors(coordinator, measurer)
    }

    fn measurer_says(&mut self, message: &Message) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.at(measurer).send_message(message);
        self.until_closed(coordinator)?;
        self.until_closed(measurer)?;
        // It has the reason of its own error first.
        let first = self.at(measurer).errors().first().map_or("-".to_owned(), u16::to_string);
        Ok(format!("{} {first}", self.error(coordinator)))
    }

    fn measurer_gives_up(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        let error = Message::Error { code: ErrorCode::OTHER, text: String::new() };
        self.at(measurer).send_message(&error);
        self.errors(coordinator, measurer)
    }

    fn measurer_leaves(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.at(measurer).close();
        self.pass(Duration::from_millis(500))?;
        Ok(self.both(coordinator, measurer))
    }

    fn coordinator_leaves(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.at(coordinator).close();
        self.until_closed(measurer)?;
        Ok(self.both(coordinator, measurer))
    }

    fn silence(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        let (circ_id, _) = self.circuit(measurer)?;
        self.at(measurer).send(circ_id, Command::RELAY, &[0; BODY_LEN]);
        self.errors(coordinator, measurer)
    }

    fn nothing(&mut self) -> Step<String> {
        let (coordinator, measurer) = self.parties()?;
        self.errors(coordinator, measurer)
    }
}
