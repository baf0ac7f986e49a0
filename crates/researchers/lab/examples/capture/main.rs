//! Captures the bytes of a C tor relay for the golden tests of the engine.
//!
//! `cargo run -p lab --example capture -- crates/researchers/testkit/tests/vectors` starts a private network, opens links to
//! and from one of its relays, builds circuits through it, and writes the plaintext of both directions, with
//! all secrets of this side, to small text files.

mod links;
mod scene;

use lab::{LabError, Network, NetworkSpec, Node, RelaySpec};
use link::tls::{Session, TlsConfigs, TlsError};
use link::{IdentityIssuer, IssueError, unix_time_s};
use links::Link;
use onion::cell::msg::{Create2, DestroyReason, encode_created2_into};
use onion::cell::{BODY_LEN, CircId, Command};
use onion::circuit::{Builder, CircuitError, NextHop, Step};
use onion::crypto::{HandshakeFailed, ntor};
use onion::identity::{Ed25519Id, OwnIdentity, RelayIds, RsaId};
use onion::link::{Authentication, Channel, ChannelError, ExpectedPeer, TlsSession};
use onion::measure::Content;
use scene::{Scene, identity_scene};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

/// Label of the keying material in AUTHENTICATE.
const LABEL: &[u8] = b"EXPORTER FOR TOR TLS CLIENT BINDING AUTH0003";

/// The number of cells sent over the complete circuit in each direction.
const CELLS: usize = 4;

