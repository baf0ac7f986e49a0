use super::*;
use crate::identity_issuer::IdentityIssuer;
use sha2::{Digest, Sha256};

fn pair() -> (Session, Session) {
    let issuer = IdentityIssuer::new([5; 32], 1_700_000_000).expect("keys");
    let configs = TlsConfigs::new(&issuer).expect("usable");
    let address = IpAddr::from([127, 0, 0, 1]);
    (
        Session::client(&configs, address).expect("usable"),
        Session::server(&configs).expect("usable"),
    )
}

/// Moves what `from` has pending to `to`.
fn carry(from: &mut Session, to: &mut Session) {
    let len = from.pending().len();
    to.read_space()[..len].copy_from_slice(from.pending());
    to.commit(len);
    from.advance(len);
}

/// Processes until there is no progress; returns the events in order.
fn process_all(session: &mut Session) -> Vec<String> {
    let mut log = Vec::new();
    loop {
        let mut got = Vec::new();
        let progress = session.process(&mut |plaintext| got.extend_from_slice(plaintext));
        if !got.is_empty() {
            log.push(String::from_utf8(got).expect("text"));
        }
        match progress.expect("honest") {
            Progress::Established => log.push("(established)".to_string()),
            Progress::Waiting | Progress::PeerClosed => return log,
        }
    }
}

/// A client that has sent its whole handshake, and a server that has not received the end.
fn pair_with_one_flight_to_go() -> (Session, Session) {
    let (mut client, mut server) = pair();
    process_all(&mut client);
    carry(&mut client, &mut server);
    process_all(&mut server);
    carry(&mut server, &mut client);
    process_all(&mut client);
    (client, server)
}

#[test]
fn data_arriving_with_the_end_of_the_handshake_is_kept() {
    let (mut client, mut server) = pair();
    assert!(process_all(&mut client).is_empty());
    carry(&mut client, &mut server);
    assert!(process_all(&mut server).is_empty());
    carry(&mut server, &mut client);
    assert_eq!(process_all(&mut client), ["(established)"]);
    client.encrypt(b"VERSIONS").expect("established");
    carry(&mut client, &mut server);
    assert_eq!(process_all(&mut server), ["(established)", "VERSIONS"]);
}

#[test]
fn the_end_of_the_handshake_is_reported_without_data() {
    let (mut client, mut server) = pair_with_one_flight_to_go();
    carry(&mut client, &mut server);
    let progress = server.process(&mut |_| panic!("nothing was sent"));
    assert_eq!(progress, Ok(Progress::Established));
}

#[test]
fn both_sides_see_the_same_certificate() {
    let (client, server) = pair_with_one_flight_to_go();
    let seen = Sha256::digest(client.peer_certificate().expect("shown"));
    let mut issuer = IdentityIssuer::new([5; 32], 1_700_000_000).expect("keys");
    let identity = issuer.identity().expect("an identity");
    for session in [&server as &dyn TlsSession, &*server.detached().expect("that can be")] {
        assert_eq!(session.own_certificate_sha256(), Some(seen.into()));
    }
    assert_eq!(identity.tls_certificate_sha256(), Some(seen.into()));
    assert_eq!(client.own_certificate_sha256(), None);
}

#[test]
fn a_client_has_nothing_to_accept_connections_with() {
    let configs = TlsConfigs::client().expect("usable");
    assert_eq!(Session::server(&configs).err(), Some(TlsError::NoCertificate));
    assert!(Session::client(&configs, IpAddr::from([127, 0, 0, 1])).is_ok());
}
