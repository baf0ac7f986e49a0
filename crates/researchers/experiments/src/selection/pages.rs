//! Table V: the time to fetch the header of a page with C tor, with our client, and directly.

use super::judge::{DIGITS, rounded};
use super::network::SelectionNetwork;
use crate::columns::with_interval;
use crate::error::{Error, Result};
use crate::factor::{Factor, interval_verdict};
use crate::reporting::median;
use crate::simulated::Interval;
use client::strategy::{Position, Strategy, Weighted};
use client::{Choices, ClientProxy, Directories, Event, NetDir, RelayInfo, Settings};
use lab::{Client, ContentServer, Pins, TemporaryFolder, connect_through, read_rest};
use link::Clock;
use netdoc::RsaId;
use onion::Duration;
use report::experiment::{Case, CaseVerdict};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// The timeout of a client's bootstrap.
const PATIENCE: Duration = Duration::from_secs(150);
/// The timeout of a header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// The locations of the servers, one on each continent, as numbers of relays on the same hosts.
const SERVERS: [usize; 3] = [1, 4, 8];
/// The number of pages that are fetched over one circuit. In the paper, tor used a circuit for ten minutes.
const PAGES_PER_CIRCUIT: usize = 6;

/// How pages are fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Tor,
    Ours,
    /// Without anonymity.
    Direct,
}

impl Via {
    const ALL: [Self; 3] = [Self::Tor, Self::Ours, Self::Direct];

    const fn words(self) -> &'static str {
        match self {
            Self::Tor => "C tor",
            Self::Ours => "our client",
            Self::Direct => "no anonymity",
        }
    }
}

/// Selection by weight among these relays only.
#[derive(Debug)]
struct Among(Vec<RsaId>);

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

/// Servers, and bootstrapped clients.
pub(super) struct PageClients {
    tor: Client,
    ours: ClientProxy,
    // The proxy needs a receiver of its events.
    _events: Receiver<Event>,
    servers: Vec<ContentServer>,
    _folder: TemporaryFolder,
}

/// The results of one client: the time of each header in seconds, or its error.
pub(super) struct PageResults {
    via: Via,
    headers: Vec<io::Result<f64>>,
}

impl PageClients {
    /// Starts the clients on the client's host, where this thread is. Call this before users load the network.
    pub(super) fn start(network: &SelectionNetwork) -> Result<Self> {
        let servers =
            SERVERS.iter().map(|number| network.server_at(*number)).collect::<Result<Vec<_>>>()?;
        let known: Vec<[u8; 20]> = network.relays().iter().map(|relay| relay.0).collect();
        // With Conflux, the client would use two guards.
        let extra = ["ConfluxEnabled 0".to_owned()];
        let mut tor = Client::start(network.network(), "reader", &extra, &known, PATIENCE)?;
        tor.pin(&Pins { entry: known.clone(), middle: known.clone(), exit: known })?;
        let folder = crate::testbed::temporary_folder()?;
        let settings = Settings {
            choices: Choices {
                strategy: Box::new(Among(network.relays().to_vec())),
                ..Choices::default()
            },
            directories: Directories::default(),
            ..Settings::new(network.authorities(), folder.path().join("reader"))
        };
        let (sender, events) = channel();
        let ours = ClientProxy::start(settings, sender).map_err(Error::clients)?;
        let clock = Clock::start();
        let started = clock.now();
        loop {
            let left = PATIENCE.saturating_sub(clock.now() - started);
            match events.recv_timeout(left) {
                Ok(Event::Bootstrapped { .. }) => break,
                Ok(_) => {}
                Err(_) => {
                    return Err(Error::clients("our client did not bootstrap"));
                }
            }
        }
        Ok(Self { tor, ours, _events: events, servers, _folder: folder })
    }

