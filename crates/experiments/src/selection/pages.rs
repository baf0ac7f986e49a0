//! Table V: how long it takes to fetch the header of a page, with stock tor, with our client, and without either.

use super::judge::rounded;
use super::scene::SelectionNetwork;
use crate::error::{Error, Result};
use crate::factor::{Factor, interval_verdict};
use crate::reporting::median;
use crate::simulated::Interval;
use client::strategy::{Position, Strategy, Weighted};
use client::{Choices, ClientProxy, Directories, Event, NetDir, RelayInfo, Settings};
use lab::{Client, ContentServer, Pins, TemporaryFolder, connect_through, read_rest};
use link::Clock;
use netdoc::Fingerprint;
use onion::Duration;
use report::experiment::{Case, CaseVerdict};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Far more than a stock client takes to know the network.
const PATIENCE: Duration = Duration::from_secs(150);
/// A header that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(60);
/// Where servers are, by the number of the relay next to them: a continent each.
const SERVERS: [usize; 3] = [1, 4, 8];
/// Pages that are fetched over the same circuit, as by somebody who reads: the paper's went by tor's own rule of ten minutes.
const PAGES_PER_CIRCUIT: usize = 6;

/// Who fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Tor,
    Ours,
    /// Without anonymity.
    Nobody,
}

impl By {
    const ALL: [Self; 3] = [Self::Tor, Self::Ours, Self::Nobody];

    const fn words(self) -> &'static str {
        match self {
            Self::Tor => "stock tor",
            Self::Ours => "our client",
            Self::Nobody => "no anonymity",
        }
    }
}

/// By weight, among these relays alone.
#[derive(Debug)]
struct Among(Vec<Fingerprint>);

impl Strategy for Among {
    fn name(&self) -> &'static str {
        "among"
    }

    fn weight(
        &self,
        view: &NetDir,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> f64 {
        Weighted.weight(view, relay, position, chosen)
    }

    fn admits(&self, _: &NetDir, relay: &RelayInfo, _: Position, _: &[&RelayInfo]) -> bool {
        self.0.contains(&relay.fingerprint)
    }
}

/// Servers, and clients that know the network.
pub(super) struct Readers {
    tor: Client,
    ours: ClientProxy,
    // It reports as long as the receiver exists.
    _events: Receiver<Event>,
    servers: Vec<ContentServer>,
    _folder: TemporaryFolder,
}

/// Of one who fetched: how long each header took in seconds, or why it did not come.
pub(super) struct Fetched {
    by: By,
    headers: Vec<io::Result<f64>>,
}

impl Readers {
    /// Starts them at the client's host, where this thread is, while nobody loads the network.
    pub(super) fn start(scene: &SelectionNetwork) -> Result<Self> {
        let network = scene.network();
        let here = |number: &usize| scene.server_at(*number);
        let servers = SERVERS.iter().map(here).collect::<Result<Vec<_>>>()?;
        let known: Vec<[u8; 20]> = scene.relays().iter().map(|it| *it.as_bytes()).collect();
        // Whoever uses two circuits for a stream has two guards.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let mut tor = Client::start(network, "reader", &extra, &known, PATIENCE)?;
        tor.pin(&Pins { entry: known.clone(), middle: known.clone(), exit: known })?;
        let folder = crate::testbed::temporary_folder()?;
        let settings = Settings {
            choices: Choices {
                strategy: Box::new(Among(scene.relays().to_vec())),
                ..Choices::default()
            },
            directories: Directories::default(),
            ..Settings::new(scene.authorities(), folder.path().join("reader"))
        };
        let (sender, events) = channel();
        let failed = |error: client::ClientError| Error::Clients(error.to_string());
        let ours = ClientProxy::start(settings, sender).map_err(failed)?;
        let deadline = Clock::start();
        let began = deadline.now();
        loop {
            let left = PATIENCE.saturating_sub(deadline.now() - began);
            match events.recv_timeout(left) {
                Ok(Event::Bootstrapped { .. }) => break,
                Ok(_) => {}
                Err(_) => {
                    return Err(Error::Clients("our client does not know the network".to_owned()));
                }
            }
        }
        Ok(Self { tor, ours, _events: events, servers, _folder: folder })
    }

