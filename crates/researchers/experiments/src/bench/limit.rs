//! `flashflow-lab bench limit`: what no relay on this machine can do without.

use super::lines::LimitLine;
use super::median_of;
use super::options::LimitBench;
use crate::error::Result;
use link::tls::TlsConfigs;
use link::{IdentityIssuer, pump, unix_time_s};
use onion::Duration;
use onion::cell::{CELL_LEN, CELLS_PER_RECORD};
use terminal::{Exit, Interrupt, Output};

/// One run: Gbit for each second of processor time.
pub(super) struct Limit {
    /// Decrypts, removes a layer and encrypts, in memory.
    cryptography: f64,
    /// Reads and writes.
    kernel: f64,
    /// Reads, decrypts, encrypts and writes.
    pub(super) forwarder: f64,
}

impl Limit {
    pub(super) fn measure(tls: &TlsConfigs, length: Duration) -> Result<Self> {
        Ok(Self {
            cryptography: pump::cryptography(tls, CELLS_PER_RECORD, length)?.gbit_per_cpu_s(),
            kernel: pump::copies(length)?.gbit_per_cpu_s(),
            forwarder: pump::forward(tls, CELLS_PER_RECORD * CELL_LEN, length)?.gbit_per_cpu_s(),
        })
    }

    /// Cryptography and the kernel one after the other.
    pub(super) fn bound(&self) -> f64 {
        1.0 / (self.cryptography.recip() + self.kernel.recip())
    }
}

pub(super) fn run(
    LimitBench { seconds, runs }: LimitBench,
    output: &Output,
    interrupt: &Interrupt,
) -> Result<Exit> {
    let tls = TlsConfigs::new(&IdentityIssuer::new([7; 32], unix_time_s())?)?;
    let mut limits = Vec::new();
    for run in 1..=runs {
        if interrupt.is_requested() {
            return Ok(output.interrupted());
        }
        let limit = Limit::measure(&tls, Duration::from_secs(seconds.into()))?;
        let Limit { cryptography, kernel, forwarder } = limit;
        let bound = limit.bound();
        output.result(
            format!(
                "run {run}: cryptography {cryptography:.2}, kernel {kernel:.2}, both {bound:.2}, TLS forwarder \
                 {forwarder:.2} Gbit per CPU second"
            ),
            || LimitLine::Run {
                run,
                cryptography_gbit_per_cpu_s: cryptography,
                kernel_gbit_per_cpu_s: kernel,
                bound_gbit_per_cpu_s: bound,
                tls_forwarder_gbit_per_cpu_s: forwarder,
            },
        );
        limits.push(limit);
    }
    let bound = median_of(&limits, Limit::bound);
    let forwarder = median_of(&limits, |limit| limit.forwarder);
    output.result(
        format!("median: both {bound:.2}, TLS forwarder {forwarder:.2} Gbit per CPU second"),
        || LimitLine::Summary {
            bound_gbit_per_cpu_s: bound,
            tls_forwarder_gbit_per_cpu_s: forwarder,
            runs,
            seconds,
        },
    );
    Ok(Exit::Done)
}
