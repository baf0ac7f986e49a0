//! Invalid orders.

use super::world::*;
use crate::RefusalCode;
use crate::frames::{Connection, Incoming, Limits, Lost};
use crate::messages::{End, FromCoordinator, FromMeasurer, MESSAGE_MAX_BYTES};
use crate::testing::order;
use measurer::member::{MemberReport, RoundOrder};
use onion::{Duration, Rate};
use serde::Serialize;
use std::net::SocketAddr;
use tokio::sync::mpsc;

const LIMITS: Limits = Limits { message_max_bytes: MESSAGE_MAX_BYTES, queued_max: 64 };

/// A coordinator that sends arbitrary messages of any type.
struct Rude<Out = FromCoordinator> {
    orders: mpsc::Sender<Out>,
    answers: Incoming<FromMeasurer>,
}

impl<Out: Serialize + Send + 'static> Rude<Out> {
    async fn connect(own: u8, daemon: &Daemon, session: Out) -> Self {
        let (stream, _) = route(own, daemon.address()).stream().await.expect("a known key");
        let (orders, answers) = Connection::over(stream, LIMITS).split();
        let mut this = Self { orders, answers };
        this.send(session).await;
        assert!(matches!(this.next().await, FromMeasurer::Hello(_)));
        this
    }

    async fn send(&self, message: Out) {
        self.orders.send(message).await.expect("a session");
    }

    async fn next(&mut self) -> FromMeasurer {
        self.answers.next().await.expect("a session").expect("a message")
    }

    /// How the session ends.
    async fn end(&mut self) -> String {
        loop {
            match self.answers.next().await {
                Ok(Some(FromMeasurer::End(End { reason, .. }))) => return reason,
                Ok(Some(_)) => {}
                Ok(None) => return "without a reason".to_owned(),
                Err(Lost(reason)) => return format!("lost: {reason}"),
            }
        }
    }
}

impl Rude {
    async fn prepare(&self, round: u64, spoil: impl FnOnce(&mut RoundOrder)) {
        let mut order = order();
        spoil(&mut order);
        self.send(FromCoordinator::Prepare { round, order }).await;
    }

    async fn start(&self, round: u64) {
        self.send(FromCoordinator::Start { round, delay: Duration::ZERO }).await;
    }

    async fn stop(&self, round: u64) {
        self.send(FromCoordinator::Stop { round }).await;
    }

    async fn assert_refused(&mut self, refused: u64, by: RefusalCode) {
        match self.next().await {
            FromMeasurer::Refused { round, code, reason } => {
                assert_eq!((round, code), (refused, by), "{reason}");
            }
            other => panic!("{other:?} instead of {by:?}"),
        }
    }
}

#[test]
fn orders_out_of_order_are_refused_by_number_and_the_round_continues() {
    let daemon = Daemon::start();
    run(async {
        let mut rude = Rude::connect(COORDINATOR, &daemon, FromCoordinator::Session).await;
        rude.start(1).await;
        rude.assert_refused(1, RefusalCode::UnknownRound).await;
        rude.stop(1).await;
        rude.assert_refused(1, RefusalCode::UnknownRound).await;
        rude.prepare(5, |_| {}).await;
        let (_, notify) = daemon.prepared();
        rude.start(5).await;
        rude.assert_refused(5, RefusalCode::OutOfOrder).await;
        rude.prepare(5, |_| {}).await;
        rude.assert_refused(5, RefusalCode::Duplicate).await;
        rude.prepare(4, |_| {}).await;
        rude.assert_refused(4, RefusalCode::Duplicate).await;
        rude.prepare(6, |order| order.seconds = 0).await;
        rude.assert_refused(6, RefusalCode::Malformed).await;
        rude.prepare(7, |order| order.rate = Rate::from_bit_per_s(u64::MAX)).await;
        rude.assert_refused(7, RefusalCode::Busy).await;
        let public = SocketAddr::from(([8, 8, 8, 8], 9001));
        rude.prepare(8, |order| order.target.address = public).await;
        rude.assert_refused(8, RefusalCode::NoConsent).await;
        rude.stop(99).await;
        rude.assert_refused(99, RefusalCode::UnknownRound).await;
        assert!(daemon.is_quiet());

        tokio::task::spawn_blocking(move || notify(MemberReport::Ready { sockets: 3 }))
            .await
            .expect("no panic");
        let ready = FromMeasurer::Report { round: 5, report: MemberReport::Ready { sockets: 3 } };
        assert_eq!(rude.next().await, ready);
        rude.send(FromCoordinator::Start { round: 5, delay: Duration::MAX }).await;
        rude.assert_refused(5, RefusalCode::Malformed).await;
        rude.start(5).await;
        daemon.started();
        rude.start(5).await;
        rude.assert_refused(5, RefusalCode::OutOfOrder).await;
        rude.stop(5).await;
        daemon.stopped();
        // A second stop has no effect, since the round may have ended already.
        rude.stop(5).await;
        rude.start(5).await;
        rude.assert_refused(5, RefusalCode::UnknownRound).await;
    });
}

