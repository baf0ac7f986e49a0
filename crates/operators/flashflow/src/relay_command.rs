//! `flashflow relay`: the daemon of a relay that takes part in its measurement.

pub(crate) mod lines;

use crate::service::Service;
use authority::config_file::{check_listen, with_remedy};
use authority::log::{self, LogArguments};
use clap::Args;
use cli::Error;
use lines::Line;
use link::Clock;
use onion::measure::protocol::CoordinatorKey;
use onion::router::RouterEvent;
use relay::publish::Answer;
use relay::{
    FlashFlowConfig, Reachability, Relay, RelayConfig, RelayEvent, Settings, coordinator_key,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use terminal::{Exit, Hangup, Interrupt, Output, socket_address};

/// Interval of checks for an interrupt.
const STEP: Duration = Duration::from_millis(100);

/// Run a Tor relay that takes part in measurements by the echo protocol.
///
/// The relay serves clients as guard, middle and, if configured, exit. It publishes its descriptor, and the coordinators that its
/// configuration lists may measure it. Settings come from a file, from options, or both; options override the file.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow relay --config relay.toml
  flashflow relay --nickname mine --address 127.0.0.1 --keys keys --rate 100 \\
    --authority 127.0.0.1:7001 --coordinator d75a…511a
  flashflow relay --config relay.toml --check

The sample relay.toml has all settings: in the source under docs/, in the package under /usr/share/doc/flashflow/examples.

When the relay listens, it prints `listening on ADDRESS fingerprint FP ed25519 HEX` to stdout. The log goes to stderr; with --json,
to stdout as well. On SIGTERM or Ctrl-C the relay refuses new links and circuits, and exits when no circuit is left or
--shutdown-wait-s has passed. A second signal ends it at once. On SIGHUP it reloads its configuration, and logs which changes need
a restart. It supports sd_notify(3) (Type=notify).

Exit status: 0 interrupted, or the check passed; 1 failed; 2 wrong arguments.")]
pub(crate) struct RelayOptions {
    /// Configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Nickname: 1 to 19 letters and digits.
    #[arg(long, value_name = "NAME")]
    nickname: Option<netdoc::Nickname>,
    /// Public IPv4 address.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Ipv4Addr>,
    /// OR port; 0 for any free one.
    #[arg(long, value_name = "PORT")]
    or_port: Option<u16>,
    /// Address to listen on, if it is not --address.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// Folder of the long-term keys. If it does not exist, it is made with new keys.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Average rate limit (RelayBandwidthRate), in Mbit/s. By default no limit.
    #[arg(long, value_name = "MBIT")]
    rate: Option<f64>,
    /// Burst (RelayBandwidthBurst), in Mbit. By default one second at --rate.
    #[arg(long, value_name = "MBIT")]
    burst: Option<f64>,
    /// Contact of the operator, which is published.
    #[arg(long, value_name = "TEXT")]
    contact: Option<String>,
    /// Address and directory port of an authority to publish to; may be repeated.
    #[arg(long = "authority", value_name = "ADDRESS:PORT", value_delimiter = ',',
        value_parser = socket_address)]
    authorities: Vec<SocketAddr>,
    /// Join the public Tor network: publish to its authorities, which are built in.
    #[arg(long, conflicts_with = "authorities")]
    public_network: bool,
    /// Serve Prometheus metrics at this loopback or private address, under /metrics.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Allow any address for --metrics, such as a public one or 0.0.0.0.
    #[arg(long)]
    public_metrics: bool,
    /// Publish at once, without the reachability self-test.
    #[arg(long)]
    assume_reachable: bool,
    /// Public key of a coordinator that may measure the relay, 64 hexadecimal digits; may be repeated. Allows measurements, unless the
    /// file forbids them.
    #[arg(long = "coordinator", value_name = "KEY", value_delimiter = ',',
        value_parser = coordinator_key)]
    coordinators: Vec<CoordinatorKey>,
    /// Time for existing circuits to end at shutdown, in seconds; 30 by default, 0 to end at once.
    #[arg(long, value_name = "SECONDS")]
    shutdown_wait_s: Option<u32>,
    /// Memory limit of the queues (MaxMemInQueues), in MiB. By default two fifths of the host's memory, or three quarters
    /// if it has less than 8 GiB; 256 MiB at least and 8192 MiB at most.
    #[arg(long, value_name = "MIB")]
    max_mem_in_queues_mib: Option<u32>,
    /// Read the configuration and the keys, print what the relay would do, and end. Makes no keys, and contacts no other host.
    #[arg(long)]
    check: bool,
    /// Print the load once a second, for experiments.
    #[arg(long, hide = true)]
    print_load: bool,
    #[command(flatten)]
    log: LogArguments,
}

