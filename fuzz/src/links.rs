use crate::input::{Input, pieces};
use crate::vectors::{self, RecordedTls};
use onion::cell::{CircId, Command};
use onion::identity::OwnIdentity;
use onion::link::{Authentication, Channel, ChannelError, ExpectedPeer, TlsSession};
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};

/// What was recorded of the links with a stock tor.
pub(crate) struct Recorded {
    pub(crate) expected: ExpectedPeer,
    pub(crate) tls: RecordedTls,
    /// With our own certificate.
    pub(crate) own_tls: RecordedTls,
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
                now_s: scene.u64("unix_time_s"),
                own,
                landing: Arc::new(vectors::identity_landing()),
            }
        })
    }
}

/// All that a channel did with a stream.
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
                    assert!(!channel.is_open(), "an error is the end of a link");
                    end = Err(error);
                    break 'pieces;
                }
            }
        }
        assert!(input.is_empty(), "all input is taken");
    }
    // An open link may still bring what cannot be cut into cells.
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

/// Whatever a responder says: a link that opens leads to the relay that was wanted, and the cut of
/// the stream does not matter.
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
        assert!(whole.output.len() < 20, "nothing but VERSIONS is said to a stranger");
    }
}

/// Whatever an initiator says, the cut of the stream does not matter.
pub fn channel_responder(data: &[u8]) {
    let recorded = Recorded::get();
    let mut input = Input::new(data);
    let cuts = input.cuts();
    let stream = input.rest();
    let channel = || Channel::responder(Arc::clone(&recorded.landing), [0x3d; 32]);
    let whole = run(channel(), &[stream]);
    assert_eq!(run(channel(), &pieces(stream, &cuts)), whole);
}

#[cfg(test)]
mod tests {
    use super::*;

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
                "channel_responder" => Channel::responder(Arc::clone(&recorded.landing), [0; 32]),
                _ => continue,
            };
            let _cuts = input.cuts();
            assert!(run(channel, &[input.rest()]).is_open, "{name}");
        }
    }
}