/// Why the capture failed.
#[derive(Debug, thiserror::Error)]
enum CaptureError {
    #[error("usage: capture FOLDER")]
    Usage,
    #[error(transparent)]
    Lab(#[from] LabError),
    #[error("control port: {0}")]
    Control(#[from] lab::control::ControlError),
    #[error(transparent)]
    Issue(#[from] IssueError),
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("link: {0}")]
    Channel(#[from] ChannelError),
    #[error("circuit: {0}")]
    Circuit(#[from] CircuitError),
    #[error(transparent)]
    Handshake(#[from] HandshakeFailed),
    #[error("the relay did not behave as expected: {0}")]
    Unexpected(String),
}

type Result<T> = std::result::Result<T, CaptureError>;

fn unexpected<T>(what: impl Into<String>) -> Result<T> {
    Err(CaptureError::Unexpected(what.into()))
}

/// Requests a circuit of two hops: CREATE_FAST, CREATED_FAST, EXTEND2.
fn request_circuit(
    relay: &mut Link,
    scene: &mut Scene,
    circ_id: CircId,
    next: NextHop,
    (x, ephemeral_secret): ([u8; 20], [u8; 32]),
) -> Result<Builder> {
    let mut two_hop: Builder = Builder::two_hops(circ_id, next, x, ephemeral_secret);
    scene.add("circ_id", "The circuit's number on our link to the relay.", &id_bytes(circ_id));
    scene.add("x", "Our half of CREATE_FAST.", &x);
    scene.add("ephemeral_secret", "Our secret of the ntor handshake.", &ephemeral_secret);
    scene.add("next_address", "The address in the EXTEND2.", &address(next.address));
    scene.add("next_rsa", "The RSA identity that it shall find there.", &next.ids.rsa.0);
    let ed25519 = next.ids.ed25519.map_or([0; 32], |id| id.0);
    scene.add("next_ed25519", "The Ed25519 identity that it shall find there.", &ed25519);
    scene.add("next_onion_key", "The onion key there.", &next.onion_key);
    let sent = relay.send(circ_id, Command::CREATE_FAST, &x)?;
    scene.add("create_fast", "Cell to the relay.", &sent);
    let created = relay.expect_cell(Command::CREATED_FAST)?;
    scene.add("created_fast", "The relay's answer.", &created.raw);
    let Step::Send { command, body } = two_hop.handle_cell(created.command, &created.body)? else {
        return unexpected("a circuit without an extension");
    };
    let sent = relay.send(circ_id, command, &body)?;
    scene.add("extend", "Our RELAY_EARLY cell with EXTEND2, which the relay obeyed.", &sent);
    Ok(two_hop)
}

/// A circuit from this program through the relay back to it, with cells in both directions.
fn good_circuit(
    relay: &mut Link,
    return_relay: &ReturnRelay,
    mut scene: Scene,
    version: &str,
) -> Result<(Link, Vec<Scene>)> {
    let circ_id = CircId::of_initiator(1);
    let next = NextHop::to_own(&return_relay.identity, return_relay.address);
    let secrets = ([0x17; 20], [0x42; 32]);
    let mut two_hop = request_circuit(relay, &mut scene, circ_id, next, secrets)?;
    let (mut landing, mut from_relay) = return_relay.accept(version)?;
    let create = landing.expect_cell(Command::CREATE2)?;
    from_relay.add("create2", "The first cell on the open link.", &create.raw);
    scene.add("create2", "As received by the second hop.", &create.raw);
    let responder_secret = [0x99; 32];
    let data = Create2::parse(&create.body).map_err(ChannelError::from)?.data;
    let identity = &return_relay.identity;
    let (answer, _) =
        ntor::respond(&identity.rsa.0, &identity.onion_secret(), responder_secret, data)?;
    let mut created = Vec::new();
    encode_created2_into(&answer, &mut created);
    scene.add("responder_secret", "The second hop's secret of the handshake.", &responder_secret);
    let sent = landing.send(create.circ_id, Command::CREATED2, &created)?;
    scene.add("created2", "The second hop's answer.", &sent);
    let extended = relay.expect_cell(Command::RELAY)?;
    scene.add("extended2", "The relay's RELAY cell with EXTENDED2, encrypted.", &extended.raw);
    if !matches!(two_hop.handle_cell(extended.command, &extended.body)?, Step::Built) {
        return unexpected("an extension that does not end");
    }

    let key = [0x5c; 16];
    scene.add("content_key", "Of the content of the cells that follow.", &key);
    let mut content = Content::new(&key);
    let (mut sent, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..CELLS {
        let mut body = [0; BODY_LEN];
        content.write_next(&mut body);
        sent.extend(relay.send(circ_id, Command::RELAY, &body)?);
        arrived.extend(landing.expect_cell(Command::RELAY)?.raw);
    }
    scene.add("forward_sent", "Cells of content to the relay.", &sent);
    scene.add("forward_arrived", "As received by the second hop.", &arrived);
    let (mut sent, mut arrived) = (Vec::new(), Vec::new());
    for _ in 0..CELLS {
        let mut body = [0; BODY_LEN];
        content.write_next(&mut body);
        sent.extend(landing.send(create.circ_id, Command::RELAY, &body)?);
        arrived.extend(relay.expect_cell(Command::RELAY)?.raw);
    }
    scene.add("backward_sent", "Cells from the second hop to the relay.", &sent);
    scene.add("backward_arrived", "As received from the relay.", &arrived);
    Ok((landing, vec![from_relay, scene]))
}

/// The second hop, to which the relay connects.
struct ReturnRelay {
    listener: TcpListener,
    address: SocketAddr,
    configs: TlsConfigs,
    identity: Arc<OwnIdentity>,
    /// SHA-256 of the relay's RSA key, which is the context of its proof.
    relay_rsa_sha256: [u8; 32],
}

impl ReturnRelay {
    /// Accepts the relay's link, and records the link handshake.
    fn accept(&self, version: &str) -> Result<(Link, Scene)> {
        let (stream, _) = self.listener.accept()?;
        let challenge = [0x3d; 32];
        let identity = Arc::clone(&self.identity);
        let session = Session::server(&self.configs)?;
        let begin =
            |session: &Session| Ok(Channel::responder(identity, session, challenge, unix_time_s()));
        let link = Link::open(stream, session, begin)?;
        let what = "A link from the relay to us, which it authenticates.";
        let mut scene = Scene::new("link_from_relay", what, version);
        scene.add("challenge", "Our random bytes in AUTH_CHALLENGE.", &challenge);
        let exported = link.session.export_keying_material(LABEL, &self.relay_rsa_sha256);
        let what = "What TLS exports for the relay's proof.";
        scene.add("exported", what, &exported.unwrap_or_default());
        scene.add("heard", "The relay's VERSIONS, CERTS, AUTHENTICATE, NETINFO.", &link.received);
        scene.add("said", "Our VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO.", &link.sent);
        Ok((link, scene))
    }
}

/// Opens a link to the relay, authenticated as a relay.
fn link_to_relay(
    relay: &Node,
    configs: &TlsConfigs,
    identity: &Arc<OwnIdentity>,
    now_s: u64,
    version: &str,
) -> Result<(Link, Scene)> {
    let address = relay.or_addr();
    let ids = RelayIds { rsa: RsaId(relay.rsa()), ed25519: Some(Ed25519Id(relay.ed25519())) };
    let random = [0x24; 24];
    let session = Session::client(configs, address.ip())?;
    let begin = |session: &Session| {
        let expected = ExpectedPeer { ids, address: address.ip() };
        let authentication = Authentication::AsRelay(Arc::clone(identity));
        Channel::initiator(expected, authentication, session, random, now_s)
    };
    let link = Link::open(TcpStream::connect(address)?, session, begin)?;
    let exported = link.session.export_keying_material(LABEL, &identity.rsa_sha256);
    let mut scene = Scene::new("link_to_relay", "A link from us to the relay.", version);
    let time = "Seconds since 1970 at the time of capture, eight bytes.";
    scene.add("unix_time_s", time, &now_s.to_be_bytes());
    scene.add("rsa", "The relay's RSA identity.", &ids.rsa.0);
    scene.add("ed25519", "The relay's Ed25519 identity.", &relay.ed25519());
    scene.add("address", "The relay's address and port.", &self::address(address));
    let certificate = link.session.peer_certificate().unwrap_or_default();
    scene.add("tls_certificate", "The relay's certificate in TLS, DER.", certificate);
    scene.add("exported", "What TLS exports for authentication.", &exported.unwrap_or_default());
    scene.add("random", "Our random bytes in AUTHENTICATE.", &random);
    let heard = "The relay's VERSIONS, CERTS, AUTH_CHALLENGE, NETINFO.";
    scene.add("heard", heard, &link.received);
    scene.add("said", "Our VERSIONS, CERTS, AUTHENTICATE, NETINFO.", &link.sent);
    Ok((link, scene))
}

/// The relay's answer to an EXTEND2 to an address without a listener.
fn dead_end(relay: &mut Link, mut scene: Scene, absent: &OwnIdentity) -> Result<Scene> {
    // The port was just released, so it has no listener.
    let dead = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let next = NextHop::to_own(absent, dead);
    request_circuit(relay, &mut scene, CircId::of_initiator(2), next, ([0x21; 20], [0x22; 32]))?;
    let answer = relay.next_cell()?;
    scene.add("answer", "The relay's answer.", &answer.raw);
    Ok(scene)
}

/// The relay's answer to an EXTEND2 that the second hop refuses.
fn refused(
    relay: &mut Link,
    landing: &mut Link,
    mut scene: Scene,
    return_relay: &ReturnRelay,
) -> Result<Scene> {
    let next = NextHop::to_own(&return_relay.identity, return_relay.address);
    request_circuit(relay, &mut scene, CircId::of_initiator(3), next, ([0x31; 20], [0x32; 32]))?;
    let create = landing.expect_cell(Command::CREATE2)?;
    let reason = DestroyReason::RESOURCE_LIMIT.get();
    let sent = landing.send(create.circ_id, Command::DESTROY, &[reason])?;
    scene.add("destroy", "The second hop's DESTROY.", &sent);
    let answer = relay.next_cell()?;
    scene.add("answer", "The relay's answer.", &answer.raw);
    Ok(scene)
}

fn id_bytes(circ_id: CircId) -> [u8; 4] {
    circ_id.get().to_be_bytes()
}

/// Four bytes of IPv4 and two of port.
fn address(address: SocketAddr) -> Vec<u8> {
    let mut bytes = match address.ip() {
        std::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        std::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    bytes.extend(address.port().to_be_bytes());
    bytes
}

fn main() -> Result<()> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or(CaptureError::Usage)?);
    std::fs::create_dir_all(&folder)?;
    let network = Network::start(&NetworkSpec::new(vec![RelaySpec::new("golden")]), &mut |_| {})?;
    let Some(relay) = network.relays().first() else { return unexpected("no relay") };
    let version = relay.control()?.get_info("version")?;
    let version = version.trim();

    let now_s = unix_time_s();
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&now_s.to_be_bytes());
    let mut issuer = IdentityIssuer::new(seed, now_s)?;
    let configs = TlsConfigs::new(&issuer)?;
    let landing_identity = Arc::new(issuer.identity()?);
    let link_identity = Arc::new(issuer.identity()?);
    let middle_identity = issuer.identity()?;
    let absent = issuer.identity()?;
    let (certificates, _) = issuer.tls_credentials()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let certificate = certificates.first().map_or(&[][..], |der| der);
    let with_certificate = |name, identity| {
        let mut own = identity_scene(name, identity, version);
        own.add("tls_certificate", "Our certificate in TLS, DER.", certificate);
        own
    };
    let own = with_certificate("identity_landing", &landing_identity);
    let middle = with_certificate("identity_middle", &middle_identity);

    let (mut to_relay, scene) = link_to_relay(relay, &configs, &link_identity, now_s, version)?;
    let relay_rsa_sha256 = to_relay.channel.peer().map_or([0; 32], |peer| peer.rsa_sha256);
    let identity = landing_identity;
    let return_relay = ReturnRelay { listener, address, configs, identity, relay_rsa_sha256 };
    let link = identity_scene("identity_link", &link_identity, version);
    let mut scenes = vec![own, link, middle, scene];

    let scene = Scene::new("circuit", "A circuit from us through the relay to us.", version);
    let (mut landing, good) = good_circuit(&mut to_relay, &return_relay, scene, version)?;
    scenes.extend(good);
    let what = "A circuit that the relay shall extend to an address without a listener.";
    let scene = Scene::new("circuit_dead_end", what, version);
    scenes.push(dead_end(&mut to_relay, scene, &absent)?);
    let what = "A circuit that the second hop refuses.";
    let scene = Scene::new("circuit_refused", what, version);
    scenes.push(refused(&mut to_relay, &mut landing, scene, &return_relay)?);

    for scene in &scenes {
        scene.write(&folder)?;
    }
    network.stop()?;
    Ok(())
}
