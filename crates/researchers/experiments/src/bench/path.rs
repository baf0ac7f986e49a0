//! `flashflow-lab bench path`: throughput and processor time of an emulated path.

use super::lines::PathLine;
use super::median_of;
use super::options::PathBench;
use crate::error::{Error, Result};
use crate::paper_hosts::{HOSTS, Host, US_SW};
use lab::wan::{self, Counts, SocketBuffer, UnintendedLosses, Wan, WanPath, WanSpec};
use link::{Clock, tcp_bytes};
use onion::{Duration, Rate};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use terminal::{Exit, Interrupt, Output};

/// The discard service, where nothing else listens.
const PORT: u16 = 9;
/// The size of each write and read.
const CHUNK_BYTES: usize = 1 << 18;
/// More than the bandwidth-delay product of any path, so that buffers are no limit.
const BUFFER: SocketBuffer = SocketBuffer { min: 4096, initial: 1 << 20, max: 256 << 20 };

/// One run.
struct PathSample {
    rate: Rate,
    /// Processor time of the thread that forwards packets.
    path_cpu_s_per_gbit: f64,
    /// Processor time of the process, including sender and receiver.
    process_cpu_s_per_gbit: f64,
    out: Counts,
    back: Counts,
    unintended: UnintendedLosses,
}

pub(super) fn run(options: PathBench, output: &Output, interrupt: &Interrupt) -> Result<Exit> {
    interrupt.wind_up_in_order();
    let mut samples = Vec::new();
    let all = &HOSTS;
    let hosts: Vec<Option<&Host>> = match options.paper_hosts {
        true => all[..US_SW].iter().map(Some).collect(),
        false => vec![None],
    };
    for host in hosts {
        let name = host.map(|host| host.name);
        for run in 1..=options.runs {
            output.doing(format!("{}run {run} of {}", prefix(name), options.runs));
            let Some(sample) = sample(options, host, interrupt)? else {
                return Ok(Exit::Interrupted);
            };
            print(name, run, &sample, output);
            samples.push(sample);
        }
    }
    output.quiet();
    let rate = median_of(&samples, |sample| sample.rate.as_mbit_per_s());
    let path = median_of(&samples, |sample| sample.path_cpu_s_per_gbit);
    let process = median_of(&samples, |sample| sample.process_cpu_s_per_gbit);
    let losses: u64 = samples.iter().map(|sample| sample.unintended.losses()).sum();
    output.result(
        format!(
            "median: {rate:.0} Mbit/s; path {path:.3}, with sender and receiver {process:.3} CPU s/Gbit; \
             {losses} packets lost unintentionally"
        ),
        || PathLine::Summary {
            runs: options.runs,
            seconds: options.seconds,
            rtt_ms: if options.paper_hosts { 0 } else { options.rtt_ms },
            loss_percent: options.loss_percent,
            connections: options.connections,
            congestion: options.congestion.name(),
            mbit_per_s: rate,
            path_cpu_s_per_gbit: path,
            process_cpu_s_per_gbit: process,
            unintended_losses: losses,
        },
    );
    Ok(if losses == 0 { Exit::Done } else { Exit::Failed })
}

fn prefix(host: Option<&str>) -> String {
    host.map_or_else(String::new, |host| format!("{host}, "))
}

fn print(host: Option<&'static str>, run: u32, sample: &PathSample, output: &Output) {
    let PathSample { rate, path_cpu_s_per_gbit, process_cpu_s_per_gbit, out, back, unintended } =
        sample;
    output.result(
        format!(
            "{}run {run}: {:.0} Mbit/s; path {path_cpu_s_per_gbit:.3}, with sender and receiver \
             {process_cpu_s_per_gbit:.3} CPU s/Gbit; {} packets out, {} back; {} lost unintentionally; \
             at most {} µs late",
            prefix(host),
            rate.as_mbit_per_s(),
            out.packets,
            back.packets,
            unintended.losses(),
            unintended.worst_lateness_us,
        ),
        || PathLine::Run {
            run,
            host,
            mbit_per_s: rate.as_mbit_per_s(),
            path_cpu_s_per_gbit: *path_cpu_s_per_gbit,
            process_cpu_s_per_gbit: *process_cpu_s_per_gbit,
            out: *out,
            back: *back,
            unintended: *unintended,
        },
    );
}

