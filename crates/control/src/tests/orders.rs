//! Orders that a good coordinator does not give.

use super::world::*;
use crate::RefusalCode;
use crate::messages::{
    Echo, FromCoordinator, FromMeasurer, Hello, Instruction, Prepare, Start, Stop, WayBack, Word,
};
use crate::rpc::measurer_client::MeasurerClient;
use crate::testing::order;
use measurer::member::MemberReport;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

/// A coordinator that says what it likes.
struct Rude {
    orders: mpsc::Sender<FromCoordinator>,
    answers: Streaming<FromMeasurer>,
}

impl Rude {
    async fn connect(own: u8, daemon: &Daemon) -> Self {
        let (channel, _) = route(own, daemon.address()).channel().await.expect("a known key");
        let (orders, receiver) = mpsc::channel(64);
        let mut client = MeasurerClient::new(channel);
        let answer = client.session(ReceiverStream::new(receiver)).await.expect("a session");
        let mut this = Self { orders, answers: answer.into_inner() };
        assert!(matches!(this.next().await.word, Some(Word::Hello(Hello { .. }))));
        this
    }

    async fn say(&self, measurement: u64, order: Option<Instruction>) {
        self.orders.send(FromCoordinator { measurement, order }).await.expect("a session");
    }

    async fn prepare(&self, measurement: u64, spoil: impl FnOnce(&mut Prepare)) {
        let mut prepare = Prepare::from(&order());
        spoil(&mut prepare);
        self.say(measurement, Some(Instruction::Prepare(prepare))).await;
    }

    async fn next(&mut self) -> FromMeasurer {
        self.answers.message().await.expect("a session").expect("a message")
    }

    async fn assert_refused(&mut self, measurement: u64, code: RefusalCode) {
        let answer = self.next().await;
        assert_eq!(answer.measurement, measurement);
        match answer.word {
            Some(Word::Refused(refused)) => {
                assert_eq!(refused.code, code.number(), "{}", refused.reason);
            }
            other => panic!("{other:?} instead of {code:?}"),
        }
    }

    /// How the session ends.
    async fn end(&mut self) -> Status {
        loop {
            match self.answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::ok(""),
                Err(status) => return status,
            }
        }
    }
}

const START: Option<Instruction> = Some(Instruction::Start(Start { delay_ns: 0 }));
const STOP: Option<Instruction> = Some(Instruction::Stop(Stop {}));

#[test]
fn orders_out_of_order_are_refused_by_number_and_the_round_goes_on() {
    let daemon = Daemon::start();
    run(async {
        let mut rude = Rude::connect(COORDINATOR, &daemon).await;
        rude.say(1, START).await;
        rude.assert_refused(1, RefusalCode::UnknownRound).await;
        rude.say(1, STOP).await;
        rude.assert_refused(1, RefusalCode::UnknownRound).await;
        rude.prepare(5, |_| {}).await;
        let (_, tell) = daemon.prepared();
        rude.say(5, START).await;
        rude.assert_refused(5, RefusalCode::OutOfOrder).await;
        rude.prepare(5, |_| {}).await;
        rude.assert_refused(5, RefusalCode::Duplicate).await;
        rude.prepare(4, |_| {}).await;
        rude.assert_refused(4, RefusalCode::Duplicate).await;
        rude.say(5, None).await;
        rude.assert_refused(5, RefusalCode::Malformed).await;
        rude.prepare(6, |prepare| prepare.seconds = 0).await;
        rude.assert_refused(6, RefusalCode::Malformed).await;
        rude.prepare(7, |prepare| prepare.rate_bit_per_s = u64::MAX).await;
        rude.assert_refused(7, RefusalCode::Busy).await;
        rude.prepare(8, |prepare| prepare.address = vec![8, 8, 8, 8]).await;
        rude.assert_refused(8, RefusalCode::NoConsent).await;
        rude.say(99, STOP).await;
        rude.assert_refused(99, RefusalCode::UnknownRound).await;
        assert!(daemon.is_quiet());

        tokio::task::spawn_blocking(move || tell(MemberReport::Ready { sockets: 3 }))
            .await
            .expect("no panic");
        assert!(matches!(rude.next().await.word, Some(Word::Ready(_))));
        rude.say(5, Some(Instruction::Start(Start { delay_ns: u64::MAX }))).await;
        rude.assert_refused(5, RefusalCode::Malformed).await;
        rude.say(5, START).await;
        daemon.started();
        rude.say(5, START).await;
        rude.assert_refused(5, RefusalCode::OutOfOrder).await;
        rude.say(5, STOP).await;
        daemon.stopped();
        // Twice does no harm: it may have ended by itself meanwhile.
        rude.say(5, STOP).await;
        rude.say(5, START).await;
        rude.assert_refused(5, RefusalCode::UnknownRound).await;
    });
}

#[test]
fn who_errs_without_end_loses_the_session_and_only_that() {
    let daemon = Daemon::start();
    run(async {
        let mut rude = Rude::connect(COORDINATOR, &daemon).await;
        let orders = rude.orders.clone();
        let floods = async move {
            for number in 0..5000u64 {
                let message = FromCoordinator { measurement: number, order: START };
                if orders.send(message).await.is_err() {
                    break;
                }
            }
        };
        let (status, ()) = tokio::join!(rude.end(), floods);
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    });
    let remotes = remotes(OTHER_COORDINATOR);
    let measurer = remotes.measurer(daemon.address(), public(MEASURER)).expect("a good key");
    assert_measures(&daemon, &mut measurer.member());
}

#[test]
fn an_oversized_message_ends_the_session_and_stops_its_rounds_only() {
    let daemon = Daemon::start();
    let others = remotes(OTHER_COORDINATOR);
    let measurer = others.measurer(daemon.address(), public(MEASURER)).expect("a good key");
    measurer.abilities().expect("a session");
    run(async {
        let mut rude = Rude::connect(COORDINATOR, &daemon).await;
        rude.prepare(1, |_| {}).await;
        let _ = daemon.prepared();
        let nonce = vec![0; 1 << 20];
        rude.prepare(2, |prepare| prepare.way_back = Some(WayBack::Echo(Echo { nonce }))).await;
        let status = rude.end().await;
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
        daemon.stopped();
    });
    assert_measures(&daemon, &mut measurer.member());
}

/// Another message under the same tags.
#[derive(Clone, PartialEq, prost::Message)]
struct Alien {
    #[prost(string, tag = "1")]
    measurement: String,
    #[prost(double, tag = "2")]
    order: f64,
}

#[test]
fn what_cannot_be_decoded_ends_the_session_with_a_reason() {
    let daemon = Daemon::start();
    run(async {
        let (channel, _) =
            route(COORDINATOR, daemon.address()).channel().await.expect("a known key");
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.expect("a connection");
        let alien = Alien { measurement: "one".to_owned(), order: 0.5 };
        let path = PathAndQuery::from_static("/flashflow.control.v1.Measurer/Session");
        let codec = ProstCodec::<Alien, FromMeasurer>::default();
        // It stays open, so that only the measurer can end it.
        let (sender, receiver) = mpsc::channel(4);
        sender.send(alien).await.expect("room");
        let request = Request::new(ReceiverStream::new(receiver));
        let mut answers =
            client.streaming(request, path, codec).await.expect("a session").into_inner();
        let status = loop {
            match answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no reason"),
                Err(status) => break status,
            }
        };
        assert!(status.message().contains("decode"), "{status}");
    });
    let remotes = remotes(COORDINATOR);
    let measurer = remotes.measurer(daemon.address(), public(MEASURER)).expect("a good key");
    assert_measures(&daemon, &mut measurer.member());
}
