//! `flashflow-lab sim truth`: compares the simulation with real sockets.

use clap::Args;
use cli::Error;
use experiments::Interval;
use experiments::truth::{RealSockets, Scene as NetworkScene, Simulated, World};
use lab::wan::{Access, Bottleneck, Congestion, HostSpec, Queue, Wan, WanError, WanPath, WanSpec};
use onion::Duration;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use terminal::{Exit, Interrupt, Output};
use tornet::truth::{Control, DownloadResult, QUEUE, Scene, scenes, simulate};

/// A line of the command. Half widths are of 95 % confidence intervals of means.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A transfer over TCP.
    Truth {
        /// The scene.
        scene: &'a str,
        /// The round trip of its path.
        round_trip_ms: u128,
        /// In virtual time.
        simulated_mbit_per_s: f64,
        /// With real sockets.
        real_mbit_per_s: f64,
        /// The first divided by the second.
        ratio: f64,
        /// Of the mean in virtual time; `None` for one run.
        simulated_half_width: Option<f64>,
        /// Of the mean with real sockets; `None` for one run.
        real_half_width: Option<f64>,
    },
    /// A figure of a network.
    Figure {
        /// The scene.
        scene: &'a str,
        /// The name of the figure, with its unit.
        figure: &'a str,
        /// In virtual time.
        simulated: f64,
        /// With real sockets.
        real: f64,
        /// The first divided by the second.
        ratio: f64,
        /// Of the mean in virtual time; `None` for one run.
        simulated_half_width: Option<f64>,
        /// Of the mean with real sockets; `None` for one run.
        real_half_width: Option<f64>,
        /// The largest lateness of a packet.
        late_ms: f64,
    },
}

/// Compare the simulation with real sockets.
///
/// Each scene runs in virtual time and with Linux's TCP, over paths with real latency, loss and bottlenecks: first TCP connections,
/// then Tor networks of relays, clients and a server. Prints for each figure the simulated and the real mean with 95 % confidence
/// intervals, and their ratio. Needs root, for network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  flashflow-lab sim truth --seconds 20 --runs 3

Exit status: 0 done, whatever the figures are; 1 failed; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct TruthOptions {
    /// Duration in seconds of scenes without an end of their own, 2 to 600.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Number of runs of each scene, 1 to 100.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: u32,
    /// Run only scenes whose names contain TEXT.
    #[arg(long, value_name = "TEXT", default_value = "")]
    scene: String,
}

pub(crate) fn run(
    options: &TruthOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    // A packet that another process delays by a few milliseconds ends Linux's slow start. Without the privilege, the priority stays.
    let _equal = rustix::process::setpriority_process(None, -15);
    let mut all = scenes(Duration::from_secs(options.seconds.into()));
    all.retain(|scene| scene.name.contains(&options.scene));
    let networks: Vec<NetworkScene> = NetworkScene::ALL
        .into_iter()
        .filter(|scene| scene.name().contains(&options.scene))
        .collect();
    if all.is_empty() && networks.is_empty() {
        return Err(Error::Usage(format!("--scene {}: no scene has this name", options.scene)));
    }
    for (number, scene) in all.iter().enumerate() {
        let mut rates = vec![[Vec::new(), Vec::new()]; scene.round_trips.len()];
        for run in 0..options.runs {
            if interrupt.is_requested() {
                return Ok(Exit::Interrupted);
            }
            output.doing(format!("scene {} of {}: {}", number + 1, all.len(), scene.name));
            let sides = [simulate(scene, run.into()), run_real(scene, run.into())?];
            for (side, all) in sides.iter().enumerate() {
                for (rates, transfer) in rates.iter_mut().zip(all) {
                    rates[side].push(transfer.mbit_per_s());
                }
            }
        }
        output.quiet();
        for (sides, round_trip) in rates.iter().zip(&scene.round_trips) {
            let [simulated, real] = [0, 1].map(|side: usize| Interval::of(&sides[side]));
            let (ratio, round_trip_ms) = (simulated.mean / real.mean, round_trip.as_millis());
            let text = format!(
                "{:<46} {round_trip_ms:>4} ms: {simulated:.1} Mbit/s simulated, {real:.1} real: {ratio:.2}",
                scene.name,
            );
            output.result(text, || Line::Truth {
                scene: &scene.name,
                round_trip_ms,
                simulated_mbit_per_s: simulated.mean,
                real_mbit_per_s: real.mean,
                ratio,
                simulated_half_width: simulated.half_width,
                real_half_width: real.half_width,
            });
        }
    }
    for scene in networks {
        if !hold(scene, options.runs, output, interrupt)? {
            return Ok(Exit::Interrupted);
        }
    }
    Ok(Exit::Done)
}

