//! A relay with clients, and a party that violates the protocol.

use crate::common::echo_play::Play;
use crate::common::echo_scenario::{COORDINATOR, Scenario};
use crate::common::stage::{Actor, Stage};
use onion::Duration;
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ErrorCode, Message, Order};

/// A scene with clients, none of which may be affected.
pub(crate) struct Scene<S: Stage + 'static> {
    pub(crate) play: Play<'static, S>,
}

impl<S: Stage + 'static> Scene<S> {
    pub(crate) fn new(stage: S) -> Self {
        static SCENARIO: std::sync::OnceLock<Scenario> = std::sync::OnceLock::new();
        let scenario = SCENARIO.get_or_init(|| Scenario {
            seconds: 1,
            max_duration: Duration::from_secs(10),
            measurements_per_period: 5,
            ..Scenario::default()
        });
        let mut play = Play::begin(stage, scenario);
        play.begin_clients(onion::Rate::from_mbit_per_s(2.0));
        Self { play }
    }

    /// The result of an order that is changed before it is signed.
    #[track_caller]
    pub(crate) fn refused(&mut self, change: impl FnOnce(&mut Order)) -> ErrorCode {
        let mut order = self.play.next_order();
        change(&mut order);
        self.refused_with(|exported| Message::Order(order.sign(&COORDINATOR, exported)))
    }

    /// The error code for a first message on a link.
    #[track_caller]
    pub(crate) fn refused_with(&mut self, message: impl FnOnce(&[u8; 32]) -> Message) -> ErrorCode {
        let party = self.play.add_party();
        self.refused_on(party, message)
    }

    #[track_caller]
    pub(crate) fn refused_on(
        &mut self,
        party: Actor,
        message: impl FnOnce(&[u8; 32]) -> Message,
    ) -> ErrorCode {
        let before = self.play.party(party).messages().len();
        let message = message(&self.play.party(party).exported);
        self.play.party(party).say(&message);
        self.told(party, before)
    }

    /// The error code that ends a party's link.
    #[track_caller]
    pub(crate) fn told(&mut self, party: Actor, before: usize) -> ErrorCode {
        self.play.until_party(party, |party| party.closed.is_some());
        match &self.play.party(party).messages()[before..] {
            [Message::Error { code, .. }] => *code,
            other => panic!("{other:?}"),
        }
    }

    /// The measurement has ended for the coordinator, with this code.
    #[track_caller]
    pub(crate) fn ended(&mut self, link: Actor) -> ErrorCode {
        match self.play.answer(link) {
            OrderEvent::Failed(OrderFailure::Refused { code, .. }) => code,
            other => panic!("{other:?}"),
        }
    }

    /// Nothing has changed: the relay can be measured, and clients were not affected.
    #[track_caller]
    pub(crate) fn assert_unharmed(mut self) {
        assert!(self.play.measure().summary().median > 0);
        self.play.pass(Duration::from_millis(1200));
        self.play.assert_clients_live();
        assert_eq!(self.play.open_circuits(), 4, "the clients'");
    }
}
