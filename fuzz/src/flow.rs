use crate::input::Input;
use onion::cell::msg::{
    CircuitPadding, CircuitPaddingAnswer, ConfluxLink, ConfluxSwitch, LinkPadding, Sendme, Xoff,
    Xon,
};
use onion::cell::relay::RelayFormat;
use onion::crypto::ntor_v3::extension::{Request, Response};
use onion::crypto::ntor_v3::{Client, RelayKeys, Server};
use onion::flow::control::{
    Agreed, CircuitEnd, CongestionParams, Flow, FlowFactory, PathState, TorFlows,
};
use onion::flow::stream::{StreamFlow, StreamSignal};
use onion::{Duration, Instant};
use std::sync::Arc;
use testkit::vectors;

/// Flow control: its messages, the handshake that agrees on it, and its windows.
///
/// The first byte chooses: messages, a handshake, or the course of a circuit with one stream.
pub fn flow_control(data: &[u8]) {
    let mut input = Input::new(data);
    match input.u8() % 3 {
        0 => messages(input.rest()),
        1 => handshake(input),
        _ => course(input),
    }
}

fn encode(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// A decoded message survives encoding and decoding unchanged.
fn messages(data: &[u8]) {
    match Sendme::parse(data) {
        Ok(sendme @ Sendme::Tagged(_)) => {
            assert!(data.starts_with(&encode(|out| sendme.encode_into(out))));
        }
        Ok(sendme) => {
            let encoded = encode(|out| sendme.encode_into(out));
            assert_eq!(Sendme::parse(&encoded), Ok(sendme));
        }
        Err(_) => {}
    }
    if let Ok(xon) = Xon::parse(data) {
        assert!(data.starts_with(&encode(|out| xon.encode_into(out))));
    }
    if let Ok(xoff) = Xoff::parse(data) {
        assert!(data.starts_with(&encode(|out| xoff.encode_into(out))));
    }
    if let Ok(link) = ConfluxLink::parse(data) {
        assert!(data.starts_with(&encode(|out| link.encode_into(out))));
    }
    if let Ok(switch) = ConfluxSwitch::parse(data) {
        assert!(data.starts_with(&encode(|out| switch.encode_into(out))));
    }
    if let Ok(padding) = LinkPadding::parse(data) {
        assert!(data.starts_with(&encode(|out| padding.encode_into(out))));
    }
    if let Ok(padding) = CircuitPadding::parse(data) {
        assert!(data.starts_with(&encode(|out| padding.encode_into(out))));
    }
    if let Ok(answer) = CircuitPaddingAnswer::parse(data) {
        assert!(data.starts_with(&encode(|out| answer.encode_into(out))));
    }
    if let Ok(request) = Request::parse(data) {
        let again = Request { wants_other_protocols: false, ..request };
        assert_eq!(Request::parse(&again.encode()), Ok(again));
    }
    if let Ok(response) = Response::parse(data) {
        assert_eq!(Response::parse(&response.encode()), Ok(response));
    }
}

/// The messages of both sides arrive, and no other bytes are accepted in their place.
fn handshake(mut input: Input<'_>) {
    let (client_secret, server_secret) = (input.array(), input.array());
    let is_altered = input.bool();
    let format = RelayFormat::V1;
    let message = input.take(200);
    let identity = vectors::identity_landing();
    let onion_secret = identity.onion_secret();
    let relay = RelayKeys { ed25519_id: identity.ed25519.0, onion_key: identity.onion_key() };
    let client = Client::new(relay, client_secret, message).expect("a good onion key");
    let mut sent = client.data().to_vec();
    let answer_message = input.take(200);
    let rest = input.rest();
    if is_altered {
        sent.clear();
        sent.extend_from_slice(rest);
        let _ = client.finish(rest, format);
        assert!(Server::open(&relay.ed25519_id, &onion_secret, &sent).is_err());
        return;
    }
    let server = Server::open(&relay.ed25519_id, &onion_secret, &sent).expect("honest");
    assert_eq!(server.message(), message);
    let (answer, _) = server.respond(server_secret, answer_message, format).expect("honest");
    let (said, _) = client.finish(&answer, format).expect("honest");
    assert_eq!(said, answer_message);
}

/// A circuit with one stream and both its ends: windows stay within their limits, and no unearned SENDME has an
/// effect.
fn course(mut input: Input<'_>) {
    let sendme_cells = input.u8().max(1);
    let values = input.take(40);
    let params = CongestionParams::from_consensus(|name| {
        let value = *values.get(name.len() * 3 % 40)?;
        Some(i32::from(value) << (value % 24))
    });
    let agreed = Agreed { congestion_sendme_cells: input.bool().then_some(sendme_cells) };
    let mut flow = Flow::new(TorFlows.end(&Arc::new(params), agreed));
    let mut stream = flow.stream(CircuitEnd::Exit);
    let increment = flow.sendme_cells();
    assert_eq!(increment, agreed.congestion_sendme_cells.map_or(100, u32::from));
    let (mut now, mut sent, mut in_flight, mut buffered) = (Instant::ORIGIN, 0u32, 0, 0);
    let mut is_peer_stopped = false;
    while !input.is_empty() {
        match input.u8() % 6 {
            0 => {
                for _ in 0..u32::from(input.u8()).min(flow.room_cells()) {
                    sent += 1;
                    in_flight += 1;
                    let mut is_due = false;
                    flow.handle_sent(now, || {
                        is_due = true;
                        tag(sent / increment)
                    });
                    assert_eq!(is_due, sent.is_multiple_of(increment));
                }
            }
            1 => {
                let is_earned = in_flight >= increment;
                let oldest = (sent - in_flight) / increment + 1;
                let path =
                    PathState { is_link_blocked: input.bool(), queued_cells: input.u16().into() };
                let sendme = tag(oldest);
                let accepted = flow.handle_sendme(now, &Sendme::Tagged(&sendme), path);
                assert_eq!(accepted.is_ok(), is_earned);
                if is_earned {
                    in_flight -= increment;
                }
                assert_eq!(u32::try_from(flow.expected_sendmes()), Ok(in_flight / increment));
            }
            2 => now += Duration::from_micros(u64::from(input.u16()) << (input.u8() % 20)),
            3 => {
                buffered += 498;
                if stream.handle_delivered(now, buffered).is_err() {
                    return;
                }
            }
            4 => {
                let drained = buffered.min(usize::from(input.u16()));
                buffered -= drained;
                stream.handle_drained(now, drained, buffered);
            }
            _ => from_peer(&mut stream, now, &mut input),
        }
        while let Some(signal) = stream.poll_signal() {
            match signal {
                StreamSignal::Xoff => assert!(!core::mem::replace(&mut is_peer_stopped, true)),
                StreamSignal::Xon(_) => is_peer_stopped = false,
                StreamSignal::Sendme => assert_eq!(agreed, Agreed::default()),
            }
        }
        assert!(flow.room_cells() > 0 || in_flight >= increment, "it never stalls");
    }
}

fn from_peer(stream: &mut StreamFlow, now: Instant, input: &mut Input<'_>) {
    match input.u8() % 3 {
        0 => _ = stream.handle_xoff(),
        1 => {
            let advised_kbyte_per_s = input.u32();
            if stream.handle_xon(now, Xon { advised_kbyte_per_s }).is_ok() {
                assert!(stream.room_bytes(now) > 0);
            }
        }
        _ => {
            let bytes = stream.room_bytes(now).min(498);
            if bytes > 0 {
                stream.handle_packaged(bytes);
            } else {
                let _ = stream.handle_sendme();
            }
        }
    }
}

fn tag(number: u32) -> [u8; 20] {
    let mut tag = [7; 20];
    tag[..4].copy_from_slice(&number.to_be_bytes());
    tag
}