/// Runs a scene of a Tor network in both worlds and prints its figures; false if interrupted.
fn hold(
    scene: NetworkScene,
    runs: u32,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<bool, Error> {
    let worlds: [&dyn World; 2] = [&Simulated, &RealSockets];
    let mut values: Vec<[Vec<f64>; 2]> = Vec::new();
    let (mut names, mut late) = (Vec::new(), Duration::ZERO);
    for run in 0..runs {
        output.doing(format!("{}, run {} of {runs}", scene.name(), run + 1));
        for (side, world) in worlds.into_iter().enumerate() {
            let result = scene.run(world, run.into(), interrupt.requested());
            if interrupt.is_requested() {
                return Ok(false);
            }
            let (figures, by) = result?;
            late = late.max(by);
            names = figures.iter().map(|figure| figure.name).collect();
            values.resize_with(figures.len(), Default::default);
            for (values, figure) in values.iter_mut().zip(figures) {
                values[side].push(figure.value);
            }
        }
    }
    output.quiet();
    let late_ms = late.as_secs_f64() * 1e3;
    for (name, sides) in names.into_iter().zip(&values) {
        let [simulated, real] = [0, 1].map(|side: usize| Interval::of(&sides[side]));
        let ratio = simulated.mean / real.mean;
        let text = format!(
            "{:<46} {name}: {:.1} simulated, {:.1} real: {ratio:.2} (packets late by {late_ms:.1} ms at worst)",
            scene.name(),
            simulated.mean,
            real.mean,
        );
        let title = scene.name();
        output.result(text, || Line::Figure {
            scene: &title,
            figure: name,
            simulated: simulated.mean,
            real: real.mean,
            ratio,
            simulated_half_width: simulated.half_width,
            real_half_width: real.half_width,
            late_ms,
        });
    }
    Ok(true)
}

const PORT: u16 = 8080;
const CLIENT: &str = "client";

/// Runs a scene with real sockets.
fn run_real(scene: &Scene, seed: u64) -> Result<Vec<DownloadResult>, Error> {
    let congestion = match scene.control {
        Control::Cubic => Congestion::Cubic,
        Control::Reno | Control::Shadow => Congestion::Reno,
    };
    let name = |flow: usize| format!("server-{flow}");
    let address = |number: usize| Ipv4Addr::new(10, 77, 1, u8::try_from(number).unwrap_or(u8::MAX));
    let narrow = |rate| Bottleneck { rate, queue: Queue::Time(QUEUE) };
    let access = Access { download: scene.down.map(narrow), ..Access::default() };
    let mut hosts =
        vec![HostSpec::new(CLIENT, address(1)).with_congestion(congestion).with_access(access)];
    let flows = scene.round_trips.len();
    hosts.extend(
        (0..flows)
            .map(|flow| HostSpec::new(name(flow), address(flow + 2)).with_congestion(congestion)),
    );
    let mut spec = WanSpec::new(hosts).with_seed(seed);
    for (flow, round_trip) in scene.round_trips.iter().enumerate() {
        let path = WanPath::with_latency(*round_trip / 2);
        spec = spec.with_path(CLIENT, &name(flow), path).with_path(
            &name(flow),
            CLIENT,
            path.with_loss(scene.loss),
        );
    }
    let wan = Wan::start(&spec)?;
    let failed = |name: &str| {
        let name = name.to_owned();
        |source: io::Error| Error::from(WanError::Host { name, source })
    };
    let mut servers = Vec::new();
    for flow in 0..flows {
        let host = wan.host(&name(flow))?;
        let at = (host.address(), PORT);
        let listener = host.run(|| TcpListener::bind(at))?.map_err(failed(host.name()))?;
        let bytes = scene.bytes;
        // The server ends when the client closes the connection.
        servers.push(thread::spawn(move || serve(&listener, bytes)));
    }
    let to = |flow: usize| SocketAddr::from((address(flow + 2), PORT));
    let fetched = wan.host(CLIENT)?.run(|| {
        thread::scope(|scope| {
            let begin = |flow: usize| scope.spawn(move || fetch(to(flow), scene));
            let all: Vec<_> = (0..flows).map(begin).collect();
            let end = |handle: thread::ScopedJoinHandle<'_, _>| {
                handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            all.into_iter().map(end).collect::<io::Result<Vec<DownloadResult>>>()
        })
    })?;
    let transfers = fetched.map_err(failed(CLIENT))?;
    for server in servers {
        // The error is that the client has closed the connection, as expected.
        let _gone = server.join();
    }
    Ok(transfers)
}

fn serve(listener: &TcpListener, bytes: Option<u32>) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.read_exact(&mut [0; 1000])?;
    let block = [0; 1 << 16];
    let mut left = bytes.map_or(u64::MAX, u64::from);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(block.len()).min(block.len());
        left -= stream.write(&block[..most])? as u64;
    }
    Ok(())
}

fn fetch(from: SocketAddr, scene: &Scene) -> io::Result<DownloadResult> {
    let clock = link::Clock::start();
    let began = clock.now();
    let mut stream = TcpStream::connect(from)?;
    stream.write_all(&[0; 1000])?;
    let wanted = scene.bytes.map_or(u64::MAX, u64::from);
    let mut block = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        let left = scene.timeout.saturating_sub(clock.now() - began);
        if left.is_zero() || bytes >= wanted {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut block) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(DownloadResult { bytes, time: clock.now() - began })
}