/// Performs one run, over the path of a host of the paper if there is one; `None` if the user has interrupted.
fn sample(
    options: PathBench,
    sender: Option<&Host>,
    interrupt: &Interrupt,
) -> Result<Option<PathSample>> {
    let rtt_ms = sender.map_or(options.rtt_ms, |host| host.rtt_ms);
    let latency = Duration::from_millis(u64::from(rtt_ms)) / 2;
    let back = WanPath::with_latency(latency);
    let out = back.with_loss(options.loss_percent / 100.0);
    let mut spec = WanSpec::pair(out).with_path("far", "near", back);
    for host in &mut spec.hosts {
        host.congestion = Some(options.congestion);
        (host.tcp_rmem, host.tcp_wmem) = (Some(BUFFER), Some(BUFFER));
    }
    if let Some(sender) = sender {
        (spec.hosts[0].access, spec.hosts[1].access) = (sender.access(), HOSTS[US_SW].access());
    }
    let wan = Wan::start(&spec)?;
    let (near, far) = (wan.host("near")?, wan.host("far")?);
    let failed = |error: io::Error| Error::Network(format!("bulk TCP: {error}"));
    let pairs = connect(near, far, options.connections)?.map_err(failed)?;
    thread::scope(|scope| {
        for (sender, receiver) in &pairs {
            scope.spawn(|| send(sender));
            scope.spawn(|| receive(receiver));
        }
        let result = observe(options, &wan, &pairs, interrupt);
        for (sender, receiver) in &pairs {
            // If the stream is closed already, its thread has ended as well.
            let _closed = (sender.shutdown(Shutdown::Both), receiver.shutdown(Shutdown::Both));
        }
        result
    })
}

fn observe(
    options: PathBench,
    wan: &Wan,
    pairs: &[(TcpStream, TcpStream)],
    interrupt: &Interrupt,
) -> Result<Option<PathSample>> {
    let problem = |what: &str| Error::Witness(format!("the kernel does not report {what}"));
    let clock = Clock::start();
    let look = || {
        let bytes = pairs.iter().map(|(_, receiver)| Some(tcp_bytes(receiver)?.received)).sum();
        let bytes: Option<u64> = bytes;
        let path = wan.cpu_time().ok_or_else(|| problem("processor times"))?;
        let process =
            lab::cpu_time(std::process::id()).ok_or_else(|| problem("processor times"))?;
        let bytes = bytes.ok_or_else(|| problem("what sockets have received"))?;
        Ok::<_, Error>((clock.now(), bytes, path, process))
    };
    if interrupt.wait(Duration::from_secs(options.warm_up_s.into())) {
        return Ok(None);
    }
    let before = look()?;
    if interrupt.wait(Duration::from_secs(options.seconds.into())) {
        return Ok(None);
    }
    let after = look()?;
    let bytes = after.1 - before.1;
    #[expect(clippy::cast_precision_loss, reason = "far below 2⁵³")]
    let gbit = bytes as f64 * 8e-9;
    Ok(Some(PathSample {
        rate: Rate::from_bytes_over(bytes, after.0 - before.0),
        path_cpu_s_per_gbit: (after.2 - before.2).as_secs_f64() / gbit,
        process_cpu_s_per_gbit: (after.3 - before.3).as_secs_f64() / gbit,
        out: wan.counts("near", "far")?,
        back: wan.counts("far", "near")?,
        unintended: wan.unintended_losses()?,
    }))
}

/// Connections from one host to the other: the ends of the sender and of the receiver.
fn connect(
    near: &wan::Host,
    far: &wan::Host,
    count: u32,
) -> Result<io::Result<Vec<(TcpStream, TcpStream)>>> {
    let address = (far.address(), PORT);
    let listener = match far.run(|| TcpListener::bind(address))? {
        Ok(listener) => listener,
        Err(error) => return Ok(Err(error)),
    };
    let pairs = near.run(|| {
        (0..count).map(|_| Ok((TcpStream::connect(address)?, listener.accept()?.0))).collect()
    })?;
    Ok(pairs)
}

/// Sends until the connection is closed.
fn send(mut stream: &TcpStream) {
    let chunk = vec![0x5A; CHUNK_BYTES];
    while stream.write_all(&chunk).is_ok() {}
}

fn receive(mut stream: &TcpStream) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while stream.read(&mut chunk).is_ok_and(|len| len > 0) {}
}
