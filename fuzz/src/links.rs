use crate::input::{Input, pieces};
use ed25519_dalek::{Signer, SigningKey};
use onion::cell::{CircId, Command};
use onion::identity::OwnIdentity;
use onion::link::{Authentication, Channel, ChannelError, ExpectedPeer, TlsSession};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use testkit::vectors::{self, RecordedTls};

/// Recorded links with C tor.
pub(crate) struct Recorded {
    pub(crate) expected: ExpectedPeer,
    pub(crate) tls: RecordedTls,
    /// With our own certificate.
    pub(crate) own_tls: RecordedTls,
    /// The relay's link to us.
    tls_from_relay: RecordedTls,
    pub(crate) tls_sha256: [u8; 32],
    pub(crate) now_s: u64,
    pub(crate) own: Arc<OwnIdentity>,
    pub(crate) landing: Arc<OwnIdentity>,
}

impl Recorded {
    pub(crate) fn get() -> &'static Self {
        static RECORDED: OnceLock<Recorded> = OnceLock::new();
        RECORDED.get_or_init(|| {
            let scene = vectors::link_to_relay();
            let own = Arc::new(vectors::identity_link());
            let tls = scene.tls(&own.rsa_sha256);
            let certificate = tls.peer_certificate().unwrap_or_default();
            Self {
                expected: scene.expected_peer(),
                tls_sha256: Sha256::digest(certificate).into(),
                tls,
                own_tls: vectors::own_tls(),
                tls_from_relay: vectors::tls_from_relay(),
                now_s: scene.u64("unix_time_s"),
                own,
                landing: Arc::new(vectors::identity_landing()),
            }
        })
    }
}

/// Everything that a channel did with a stream.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    cells: Vec<(CircId, Command, Vec<u8>)>,
    output: Vec<u8>,
    is_open: bool,
    end: Result<(), ChannelError>,
}

fn run(mut channel: Channel, pieces: &[&[u8]]) -> Outcome {
    let mut cells = Vec::new();
    let mut end = Ok(());
    'pieces: for piece in pieces {
        let mut input = *piece;
        loop {
            match channel.handle_bytes(&mut input) {
                Ok(Some(cell)) => cells.push((cell.circ_id, cell.command, cell.body.to_vec())),
                Ok(None) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    assert!(!channel.is_open(), "an error closes the link");
                    end = Err(error);
                    break 'pieces;
                }
            }
        }
        assert!(input.is_empty(), "all input is taken");
    }
    // An open link may still deliver bytes that are no cells.
    let was_open = channel.is_open() || matches!(end, Err(ChannelError::Frame(_)));
    assert!(cells.is_empty() || was_open, "cells come from open links only");
    let mut output = vec![0; channel.queued_len()];
    let taken = channel.poll_transmit(&mut output);
    assert_eq!((taken, channel.queued_len()), (output.len(), 0));
    if channel.is_open() {
        assert!(channel.protocol().is_some());
    }
    Outcome { cells, output, is_open: channel.is_open(), end }
}

/// For any bytes of a responder: a link that opens leads to the expected relay, however the stream is split.
pub fn channel_initiator(data: &[u8]) {
    let recorded = Recorded::get();
    let mut input = Input::new(data);
    let as_relay = input.bool();
    let cuts = input.cuts();
    let stream = input.rest();
    let channel = || {
        let authentication = if as_relay {
            Authentication::AsRelay(Arc::clone(&recorded.own))
        } else {
            Authentication::Anonymous
        };
        let Recorded { expected, tls, now_s, .. } = recorded;
        Channel::initiator(*expected, authentication, tls, [0x24; 24], *now_s).expect("usable")
    };
    let whole = run(channel(), &[stream]);
    assert_eq!(run(channel(), &pieces(stream, &cuts)), whole);
    assert!(whole.output.starts_with(&[0, 0, Command::VERSIONS.get()]));
    let mut channel = channel();
    let mut rest = stream;
    while let Ok(Some(_)) = channel.handle_bytes(&mut rest) {}
    assert!(!channel.is_open() || channel.peer().is_some());
    if let Some(peer) = channel.peer() {
        assert_eq!(peer.ids, recorded.expected.ids);
    } else {
        assert!(whole.output.len() < 20, "only VERSIONS is sent to a stranger");
    }
}

/// The TLS session of a link to us: only a peer that authenticates needs one.
#[derive(Clone)]
struct Session;

impl TlsSession for Session {
    fn peer_certificate(&self) -> Option<&[u8]> {
        Recorded::get().own_tls.peer_certificate()
    }

    /// The recorded session for the relay that dialled us; another session for everyone else.
    fn export_keying_material(&self, label: &[u8], context: &[u8]) -> Option<[u8; 32]> {
        let recorded = &Recorded::get().tls_from_relay;
        let is_relays = recorded.is_for(context);
        if is_relays { recorded.export_keying_material(label, context) } else { Some([7; 32]) }
    }

