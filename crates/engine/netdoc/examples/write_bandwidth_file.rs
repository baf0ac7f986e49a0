//! Turns a table of measurements into a bandwidth file that directory authorities can vote by.
//!
//! ```sh
//! echo 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA relay1 5000000' > estimates
//! cargo run -p flashflow-netdoc --example write_bandwidth_file -- estimates 1 1767225600
//! ```
//!
//! Each line has a fingerprint, a nickname and a capacity in bytes per second. The second argument is the number of relays in the
//! consensus: if fewer than 60 % of them are measured, no authority votes by the file. The third is the current time.
#![expect(clippy::print_stdout, reason = "an example")]

use flashflow_netdoc::BandwidthFile;
use flashflow_netdoc::bwfile::{Eligibility, Estimate, NodeIdStyle, Outcome, Settings};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [table, in_consensus, now] = arguments.as_slice() else {
        return Err("usage: write_bandwidth_file TABLE RELAYS-IN-CONSENSUS UNIX-TIME".into());
    };
    let now: u64 = now.parse()?;
    let text = std::fs::read_to_string(table)?;
    let estimates = text.lines().map(|line| estimate(line, now)).collect::<Result<Vec<_>, _>>()?;
    let counts =
        Eligibility { eligible: estimates.len() as u64, in_consensus: in_consensus.parse()? };
    let file = BandwidthFile::generate(&estimates, counts, &Settings::new("0.2.0", now, now))?;
    print!("{}", file.to_text(NodeIdStyle::Dollar)?);
    Ok(())
}

fn estimate(line: &str, now: u64) -> Result<Estimate, Box<dyn Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [fingerprint, nickname, capacity] = words.as_slice() else {
        return Err(format!("three words expected: {line}").into());
    };
    Ok(Estimate {
        fingerprint: fingerprint.parse()?,
        ed25519: None,
        nickname: nickname.parse()?,
        outcome: Outcome::Measured {
            capacity_bytes_s: capacity.parse()?,
            measured_at: now,
            descriptor_avg_bytes_s: None,
        },
        extra: Vec::new(),
    })
}
