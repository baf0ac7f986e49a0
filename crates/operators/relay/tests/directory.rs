//! The relay's directory compared with C tor's, and renewal of keys and certificates at run time.

use crate::common::{
    PATIENCE, authorities, build_circuit, client_that_knows, config, fetched, knowing, only,
    published, text, wait_for, wait_until_known,
};
use lab::{Network, NetworkSpec, Node, RelaySpec};
use link::Clock;
use netdoc::consensus::{Consensus, Flag};
use netdoc::fetch::Resource;
use netdoc::{Router, pieces};
use onion::Instant;
use relay::{Relay, RelayConfig, RelayEvent, Renewed};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

fn consensus(directory: SocketAddr, resource: &Resource) -> Consensus {
    Consensus::parse(text(directory, resource).as_bytes()).expect("a consensus")
}

fn path(path: &str) -> Resource {
    Resource::Path(path.to_owned())
}

/// Waits until the relay has a consensus that lists it.
fn wait_until_listed(events: &Receiver<RelayEvent>) {
    wait_for("consensus that lists us", events, |event| match event {
        RelayEvent::Listed(Some(flags)) => {
            for flag in [Flag::V2Dir, Flag::Guard, Flag::Running] {
                assert!(flags.contains(flag), "{flag:?} in {flags}");
            }
            Some(())
        }
        RelayEvent::Trouble(problem) => panic!("{problem}"),
        _ => None,
    });
}

/// Sets the age of the onion key, in days.
fn age_onion_key(keys: &Path, days: u32) {
    let file = File::options().write(true).open(keys.join("secret_onion_key_ntor"));
    let file = file.expect("an onion key");
    let made = file.metadata().and_then(|metadata| metadata.modified()).expect("a date");
    file.set_modified(made - Duration::from_secs(86_400) * days).expect("dated");
}

/// The onion key in a microdescriptor.
fn onion_key(microdesc: &str) -> Option<[u8; 32]> {
    use base64::Engine;
    let key = microdesc.lines().find_map(|line| line.strip_prefix("ntor-onion-key "))?;
    let key = base64::engine::general_purpose::STANDARD_NO_PAD.decode(key.trim_end_matches('='));
    key.ok()?.try_into().ok()
}

/// The digest of the relay's microdescriptor in the consensus.
fn micro_name(router: &Router) -> String {
    use base64::Engine;
    let digest = router.microdesc_digest.expect("a microdescriptor");
    base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest)
}

