use super::*;
use crate::cell::BODY_LEN;
use crate::cell::msg::HANDSHAKE_NTOR_V3;
use crate::cell_model::Tor;
use crate::cell_model::fixture::Staged;
use crate::crypto::ntor_v3::extension::{Request, Response};
use crate::crypto::ntor_v3::{Client, RelayKeys};
use crate::flow::control::{CongestionParams, FlowFactory, TorFlows};
use crate::router::{Honest, RouterConfig};
use crate::time::Instant;
use alloc::sync::Arc;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

type Relay = Core<Tor, ChaCha8Rng>;

fn router() -> Relay {
    let config = RouterConfig::new(Tor::identity(1), 0);
    Core::new(config, Honest, ChaCha8Rng::seed_from_u64(1), Instant::ORIGIN)
}

/// The extension field of an ntor v3 answer, and the negotiated flow control.
fn ask(router: &mut Relay, message: &[u8]) -> Option<(Response, Agreed)> {
    let identity = &router.config.identity;
    let keys = RelayKeys { ed25519_id: identity.ed25519.0, onion_key: identity.onion_key() };
    let client = Client::new(keys, [7; 32], message).expect("a good key");
    let create = Create2 { handshake_type: HANDSHAKE_NTOR_V3, data: client.data() };
    let mut body = Vec::new();
    create.encode_into(&mut body);
    body.resize(BODY_LEN, 0);
    let answer = router.answer(&body)?;
    let format = Request::parse(message).expect("answered").format();
    let (message, keys) = client.finish(&answer.data, format).expect("an honest relay");
    assert_eq!(keys.format(), answer.keys.format());
    Some((Response::parse(&message).expect("well formed"), answer.agreed))
}

const CONGESTION: Request =
    Request { wants_congestion_control: true, wants_cgo: false, wants_other_protocols: false };

#[test]
fn a_request_for_congestion_control_is_granted() {
    let (response, agreed) = ask(&mut router(), &CONGESTION.encode()).expect("answered");
    assert_eq!(response.congestion_sendme_cells, Some(31));
    assert_eq!(agreed.congestion_sendme_cells, Some(31));
    let flow = TorFlows.end(&Arc::default(), agreed);
    assert_eq!((flow.room_cells(), flow.sendme_cells()), (124, 31));
}

#[test]
fn without_a_request_fixed_windows_are_used() {
    let (response, agreed) = ask(&mut router(), &Request::default().encode()).expect("answered");
    assert_eq!(response.congestion_sendme_cells, None);
    assert_eq!(agreed, Agreed::default());
    let flow = TorFlows.end(&Arc::default(), agreed);
    assert_eq!((flow.room_cells(), flow.sendme_cells()), (1000, 100));
}

#[test]
fn the_consensus_can_forbid_congestion_control_and_set_its_step() {
    let mut router = router();
    let params = CongestionParams { sendme_cells: 40, ..CongestionParams::default() };
    router.set_congestion_params(params.clone());
    let (response, _) = ask(&mut router, &CONGESTION.encode()).expect("answered");
    assert_eq!(response.congestion_sendme_cells, Some(40));
    router.set_congestion_params(CongestionParams { is_enabled: false, ..params });
    let (response, agreed) = ask(&mut router, &CONGESTION.encode()).expect("answered");
    assert_eq!(response.congestion_sendme_cells, None);
    assert_eq!(agreed, Agreed::default());
}

#[test]
fn a_malformed_or_unsupported_request_is_rejected() {
    assert!(ask(&mut router(), &[1, 1]).is_none());
    assert!(ask(&mut router(), &[]).is_none());
    assert!(ask(&mut router(), &[2, 1, 0, 3, 2, 2, 5]).is_none());
}

#[test]
fn counter_galois_onion_requires_congestion_control() {
    let both = Request { wants_cgo: true, ..CONGESTION };
    let mut router = router();
    let (_, agreed) = ask(&mut router, &both.encode()).expect("answered");
    assert_eq!(agreed.congestion_sendme_cells, Some(31));
    let alone = Request { wants_congestion_control: false, ..both };
    assert!(ask(&mut router, &alone.encode()).is_none());
    let params = CongestionParams { is_enabled: false, ..CongestionParams::default() };
    router.set_congestion_params(params);
    assert!(ask(&mut router, &both.encode()).is_none());
}
