//! `flashflow-lab bench`: the cost of our software.

mod client;
mod echo;
mod idle;
mod limit;
pub mod lines;
mod options;
mod path;
mod quiet;
mod relay;
mod subjects;

pub use options::BenchOptions;

use crate::error::{Error, Result};
use crate::measuring::{Measured, measure_with_events};
use crate::private_network as network;
use crate::reporting::median;
use authority::events;
use authority::one_relay::Request;
use coordinator::WorkerLoad;
use coordinator::period::{Event, Period, Router};
use lab::NetworkSpec;
use lines::MeasurerLine;
use link::tls::TlsConfigs;
use link::{IdentityIssuer, Traffic, pump, unix_time_s};
use onion::{Duration, Rate};
use options::{Benchmark, MeasurerBench};
use subjects::arguments;
use terminal::measuring;
use terminal::{Exit, Interrupt, Output};

/// Runs a benchmark.
///
/// # Errors
/// [`Error`] if it cannot be run.
pub fn run(options: &BenchOptions, output: &Output, interrupt: &Interrupt) -> Result<Exit> {
    match &options.benchmark {
        Benchmark::Measurer(options) => measurer(*options, output, interrupt),
        Benchmark::Echo(options) => echo::run(options, output, interrupt),
        Benchmark::Relay(options) => relay::run(*options, output, interrupt),
        Benchmark::Limit(options) => limit::run(*options, output, interrupt),
        Benchmark::Client(options) => client::run(*options, output, interrupt),
        Benchmark::Path(options) => path::run(*options, output, interrupt),
        Benchmark::Idle(options) => idle::run(*options, output, interrupt),
    }
}

/// The median of a figure over samples; NaN without samples.
fn median_of<'a, T: 'a>(
    samples: impl IntoIterator<Item = &'a T>,
    figure: impl Fn(&T) -> f64,
) -> f64 {
    median(samples.into_iter().map(figure)).unwrap_or(f64::NAN)
}

/// One run: processor seconds for 10⁹ bytes of a measurer and of a bare TLS pump.
struct Sample {
    measurer: f64,
    pump: f64,
    rate: Rate,
}

fn measurer(options: MeasurerBench, output: &Output, interrupt: &Interrupt) -> Result<Exit> {
    let MeasurerBench { seconds, runs, limit: limit_mbit } = options;
    let arguments = arguments(seconds, Some(100_000.0));
    let team = measuring::local_team(&arguments, output)?;
    let issuer = IdentityIssuer::new([7; 32], unix_time_s())?;
    let tls = TlsConfigs::new(&issuer)?;
    let network =
        network::start(&NetworkSpec::new(network::relays(Some(1), &[limit_mbit])?), output)?;
    interrupt.wind_up_in_order();
    let relay = &network.relays()[0];
    let request = Request::new(relay.target(), Rate::from_mbit_per_s(arguments.guess));
    let router = Router { nickname: relay.nickname().to_owned(), ..request.router };
    let request = Request { router, params: measuring::params(&arguments), ..request };
    let mut show = |period: &Period, event| {
        if let Event::Progress(..) | Event::MeasurementEnded(_) = event {
            events::show(period, event, |_| None, output);
        }
    };

    let mut samples = Vec::new();
    for run in 1..=runs {
        let stop = interrupt.requested();
        let measured = measure_with_events(&team, request.clone(), &mut show, stop)?;
        let Some(Measured { record, loads, .. }) = measured else {
            network.stop()?;
            return Ok(Exit::Interrupted);
        };
        let Some(load) = loads.first().filter(|_| record.capacity().is_some()) else {
            let why = match record.failure() {
                Some(_) => record.to_string(),
                None => "no load was reported".to_owned(),
            };
            network.stop()?;
            return Err(Error::Failed(format!("the measurement failed: {why}")));
        };
        let sample = sample(load, &tls)?;
        output.result(
            format!(
                "run {run}: {:.0} Mbit/s; measurer {:.3}, bare pump {:.3} CPU s/GB; ratio {:.3}; \
                 records sent {} B, received {} B",
                sample.rate.as_mbit_per_s(),
                sample.measurer,
                sample.pump,
                sample.measurer / sample.pump,
                sent_record_len(&load.traffic),
                received_record_len(&load.traffic),
            ),
            || MeasurerLine::Run {
                run,
                rate_mbit_per_s: sample.rate.as_mbit_per_s(),
                measurer_cpu_s_per_gb: sample.measurer,
                pump_cpu_s_per_gb: sample.pump,
                ratio: sample.measurer / sample.pump,
                sent_record_bytes: sent_record_len(&load.traffic),
                received_record_bytes: received_record_len(&load.traffic),
            },
        );
        samples.push(sample);
    }
    network.stop()?;
    output.quiet();
    let ratio = median_of(&samples, |sample| sample.measurer / sample.pump);
    let measurer = median_of(&samples, |sample| sample.measurer);
    let pump = median_of(&samples, |sample| sample.pump);
    output.result(
        format!("median: measurer {measurer:.3}, bare pump {pump:.3} CPU s/GB; ratio {ratio:.3}"),
        || MeasurerLine::Summary {
            ratio,
            measurer_cpu_s_per_gb: measurer,
            pump_cpu_s_per_gb: pump,
            runs,
            seconds,
        },
    );
    Ok(Exit::Done)
}

/// Compares a measurer's load with pumps that use records of the same lengths.
fn sample(load: &WorkerLoad, tls: &TlsConfigs) -> Result<Sample> {
    const LENGTH: Duration = Duration::from_secs(1);
    let traffic = &load.traffic;
    let sending = pump::run(tls, sent_record_len(traffic), LENGTH)?;
    let receiving = pump::run(tls, received_record_len(traffic), LENGTH)?;
    Ok(Sample {
        measurer: pump::per_gb(load.cpu, traffic.received_bytes),
        pump: sending.send_cpu_s_per_gb() + receiving.receive_cpu_s_per_gb(),
        rate: Rate::from_bytes_over(traffic.received_bytes, load.wall),
    })
}

fn sent_record_len(traffic: &Traffic) -> usize {
    record_len(traffic.sent_bytes, traffic.sent_records)
}

fn received_record_len(traffic: &Traffic) -> usize {
    record_len(traffic.received_bytes, traffic.received_records)
}

/// The mean length of records, limited to a record's maximum.
fn record_len(bytes: u64, records: u64) -> usize {
    usize::try_from(bytes / records.max(1)).unwrap_or(usize::MAX).clamp(1, 16_384)
}
