//! Coordinators and measurers that break the rules.

use super::relays::{random, start};
use super::{Cell, Context, Kind};
use crate::error::{Error, Result};
use lab::liars::{Caller, LiarRelay};
use link::tls::TlsConfigs;
use link::unix_time_s;
use onion::Duration;
use onion::identity::{RelayIds, RsaId};
use onion::measure::protocol::{
    ClientShare, CoordinatorKey, ErrorCode, MeasurerKey, Message, Nonce, Order, Proof,
};
use report::experiment::{Case, CaseVerdict};
use std::thread;

/// The timeout of the relay's answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The lifetime of an order in seconds.
const LIFETIME_S: u64 = 600;

/// The quota of the relay whose coordinator exceeds it.
const QUOTA: u32 = 2;

/// Commits a breach, starting from a correct order, and returns the relay's answer.
type Commit = fn(&Party, Order) -> Result<Option<Message>>;

/// A breach of the rules, other than inflated counts.
#[derive(Clone, Copy)]
struct Breach {
    /// The name of its case.
    name: &'static str,
    /// The error with which the relay must refuse it.
    expected: ErrorCode,
    commit: Commit,
}

const fn breach(name: &'static str, expected: ErrorCode, commit: Commit) -> Breach {
    Breach { name, expected, commit }
}

const BREACHES: [Breach; 13] = {
    use ErrorCode as E;
    [
        breach(
            "coordinator: replays an order of another link",
            E::UNKNOWN_COORDINATOR,
            |party, order| {
                let other = party.dial()?;
                let message = Message::Order(order.sign(&party.seed, &other.exported()));
                Ok(party.dial()?.request(&message)?)
            },
        ),
        breach("coordinator: gives an order a second time", E::REPLAYED, |party, order| {
            drop(party.accepted(&order)?);
            party.answer(&order)
        }),
        breach("coordinator: signs with a wrong key", E::UNKNOWN_COORDINATOR, |party, order| {
            let mut caller = party.dial()?;
            let message = Message::Order(order.sign(&random()?, &caller.exported()));
            Ok(caller.request(&message)?)
        }),
        breach("coordinator: gives an expired order", E::EXPIRED, |party, order| {
            party.answer(&Order { expires_unix_s: unix_time_s() - 60, ..order })
        }),
        breach(
            "coordinator: gives an order that expires too late",
            E::TOO_FAR_AHEAD,
            |party, order| {
                party.answer(&Order { expires_unix_s: unix_time_s() + 2 * 3600, ..order })
            },
        ),
        breach("coordinator: gives an order for another relay", E::WRONG_TARGET, |party, order| {
            let target = RelayIds { rsa: RsaId([7; 20]), ..order.target };
            party.answer(&Order { target, ..order })
        }),
        breach("coordinator: orders too many seconds", E::TOO_LONG, |party, order| {
            party.answer(&Order { seconds: 121, ..order })
        }),
        breach("coordinator: orders two measurements at once", E::BUSY, |party, order| {
            let _first = party.accepted(&order)?;
            party.answer(&party.order()?)
        }),
        breach("coordinator: exceeds its quota", E::QUOTA_EXCEEDED, |party, order| {
            for _ in 0..QUOTA {
                drop(party.accepted(&party.order()?)?);
            }
            Ok(party.send_order_when_idle(&order)?.1)
        }),
        breach("measurer: signs with a wrong key", E::UNKNOWN_MEASURER, |party, order| {
            let _coordinator = party.accepted(&order)?;
            let mut caller = party.dial()?;
            let message = party.proof(&random()?, order.nonce, &caller);
            Ok(caller.request(&message)?)
        }),
        breach("measurer: replays a proof of another link", E::BAD_SIGNATURE, |party, order| {
            let _coordinator = party.accepted(&order)?;
            let message = party.proof(&party.measurer, order.nonce, &party.dial()?);
            Ok(party.dial()?.request(&message)?)
        }),
        breach("measurer: names an unknown measurement", E::NO_SUCH_MEASUREMENT, |party, order| {
            let _coordinator = party.accepted(&order)?;
            let mut caller = party.dial()?;
            let message = party.proof(&party.measurer, Nonce(random()?), &caller);
            Ok(caller.request(&message)?)
        }),
        breach("measurer: opens more sockets than ordered", E::TOO_MANY_SOCKETS, |party, order| {
            let _coordinator = party.accepted(&order)?;
            let mut first = party.dial()?;
            let proven = first.request(&party.proof(&party.measurer, order.nonce, &first))?;
            if proven != Some(Message::Proven) {
                return Ok(proven);
            }
            let mut second = party.dial()?;
            let message = party.proof(&party.measurer, order.nonce, &second);
            Ok(second.request(&message)?)
        }),
    ]
};