#[test]
fn directory_and_authorities_have_the_same_documents() {
    let network =
        Network::start(&NetworkSpec::new(vec![RelaySpec::new("stock")]), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    let (relay, events) = published(&network, &keys);
    wait_until_listed(&events);

    // Both consensuses, and all documents that they list.
    let ours = relay.directory().expect("a directory");
    let theirs = network.directory_addrs()[0];
    let fingerprint = relay.rsa();
    let ns = consensus(ours, &Resource::Consensus);
    let microdesc = consensus(ours, &Resource::ConsensusMicrodesc);
    assert!(ns.by_fingerprint(&fingerprint).is_some(), "listed there, too");
    let names: Vec<_> = microdesc.routers().iter().map(micro_name).collect();
    assert_eq!(names.len(), 5, "three authorities, a C tor relay, and ours");
    let micro = text(ours, &path(&format!("/tor/micro/d/{}", names.join("-"))));
    assert_eq!(pieces::microdescs(micro.as_bytes()).count(), 5);
    for router in ns.routers() {
        let digest = hex::encode_upper(router.descriptor_digest.expect("a digest"));
        let path = path(&format!("/tor/server/d/{digest}"));
        assert_eq!(text(ours, &path), text(theirs, &path), "{}", router.nickname);
    }
    let certificates = text(ours, &path("/tor/keys/all"));
    assert_eq!(pieces::authority_certificates(certificates.as_bytes()).count(), 3);
    let signers = ns.authorities.iter().map(|authority| authority.fingerprint.to_string());
    let signers: Vec<_> = signers.collect();
    let wanted = format!("/tor/status-vote/current/consensus/{}", signers.join("+"));
    assert_eq!(consensus(ours, &path(&wanted)).valid_after, ns.valid_after);

    // The authorities have the extra-info document of our descriptor. A new one may not have arrived yet.
    let clock = Clock::start();
    loop {
        let own = text(ours, &path("/tor/extra/authority"));
        assert!(own.starts_with(&format!("extra-info ours {fingerprint}\n")), "{own}");
        let at_authority = text(theirs, &path(&format!("/tor/extra/fp/{fingerprint}")));
        let descriptor = text(ours, &path("/tor/server/authority"));
        if own == at_authority && descriptor == fetched(&network, &relay) {
            break;
        }
        let waited = clock.now() - Instant::ORIGIN;
        assert!(waited < PATIENCE, "{own}\n{at_authority}\n{descriptor}");
        thread::park_timeout(Duration::from_millis(500));
    }
    drop(relay);

    // After a restart it serves its stored documents, even without authorities.
    let alone = RelayConfig {
        authorities: Some(vec![SocketAddr::from(([127, 0, 0, 1], 1))]),
        ..config("ours", &keys)
    };
    let relay = Relay::start(&alone.check().expect("sound"), channel().0).expect("started");
    let found = consensus(relay.directory().expect("a directory"), &Resource::ConsensusMicrodesc);
    assert!(found.valid_after >= microdesc.valid_after);
}

#[test]
fn a_consensus_needs_signatures_of_the_configured_authorities() {
    let network = Network::start(&NetworkSpec::default(), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    // From the control port, because an authority may have a consensus before it serves it.
    let text = network.wait_for_consensus(None, &mut |_| true, PATIENCE).expect("voted");
    let ns = Consensus::parse(text.as_bytes()).expect("a consensus");
    let real = ns.authorities.iter().map(|authority| authority.fingerprint);
    let unknown = "0123456789ABCDEF0123456789ABCDEF01234567".parse().expect("a fingerprint");
    let other = "1123456789ABCDEF0123456789ABCDEF01234567".parse().expect("a fingerprint");
    for (wanted, is_enough) in [
        (real.clone().collect::<Vec<_>>(), true),
        (real.clone().take(2).chain([unknown]).collect(), true),
        (real.take(1).chain([unknown, other]).collect(), false),
    ] {
        let settings = RelayConfig {
            authorities: Some(network.directory_addrs()),
            authority_identities: Some(wanted),
            ..config("ours", &folder.path().join(if is_enough { "good" } else { "bad" }))
        };
        let (sender, events) = channel();
        let relay = Relay::start(&settings.check().expect("sound"), sender).expect("started");
        let problem = wait_for("verdict", &events, |event| match event {
            RelayEvent::NoConsensus(problem) => Some(Some(problem)),
            RelayEvent::Listed(Some(_)) => Some(None),
            _ => None,
        });
        match problem {
            None => assert!(is_enough),
            Some(problem) => {
                assert!(!is_enough && problem.contains("signed by 1 of"), "{problem}");
            }
        }
        drop(relay);
    }
}

#[test]
fn clients_are_served_across_renewals_of_onion_key_and_certificates() {
    let relays = ["client", "late"].map(RelaySpec::new).to_vec();
    let network = Network::start(&NetworkSpec::new(relays), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let config = |port| RelayConfig {
        authorities: Some(network.directory_addrs()),
        or_port: Some(port),
        ..config("ours", &folder.path().join("keys"))
    };
    let settings = config(0).check().expect("sound");
    let (sender, events) = channel();
    let relay = Relay::start(&settings, sender).expect("started");
    wait_until_known(&network, &events);
    network.wait_until_running(&[relay.rsa().0], PATIENCE).expect("listed");
    let (mut control, ours) = client_that_knows(&network, &relay);
    let [a, b, _] = authorities(&network);
    let before = only(&fetched(&network, &relay)).ntor_onion_key;
    let port = relay.address().port();
    drop(relay);

    // Four weeks later, the client does not know the new key and uses the previous one.
    age_onion_key(&settings.keys, 28);
    let (sender, events) = channel();
    let relay = Relay::start(&config(port).check().expect("sound"), sender).expect("started");
    wait_for("new onion key", &events, |event| {
        (event == RelayEvent::Renewed(Renewed::OnionKey)).then_some(())
    });
    build_circuit(&mut control, &[&a, &ours, &b]);
    wait_until_known(&network, &events);
    assert_ne!(only(&fetched(&network, &relay)).ntor_onion_key, before);
    // Then it learns the new key. In between it may know none.
    let md = format!("md/id/{}", relay.rsa());
    while control.get_info(&md).ok().is_none_or(|text| onion_key(&text) == before) {
        control.events().recv_timeout(PATIENCE).expect("news");
    }
    build_circuit(&mut control, &[&a, &ours, &b]);

    // A client that connects after the renewal of certificates accepts them.
    relay.renew_certificates();
    wait_for("new certificates", &events, |event| {
        (event == RelayEvent::Renewed(Renewed::Certificates)).then_some(())
    });
    let mut late = knowing(&network, 1, &[&relay.rsa().to_string()]);
    build_circuit(&mut late, &[&ours, &a, &b]);
    build_circuit(&mut control, &[&ours, &a, &b]);
}

/// A C tor client. Dropping it ends the process.
struct Client {
    process: Child,
    log: Receiver<String>,
}

impl Client {
    /// A client that no authority answers, and whose only entry is our relay.
    fn start(folder: &Path, authorities: &[String], relay: &Relay) -> Self {
        let (fingerprint, address) = (relay.rsa(), relay.address());
        let port = address.port();
        let mut torrc = format!(
            "DataDirectory {}\nTestingTorNetwork 1\nSocksPort auto\nLog notice stdout\n\
             FallbackDir {address} orport={port} id={fingerprint}\n\
             UseEntryGuards 0\nReachableAddresses {address}\n__OwningControllerProcess {}\n",
            folder.display(),
            std::process::id()
        );
        authorities.iter().for_each(|line| torrc.push_str(line));
        let file = folder.join("torrc");
        std::fs::write(&file, torrc).expect("written");
        let defaults = folder.join("defaults");
        std::fs::write(&defaults, "").expect("written");
        let mut command = Command::new("tor");
        command.env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default()));
        command.arg("--defaults-torrc").arg(&defaults).arg("-f").arg(&file);
        let mut process = command.stdout(Stdio::piped()).spawn().expect("a tor");
        let output = process.stdout.take().expect("piped");
        let (sender, log) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { process, log }
    }

    fn wait_for_log(&self, what: &str) {
        // A failing client may run forever.
        const LINES_MAX: usize = 200;
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.contains(what)) {
            match self.log.recv_timeout(PATIENCE) {
                Ok(line) if lines.len() < LINES_MAX => lines.push(line),
                _ => panic!("no {what:?} in {lines:#?}"),
            }
        }
    }
}