impl RelayOptions {
    /// The settings of the file, overridden by the options.
    fn configuration(&self) -> Result<RelayConfig, Error> {
        let file = match &self.config {
            Some(path) => RelayConfig::read(path)
                .map_err(|error| Error::Failed(with_remedy(&error.to_string())))?,
            None => RelayConfig::default(),
        };
        let some = |is_given: bool| is_given.then_some(());
        let flashflow = FlashFlowConfig {
            measurements_allowed: some(!self.coordinators.is_empty())
                .and(file.flashflow.measurements_allowed.or(Some(true))),
            allowed_coordinators: some(!self.coordinators.is_empty())
                .map(|()| self.coordinators.clone()),
            ..FlashFlowConfig::default()
        };
        let flags = RelayConfig {
            nickname: self.nickname,
            address: self.address,
            or_port: self.or_port,
            listen: self.listen,
            keys: self.keys.clone(),
            rate_mbit_per_s: self.rate,
            burst_mbit: self.burst,
            scheduler: None, // only in the file
            scheduler_interval_ms: None,
            contact: self.contact.clone(),
            shutdown_wait_s: self.shutdown_wait_s,
            max_mem_in_queues_mib: self.max_mem_in_queues_mib,
            authorities: some(!self.authorities.is_empty()).map(|()| self.authorities.clone()),
            public_network: some(self.public_network).map(|()| true),
            metrics: self.metrics,
            public_metrics: some(self.public_metrics).map(|()| true),
            assume_reachable: some(self.assume_reachable).map(|()| true),
            flashflow,
            ..RelayConfig::default()
        };
        Ok(file.overridden_by(flags))
    }
}

pub(crate) fn run(
    options: &RelayOptions,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit, Error> {
    // Without a file, invalid or missing settings are errors of the command line.
    let checked = options.configuration()?.check();
    let settings = checked.map_err(|error| match options.config {
        None => Error::Usage(error.to_string()),
        Some(_) => error.into(),
    })?;
    if options.check {
        return check(&settings, output);
    }
    log::start(options.log, output);
    let (sender, events) = mpsc::channel();
    let hangup = Hangup::install()?;
    let mut relay = Relay::start(&settings, sender)?;
    interrupt.wind_up_in_order();
    let (address, fingerprint) = (relay.address(), relay.rsa());
    let ed25519 = hex::encode(relay.ed25519().0);
    log::announce(
        output,
        format!("listening on {address} fingerprint {fingerprint} ed25519 {ed25519}"),
        || Line::Listening { address, fingerprint: fingerprint.to_string(), ed25519 },
    );
    let clock = relay.clock();
    if let Some(metrics) = relay.metrics() {
        tracing::info!("metrics at http://{metrics}/metrics");
        output.record(|| Line::Metrics { address: metrics });
    }
    let service = Service::start(clock);
    let run = Run { options, output, clock, events };
    while !interrupt.is_requested() {
        run.step()?;
        service.watch(&relay);
        if hangup.take() {
            service.reloading();
            run.reload(&mut relay);
            service.ready();
        }
    }
    service.stopping();
    let shutdown_wait = relay.shutdown_wait();
    if !shutdown_wait.is_zero() && !interrupt.is_orphaned() {
        let left = relay.shut_down();
        let wait_s = shutdown_wait.as_secs();
        tracing::info!(
            "shutting down: no new circuits, and at most {wait_s} s for {left}; a second signal ends the relay at once"
        );
        output.record(|| {
            let (circuits, streams) = (left.circuits, left.streams);
            Line::ShuttingDown { circuits, streams, wait_s }
        });
        let end = clock.now() + shutdown_wait;
        while clock.now() < end && !interrupt.is_orphaned() && !run.step()? {
            service.watch(&relay);
        }
    }
    let left = relay.unfinished();
    drop(relay);
    match left.is_nothing() {
        true => tracing::info!("ended"),
        false => tracing::warn!("ended: {left} aborted"),
    }
    output.record(|| Line::Ended { circuits: left.circuits, streams: left.streams });
    Ok(Exit::Done)
}

/// Reads the files that a relay reads at its start, and prints what it would do.
fn check(settings: &Settings, output: &Output) -> Result<Exit, Error> {
    let fingerprint = relay::keys::check(&settings.keys, &settings.family_ids)?;
    check_listen(settings.listen)?;
    settings.metrics.into_iter().try_for_each(check_listen)?;
    let known = fingerprint.map(|fingerprint| fingerprint.to_string());
    let identity = known.clone().unwrap_or_else(|| "a new one: the folder has no keys".to_owned());
    let address = SocketAddr::new(settings.address.into(), settings.listen.port());
    let authorities = settings.authorities.len();
    let coordinators = settings.flashflow.allowed_coordinators.iter().flatten().count();
    let limit = settings.limit.map(|limit| limit.rate);
    let text = [
        "the configuration is valid".to_owned(),
        format!("relay: {} at {address}, listening on {}", settings.nickname, settings.listen),
        format!("identity: {identity}"),
        format!("rate limit: {}", limit.map_or_else(|| "none".to_owned(), |rate| rate.to_string())),
        format!("authorities that it publishes to: {authorities}"),
        format!("exit: {}", if settings.exit.is_some() { "yes" } else { "no" }),
        format!("coordinators that may measure it: {coordinators}"),
    ];
    output.result(text.join("\n"), || Line::Check {
        nickname: settings.nickname.to_string(),
        address,
        listen: settings.listen,
        fingerprint: known,
        authorities,
        rate_mbit_per_s: limit.map(|rate| rate.as_mbit_per_s()),
        exit: settings.exit.is_some(),
        coordinators,
    });
    Ok(Exit::Done)
}

/// Prints events.
struct Run<'a> {
    options: &'a RelayOptions,
    output: &'a Output,
    clock: Clock,
    events: Receiver<RelayEvent>,
}

