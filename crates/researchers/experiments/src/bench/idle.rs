//! `flashflow-lab bench idle`: memory and processor time of idle connections and circuits, and memory growth over
//! many circuits.

use super::lines::{IdleFigures, IdleLine};
use super::options::IdleBench;
use super::subjects::{BenchNetwork, Subject};
use crate::error::{Error, Result};
use lab::load::{CircuitLoad, rng};
use link::tls::TlsConfigs;
use link::{Clock, Driver, DriverOptions, IdentityIssuer, unix_time_s};
use onion::Duration;
use terminal::{Exit, Interrupt, Output};

/// The timeout for any progress.
const PATIENCE: Duration = Duration::from_secs(60);

/// The length of the idle period.
const IDLE: Duration = Duration::from_secs(5);

/// The number of memory readings while circuits are built and closed.
const READINGS: u64 = 10;

/// The interval of progress checks.
const LOOK: Duration = Duration::from_millis(200);

/// The memory and processor time of a relay.
#[derive(Clone, Copy, Debug)]
struct IdleReading {
    resident_bytes: u64,
    cpu: Duration,
    wake_ups: u64,
}

impl IdleReading {
    fn take(pid: u32) -> Result<Self> {
        let reading = || {
            let resident_bytes = lab::resident_bytes(pid)?;
            Some(Self { resident_bytes, cpu: lab::cpu_time(pid)?, wake_ups: lab::wake_ups(pid)? })
        };
        reading().ok_or_else(|| {
            Error::Failed("the relay's memory or processor time cannot be read".to_owned())
        })
    }
}

pub(super) fn run(plan: IdleBench, output: &Output, interrupt: &Interrupt) -> Result<Exit> {
    let needed = plan.connections.saturating_mul(2);
    let limit = link::raise_descriptor_limit();
    // Our relay reserves some descriptors for streams.
    if limit < needed {
        return Err(Error::Failed(format!(
            "{} connections need {needed} open files in each of two processes, but the limit is \
             {limit}: raise it with `ulimit -n {needed}`, or reduce --connections",
            plan.connections
        )));
    }
    let stage = BenchNetwork::start(3, None, output, interrupt)?;
    let mut results = Vec::new();
    let subjects = [Subject::OursTransit, Subject::Tor];
    for subject in subjects.into_iter().take(1 + usize::from(plan.with_tor)) {
        let result = measure(plan, &stage, subject, output, interrupt);
        let Ok(Some(result)) = result else {
            stage.stop()?;
            return result.map(|_| Exit::Interrupted);
        };
        results.push(result);
    }
    stage.stop()?;
    output.quiet();
    let mut results = results.into_iter();
    let (ours, tor) = (results.next(), results.next());
    output.result(String::new(), || IdleLine::Summary { ours, tor });
    Ok(Exit::Done)
}

/// Measures one relay; `None` if interrupted.
fn measure(
    plan: IdleBench,
    stage: &BenchNetwork,
    subject: Subject,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Option<IdleFigures>> {
    let (relay, pid) = (subject.relay(), stage.pid(subject));
    let issuer = IdentityIssuer::new([7; 32], unix_time_s())?;
    let load = CircuitLoad::new(
        stage.target(subject),
        plan.connections,
        plan.circuits,
        unix_time_s(),
        rng()?,
    );
    let max_conns = usize::MAX;
    let options =
        DriverOptions { handshake_timeout: PATIENCE, max_conns, ..DriverOptions::default() };
    let driver = Driver::new(load, Clock::start(), TlsConfigs::new(&issuer)?, Vec::new(), options)?;
    let mut load = IdleLoad { relay, driver, output, interrupt };

    let before = IdleReading::take(pid)?;
    let circuits = load.driver.node().target_circuits();
    if !load.wait_for(CircuitLoad::open_circuits, circuits, "circuits")? {
        return Ok(None);
    }
    let standing = IdleReading::take(pid)?;
    load.idle(IDLE)?;
    let idle = IdleReading::take(pid)?;

    let soak_began = load.driver.now();
    let mut memory = vec![idle.resident_bytes];
    for number in 1..=READINGS {
        let so_far = load.driver.node().destroyed_circuits();
        let until = plan.soak * number / READINGS;
        load.driver.node_mut().open_and_destroy(until - so_far);
        if !load.wait_for(CircuitLoad::destroyed_circuits, until, "circuits built and torn down")? {
            return Ok(None);
        }
        memory.push(IdleReading::take(pid)?.resident_bytes);
    }
    let figures = Figures {
        relay,
        connections: plan.connections,
        circuits,
        grown_bytes: idle.resident_bytes.saturating_sub(before.resident_bytes),
        idle_cpu_share: (idle.cpu - standing.cpu).as_secs_f64() / IDLE.as_secs_f64(),
        idle_wake_ups: idle.wake_ups.saturating_sub(standing.wake_ups),
        soak_circuits: plan.soak,
        soak_s: (load.driver.now() - soak_began).as_secs_f64(),
        soak_cpu: IdleReading::take(pid)?.cpu - idle.cpu,
        soak_memory_bytes: memory,
    };
    Ok(Some(figures.print(output)))
}

/// The connections and circuits, and their progress.
struct IdleLoad<'a> {
    relay: &'static str,
    driver: Driver<CircuitLoad>,
    output: &'a Output,
    interrupt: &'a Interrupt,
}