    fn peer_address(&self) -> Option<IpAddr> {
        Some([127, 0, 0, 1].into())
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

fn responder() -> Channel {
    let recorded = Recorded::get();
    let landing = Arc::clone(&recorded.landing);
    Channel::responder(landing, &Session, [0x3d; 32], recorded.now_s)
}

/// The cells of our relay for that responder: VERSIONS, CERTS, AUTHENTICATE, NETINFO.
pub(crate) fn own_handshake() -> &'static [u8] {
    static STREAM: OnceLock<Vec<u8>> = OnceLock::new();
    STREAM.get_or_init(|| {
        let Recorded { landing, own, now_s, .. } = Recorded::get();
        let expected = ExpectedPeer { ids: landing.ids(), address: [127, 0, 0, 1].into() };
        let own = Authentication::AsRelay(Arc::clone(own));
        let initiator = Channel::initiator(expected, own, &Session, [0x24; 24], *now_s);
        let (mut initiator, mut responder) = (initiator.expect("usable"), responder());
        let mut stream = vec![0; initiator.queued_len()];
        let _ = initiator.poll_transmit(&mut stream);
        assert_eq!(responder.handle_bytes(&mut &stream[..]), Ok(None));
        let mut answer = vec![0; responder.queued_len()];
        let _ = responder.poll_transmit(&mut answer);
        assert_eq!(initiator.handle_bytes(&mut &answer[..]), Ok(None));
        let mut rest = vec![0; initiator.queued_len()];
        let _ = initiator.poll_transmit(&mut rest);
        stream.extend(rest);
        stream
    })
}

/// Signs the proof in this stream again, if it is still at its offset.
fn sign(stream: &mut [u8]) {
    let Some(place) = own_handshake().windows(8).position(|bytes| bytes == b"AUTH0003") else {
        return;
    };
    let Some((proof, signature)) =
        stream.get_mut(place..).and_then(|rest| rest.split_at_mut_checked(288))
    else {
        return;
    };
    let key = SigningKey::from_bytes(&Recorded::get().own.authenticate_seed);
    if let Some(signature) = signature.get_mut(..64) {
        signature.copy_from_slice(&key.sign(proof).to_bytes());
    }
}

/// For any bytes of an initiator, the result does not depend on how the stream is split, and no peer is taken for
/// another: a changed proof is refused even if it is signed with the right key.
pub fn channel_responder(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.u8();
    let cuts = input.cuts();
    let stream = match how % 4 {
        // Any bytes, or the recorded ones.
        0 | 1 => input.rest().to_vec(),
        // Our own stream, changed at some offsets.
        how => {
            let mut stream = own_handshake().to_vec();
            for _ in 0..input.u8() % 8 {
                let (place, with) = (usize::from(input.u16()) % stream.len(), input.u8());
                stream[place] ^= with;
            }
            if how == 3 {
                sign(&mut stream);
            }
            stream.extend_from_slice(input.rest());
            stream
        }
    };
    let whole = run(responder(), &[&stream]);
    assert_eq!(run(responder(), &pieces(&stream, &cuts)), whole);
    let mut channel = responder();
    let mut rest = &stream[..];
    while let Ok(Some(_)) = channel.handle_bytes(&mut rest) {}
    let Some(peer) = channel.peer() else { return };
    assert!(channel.is_open() || matches!(whole.end, Err(ChannelError::Frame(_))));
    let Recorded { expected, own, .. } = Recorded::get();
    assert!(peer.ids == expected.ids || peer.ids == own.ids(), "{:?}", peer.ids);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_relay_and_our_own_cells_are_authenticated() {
        let recorded = Recorded::get();
        let from_relay = vectors::link_from_relay();
        for (stream, ids) in [
            (from_relay.get("heard"), recorded.expected.ids),
            (own_handshake(), recorded.own.ids()),
        ] {
            let mut channel = responder();
            assert_eq!(channel.handle_bytes(&mut &stream[..]), Ok(None));
            assert_eq!(channel.peer().map(|peer| peer.ids), Some(ids));
        }
        let mut again = own_handshake().to_vec();
        sign(&mut again);
        assert_eq!(again, own_handshake());
    }

    #[test]
    fn the_seeds_open_links() {
        let recorded = Recorded::get();
        for (target, name, content) in crate::seeds() {
            let mut input = Input::new(&content);
            let channel = match target {
                "channel_initiator" => {
                    let Recorded { expected, tls, now_s, .. } = recorded;
                    let _as_relay = input.bool();
                    let authentication = Authentication::Anonymous;
                    Channel::initiator(*expected, authentication, tls, [0; 24], *now_s)
                        .expect("usable")
                }
                _ => continue,
            };
            let _cuts = input.cuts();
            assert!(run(channel, &[input.rest()]).is_open, "{name}");
        }
    }
}