    /// Each fetches this number of headers, one after the other; all three at once.
    pub(super) fn fetch(
        &self,
        count: usize,
        is_over: impl Fn() -> bool + Sync,
    ) -> Result<Vec<Fetched>> {
        let (is_over, clock) = (&is_over, Clock::start());
        let servers: Vec<SocketAddr> = self.servers.iter().map(ContentServer::address).collect();
        let (tor, ours) = (self.tor.socks(), self.ours.socks());
        let one = |by: By, number: usize| {
            let server = servers[number % servers.len()];
            let began = clock.now();
            let stream = match by {
                By::Tor => through(tor, server, number),
                By::Ours => through(ours, server, number),
                By::Nobody => TcpStream::connect_timeout(&server, LONGEST),
            };
            header(stream?)?;
            Ok((clock.now() - began).as_secs_f64())
        };
        let all = |by: By| {
            let wanted = (0..count).take_while(|_| !is_over());
            Fetched { by, headers: wanted.map(|number| one(by, number)).collect() }
        };
        let (all, mut found) = (&all, Vec::new());
        thread::scope(|scope| {
            for thread in By::ALL.map(|by| scope.spawn(move || all(by))) {
                match thread.join() {
                    Ok(fetched) => found.push(fetched),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
        Ok(found)
    }
}

fn through(socks: SocketAddr, server: SocketAddr, number: usize) -> io::Result<TcpStream> {
    let to = (&*server.ip().to_string(), server.port());
    connect_through(socks, to, &format!("page{}", number / PAGES_PER_CIRCUIT), LONGEST)
}

/// Asks for a page without a body: the answer is its header.
fn header(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(LONGEST))?;
    stream.write_all(b"GET /0/1 HTTP/1.0\r\n\r\n")?;
    let head = read_rest(&mut stream)?;
    match head.starts_with(b"HTTP/1.0 200 ") && head.ends_with(b"\r\n\r\n") {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} bytes that are no header", head.len()))),
    }
}

/// A case of each, then tor compared with no proxy, and ours compared with tor.
pub(super) fn cases(fetched: &[Fetched]) -> Vec<Case> {
    // A page that was interrupted before has no result.
    let asked = || fetched.iter().filter(|it| !it.headers.is_empty());
    let mut cases: Vec<Case> = asked().map(of_one).collect();
    let of = |by| {
        let found = asked().find(|it| it.by == by);
        found.map(|it| Interval::of(&it.seconds()))
    };
    let pairs = [
        ("stock tor over no anonymity", By::Tor, By::Nobody, 4.04 / 0.39),
        ("our client over no anonymity", By::Ours, By::Nobody, 4.04 / 0.39),
    ];
    for (name, part, whole, paper) in pairs {
        let Some((part, whole)) = of(part).zip(of(whole)) else { continue };
        let factor = Factor::of(part, whole);
        let case = Case::named(format!("table V: {name}"))
            .column("factor", rounded(factor.value))
            .column("factor_low", factor.interval.and_then(|it| rounded(it.0)))
            .column("factor_high", factor.interval.and_then(|it| rounded(it.1)))
            .column("factor_paper", rounded(paper));
        let told = format!("{factor}; paper × {paper:.1}");
        cases.push(case.ended(interval_verdict(factor.interval, 1.0, paper), told));
    }
    cases
}

impl Fetched {
    fn seconds(&self) -> Vec<f64> {
        self.headers.iter().filter_map(|it| it.as_ref().ok().copied()).collect()
    }
}

fn of_one(fetched: &Fetched) -> Case {
    let seconds = fetched.seconds();
    let failed = fetched.headers.len() - seconds.len();
    let interval = Interval::of(&seconds);
    let mean = interval.mean;
    let free = seconds.len().saturating_sub(1) as f64;
    let deviation = (seconds.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / free).sqrt();
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = seconds.iter().copied().fold(0.0, f64::max);
    let middle = median(seconds.iter().copied());
    let case = Case::named(format!("table V: headers by {}", fetched.by.words()))
        .column("headers", fetched.headers.len())
        .column("failed", failed)
        .column("header_s_median", middle.and_then(rounded))
        .column("header_s", rounded(mean))
        .column("header_s_interval", interval.half_width.and_then(rounded))
        .column("header_s_deviation", rounded(deviation))
        .column("header_s_least", rounded(least))
        .column("header_s_most", rounded(most));
    let why = fetched.headers.iter().find_map(|it| it.as_ref().err());
    let why = why.map_or_else(String::new, |why| format!("; the first that failed: {why}"));
    let told = format!(
        "{:.2} s in the median, {interval} s in the mean ({deviation:.2} s of deviation, {least:.2} to {most:.2} s), {failed} of {} failed{why}",
        middle.unwrap_or(f64::NAN),
        fetched.headers.len(),
    );
    let verdict = if seconds.is_empty() { CaseVerdict::Failed } else { CaseVerdict::Skipped };
    case.ended(verdict, told)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(by: By, seconds: &[Option<f64>]) -> Fetched {
        let header = |it: &Option<f64>| it.ok_or_else(|| io::Error::other("no answer"));
        Fetched { by, headers: seconds.iter().map(header).collect() }
    }

    #[test]
    fn table_v_has_the_figures_of_the_papers_and_what_failed_is_in_no_mean() {
        let tor = fetched(By::Tor, &[Some(1.0), Some(2.0), None, Some(3.0), Some(6.0)]);
        let nobody = fetched(By::Nobody, &[Some(0.2), Some(0.21), Some(0.19)]);
        let cases = cases(&[tor, nobody]);
        let column = |name: &str| {
            let found = cases[0].columns.iter().find(|(it, _)| it == name);
            found.and_then(|(_, value)| value.as_f64())
        };
        assert_eq!(column("failed"), Some(1.0));
        assert_eq!((column("header_s_median"), column("header_s")), (Some(2.5), Some(3.0)));
        assert_eq!((column("header_s_least"), column("header_s_most")), (Some(1.0), Some(6.0)));
        // Squares of 2, 1, 0 and 3, over three.
        assert_eq!(column("header_s_deviation"), Some(2.1602));
        assert!(cases[0].detail.ends_with("the first that failed: no answer"), "{:?}", cases[0]);
        let names: Vec<&str> = cases.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names[2..], ["table V: stock tor over no anonymity"], "ours did not fetch");
        assert_eq!(cases[2].verdict, CaseVerdict::Held);
    }

    #[test]
    fn who_gets_no_header_at_all_has_failed() {
        let found = cases(&[fetched(By::Ours, &[None, None])]);
        assert_eq!(found[0].verdict, CaseVerdict::Failed);
        assert!(cases(&[fetched(By::Ours, &[])]).is_empty(), "interrupted");
    }
}