#[test]
fn a_coordinator_with_too_many_refused_orders_loses_its_session_only() {
    let daemon = Daemon::start();
    run(async {
        let mut rude = Rude::connect(COORDINATOR, &daemon, FromCoordinator::Session).await;
        let orders = rude.orders.clone();
        let floods = async move {
            for round in 0..5000u64 {
                let message = FromCoordinator::Start { round, delay: Duration::ZERO };
                if orders.send(message).await.is_err() {
                    break;
                }
            }
        };
        let (reason, ()) = tokio::join!(rude.end(), floods);
        assert_eq!(reason, "too many refused orders");
    });
    let remotes = remotes(OTHER_COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    assert_measures(&daemon, &mut measurer.member());
}

#[test]
fn an_opt_in_list_without_end_ends_the_session() {
    let daemon = Daemon::start();
    // A line of the message may contain several of the list.
    let of_one = |lines: usize| vec![format!("{:040X}\n", 7).repeat(lines)];
    for (lines, messages) in [(of_one(150), 800), (vec![format!("{:040X}", 7); 80], 1500)] {
        run(async {
            let mut rude = Rude::connect(COORDINATOR, &daemon, FromCoordinator::Session).await;
            let orders = rude.orders.clone();
            let floods = async move {
                for _ in 0..messages {
                    let message = FromCoordinator::OptIn { lines: lines.clone(), is_last: false };
                    if orders.send(message).await.is_err() {
                        return;
                    }
                }
                let _ = orders.send(FromCoordinator::Stop { round: 1 }).await;
            };
            let (reason, ()) = tokio::join!(rude.end(), floods);
            assert!(reason.contains("more than 100000 lines"), "{reason}");
        });
    }
    let remotes = remotes(OTHER_COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    assert_measures(&daemon, &mut measurer.member());
}

#[test]
fn an_oversized_message_ends_the_session_and_stops_its_rounds_only() {
    let daemon = Daemon::start();
    let others = remotes(OTHER_COORDINATOR);
    let measurer = remote(&others, daemon.address());
    measurer.abilities().expect("a session");
    run(async {
        let json = |message: FromCoordinator| serde_json::to_value(message).expect("plain data");
        let mut rude = Rude::connect(COORDINATOR, &daemon, json(FromCoordinator::Session)).await;
        rude.send(json(FromCoordinator::Prepare { round: 1, order: order() })).await;
        let _ = daemon.prepared();
        rude.send(" ".repeat(1 << 20).into()).await;
        let reason = rude.end().await;
        assert!(reason.contains("the maximum is 8192"), "{reason}");
        daemon.stopped();
    });
    assert_measures(&daemon, &mut measurer.member());
}

#[test]
fn a_message_that_cannot_be_decoded_ends_the_session_with_a_reason() {
    let daemon = Daemon::start();
    run(async {
        let session = serde_json::Value::from("session");
        for alien in [serde_json::json!({"start": {"round": "one"}}), 0.5.into()] {
            let mut rude = Rude::connect(COORDINATOR, &daemon, session.clone()).await;
            rude.send(alien).await;
            let reason = rude.end().await;
            assert!(reason.contains("cannot decode"), "{reason}");
            // The next session begins when this one is gone.
            assert_eq!(rude.answers.next().await, Ok(None));
        }
    });
    let remotes = remotes(COORDINATOR);
    let measurer = remote(&remotes, daemon.address());
    assert_measures(&daemon, &mut measurer.member());
}
