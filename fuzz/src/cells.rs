use crate::input::{Input, pieces};
use crate::links::Recorded;
use onion::cell::msg::{
    AuthChallenge, Certs, Create2, CreatedFast, DestroyReason, Extend2, FeedbackEntry, NetInfo,
    encode_created2_into, encode_versions_cell, parse_created2, parse_versions,
};
use onion::cell::relay::{MAX_DATA_LEN, RelayMessage};
use onion::cell::{BODY_LEN, Cell, CircId, Command, FrameError, Framer, MAX_VARIABLE_BODY_LEN};
use onion::link::{verify_initiator_certs, verify_responder_certs};

/// Cells, and how the stream ended.
type Framed = (Vec<(CircId, Command, Vec<u8>)>, Result<(), FrameError>);

fn frame(is_wide: bool, pieces: &[&[u8]]) -> Framed {
    let mut framer = Framer::new();
    if is_wide {
        framer.widen_circ_ids();
    }
    let mut cells = Vec::new();
    for piece in pieces {
        let mut input = *piece;
        loop {
            match framer.next_cell(&mut input) {
                Ok(Some(Cell { circ_id, command, body })) => {
                    assert!(command.is_variable_length() || body.len() == BODY_LEN);
                    assert!(body.len() <= MAX_VARIABLE_BODY_LEN);
                    cells.push((circ_id, command, body.to_vec()));
                    framer.widen_circ_ids(); // as after VERSIONS
                }
                Ok(None) => break,
                Err(error) => return (cells, Err(error)),
            }
        }
        assert!(input.is_empty(), "all input is taken");
        assert!(framer.carried_len() < MAX_VARIABLE_BODY_LEN + 7, "no more than one cell is kept");
    }
    (cells, Ok(()))
}

/// Parsed cells do not depend on how the stream is split, and encode to the same bytes.
pub fn framer(data: &[u8]) {
    let mut input = Input::new(data);
    let is_wide = input.bool();
    let cuts = input.cuts();
    let stream = input.rest();
    let (cells, end) = frame(is_wide, &[stream]);
    assert_eq!(frame(is_wide, &pieces(stream, &cuts)), (cells.clone(), end));

    let mut encoded = Vec::new();
    for (circ_id, command, body) in cells {
        Cell { circ_id, command, body: &body }.encode_into(&mut encoded);
    }
    if is_wide {
        assert!(stream.starts_with(&encoded));
    } else {
        // Only the first cell, VERSIONS, has a circuit ID of two bytes.
        assert!(encoded.is_empty() || stream.starts_with(&encoded[2..]));
    }
}

/// A decoded message survives encoding and decoding unchanged.
pub fn messages(data: &[u8]) {
    if let Ok(versions) = parse_versions(data) {
        let versions: Vec<u16> = versions.collect();
        let cell = encode_versions_cell(&versions);
        if u16::try_from(data.len()).is_ok() {
            assert_eq!(&cell[5..], data);
        }
    }
    certs_again(data);
    if let Ok(challenge) = AuthChallenge::parse(data) {
        let encoded = encode(|out| challenge.encode_into(out));
        assert!(data.starts_with(&encoded));
    }
    if let Ok(info) = NetInfo::parse(data) {
        let encoded = encode(|out| info.encode_into(out));
        let again = NetInfo::parse(&encoded).expect("our own");
        // "Would rather not say" is encoded as 0.0.0.0.
        let other = info.other.or(Some([0, 0, 0, 0].into()));
        assert_eq!(again, NetInfo { other, ..info });
    }
    if let Ok(create) = Create2::parse(data) {
        let encoded = encode(|out| create.encode_into(out));
        assert!(data.starts_with(&encoded));
    }
    if let Ok(answer) = parse_created2(data) {
        let encoded = encode(|out| encode_created2_into(answer, out));
        assert!(data.starts_with(&encoded));
    }
    if let Ok(created) = CreatedFast::parse(data) {
        let encoded = encode(|out| created.encode_into(out));
        assert_eq!(encoded, data[..40]);
    }
    if let Ok(extend) = Extend2::parse(data) {
        let encoded = encode(|out| extend.encode_into(out));
        assert!(data.starts_with(&encoded));
    }
    if let Ok(entries) = FeedbackEntry::parse(data) {
        let encoded = encode(|out| entries.for_each(|entry| entry.encode_into(out)));
        assert_eq!(encoded, data);
    }
    if let Ok(message) = RelayMessage::parse(data) {
        match message.to_body() {
            Ok(body) => assert_eq!(RelayMessage::parse(&body), Ok(message)),
            Err(_) => assert!(message.data.len() > MAX_DATA_LEN),
        }
    }
    let reason = DestroyReason::parse(data);
    assert_eq!(DestroyReason::parse(&[reason.get()]), reason);
    assert!(!reason.to_string().is_empty());
}

fn encode(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn certs_again(body: &[u8]) {
    let Ok(certs) = Certs::parse(body) else { return };
    let all: Vec<(u8, &[u8])> =
        (0..=u8::MAX).filter_map(|number| Some((number, certs.get(number)?))).collect();
    let encoded = encode(|out| Certs::encode_into(&all, out));
    let again = Certs::parse(&encoded).expect("our own");
    assert!((0..=u8::MAX).all(|number| again.get(number) == certs.get(number)));
}

/// The recorded TLS certificate proves the recorded relay's identity and no other.
pub fn certs(data: &[u8]) {
    let Ok(certs) = Certs::parse(data) else { return };
    let recorded = Recorded::get();
    if let Ok(peer) = verify_responder_certs(&certs, &recorded.tls_sha256, recorded.now_s) {
        assert_eq!(peer.ids, recorded.expected.ids);
    }
    // A certificate for link authentication implies recorded certificates.
    if let Ok((peer, key)) = verify_initiator_certs(&certs, recorded.now_s) {
        let own = &recorded.own;
        assert!(peer.ids == recorded.expected.ids || peer.ids == own.ids(), "{:?}", peer.ids);
        assert!(peer.ids != own.ids() || own.authenticate_cert[7..39] == key);
    }
}
