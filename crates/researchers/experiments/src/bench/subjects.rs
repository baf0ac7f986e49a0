//! Measures C tor and our relay in turn with the same cells.

use super::lines::RelayRun;
use super::median_of;
use crate::error::{Error, Result};
use crate::measuring::measure;
use crate::private_network as network;
use crate::testbed;
use authority::one_relay::Request;
use control::keys::SecretKey;
use coordinator::{PathParams, Progress};
use lab::{Network, NetworkSpec, OwnRelay, OwnRelaySpec, TemporaryFolder};
use link::Clock;
use measurer::LocalTeam;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::load::Target;
use onion::{Duration, Instant, Rate};
use serde::Serialize;
use std::ops::RangeInclusive;
use terminal::{Interrupt, Output, TeamArguments, measuring};

/// The options of a team of one measurer for relays without a rate limit.
pub(super) const fn arguments(seconds: u32, capacity_mbit: Option<f64>) -> TeamArguments {
    TeamArguments {
        seconds,
        measurers: 1,
        capacity: capacity_mbit,
        sockets: 160,
        guess: 2000.0,
        check_share: coordinator::CHECK_SHARE,
        own_address: None,
        landing_ports: None,
        authenticate: false,
        no_clients: true,
    }
}

/// A relay and the method of measuring it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Tor,
    OursEcho,
    OursTransit,
}

impl Subject {
    pub(super) const fn relay(self) -> &'static str {
        match self {
            Self::Tor => "tor",
            Self::OursEcho | Self::OursTransit => "ours",
        }
    }

    const fn mode(self) -> &'static str {
        match self {
            Self::OursEcho => "echo",
            Self::Tor | Self::OursTransit => "transit",
        }
    }
}

/// The results of one relay in one run, without the first and the last second.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) subject: Subject,
    /// The sockets, if they were given.
    sockets: Option<u32>,
    seconds: u32,
    bytes: u64,
    cpu: Duration,
    /// The result of the measurement.
    pub(super) estimate: Rate,
    /// The start and the end of the evaluated seconds.
    pub(super) within: (Instant, Instant),
}

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "no run moves 2^53 bytes")]
    pub(super) fn gbit_per_cpu_s(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu.as_secs_f64()
    }

    /// The processor time as a share of one core.
    pub(super) fn cpu_share(&self) -> f64 {
        self.cpu.as_secs_f64() / f64::from(self.seconds)
    }

    /// The mean load.
    pub(super) fn load(&self) -> Rate {
        Rate::from_bytes_over(self.bytes, Duration::from_secs(u64::from(self.seconds)))
    }

    fn print<L: Serialize>(&self, run: u32, line: fn(RelayRun) -> L, output: &Output) {
        let (relay, mode) = (self.subject.relay(), self.subject.mode());
        let (mbit, share) = (self.estimate.as_mbit_per_s(), self.cpu_share());
        let gbit_per_cpu_s = self.gbit_per_cpu_s();
        let sockets = self.sockets.map_or_else(String::new, |sockets| {
            format!(" over {}", report::plural(sockets.into(), "socket"))
        });
        output.result(
            format!(
                "run {run}: {relay} in {mode}{sockets}: {gbit_per_cpu_s:.3} Gbit per CPU second; {mbit:.0} \
                 Mbit/s with {:.0} % of a core",
                share * 100.0
            ),
            || {
                line(RelayRun {
                    run,
                    relay,
                    mode,
                    sockets: self.sockets,
                    gbit_per_cpu_s,
                    rate_mbit_per_s: mbit,
                    relay_cpu_share: share,
                    bytes: self.bytes,
                    cpu_s: self.cpu.as_secs_f64(),
                    seconds_looked_at: self.seconds,
                })
            },
        );
    }
}

/// A subject's median over all runs; NaN without runs.
pub(super) fn median_gbit_per_cpu_s(samples: &[Sample], subject: Subject) -> f64 {
    median_of(samples.iter().filter(|sample| sample.subject == subject), Sample::gbit_per_cpu_s)
}

/// A private network with one C tor relay, our relay, and a team of one measurer.
pub(super) struct BenchNetwork {
    team: LocalTeam,
    network: Network,
    pub(super) ours: OwnRelay,
    key: SecretKey,
    arguments: TeamArguments,
    pub(super) clock: Clock,
    /// The sockets of a measurement, in its only round; by distance and rate if `None`.
    pub(super) sockets: Option<u32>,
    _folder: TemporaryFolder,
}

impl BenchNetwork {
    /// Starts the network. `capacity_mbit` limits what the measurer sends.
    pub(super) fn start(
        seconds: u32,
        capacity_mbit: Option<f64>,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let arguments = arguments(seconds, capacity_mbit);
        let team = measuring::local_team(&arguments, output)?;
        let network = network::start(&NetworkSpec::new(network::relays(Some(1), &[0.0])?), output)?;
        interrupt.wind_up_in_order();
        let folder = testbed::temporary_folder()?;
        let key = SecretKey::generate()?;
        output.doing("starting our relay");
        let spec = OwnRelaySpec::new("ours", key.public());
        let clock = Clock::start();
        let ours = OwnRelay::start(spec, folder.path(), clock)?;
        Ok(Self { team, network, ours, key, arguments, clock, sockets: None, _folder: folder })
    }

    /// The address and identity of a subject.
    pub(super) fn target(&self, subject: Subject) -> Target {
        match subject {
            Subject::Tor => {
                let tor = &self.network.relays()[0];
                let ids =
                    RelayIds { rsa: RsaId(tor.rsa()), ed25519: Some(Ed25519Id(tor.ed25519())) };
                Target { address: tor.or_addr(), ids }
            }
            Subject::OursEcho | Subject::OursTransit => self.ours.target,
        }
    }