impl IdleLoad<'_> {
    /// Continues until a count reaches this number; false if interrupted.
    fn wait_for(
        &mut self,
        count: fn(&CircuitLoad) -> u64,
        wanted: u64,
        what: &str,
    ) -> Result<bool> {
        let (mut seen, mut seen_at) = (0, self.driver.now());
        loop {
            let now = self.driver.now();
            let load = self.driver.node();
            if count(load) > seen {
                (seen, seen_at) = (count(load), now);
                self.output.doing(format!("{}: {what}: {seen} of {wanted}", self.relay));
            }
            if seen >= wanted {
                return Ok(true);
            }
            if self.interrupt.is_requested() {
                return Ok(false);
            }
            let is_stuck = now - seen_at > PATIENCE;
            let problem = load.failure().or(is_stuck.then_some("the relay does not answer"));
            if let Some(problem) = problem {
                let relay = self.relay;
                let text = format!("{relay}: {what}: {seen} of {wanted}, then: {problem}");
                return Err(Error::clients(text));
            }
            self.driver.turn(now + LOOK)?;
        }
    }

    /// Keeps all circuits idle for this time.
    fn idle(&mut self, time: Duration) -> Result<()> {
        self.output.doing(format!("{}: idle", self.relay));
        let until = self.driver.now() + time;
        while self.driver.now() < until {
            self.driver.turn(until)?;
        }
        Ok(())
    }
}

/// The figures of one relay.
struct Figures {
    relay: &'static str,
    connections: u32,
    circuits: u64,
    grown_bytes: u64,
    /// As a share of one core.
    idle_cpu_share: f64,
    idle_wake_ups: u64,
    soak_circuits: u64,
    soak_s: f64,
    soak_cpu: Duration,
    /// Before the first circuit, and after each tenth of them.
    soak_memory_bytes: Vec<u64>,
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "figures to be read")]
    fn print(self, output: &Output) -> IdleFigures {
        let Self { relay, connections, circuits, soak_circuits, soak_s, .. } = self;
        let wake_ups_per_s = self.idle_wake_ups as f64 / IDLE.as_secs_f64();
        let mb = |bytes: u64| bytes as f64 / 1e6;
        let per = |number: u64| self.grown_bytes as f64 / number.max(1) as f64;
        let memory_mb: Vec<f64> =
            self.soak_memory_bytes.iter().map(|soak_memory_byte| mb(*soak_memory_byte)).collect();
        // Memory that the first tenth adds is reused by the others.
        let settled_mb = memory_mb.get(1).copied().unwrap_or(f64::NAN);
        let last_mb = memory_mb.last().copied().unwrap_or(f64::NAN);
        let cpu_us = self.soak_cpu.as_secs_f64() * 1e6 / soak_circuits.max(1) as f64;
        let figures = IdleFigures {
            relay,
            connections,
            circuits,
            grown_mb: mb(self.grown_bytes),
            bytes_per_circuit: per(circuits),
            bytes_per_connection: per(u64::from(connections)),
            idle_cpu_share: self.idle_cpu_share,
            idle_wake_ups_per_s: wake_ups_per_s,
            soak_circuits,
            soak_s,
            soak_cpu_us_per_circuit: cpu_us,
            soak_memory_mb: memory_mb,
            soak_growth: last_mb / settled_mb,
        };
        output.result(
            format!(
                "{relay}: {connections} connections with {circuits} circuits take {:.1} MB, {:.0} bytes \
                 for each circuit, and {:.2} % of a core with {:.0} wake-ups a second while idle; \
                 {soak_circuits} circuits built and torn down in {soak_s:.1} s, {cpu_us:.1} µs of processor time each: {settled_mb:.1} MB \
                 after the first tenth, {last_mb:.1} MB at the end",
                mb(self.grown_bytes),
                per(circuits),
                self.idle_cpu_share * 100.0,
                wake_ups_per_s,
            ),
            || IdleLine::Relay(figures.clone()),
        );
        figures
    }
}
