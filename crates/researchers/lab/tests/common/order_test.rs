//! A relay with clients, for tests of peers that violate the protocol.

use crate::common::echo_run::Run;
use crate::common::echo_scenario::{COORDINATOR, Scenario};
use crate::common::stage::{NodeHandle, Stage};
use onion::measure::order::{OrderEvent, OrderFailure};
use onion::measure::protocol::{ErrorCode, Message, Order};
use onion::{Duration, Rate};
use std::sync::OnceLock;

/// A relay with clients, which must not be affected.
pub(crate) struct OrderTest<S: Stage + 'static> {
    pub(crate) run: Run<'static, S>,
}

impl<S: Stage + 'static> OrderTest<S> {
    pub(crate) fn new(stage: S) -> Self {
        static SCENARIO: OnceLock<Scenario> = OnceLock::new();
        let scenario = SCENARIO.get_or_init(|| Scenario {
            seconds: 1,
            max_duration: Duration::from_secs(10),
            measurements_per_period: 5,
            ..Scenario::default()
        });
        let mut run = Run::begin(stage, scenario);
        run.begin_clients(Rate::from_mbit_per_s(2.0));
        Self { run }
    }

    /// A new peer whose order is accepted.
    pub(crate) fn accepted(&mut self, order: &Order) -> NodeHandle {
        let peer = self.run.add_peer();
        let exported = self.run.peer(peer).exported;
        self.run.peer(peer).send_message(&Message::Order(order.sign(&COORDINATOR, &exported)));
        let accepted = Message::Accepted { nonce: order.nonce };
        self.run.until_peer(peer, |peer| peer.messages() == [accepted.clone()]);
        peer
    }

    /// The result of an order that is changed before it is signed.
    #[track_caller]
    pub(crate) fn refused(&mut self, change: impl FnOnce(&mut Order)) -> ErrorCode {
        let mut order = self.run.next_order();
        change(&mut order);
        self.refused_with(|exported| Message::Order(order.sign(&COORDINATOR, exported)))
    }

    /// The error code for a first message on a link.
    #[track_caller]
    pub(crate) fn refused_with(&mut self, message: impl FnOnce(&[u8; 32]) -> Message) -> ErrorCode {
        let peer = self.run.add_peer();
        self.refused_on(peer, message)
    }

    #[track_caller]
    pub(crate) fn refused_on(
        &mut self,
        peer: NodeHandle,
        message: impl FnOnce(&[u8; 32]) -> Message,
    ) -> ErrorCode {
        let before = self.run.peer(peer).messages().len();
        let message = message(&self.run.peer(peer).exported);
        self.run.peer(peer).send_message(&message);
        self.error_code(peer, before)
    }

    /// The error code that ends a peer's link.
    #[track_caller]
    pub(crate) fn error_code(&mut self, peer: NodeHandle, before: usize) -> ErrorCode {
        self.run.until_peer(peer, |peer| peer.closed.is_some());
        match &self.run.peer(peer).messages()[before..] {
            [Message::Error { code, .. }] => *code,
            other => panic!("{other:?}"),
        }
    }

    /// The code with which the measurement has ended for the coordinator.
    #[track_caller]
    pub(crate) fn ended(&mut self, link: NodeHandle) -> ErrorCode {
        match self.run.answer(link) {
            OrderEvent::Failed(OrderFailure::Refused { code, .. }) => code,
            other => panic!("{other:?}"),
        }
    }

    /// Closes the coordinator's link; then the relay can still be measured, and clients were not affected.
    #[track_caller]
    pub(crate) fn stop_and_assert_unharmed(mut self, link: NodeHandle) {
        self.run.stop_order(link);
        self.run.pass(Duration::from_millis(100));
        self.assert_unharmed();
    }

    /// The relay can still be measured, and clients were not affected.
    #[track_caller]
    pub(crate) fn assert_unharmed(mut self) {
        assert!(self.run.measure().summary().median > 0);
        self.run.pass(Duration::from_millis(1200));
        self.run.assert_clients_live();
        assert_eq!(self.run.open_circuits(), 4, "the clients'");
    }
}
