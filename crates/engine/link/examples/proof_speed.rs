//! Prints the time to verify the peer of a link on one core: certificates and proof of a relay that has dialled us, and
//! certificates of one that we have dialled.
//!
//! ```sh
//! cargo run --release -p link --example proof_speed
//! ```
//!
//! Each run has a new link; only the verification is timed. The median is printed.

use link::{Clock, IdentityIssuer, unix_time_s};
use onion::identity::OwnIdentity;
use onion::link::{Authentication, Channel, ExpectedPeer, TlsSession, Verification};
use std::hint::black_box;
use std::sync::Arc;

/// Links.
const LINKS: u8 = 201;

/// A session between the two.
#[derive(Clone)]
struct Tls(Vec<u8>);

impl TlsSession for Tls {
    fn peer_certificate(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn export_keying_material(&self, _label: &[u8], _context: &[u8]) -> Option<[u8; 32]> {
        Some([3; 32])
    }

    fn detached(&self) -> Option<Box<dyn TlsSession + Send>> {
        Some(Box::new(self.clone()))
    }
}

/// Passes the output of one side to the other.
fn pass(from: &mut Channel, to: &mut Channel) {
    let mut bytes = vec![0; 65_536];
    let len = from.poll_transmit(&mut bytes);
    let cell = to.handle_bytes(&mut &bytes[..len]);
    assert!(matches!(cell, Ok(None)), "{cell:?}");
}

#[expect(clippy::print_stdout, reason = "an example's output")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (clock, now_s) = (Clock::start(), unix_time_s());
    let mut issuer = IdentityIssuer::new([7; 32], now_s)?;
    let identity: Arc<OwnIdentity> = Arc::new(issuer.identity()?);
    let (certificates, _) = issuer.tls_credentials()?;
    let tls = Tls(certificates.first().ok_or("no certificate")?.to_vec());
    let mut us: [Vec<f64>; 2] = Default::default();
    for random in 0..LINKS {
        let expected = ExpectedPeer { ids: identity.ids(), address: [127, 0, 0, 1].into() };
        let own = Authentication::AsRelay(Arc::clone(&identity));
        let mut dialling =
            Channel::initiator(expected, own, &tls, [random; 24], now_s)?.deferring();
        let mut dialled =
            Channel::responder(Arc::clone(&identity), &tls, [random; 32], now_s).deferring();
        let mut timed = |place: usize, verification: Option<Verification>| {
            let verification = verification.expect("the handshake is complete");
            let began = clock.now();
            let verified = black_box(verification.run());
            us[place].push((clock.now() - began).as_secs_f64() * 1e6);
            verified
        };
        pass(&mut dialling, &mut dialled);
        pass(&mut dialled, &mut dialling);
        let verified = timed(1, dialling.poll_verification());
        dialling.handle_verified(verified)?;
        pass(&mut dialling, &mut dialled);
        let verified = timed(0, dialled.poll_verification());
        dialled.handle_verified(verified)?;
        assert!(dialled.is_open() && dialled.peer().is_some(), "honest");
    }
    for (what, us) in
        ["a relay that has dialled us", "a relay that we have dialled"].iter().zip(&mut us)
    {
        us.sort_by(f64::total_cmp);
        println!("{what}: {:.0} µs ({:.0} to {:.0})", us[us.len() / 2], us[0], us[us.len() - 1]);
    }
    Ok(())
}
