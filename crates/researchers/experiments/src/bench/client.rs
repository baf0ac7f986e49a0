//! `flashflow-lab bench client`: processor time and time to the first byte of downloads by our client and by C tor.

use super::lines::ClientLine;
use super::median_of;
use super::options::ClientBench;
use crate::error::{Error, Result};
use crate::factor::Factor;
use crate::private_network as network;
use crate::reporting::median;
use crate::testbed;
use lab::{
    Client, Content, ContentServer, Network, NetworkSpec, Node, OwnProcess, RelaySpec,
    TemporaryFolder, download,
};
use link::Clock;
use onion::{Duration, Rate};
use std::net::SocketAddr;
use std::thread;
use terminal::{Exit, Interrupt, Output};

/// The timeout for bootstrapping a client, and for the next byte of a download.
const PATIENCE: Duration = Duration::from_secs(150);
/// Downloads of one byte by each client in each run, which measure the time to the first byte.
const PROBES: u64 = 20;

/// A running client.
struct BenchClient {
    name: &'static str,
    pid: u32,
    socks: SocketAddr,
}

/// The results of a client in a run.
struct ClientSample {
    name: &'static str,
    bytes: u64,
    took: Duration,
    cpu: Duration,
    /// The median of the probes.
    first_byte: Duration,
}

impl ClientSample {
    #[expect(clippy::cast_precision_loss, reason = "no run moves 2^53 bytes")]
    fn gbit_per_cpu_s(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu.as_secs_f64()
    }

    fn first_byte_ms(&self) -> f64 {
        self.first_byte.as_secs_f64() * 1e3
    }

    fn print(&self, run: u32, output: &Output) {
        let Self { name, bytes, took, cpu, .. } = self;
        let (gbit, first_byte_ms) = (self.gbit_per_cpu_s(), self.first_byte_ms());
        let rate = Rate::from_bytes_over(*bytes, *took);
        output.result(
            format!(
                "run {run}: {name}: {gbit:.3} Gbit per CPU second; {:.0} Mbit/s; first byte after \
                 {first_byte_ms:.2} ms",
                rate.as_mbit_per_s()
            ),
            || ClientLine::Run {
                run,
                client: name,
                gbit_per_cpu_s: gbit,
                rate_mbit_per_s: rate.as_mbit_per_s(),
                first_byte_ms,
                bytes: *bytes,
                cpu_s: cpu.as_secs_f64(),
            },
        );
    }
}

pub(super) fn run(options: ClientBench, output: &Output, interrupt: &Interrupt) -> Result<Exit> {
    let exits = ["exita", "exitb", "exitc"].map(RelaySpec::open_exit);
    let network = network::start(&NetworkSpec::new(exits.to_vec()), output)?;
    interrupt.wind_up_in_order();
    let server = testbed::content_server(std::net::Ipv4Addr::LOCALHOST)?;
    let folder = testbed::temporary_folder()?;
    output.doing("starting C tor as a client");
    let known: Vec<[u8; 20]> = network.nodes().iter().map(Node::rsa).collect();
    // A single circuit for each download, as in our client.
    let extra = ["ConfluxEnabled 0".to_owned()];
    let tor = Client::start(&network, "client", &extra, &known, PATIENCE)?;
    output.doing("starting our client");
    let (ours, socks) = start_ours(&network, &folder)?;
    let subjects = [
        BenchClient { name: "tor", pid: tor.pid(), socks: tor.socks() },
        BenchClient { name: "ours", pid: ours.pid(), socks },
    ];
    let mut samples = Vec::new();
    for run in 1..=options.runs {
        for subject in &subjects {
            if interrupt.is_requested() {
                break;
            }
            output.doing(format!("run {run} of {}: {}", options.runs, subject.name));
            let sample = sample(options, subject, run, &server)?;
            sample.print(run, output);
            samples.push(sample);
        }
    }
    drop((ours, tor));
    network.stop()?;
    if interrupt.is_requested() {
        return Ok(Exit::Interrupted);
    }
    output.quiet();
    conclude(&samples, options, output);
    Ok(Exit::Done)
}

/// Starts our client as a process, and waits until it has bootstrapped.
fn start_ours(network: &Network, folder: &TemporaryFolder) -> Result<(OwnProcess, SocketAddr)> {
    let data = folder.path().join("client");
    let arguments = [
        "client".as_ref(),
        "--network".as_ref(),
        network.dir().as_os_str(),
        "--socks".as_ref(),
        "127.0.0.1:0".as_ref(),
        "--data".as_ref(),
        data.as_os_str(),
    ];
    let ours = OwnProcess::start_self("client", arguments, Clock::start())?;
    let event = ours.wait_for("socks", PATIENCE)?;
    let address = event["address"].as_str().and_then(|text| text.parse().ok());
    let address =
        address.ok_or_else(|| Error::clients(format!("our client reports no address: {event}")))?;
    ours.wait_for("bootstrapped", PATIENCE)?;
    Ok((ours, address))
}

