//! An exit that lies to our client on linked circuits, over real sockets; `testkit/tests/linked.rs` does so in virtual time.
//!
//! An exit can send any data in order, since it sees the plaintext. It must not be able to make the client lose, reorder or
//! invent data, exceed its limits, or stop serving other streams.

#[path = "lying_exit/exit.rs"]
mod exit;
#[path = "lying_exit/transcript.rs"]
mod transcript;

#[expect(dead_code, reason = "other test programs use the rest")]
mod common;

use client::strategy::{Position, Strategy};
use client::{Choices, Event, NetDir, RelayInfo, Settings};
use common::{Ours, PATIENCE, network};
use exit::{ExitBehavior, LyingExit, Transcripts};
use lab::{Network, RelaySpec, connect_through};
use link::Clock;
use onion::Instant;
use relay::{Relay, RelayConfig};
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use transcript::Transcript;

/// The number of streams that the exit lies to.
const LIED_TO: u16 = 24;
/// Parallel streams.
const AT_ONCE: u16 = 12;
/// A stream that receives nothing for this time is abandoned, because an exit may always be silent.
const QUIET: Duration = Duration::from_secs(1);
/// Maximum memory of the client in a flood, after docs/clients.md: 25 MB of a stream, and 32,768 messages out of order in a set, with
/// the overhead of allocators and sockets.
const HELD_MAX_KB: u64 = 64 << 10;

#[derive(Debug)]
struct OnlyExit;

impl Strategy for OnlyExit {
    fn name(&self) -> &'static str {
        "only-exit"
    }

    fn weight(&self, _: &NetDir, relay: &RelayInfo, at: Position, _: &[&RelayInfo]) -> f64 {
        f64::from(u8::from((at == Position::Exit) == (relay.nickname.as_str() == "liar")))
    }
}

/// Publishes a relay, and then replaces it with the lying exit, which has its keys.
fn lying_exit(
    network: &Network,
    folder: &Path,
    lies_at_links: Arc<AtomicBool>,
    transcripts: Transcripts,
) -> link::NodeThread<LyingExit> {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let keys = folder.join("liar");
    let config =
        RelayConfig { or_port: Some(address.port()), ..common::our_exit("liar", network, folder) };
    let relay = Relay::start(&config.check().expect("sound"), channel().0).expect("started");
    network.wait_until_known(&[relay.rsa().0], PATIENCE).expect("listed");
    drop(relay);
    LyingExit::start(&keys, address, lies_at_links, transcripts)
}

fn open(socks: SocketAddr, behavior: ExitBehavior) -> Option<TcpStream> {
    let name = format!("program{}", behavior.port());
    connect_through(socks, ("127.0.0.1", behavior.port()), &name, PATIENCE).ok()
}

/// Reads until the end, or until no data arrives. Returns the data, and whether the stream was ended.
fn read(mut stream: TcpStream, patience: Duration) -> (Vec<u8>, bool) {
    stream.set_read_timeout(Some(patience)).expect("set");
    let mut got = Vec::new();
    let ended = stream.read_to_end(&mut got);
    let is_quiet = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
    let is_ended = ended.map_or_else(|error| !is_quiet(error.kind()), |_| true);
    (got, is_ended)
}

fn transcripts_of(transcripts: &Transcripts, behavior: ExitBehavior) -> Vec<Transcript> {
    transcripts.lock().expect("no panic").get(&behavior.port()).cloned().unwrap_or_default()
}

/// Downloads while the exit is honest. This may take several attempts, since some sets were linked by lies.
fn honest(client: &mut Ours, transcripts: &Transcripts) {
    let (clock, socks) = (Clock::start(), client.proxy.socks());
    loop {
        let got = open(socks, ExitBehavior::Honest).map(|stream| read(stream, PATIENCE).0);
        let whole = transcripts_of(transcripts, ExitBehavior::Honest).last().map(Transcript::whole);
        if got.as_ref().is_some_and(|got| got.len() > 10_000) && got == whole {
            return;
        }
        let waited = clock.now() - Instant::ORIGIN;
        assert!(
            waited < PATIENCE,
            "{:?} bytes: {:#?}",
            got.map(|bytes| bytes.len()),
            client.all_events()
        );
        thread::park_timeout(Duration::from_millis(500));
    }
}

#[test]
fn a_lying_exit_alters_no_delivered_data_and_exceeds_no_memory_limit() {
    let network =
        network((0..3).map(|number| RelaySpec::new(&format!("middle{number}"))).collect());
    let folder = tempfile::tempdir().expect("a folder");
    let (lies_at_links, transcripts) = (Arc::new(AtomicBool::new(false)), Transcripts::default());
    let shared = (Arc::clone(&lies_at_links), Arc::clone(&transcripts));
    let _exit = lying_exit(&network, folder.path(), shared.0, shared.1);
    let settings = Settings {
        choices: Choices { legs: 2, strategy: Box::new(OnlyExit), ..Choices::default() },
        ..Settings::new(network.directory_addrs(), folder.path().join("client"))
    };
    let mut client = Ours::start_with(settings);
    let socks = client.proxy.socks();
    honest(&mut client, &transcripts);

    // All kinds of lies.
    lies_at_links.store(true, Ordering::Relaxed);
    let clock = Clock::start();
    let mut all = Vec::new();
    for first in (0..LIED_TO).step_by(usize::from(AT_ONCE)) {
        let seeds = first..first + AT_ONCE;
        all.extend(thread::scope(|scope| {
            let program = |seed| {
                scope.spawn(move || {
                    (seed, open(socks, ExitBehavior::Lies(seed)).map(|stream| read(stream, QUIET)))
                })
            };
            let programs: Vec<_> = seeds.map(program).collect();
            programs
                .into_iter()
                .map(|program| program.join().expect("no panic"))
                .collect::<Vec<_>>()
        }));
    }
    let (mut some, mut ended) = (0, 0);
    for (seed, got) in all {
        let Some((got, is_ended)) = got else { continue };
        let expected = transcripts_of(&transcripts, ExitBehavior::Lies(seed));
        let what =
            format!("lies {seed}: {} bytes that the exit did not send in this order", got.len());
        assert!(
            got.is_empty() || expected.iter().any(|transcript| transcript.permits(&got)),
            "{what}: {:#?}",
            client.all_events()
        );
        some += u32::from(got.len() > 1000);
        ended += u32::from(is_ended);
    }
    println!("{:?} lied to {LIED_TO}: {some} got something, {ended} were ended", clock.now());
    let few = u32::from(LIED_TO) / 4;
    assert!(some > few && ended > few, "{some} got something, {ended} were ended");
    lies_at_links.store(false, Ordering::Relaxed);
    println!("{:?} again", clock.now());
    honest(&mut client, &transcripts);

    // Floods beyond the limits: never in sequence, or unread.
    for behavior in [ExitBehavior::FloodBehindGap, ExitBehavior::Flood] {
        let before_kb = testkit::memory_kb("VmRSS");
        let stream = open(socks, behavior).expect("granted");
        let reason = client.wait_for("end of the flood", |event| match event {
            Event::StreamClosed { target, reason, is_ok: false, .. } => {
                target.ends_with(&format!(":{}", behavior.port())).then(|| reason.clone())
            }
            _ => None,
        });
        let held_kb = testkit::memory_kb("VmHWM").saturating_sub(before_kb);
        println!("{:?} {behavior:?}: {held_kb} kB: {reason}", clock.now());
        assert!(held_kb < HELD_MAX_KB, "{behavior:?}: {held_kb} kB more are held: {reason}");
        drop(stream);
        honest(&mut client, &transcripts);
    }
}
