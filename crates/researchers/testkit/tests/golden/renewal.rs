//! Certificates that change while links are being made.

use onion::Instant;
use onion::cell::msg::{Certs, cert_type, encode_versions_cell};
use onion::cell::{Command, Framer, LinkProtocol};
use onion::identity::OwnIdentity;
use onion::link::TlsSession;
use onion::node::{ListenerId, Node};
use onion::router::{Router, RouterConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::sync::Arc;
use testkit::vectors;

/// A session that shows the TLS certificate with this digest.
struct Shows([u8; 32]);

impl TlsSession for Shows {
    fn peer_certificate(&self) -> Option<&[u8]> {
        None
    }

    fn own_certificate_sha256(&self) -> Option<[u8; 32]> {
        Some(self.0)
    }

    fn export_keying_material(&self, _label: &[u8], _context: &[u8]) -> Option<[u8; 32]> {
        Some([0; 32])
    }
}

/// The certificate of the TLS certificate that a router presents to a peer with this session.
fn presented(router: &mut Router<ChaCha8Rng>, now: Instant, tls: &Shows) -> Vec<u8> {
    let conn = router.handle_accepted(now, ListenerId(0), tls).expect("accepted");
    router.handle_bytes(now, conn, &encode_versions_cell(&LinkProtocol::SUPPORTED));
    let mut said = vec![0; 16_384];
    let len = router.poll_transmit(now, conn, &mut said);
    let (mut framer, mut input) = (Framer::new(), &said[..len]);
    while let Some(cell) = framer.next_cell(&mut input).expect("cells") {
        if cell.command == Command::VERSIONS {
            framer.widen_circ_ids();
        } else if cell.command == Command::CERTS {
            let certs = Certs::parse(cell.body).expect("well-formed");
            return certs.get(cert_type::ED25519_TLS_LINK).expect("there").to_vec();
        }
    }
    panic!("no certificates");
}

#[test]
fn a_link_gets_the_certificates_that_match_its_tls_session() {
    let former = vectors::identity_landing();
    let mut tls_link_cert = former.tls_link_cert.clone();
    tls_link_cert[7..39].fill(0x5a);
    let next = OwnIdentity { tls_link_cert, ..former.clone() };
    let now = Instant::ORIGIN;
    let config =
        RouterConfig::new(Arc::new(former.clone()), vectors::link_to_relay().u64("unix_time_s"));
    let mut router = Router::new(config, ChaCha8Rng::seed_from_u64(1), now);
    let old = Shows(former.tls_certificate_sha256().expect("a certificate"));
    assert_eq!(presented(&mut router, now, &old), former.tls_link_cert);

    router.set_identity(Arc::new(next.clone()));
    assert_eq!(presented(&mut router, now, &old), former.tls_link_cert, "begun before");
    assert_eq!(presented(&mut router, now, &Shows([0x5a; 32])), next.tls_link_cert);
    // Another onion key leaves certificates as they are.
    router.set_identity(Arc::new(OwnIdentity { onion_secret: [9; 32], ..next.clone() }));
    assert_eq!(presented(&mut router, now, &old), former.tls_link_cert);
    assert_eq!(presented(&mut router, now, &Shows([0x5a; 32])), next.tls_link_cert);
    // Of no known one: the present ones.
    assert_eq!(presented(&mut router, now, &Shows([1; 32])), next.tls_link_cert);
}
