//! Unwanted circuits at the measurer's return relays.

use crate::common::identities::UNIX_TIME_S;
use crate::common::transit_run::lone_measurer;
use onion::Instant;
use onion::cell::{CircId, Command};
use onion::link::{Authentication, Channel, ExpectedPeer};
use onion::node::{ListenerId, Node};
use testkit::fixture::Session;

#[test]
fn a_stranger_that_requests_circuits_without_reading_answers_fills_no_memory() {
    let (mut measurer, certificate, ids) = lone_measurer();
    let (now, tls) =
        (Instant::ORIGIN, Session { certificate: certificate.into(), exported: [0; 32] });
    let conn = measurer.handle_accepted(now, ListenerId(0), &tls).expect("accepted");
    let expected = ExpectedPeer { ids, address: [10, 0, 0, 1].into() };
    let anonymous = Authentication::Anonymous;
    let mut stranger =
        Channel::initiator(expected, anonymous, &tls, [0; 24], UNIX_TIME_S).expect("usable");
    let mut buffer = vec![0; 100_000];
    for _ in 0..3 {
        let len = stranger.poll_transmit(&mut buffer);
        measurer.handle_bytes(now, conn, &buffer[..len]);
        let len = measurer.poll_transmit(now, conn, &mut buffer);
        assert_eq!(stranger.handle_bytes(&mut &buffer[..len]), Ok(None));
    }
    assert!(stranger.is_open());
    for number in 0..10_000 {
        stranger.send(CircId::of_initiator(number), Command::CREATE2, &[0, 2, 0, 84]);
        let len = stranger.poll_transmit(&mut buffer);
        measurer.handle_bytes(now, conn, &buffer[..len]);
    }
    let answers: usize = std::iter::from_fn(|| {
        Some(measurer.poll_transmit(now, conn, &mut buffer)).filter(|len| *len > 0)
    })
    .sum();
    assert!(answers > 0 && answers < 100 * 514, "{answers} bytes of answers were kept");
    assert!(!measurer.is_over(), "a stranger does not end a measurement");
}
