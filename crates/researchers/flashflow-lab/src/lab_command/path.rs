//! `flashflow-lab lab path`: a path with latency, loss and bottlenecks between two hosts.

mod options;

pub(crate) use options::PathOptions;

use cli::Error;
use lab::wan::{Counts, Host, UnintendedLosses, Wan, WanSpec};
use onion::Duration;
use schemars::JsonSchema;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::process::{Child, Command, ExitStatus, Stdio};
use terminal::{Exit, Interrupt, Output};

/// Interval of checks for the end of a command.
const LATENCY: Duration = Duration::from_millis(50);

pub(super) fn run(
    options: &PathOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    let wan = Wan::start(&options.spec()?)?;
    interrupt.wind_up_in_order();
    let (near, far) = (wan.host(WanSpec::NEAR)?, wan.host(WanSpec::FAR)?);
    let is_alone = options.command.is_empty();
    output.record(|| Line::Path { near: PathHost::new(near), far: PathHost::new(far) });
    if is_alone {
        output.text(format!("{}\n{}\nCtrl-C removes the path.", entrance(near), entrance(far)));
    }
    let mut far_command = match &options.far {
        Some(line) => {
            let mut command = Command::new("/bin/sh");
            Some(start(far, command.args(["-c", line]), Stdio::null(), &wan)?)
        }
        None => None,
    };
    let ended = match options.command.split_first() {
        Some((program, arguments)) => {
            let mut command = Command::new(program);
            let mut child = start(near, command.args(arguments), Stdio::inherit(), &wan)?;
            let ended = wait(options.seconds, interrupt, || child.try_wait().ok().flatten());
            stop(&mut child);
            ended
        }
        None => wait::<ExitStatus>(options.seconds, interrupt, || None),
    };
    if let Some(child) = &mut far_command {
        stop(child);
    }
    let counts = [(near, far), (far, near)].map(|(from, to)| wan.counts(from.name(), to.name()));
    let [out, back] = counts;
    print(&out?, &back?, &wan.unintended_losses()?, ended, output);
    Ok(match ended {
        _ if interrupt.is_requested() && !is_alone => Exit::Interrupted,
        Some(status) if !status.success() => Exit::Failed,
        _ => Exit::Done,
    })
}

/// Starts a user's command at a host. Its output goes to stderr, because stdout is for results.
fn start(host: &Host, command: &mut Command, input: Stdio, wan: &Wan) -> Result<Child, Error> {
    for host in wan.hosts() {
        let name = host.name().to_uppercase();
        command.env(format!("FLASHFLOW_{name}"), host.address().to_string());
        command.env(format!("FLASHFLOW_{name}_NETNS"), host.namespace().path());
    }
    Ok(host.start(command.stdin(input).stdout(std::io::stderr()))?)
}

/// Waits until `ended` returns a value, the time is over, or an interrupt.
fn wait<T>(
    seconds: Option<u32>,
    interrupt: &Interrupt,
    mut ended: impl FnMut() -> Option<T>,
) -> Option<T> {
    let mut left = seconds.map(|seconds| Duration::from_secs(seconds.into()));
    loop {
        if let Some(value) = ended() {
            return Some(value);
        }
        let step = left.map_or(LATENCY, |left| left.min(LATENCY));
        if step.is_zero() || interrupt.wait(step) {
            return None;
        }
        left = left.map(|left| left.saturating_sub(step));
    }
}

fn stop(child: &mut Child) {
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}

/// The command line to enter a host.
fn entrance(host: &Host) -> String {
    let (name, address, path) = (host.name(), host.address(), host.namespace().path());
    format!("{name:<4}  {address}  sudo nsenter --net={path} bash")
}

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line {
    /// The path exists.
    Path {
        /// One host.
        near: PathHost,
        /// The other.
        far: PathHost,
    },
    /// Its packets, last.
    Summary {
        /// Packets of the near host.
        out: Counts,
        /// Packets of the far host.
        back: Counts,
        /// Losses that were not specified.
        unintended: UnintendedLosses,
        /// The exit status of the command, if there was one and it was not killed.
        exit_status: Option<i32>,
    },
}

/// A host of a path.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PathHost {
    /// Its address.
    address: Ipv4Addr,
    /// Its network namespace.
    netns: String,
}

impl PathHost {
    fn new(host: &Host) -> Self {
        Self { address: host.address(), netns: host.namespace().path() }
    }
}

fn print(
    out: &Counts,
    back: &Counts,
    unintended: &UnintendedLosses,
    ended: Option<ExitStatus>,
    output: &Output,
) {
    let row = |name: &str, figure: fn(&Counts) -> u64| {
        format!("{name:<20}{:>14}{:>14}", figure(out), figure(back))
    };
    let rows = [
        format!("{:<20}{:>14}{:>14}", "", "out", "back"),
        row("packets", |counts| counts.packets),
        row("bytes", |counts| counts.bytes),
        row("delivered", |counts| counts.delivered_packets),
        row("delivered bytes", |counts| counts.delivered_bytes),
        row("lost by chance", |counts| counts.lost_by_chance),
        row("dropped by queue", |counts| counts.dropped_by_queue),
        row("held back", |counts| counts.held_back),
        row("duplicated", |counts| counts.duplicated),
        format!(
            "lost unintentionally: {}; latest packet {:.1} ms late",
            unintended.losses(),
            Duration::from_micros(unintended.worst_lateness_us).as_secs_f64() * 1e3
        ),
    ];
    output.result(rows.join("\n"), || Line::Summary {
        out: *out,
        back: *back,
        unintended: *unintended,
        exit_status: ended.and_then(|status| status.code()),
    });
}