/// Each breach, committed once against an honest relay.
pub(super) fn cells() -> impl Iterator<Item = Cell> {
    let cell =
        |breach: Breach| Cell::new(Kind::Party, breach.name, move |context| run(context, &breach));
    BREACHES.into_iter().map(cell)
}

fn run(context: &Context<'_>, breach: &Breach) -> Result<Case> {
    let Breach { name, expected, commit } = *breach;
    let quota = if expected == ErrorCode::QUOTA_EXCEEDED { QUOTA } else { u32::MAX };
    let party = Party {
        relay: start(context, None, quota)?,
        tls: Caller::tls(random()?, unix_time_s())?,
        seed: context.testbed.key().seed(),
        measurer: random()?,
    };
    let answer = commit(&party, party.order()?)?;
    party.relay.stop()?;
    Ok(judge(name, expected, answer))
}

fn judge(name: &str, expected: ErrorCode, answer: Option<Message>) -> Case {
    let case = Case::named(name).column("expected_error", expected.get());
    match answer {
        Some(Message::Error { code, text }) => {
            let is_expected = code == expected;
            let verdict = if is_expected { CaseVerdict::Refused } else { CaseVerdict::Missed };
            let more = if text.is_empty() { text } else { format!(" ({text})") };
            case.ended(verdict, format!("error {}: {code}{more}", code.get()))
                .column("error", code.get())
        }
        Some(other) => case.ended(CaseVerdict::Missed, format!("the relay answers {other:?}")),
        None => case.ended(CaseVerdict::Failed, "the relay does not answer"),
    }
}

/// An honest relay, with the keys of a coordinator and a measurer that may measure it.
struct Party {
    relay: LiarRelay,
    tls: TlsConfigs,
    /// The seed of the coordinator's key.
    seed: [u8; 32],
    /// The seed of the measurer's key.
    measurer: [u8; 32],
}

impl Party {
    fn order(&self) -> Result<Order> {
        Ok(Order {
            coordinator: CoordinatorKey::of_seed(&self.seed),
            target: self.relay.ids(),
            measurers: vec![MeasurerKey::of_seed(&self.measurer)],
            seconds: 3,
            client_share: ClientShare::DEFAULT,
            sockets: 1,
            expires_unix_s: unix_time_s() + LIFETIME_S,
            nonce: Nonce(random()?),
        })
    }

    fn dial(&self) -> Result<Caller> {
        let (target, tls) = (self.relay.target(), self.tls.clone());
        Ok(Caller::dial(target, tls, unix_time_s(), PATIENCE)?)
    }

    fn send_order(&self, order: &Order) -> Result<(Caller, Option<Message>)> {
        let mut caller = self.dial()?;
        let message = Message::Order(order.sign(&self.seed, &caller.exported()));
        let answer = caller.request(&message)?;
        Ok((caller, answer))
    }

    /// The relay's answer to an order on a new link.
    fn answer(&self, order: &Order) -> Result<Option<Message>> {
        Ok(self.send_order(order)?.1)
    }

    /// Sends an order repeatedly until the relay no longer refuses it as busy: the link of the order before has just been closed. The
    /// returned link must stay open while the answer is used.
    fn send_order_when_idle(&self, order: &Order) -> Result<(Caller, Option<Message>)> {
        const TRIES: u32 = 100;
        let mut sent = self.send_order(order)?;
        for _ in 0..TRIES {
            if !matches!(sent.1, Some(Message::Error { code: ErrorCode::BUSY, .. })) {
                break;
            }
            thread::park_timeout(Duration::from_millis(20));
            sent = self.send_order(order)?;
        }
        Ok(sent)
    }

    /// Sends an order that the relay must accept, and returns its link.
    fn accepted(&self, order: &Order) -> Result<Caller> {
        match self.send_order_when_idle(order)? {
            (caller, Some(Message::Accepted { .. })) => Ok(caller),
            (_, answer) => {
                Err(Error::Failed(format!("an honest relay does not accept an order: {answer:?}")))
            }
        }
    }

    fn proof(&self, by: &[u8; 32], nonce: Nonce, caller: &Caller) -> Message {
        Message::Proof(Proof::sign(by, nonce, &self.relay.ids(), &caller.exported()))
    }
}
