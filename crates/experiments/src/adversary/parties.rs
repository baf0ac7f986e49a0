//! Coordinators and measurers that break the rules.

use super::Laboratory;
use super::relays::{random, start};
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

/// Far more than a relay needs for an answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What an order lives.
const LIFETIME_S: u64 = 600;

/// Measurements that the relay allows whose coordinator wants one more.
const QUOTA: u32 = 2;

/// How the rules can be broken, but for inflated counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Breach {
    OverheardOrder,
    RepeatedOrder,
    WrongCoordinatorKey,
    ExpiredOrder,
    FutureOrder,
    OrderForAnotherRelay,
    TooLong,
    SecondAtOnce,
    QuotaExceeded,
    WrongMeasurerKey,
    OverheardProof,
    NoSuchMeasurement,
    TooManySockets,
}

impl Breach {
    const ALL: [Self; 13] = [
        Self::OverheardOrder,
        Self::RepeatedOrder,
        Self::WrongCoordinatorKey,
        Self::ExpiredOrder,
        Self::FutureOrder,
        Self::OrderForAnotherRelay,
        Self::TooLong,
        Self::SecondAtOnce,
        Self::QuotaExceeded,
        Self::WrongMeasurerKey,
        Self::OverheardProof,
        Self::NoSuchMeasurement,
        Self::TooManySockets,
    ];

    /// A party's deed, and the number of the error with which it must be refused.
    const fn told(self) -> (&'static str, ErrorCode) {
        match self {
            Self::OverheardOrder => {
                ("coordinator: replays an order of another link", ErrorCode::UNKNOWN_COORDINATOR)
            }
            Self::RepeatedOrder => {
                ("coordinator: gives an order a second time", ErrorCode::REPLAYED)
            }
            Self::WrongCoordinatorKey => {
                ("coordinator: signs with a wrong key", ErrorCode::UNKNOWN_COORDINATOR)
            }
            Self::ExpiredOrder => ("coordinator: gives an expired order", ErrorCode::EXPIRED),
            Self::FutureOrder => {
                ("coordinator: gives an order of the future", ErrorCode::TOO_FAR_AHEAD)
            }
            Self::OrderForAnotherRelay => {
                ("coordinator: gives an order for another relay", ErrorCode::WRONG_TARGET)
            }
            Self::TooLong => ("coordinator: orders too many seconds", ErrorCode::TOO_LONG),
            Self::SecondAtOnce => ("coordinator: orders two measurements at once", ErrorCode::BUSY),
            Self::QuotaExceeded => ("coordinator: exceeds its quota", ErrorCode::QUOTA_EXCEEDED),
            Self::WrongMeasurerKey => {
                ("measurer: signs with a wrong key", ErrorCode::UNKNOWN_MEASURER)
            }
            Self::OverheardProof => {
                ("measurer: replays a proof of another link", ErrorCode::BAD_SIGNATURE)
            }
            Self::NoSuchMeasurement => {
                ("measurer: comes to no measurement", ErrorCode::NO_SUCH_MEASUREMENT)
            }
            Self::TooManySockets => {
                ("measurer: opens more sockets than ordered", ErrorCode::TOO_MANY_SOCKETS)
            }
        }
    }
}

/// Each breach once.
pub(super) fn cases(scene: &Laboratory<'_>) -> Result<Vec<Case>> {
    if scene.interrupt.is_requested() {
        return Ok(Vec::new());
    }
    let tls = Caller::tls(random()?, unix_time_s())?;
    let seed = scene.stage.key().seed();
    let subject = |quota: u32| -> Result<Party> {
        let relay = start(scene, None, quota)?;
        Ok(Party { relay, tls: tls.clone(), seed, measurer: random()? })
    };
    scene.output.doing("coordinators and measurers that break the rules");
    let (patient, strict) = (subject(u32::MAX)?, subject(QUOTA)?);
    let breaches = Breach::ALL.map(|breach| (breach.told().0, breach));
    let cases = scene.each(breaches, |breach| {
        let (name, expected) = breach.told();
        scene.output.doing(name);
        let subject = if breach == Breach::QuotaExceeded { &strict } else { &patient };
        Ok(judge(name, expected, subject.play(breach)?))
    });
    patient.relay.stop()?;
    strict.relay.stop()?;
    Ok(cases)
}