    /// Fetches this number of headers in sequence in each way; the three ways run in parallel.
    pub(super) fn fetch(
        &self,
        count: usize,
        is_over: impl Fn() -> bool + Sync,
    ) -> Result<Vec<PageResults>> {
        let (is_over, clock) = (&is_over, Clock::start());
        let servers: Vec<SocketAddr> = self.servers.iter().map(ContentServer::address).collect();
        let (tor, ours) = (self.tor.socks(), self.ours.socks());
        let one = |via: Via, number: usize| {
            let server = servers[number % servers.len()];
            let started = clock.now();
            let stream = match via {
                Via::Tor => through(tor, server, number),
                Via::Ours => through(ours, server, number),
                Via::Direct => TcpStream::connect_timeout(&server, HEADER_TIMEOUT),
            };
            header(stream?)?;
            Ok((clock.now() - started).as_secs_f64())
        };
        let all = |via: Via| {
            let wanted = (0..count).take_while(|_| !is_over());
            PageResults { via, headers: wanted.map(|number| one(via, number)).collect() }
        };
        let (all, mut found) = (&all, Vec::new());
        thread::scope(|scope| {
            for thread in Via::ALL.map(|via| scope.spawn(move || all(via))) {
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
    connect_through(socks, to, &format!("page{}", number / PAGES_PER_CIRCUIT), HEADER_TIMEOUT)
}

/// Fetches a page with an empty body, so that the answer is only its header.
fn header(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(HEADER_TIMEOUT))?;
    stream.write_all(b"GET /0/1 HTTP/1.0\r\n\r\n")?;
    let head = read_rest(&mut stream)?;
    match head.starts_with(b"HTTP/1.0 200 ") && head.ends_with(b"\r\n\r\n") {
        true => Ok(()),
        false => Err(io::Error::other(format!("{} bytes that are not a header", head.len()))),
    }
}

/// A case for each way, and comparisons of tor and of our client with direct fetches.
pub(super) fn cases(fetched: &[PageResults]) -> Vec<Case> {
    // After an interrupt there may be no result.
    let results = || fetched.iter().filter(|result| !result.headers.is_empty());
    let mut cases: Vec<Case> = results().map(of_one).collect();
    let of = |via| {
        let found = results().find(|result| result.via == via);
        found.map(|result| Interval::of(result.seconds()))
    };
    let pairs = [
        ("C tor over no anonymity", Via::Tor, Via::Direct, 4.04 / 0.39),
        ("our client over no anonymity", Via::Ours, Via::Direct, 4.04 / 0.39),
    ];
    for (name, part, whole, paper) in pairs {
        let Some((part, whole)) = of(part).zip(of(whole)) else { continue };
        let factor = Factor::of_means(part, whole);
        let case = Case::named(format!("table V: {name}"));
        let case = with_interval(case, "factor", factor.value, factor.interval, DIGITS)
            .column("factor_paper", rounded(paper));
        let detail = format!("{factor}; paper × {paper:.1}");
        cases.push(case.ended(interval_verdict(factor.interval, 1.0, paper), detail));
    }
    cases
}

impl PageResults {
    fn seconds(&self) -> Vec<f64> {
        self.headers.iter().filter_map(|header| header.as_ref().ok().copied()).collect()
    }
}

fn of_one(fetched: &PageResults) -> Case {
    let seconds = fetched.seconds();
    let failed = fetched.headers.len() - seconds.len();
    let interval = Interval::of(&seconds);
    let mean = interval.mean;
    let free = seconds.len().saturating_sub(1) as f64;
    let deviation =
        (seconds.iter().map(|second| (second - mean).powi(2)).sum::<f64>() / free).sqrt();
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = seconds.iter().copied().fold(0.0, f64::max);
    let middle = median(seconds.iter().copied());
    let case = Case::named(format!("table V: headers by {}", fetched.via.words()))
        .column("headers", fetched.headers.len())
        .column("failed", failed)
        .column("header_s_median", middle.and_then(rounded))
        .column("header_s", rounded(mean))
        .column("header_s_interval", interval.half_width.and_then(rounded))
        .column("header_s_deviation", rounded(deviation))
        .column("header_s_least", rounded(least))
        .column("header_s_most", rounded(most));
    let error = fetched.headers.iter().find_map(|header| header.as_ref().err());
    let error = error.map_or_else(String::new, |error| format!("; the first failure: {error}"));
    let detail = format!(
        "median {:.2} s, mean {interval} s (standard deviation {deviation:.2} s, {least:.2} to {most:.2} s), {failed} of {} failed{error}",
        middle.unwrap_or(f64::NAN),
        fetched.headers.len(),
    );
    let verdict = if seconds.is_empty() { CaseVerdict::Failed } else { CaseVerdict::Reported };
    case.ended(verdict, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched(via: Via, seconds: &[Option<f64>]) -> PageResults {
        let header = |time: &Option<f64>| time.ok_or_else(|| io::Error::other("no answer"));
        PageResults { via, headers: seconds.iter().map(header).collect() }
    }

    #[test]
    fn table_v_has_the_columns_of_the_paper_and_failures_are_in_no_mean() {
        let tor = fetched(Via::Tor, &[Some(1.0), Some(2.0), None, Some(3.0), Some(6.0)]);
        let nobody = fetched(Via::Direct, &[Some(0.2), Some(0.21), Some(0.19)]);
        let cases = cases(&[tor, nobody]);
        let column = |name: &str| {
            let found = cases[0].columns.iter().find(|(column, _)| column == name);
            found.and_then(|(_, value)| value.as_f64())
        };
        assert_eq!(column("failed"), Some(1.0));
        assert_eq!((column("header_s_median"), column("header_s")), (Some(2.5), Some(3.0)));
        assert_eq!((column("header_s_least"), column("header_s_most")), (Some(1.0), Some(6.0)));
        // Squares of 2, 1, 0 and 3, over three.
        assert_eq!(column("header_s_deviation"), Some(2.1602));
        assert!(cases[0].detail.ends_with("the first failure: no answer"), "{:?}", cases[0]);
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names[2..], ["table V: C tor over no anonymity"], "our client has no results");
        assert_eq!(cases[2].verdict, CaseVerdict::Held);
    }

    #[test]
    fn a_client_without_any_header_fails() {
        let found = cases(&[fetched(Via::Ours, &[None, None])]);
        assert_eq!(found[0].verdict, CaseVerdict::Failed);
        assert!(cases(&[fetched(Via::Ours, &[])]).is_empty(), "interrupted");
    }
}
