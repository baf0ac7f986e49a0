//! The cases of [`lab::conformance`] for C tor with `patches/tor-0.4.9`. `flashflow-lab/tests/conformance.rs` has them for our relay.
//!
//! `make tor` builds it; without it this test is skipped.

use crate::common::echo_scenario::COORDINATOR;
use lab::conformance::{Judge, Subject, all_cases};
use link::Clock;
use onion::Duration;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::load::Target;
use onion::measure::protocol::CoordinatorKey;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::thread;

/// Longer than tor takes to listen.
const SOON: Duration = Duration::from_secs(40);
/// A relay's longest measurement.
const MAX_DURATION_S: u64 = 10;

/// A relay of C tor that contacts nobody.
struct TorRelay {
    _process: TorProcess,
    _folder: tempfile::TempDir,
    target: Target,
}

impl TorRelay {
    fn start(tor: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        // Free until tor listens, with luck.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address: SocketAddr = free.local_addr().expect("bound");
        drop(free);
        let key = CoordinatorKey::of_seed(&COORDINATOR);
        let torrc = format!(
            "DataDirectory {0}/data\nLog notice file {0}/log\nTestingTorNetwork 1\nShutdownWaitLength 0\n\
             Address 127.0.0.1\nORPort {address}\nAssumeReachable 1\nSocksPort 0\nExitRelay 0\n\
             PublishServerDescriptor 0\n__OwningControllerProcess {1}\n\
             DirAuthority none orport=1 no-v2 v3ident={2} 127.0.0.1:1 {2}\n\
             FlashFlow 1\nFlashFlowCoordinator {key}\nFlashFlowQuota 50\n\
             FlashFlowMaxDuration {MAX_DURATION_S} seconds\n",
            path.display(),
            std::process::id(),
            "0123456789ABCDEF0123456789ABCDEF01234567",
        );
        fs::write(path.join("torrc"), torrc).expect("writable");
        fs::write(path.join("defaults"), "").expect("writable");
        let process = Process::new(tor)
            .args(["-f", "torrc", "--defaults-torrc", "defaults"])
            .current_dir(path)
            .stdout(Stdio::null())
            .spawn();
        let mut process = TorProcess(process.expect("tor"));
        let clock = Clock::start();
        let deadline = clock.now() + SOON;
        let fingerprint = path.join("data/fingerprint");
        let is_ready = || fingerprint.exists() && std::net::TcpStream::connect(address).is_ok();
        while !is_ready() {
            let has_ended = process.0.try_wait().expect("our process").is_some();
            let log = fs::read_to_string(path.join("log")).unwrap_or_default();
            assert!(!has_ended && clock.now() < deadline, "tor does not listen: {log}");
            thread::park_timeout(Duration::from_millis(20));
        }
        let fingerprint = fs::read_to_string(&fingerprint).expect("written");
        let hex = fingerprint.split_whitespace().last().expect("a fingerprint");
        let mut rsa = [0; 20];
        hex::decode_to_slice(hex, &mut rsa).expect("hexadecimal digits");
        let file = fs::read(path.join("data/keys/ed25519_master_id_public_key")).expect("written");
        let ed25519 = file.last_chunk().copied().map(Ed25519Id);
        let target = Target { address, ids: RelayIds { rsa: RsaId(rsa), ed25519 } };
        Self { _process: process, _folder: folder, target }
    }
}

/// Ends with its owner, also if that panics before tor listens.
struct TorProcess(Child);

impl Drop for TorProcess {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

#[test]
fn a_patched_tor_conforms() {
    let Some(tor) = lab::patched_tor() else {
        skip::this_test!("no patched tor: `make tor` builds it")
    };
    let relay = TorRelay::start(&tor);
    let unix_time_s = link::unix_time_s();
    let subject = Subject { target: relay.target, coordinator: COORDINATOR, unix_time_s };
    let mut judge = Judge::new(subject).expect("this machine");
    let mut differing = Vec::new();
    for case in all_cases() {
        let found = judge.play(case).expect("this machine");
        if found != case.expected {
            differing.push((case.name, case.expected, found));
        }
    }
    assert!(differing.is_empty(), "{differing:#?}");
}
