//! Directories that lie to our client over real sockets, in front of a network of C tor.
//!
//! A directory can only withhold documents: the client refuses altered ones, cuts off endless ones, and needs only
//! one honest directory among many.

#[expect(dead_code, reason = "other test programs use the rest")]
mod common;

use client::{Event, Settings};
use common::{Ours, PATIENCE, exit, network};
use lab::{Content, ContentServer, Network, Node, download};
use link::Clock;
use netdoc::RsaId;
use netdoc::fetch::{Fetcher, Resource};
use onion::Instant;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use testkit::memory_kb;

const KEYS: &str = "/tor/keys/all";
const CONSENSUS: &str = "/tor/status-vote/current/consensus-microdesc";
/// The limit on the client's memory with an endless answer: 32 MiB, twice while a buffer grows, and other uses.
const HELD_MAX_KB: u64 = 256 << 10;

#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Flips a bit in each 300 bytes.
    Flipped,
    /// Changes the weights of relays: a valid document with invalid signatures.
    Forged,
    /// Sends half as if it were complete.
    Halved,
    /// Never ends the answer.
    Endless,
    /// Never begins the answer.
    Silent,
    /// Claims that the client has the latest document.
    NothingLater,
    /// Claims that the document does not exist.
    Nothing,
    /// Sends another complete document.
    Swapped,
}

const LIES: [Lie; 8] = [
    Lie::Flipped,
    Lie::Forged,
    Lie::Halved,
    Lie::Endless,
    Lie::Silent,
    Lie::NothingLater,
    Lie::Nothing,
    Lie::Swapped,
];

/// Sends the honest directory's answer, altered by the lie.
fn answer(
    lie: Option<Lie>,
    honest: SocketAddr,
    path: &str,
    mut to: TcpStream,
) -> std::io::Result<()> {
    let other = if path.starts_with(KEYS) { CONSENSUS } else { KEYS };
    let path = if matches!(lie, Some(Lie::Swapped)) { other } else { path };
    let got = Fetcher::default().get(honest, &Resource::Path(path.to_owned()));
    let mut body = got.unwrap_or_default();
    match lie {
        Some(Lie::Flipped) => body.iter_mut().step_by(300).for_each(|byte| *byte ^= 1),
        Some(Lie::Forged) => {
            let text = String::from_utf8_lossy(&body);
            body = text.replace("w Bandwidth=", "w Bandwidth=9").into_bytes();
        }
        Some(Lie::Halved) => body.truncate(body.len() / 2),
        Some(Lie::Endless) => {
            to.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
            to.write_all(&body)?;
            loop {
                to.write_all(&[b'\n'; 1 << 14])?;
            }
        }
        // Until the client gives up.
        Some(Lie::Silent) => return to.read_to_end(&mut Vec::new()).map(drop),
        Some(Lie::NothingLater) => {
            return to.write_all(b"HTTP/1.0 304 Not modified\r\n\r\n");
        }
        Some(Lie::Nothing) => return to.write_all(b"HTTP/1.0 404 Not found\r\n\r\n"),
        Some(Lie::Swapped) | None => {}
    }
    write!(to, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())?;
    to.write_all(&body)
}

/// A directory that lies, until it is dropped.
struct Liar {
    lie: Lie,
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Liar {
    /// With `is_partly` the signed part is unchanged, and everything else is a lie.
    fn start(lie: Lie, honest: SocketAddr, is_partly: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (asked, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, over) = (Arc::clone(&asked), Arc::clone(&is_over));
        let serve = move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let Some(request) = lines.next() else { continue };
                let _rest = lines.find(String::is_empty);
                let path = request.split(' ').nth(1).unwrap_or("/").to_owned();
                count.fetch_add(1, Ordering::Relaxed);
                let is_signed = path.starts_with(CONSENSUS) || path.starts_with("/tor/keys/");
                let current_lie = (!is_partly || !is_signed).then_some(lie);
                // A client that has enough closes the connection.
                let _ = answer(current_lie, honest, &path, stream);
            }
        };
        let thread = Some(thread::spawn(serve));
        Self { lie, address, asked, is_over, thread }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Settings of a client with these directories, which knows the authorities' identities.
fn settings(network: &Network, from: Vec<SocketAddr>, folder: &Path) -> Settings {
    let identities = network.authorities().iter().filter_map(Node::v3_identity);
    Settings {
        identities: identities.map(RsaId).collect(),
        ..Settings::new(from, folder.to_owned())
    }
}

#[test]
fn lying_directories_do_not_mislead_a_client_and_one_honest_directory_suffices() {
    let network = network(vec![exit("exita"), exit("exitb"), exit("exitc")]);
    let folder = tempfile::tempdir().expect("a folder");
    let honest = network.directory_addrs()[0];
    let liars: Vec<Liar> = LIES.into_iter().map(|lie| Liar::start(lie, honest, false)).collect();
    let addresses = |liars: &[Liar]| liars.iter().map(|liar| liar.address).collect::<Vec<_>>();

    // From lying directories alone, the client learns and stores nothing.
    let (before_kb, data) = (memory_kb("VmHWM"), folder.path().join("misled"));
    let mut misled = Ours::begin(settings(&network, addresses(&liars), &data));
    let (clock, asked_twice) = (Clock::start(), |liar: &Liar| liar.asked() >= 2);
    while !liars.iter().all(asked_twice) {
        let asked: Vec<_> = liars.iter().map(|liar| (liar.lie, liar.asked())).collect();
        assert!(clock.now() - Instant::ORIGIN < PATIENCE, "{asked:?}: {:#?}", misled.all_events());
        thread::park_timeout(Duration::from_millis(200));
    }
    let is_misled = |event: &Event| matches!(event, Event::Bootstrapped { .. });
    assert!(!misled.all_events().iter().any(is_misled), "{:#?}", misled.seen);
    assert!(
        misled.seen.iter().any(|event| matches!(event, Event::Trouble { .. })),
        "the client reports it"
    );
    drop(misled);
    assert!(!data.join("cached-microdesc-consensus").exists());

    // With the true consensus and altered microdescriptors, it is not misled either.
    let partly: Vec<Liar> = LIES.into_iter().map(|lie| Liar::start(lie, honest, true)).collect();
    let all = [&addresses(&liars)[..], &[honest], &addresses(&partly)].concat();
    let mut ours = Ours::begin(settings(&network, all, &folder.path().join("client")));
    let (relays, exits) = ours.wait_for("network", |event| match event {
        Event::Bootstrapped { relays, exits, .. } => Some((*relays, *exits)),
        _ => None,
    });
    assert!(relays <= network.nodes().len() && exits <= 3, "{relays} relays, {exits} exits");
    let server = ContentServer::start().expect("a server");
    let from = ("127.0.0.1", server.address().port());
    for seed in 0..5 {
        let content = Content { len: 200_000, seed };
        let done = download(ours.proxy.socks(), from, content, &seed.to_string(), PATIENCE);
        let done = done.unwrap_or_else(|error| panic!("{error}: {:#?}", ours.all_events()));
        assert!(done.is_right, "{done:?}");
    }
    let held_kb = memory_kb("VmHWM") - before_kb;
    assert!(held_kb < HELD_MAX_KB, "{held_kb} kB");
}