    /// The process ID of a subject.
    pub(super) fn pid(&self, subject: Subject) -> u32 {
        match subject {
            Subject::Tor => self.network.relays()[0].pid(),
            Subject::OursEcho | Subject::OursTransit => self.ours.process.pid(),
        }
    }

    /// Limits what the measurer sends.
    pub(super) fn limit(&mut self, rate: Rate, output: &Output) -> Result<()> {
        self.arguments = arguments(self.arguments.seconds, Some(rate.as_mbit_per_s()));
        self.team = measuring::local_team(&self.arguments, output)?;
        Ok(())
    }

    /// Measures the subjects in turn in each run, and prints a line for each; `None` if interrupted.
    pub(super) fn run<L: Serialize>(
        &self,
        subjects: &[Subject],
        runs: RangeInclusive<u32>,
        line: fn(RelayRun) -> L,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Option<Vec<Sample>>> {
        let mut samples = Vec::new();
        for run in runs {
            for subject in subjects {
                let sample = self.sample(*subject, run, output, interrupt);
                if interrupt.is_requested() {
                    output.quiet();
                    return Ok(None);
                }
                let sample = sample?;
                sample.print(run, line, output);
                samples.push(sample);
            }
        }
        Ok(Some(samples))
    }

    /// Stops the network.
    pub(super) fn stop(self) -> Result<()> {
        Ok(self.network.stop()?)
    }

    /// Measures one relay once, and reads its processor time from the end of the first second to the end of the last
    /// but one, which excludes the start and the end of the measurement.
    pub(super) fn sample(
        &self,
        subject: Subject,
        run: u32,
        output: &Output,
        interrupt: &Interrupt,
    ) -> Result<Sample> {
        let what = format!("run {run}, {} in {}", subject.relay(), subject.mode());
        output.doing(format!("{what}: preparing"));
        let guess = Rate::from_mbit_per_s(self.arguments.guess);
        let request = Request::new(self.target(subject), guess);
        let request = match subject {
            Subject::OursEcho => request.by_echo(self.key.seed()),
            Subject::Tor | Subject::OursTransit => request,
        };
        let mut params = measuring::params(&self.arguments);
        let path = self.sockets.map(|sockets| {
            (params.sockets, params.max_rounds) = (sockets, 1);
            PathParams { first_sockets: sockets, ..PathParams::default() }
        });
        let request = Request { params, path, echo_rounds: u32::MAX, ..request };
        let pid = self.pid(subject);
        let clock = self.clock;
        let mut readings: Vec<(Rate, Option<Duration>, Instant)> = Vec::new();
        let mut progress = |progress: Progress| match progress {
            Progress::Preparing { .. } => {}
            Progress::Started { .. } => readings.clear(),
            Progress::Second { index, of, measured, .. } => {
                readings.push((measured, lab::cpu_time(pid), clock.now()));
                let (second, mbit) = (index + 1, measured.as_mbit_per_s());
                output.doing(format!("{what}: second {second} of {of}: {mbit:.0} Mbit/s"));
            }
        };
        let measured = measure(&self.team, request, &mut progress, interrupt.requested())?;
        let failed = |why: String| Error::Failed(format!("{what}: the measurement failed: {why}"));
        let Some(measured) = measured else { return Err(failed("interrupted".to_owned())) };
        let outcome = measured.record.outcome();
        let estimate = outcome.estimate().ok_or_else(|| failed(outcome.to_string()))?.capacity;
        let looked_at = readings.get(1..readings.len().saturating_sub(1)).unwrap_or_default();
        let before = readings.first().and_then(|(_, cpu, _)| *cpu);
        let after = looked_at.last().and_then(|(_, cpu, _)| *cpu);
        let began = readings.first().map_or(Instant::ORIGIN, |(.., at)| *at);
        let ended = looked_at.last().map_or(began, |(.., at)| *at);
        let cpu = after.zip(before).map(|(after, before)| after.saturating_sub(before));
        let cpu = cpu.filter(|cpu| !cpu.is_zero());
        let cpu = cpu.ok_or_else(|| failed("its processor time cannot be read".to_owned()))?;
        let bytes = looked_at.iter().map(|(measured, ..)| measured.as_byte_per_s()).sum();
        let seconds = u32::try_from(looked_at.len()).unwrap_or(u32::MAX);
        Ok(Sample {
            subject,
            sockets: self.sockets,
            seconds,
            bytes,
            cpu,
            estimate,
            within: (began, ended),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(subject: Subject, gbit: u64) -> Sample {
        Sample {
            subject,
            sockets: None,
            seconds: 4,
            bytes: gbit * 125_000_000,
            cpu: Duration::from_secs(1),
            estimate: Rate::ZERO,
            within: (Instant::ORIGIN, Instant::ORIGIN),
        }
    }

    #[test]
    fn the_median_of_two_runs_is_their_mean() {
        use Subject::{OursEcho, Tor};
        let samples = [sample(Tor, 2), sample(OursEcho, 6), sample(Tor, 3), sample(OursEcho, 7)];
        assert!((median_gbit_per_cpu_s(&samples, OursEcho) - 6.5).abs() < 1e-9);
        assert!((median_gbit_per_cpu_s(&samples[..3], OursEcho) - 6.0).abs() < 1e-9);
        assert!(median_gbit_per_cpu_s(&samples, Subject::OursTransit).is_nan());
    }
}