/// The `DirAuthority` lines of a network, with closed ports.
fn deaf_authorities(network: &Network) -> Vec<String> {
    let line = |(authority, port): (&Node, u16)| {
        format!(
            "DirAuthority {} orport={port} no-v2 v3ident={} 127.0.0.1:{port} {}\n",
            authority.nickname(),
            hex::encode_upper(authority.v3_identity().expect("an authority")),
            authority.rsa_hex()
        )
    };
    network.authorities().iter().zip(1..).map(line).collect()
}

impl Drop for Client {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_c_tor_client_bootstraps_from_our_directory_alone() {
    let network =
        Network::start(&NetworkSpec::new(vec![RelaySpec::new("stock")]), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let (relay, events) = published(&network, &folder.path().join("keys"));
    wait_until_listed(&events);

    let data = folder.path().join("client");
    std::fs::create_dir(&data).expect("made");
    let client = Client::start(&data, &deaf_authorities(&network), &relay);
    client.wait_for_log("Bootstrapped 100%");
    // Its documents are ours.
    let stored = std::fs::read_to_string(data.join("cached-microdesc-consensus")).expect("stored");
    assert!(Consensus::parse(stored.as_bytes()).is_ok());
    drop(client);
}

/// A C tor client with our relay as its only directory, and our relay with C tor authorities, both fetch the next consensus as a diff.
#[test]
fn consensus_diffs_work_from_c_tor_to_our_relay_and_from_it_to_a_c_tor_client() {
    let network =
        Network::start(&NetworkSpec::new(vec![RelaySpec::new("stock")]), &mut |_| {}).expect("up");
    let folder = tempfile::tempdir().expect("a folder");
    let (relay, events) = published(&network, &folder.path().join("keys"));
    wait_until_listed(&events);
    let data = folder.path().join("client");
    std::fs::create_dir(&data).expect("made");
    let log = data.join("log");
    let mut lines = deaf_authorities(&network);
    lines.push(format!("Log [dir]info notice file {}\nFetchDirInfoEarly 1\n", log.display()));
    let client = Client::start(&data, &lines, &relay);
    client.wait_for_log("Bootstrapped 100%");

    let clock = Clock::start();
    let deadline = clock.now() + PATIENCE;
    let logged = || std::fs::read_to_string(&log).expect("a log");
    while !logged().contains("Applied consensus diff") || relay.diff_totals().applied == 0 {
        assert!(clock.now() < deadline, "{:?}: {}", relay.diff_totals(), logged());
        let _news = events.recv_timeout(Duration::from_millis(200));
    }
    let totals = relay.diff_totals();
    assert!(totals.served > 0, "{totals:?}");
    let text = logged();
    assert!(!text.contains("Could not apply consensus diff"), "{text}");
}
