mod advice;
mod as_tor;
mod generate;
mod round_trip;
#[cfg(feature = "store")]
mod store;

use super::*;
use crate::consensus::Consensus;

const NOW: u64 = 1_767_225_600; // 2026-01-01 00:00:00

fn id(n: u8) -> RsaId {
    RsaId([n; 20])
}

fn measured(n: u8, capacity_bytes_s: u64, age_s: u64, cap: Option<u64>) -> Estimate {
    Estimate {
        fingerprint: id(n),
        ed25519: Some(Ed25519Id([n; 32])),
        nickname: format!("relay{n}").parse().unwrap(),
        outcome: Outcome::Measured {
            capacity_bytes_s,
            measured_at: NOW - age_s,
            descriptor_avg_bytes_s: cap,
        },
        extra: vec![("flashflow_mode".to_owned(), "transit".to_owned())],
    }
}

fn failed(n: u8, reason: &str) -> Estimate {
    let outcome = Outcome::Failed { reason: reason.to_owned(), tried_at: Some(NOW - 5) };
    Estimate { ed25519: None, extra: Vec::new(), outcome, ..measured(n, 0, 0, None) }
}

fn all(n: u64) -> Eligibility {
    Eligibility { eligible: n, in_consensus: n }
}

fn settings() -> Settings {
    Settings::new("0.1.0", NOW - 3600, NOW)
}

fn sample() -> BandwidthFile {
    let estimates = [measured(1, 2_000_000, 60, None), measured(2, 5_000, 90, None)];
    BandwidthFile::generate(&estimates, all(2), &settings()).unwrap()
}

fn text(file: &BandwidthFile) -> String {
    file.to_text(NodeIdStyle::Dollar).unwrap()
}