fn judge(name: &str, expected: ErrorCode, answer: Option<Message>) -> Case {
    let case = Case::named(name).column("kind", "party");
    let case = case.column("expected_error", expected.get());
    match answer {
        Some(Message::Error { code, text }) => {
            let is_it = code == expected;
            let verdict = if is_it { CaseVerdict::Refused } else { CaseVerdict::Missed };
            let more = if text.is_empty() { text } else { format!(" ({text})") };
            case.ended(verdict, format!("error {}: {code}{more}", code.get()))
                .column("error", code.get())
        }
        Some(other) => case.ended(CaseVerdict::Missed, format!("the relay answers {other:?}")),
        None => case.ended(CaseVerdict::Failed, "the relay answers nothing"),
    }
}

/// An honest relay, and who may measure it.
struct Party {
    relay: LiarRelay,
    tls: TlsConfigs,
    /// Of the coordinator's key, and the measurer's.
    seed: [u8; 32],
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

    fn say_order(&self, order: &Order) -> Result<(Caller, Option<Message>)> {
        let mut caller = self.dial()?;
        let message = Message::Order(order.sign(&self.seed, &caller.exported()));
        let answer = caller.request(&message)?;
        Ok((caller, answer))
    }

    /// Gives an order once the relay is no longer busy with the one before, whose link has just been
    /// closed. The link lives as long as the answer is of use.
    fn say_when_free(&self, order: &Order) -> Result<(Caller, Option<Message>)> {
        const TRIES: u32 = 100;
        let mut said = self.say_order(order)?;
        for _ in 0..TRIES {
            if !matches!(said.1, Some(Message::Error { code: ErrorCode::BUSY, .. })) {
                break;
            }
            thread::park_timeout(Duration::from_millis(20));
            said = self.say_order(order)?;
        }
        Ok(said)
    }

    /// An order that is accepted, and its link.
    fn accepted(&self, order: &Order) -> Result<Caller> {
        match self.say_when_free(order)? {
            (caller, Some(Message::Accepted { .. })) => Ok(caller),
            (_, answer) => {
                Err(Error::Failed(format!("an honest relay does not accept an order: {answer:?}")))
            }
        }
    }

    fn proof(&self, by: &[u8; 32], nonce: Nonce, caller: &Caller) -> Message {
        Message::Proof(Proof::sign(by, nonce, &self.relay.ids(), &caller.exported()))
    }

    /// Has it done, and says what the relay answers.
    fn play(&self, breach: Breach) -> Result<Option<Message>> {
        let mut order = self.order()?;
        match breach {
            Breach::OverheardOrder => {
                let overheard = self.dial()?;
                let message = Message::Order(order.sign(&self.seed, &overheard.exported()));
                return Ok(self.dial()?.request(&message)?);
            }
            Breach::RepeatedOrder => drop(self.accepted(&order)?),
            Breach::WrongCoordinatorKey => {
                let mut caller = self.dial()?;
                let message = Message::Order(order.sign(&random()?, &caller.exported()));
                return Ok(caller.request(&message)?);
            }
            Breach::ExpiredOrder => order.expires_unix_s = unix_time_s() - 60,
            Breach::FutureOrder => order.expires_unix_s = unix_time_s() + 2 * 3600,
            Breach::OrderForAnotherRelay => {
                order.target = RelayIds { rsa: RsaId([7; 20]), ..order.target };
            }
            Breach::TooLong => order.seconds = 121,
            Breach::SecondAtOnce => {
                let _first = self.accepted(&order)?;
                return Ok(self.say_order(&self.order()?)?.1);
            }
            Breach::QuotaExceeded => {
                for _ in 0..QUOTA {
                    drop(self.accepted(&self.order()?)?);
                }
                return Ok(self.say_when_free(&order)?.1);
            }
            Breach::WrongMeasurerKey => {
                let _coordinator = self.accepted(&order)?;
                let mut caller = self.dial()?;
                let message = self.proof(&random()?, order.nonce, &caller);
                return Ok(caller.request(&message)?);
            }
            Breach::OverheardProof => {
                let _coordinator = self.accepted(&order)?;
                let message = self.proof(&self.measurer, order.nonce, &self.dial()?);
                return Ok(self.dial()?.request(&message)?);
            }
            Breach::NoSuchMeasurement => {
                let _coordinator = self.accepted(&order)?;
                let mut caller = self.dial()?;
                let message = self.proof(&self.measurer, Nonce(random()?), &caller);
                return Ok(caller.request(&message)?);
            }
            Breach::TooManySockets => {
                let _coordinator = self.accepted(&order)?;
                let mut first = self.dial()?;
                let proven = first.request(&self.proof(&self.measurer, order.nonce, &first))?;
                if proven != Some(Message::Proven) {
                    return Ok(proven);
                }
                let mut second = self.dial()?;
                let message = self.proof(&self.measurer, order.nonce, &second);
                return Ok(second.request(&message)?);
            }
        }
        Ok(self.say_order(&order)?.1)
    }
}