/// Downloads through one client. Its processor time is that of the large downloads, over open circuits.
fn sample(
    options: ClientBench,
    subject: &BenchClient,
    run: u32,
    server: &ContentServer,
) -> Result<ClientSample> {
    let at = server.address();
    let one = |content: Content, stream: u64| {
        let isolation = format!("{run}-{stream}");
        let from = (&*at.ip().to_string(), at.port());
        let done = download(subject.socks, from, content, &isolation, PATIENCE);
        let failed = |what: String| Error::Clients(format!("{}: {what}", subject.name));
        let done = done.map_err(|error| failed(error.to_string()))?;
        let partial = || failed(format!("{} of {} bytes arrived", done.received, content.len));
        if done.is_right { Ok(done) } else { Err(partial()) }
    };
    let streams = 1..=u64::from(options.streams);
    let byte = |seed| Content { len: 1, seed };
    for stream in streams.clone() {
        one(byte(0), stream)?;
    }
    let mut firsts = Vec::new();
    for seed in 0..PROBES {
        firsts.push(one(byte(seed), 1)?.to_first_byte.as_secs_f64());
    }
    let first_byte = Duration::from_secs_f64(median(firsts).unwrap_or(0.0));
    let cpu = || {
        let problem = || Error::Witness("the kernel does not report processor times".to_owned());
        lab::cpu_time(subject.pid).ok_or_else(problem)
    };
    let clock = Clock::start();
    let (began, before) = (clock.now(), cpu()?);
    let len = u64::from(options.mb) * 1_000_000;
    let done: Vec<Result<_>> = thread::scope(|scope| {
        let one = &one;
        let each = |stream: u64| scope.spawn(move || one(Content { len, seed: stream }, stream));
        let all: Vec<_> = streams.clone().map(each).collect();
        let failed = || Error::clients("a download has panicked");
        all.into_iter().map(|handle| handle.join().map_err(|_| failed()).flatten()).collect()
    });
    let (took, cpu) = (clock.now() - began, cpu()?.saturating_sub(before));
    done.into_iter().collect::<Result<Vec<_>>>()?;
    if cpu.is_zero() {
        let problem = "the downloads are too small to measure processor time; increase --mb";
        return Err(Error::Failed(problem.to_owned()));
    }
    let bytes = len * u64::from(options.streams);
    Ok(ClientSample { name: subject.name, bytes, took, cpu, first_byte })
}

/// Our figure over C tor's: the geometric mean over runs, with its 95 % confidence interval.
fn by_run(samples: &[ClientSample], figure: fn(&ClientSample) -> f64) -> Factor {
    let of = |name: &str| -> Vec<f64> {
        samples.iter().filter(|sample| sample.name == name).map(figure).collect()
    };
    Factor::of_pairs(of("ours").into_iter().zip(of("tor")))
}

fn conclude(samples: &[ClientSample], options: ClientBench, output: &Output) {
    let of = |name: &str, figure: fn(&ClientSample) -> f64| {
        median_of(samples.iter().filter(|sample| sample.name == name), figure)
    };
    let [tor, ours] = ["tor", "ours"].map(|name| of(name, ClientSample::gbit_per_cpu_s));
    let [tor_ms, ours_ms] = ["tor", "ours"].map(|name| of(name, ClientSample::first_byte_ms));
    let ratio = ours / tor;
    let later = by_run(samples, ClientSample::first_byte_ms);
    output.result(
        format!(
            "median: our client {ours:.3}, C tor {tor:.3} Gbit per CPU second; ratio {ratio:.3}; first byte \
             after {ours_ms:.2} and {tor_ms:.2} ms, {later}"
        ),
        || ClientLine::Summary {
            ours_gbit_per_cpu_s: ours,
            tor_gbit_per_cpu_s: tor,
            ratio,
            ratio_interval: by_run(samples, ClientSample::gbit_per_cpu_s).interval,
            ours_first_byte_ms: ours_ms,
            tor_first_byte_ms: tor_ms,
            first_byte_ratio: later.value,
            first_byte_ratio_interval: later.interval,
            runs: options.runs,
            mb: options.mb,
            streams: options.streams,
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine that is slow in one run is slow for both clients.
    #[test]
    fn differences_between_runs_do_not_widen_the_interval() {
        let sample = |name, first_byte_ms: f64| ClientSample {
            name,
            bytes: 1,
            took: Duration::from_secs(1),
            cpu: Duration::from_secs(1),
            first_byte: Duration::from_secs_f64(first_byte_ms / 1e3),
        };
        let runs = [10.0, 1000.0, 100.0];
        let samples: Vec<ClientSample> =
            runs.iter().flat_map(|run| [sample("tor", *run), sample("ours", run * 1.25)]).collect();
        let found = by_run(&samples, ClientSample::first_byte_ms);
        let (low, high) = found.interval.expect("three runs");
        assert!((found.value - 1.25).abs() < 1e-6 && high - low < 1e-6, "{found}");
        assert_eq!(by_run(&samples[..2], ClientSample::first_byte_ms).interval, None);
    }
}