impl Run<'_> {
    /// Reloads the configuration. If the new one is invalid, the old one stays in effect.
    fn reload(&self, relay: &mut Relay) {
        let settings = self.options.configuration().and_then(|config| Ok(config.check()?));
        let reloaded = settings.and_then(|settings| Ok(relay.reload(settings)?));
        match reloaded {
            Ok(reloaded) => {
                tracing::info!("{reloaded}");
                self.output.record(|| Line::Reloaded {
                    changed: Some(reloaded.changed),
                    needs_restart: Some(reloaded.needs_restart),
                    error: None,
                });
            }
            Err(error) => {
                tracing::error!(
                    "configuration not reloaded: {error}; the previous one stays in effect"
                );
                self.output.record(|| Line::Reloaded {
                    changed: None,
                    needs_restart: None,
                    error: Some(error.to_string()),
                });
            }
        }
    }

    /// Waits up to [`STEP`] for an event. True if the last circuit has ended.
    fn step(&self) -> Result<bool, Error> {
        match self.events.recv_timeout(STEP) {
            Ok(RelayEvent::Ended(reason)) => return Err(ended(&reason)),
            Ok(RelayEvent::Drained) => return Ok(true),
            Ok(RelayEvent::Load(_)) if !self.options.print_load => {}
            Ok(event) => {
                if is_problem(&event) {
                    tracing::warn!("{event}");
                } else {
                    tracing::info!("{event}");
                }
                if let Some(line) = Line::new(&event, self.clock) {
                    self.output.record(|| line);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ended("its threads have ended: a bug"));
            }
        }
        Ok(false)
    }
}

fn ended(reason: &str) -> Error {
    Error::Failed(format!("the relay has ended: {reason}"))
}

/// Whether an event needs the operator's attention.
fn is_problem(event: &RelayEvent) -> bool {
    matches!(
        event,
        RelayEvent::Answered { answer: Answer::Refused { .. }, .. }
            | RelayEvent::Unanswered { .. }
            | RelayEvent::Listed(None)
            | RelayEvent::NoConsensus(_)
            | RelayEvent::Reachability(Reachability::Unreached { .. })
            | RelayEvent::ClockJumped(_)
            | RelayEvent::Trouble(_)
            | RelayEvent::Router(
                RouterEvent::MemoryReclaimed { .. }
                    | RouterEvent::Evicted { .. }
                    | RouterEvent::FeedbackRefused { .. }
                    | RouterEvent::PaddingRefused { .. }
                    | RouterEvent::CircuitStalled { .. }
                    | RouterEvent::MeasurementOver(Some(_))
            )
    )
}
