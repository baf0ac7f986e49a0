//! Writes a report of invented measurements: `cargo run -p report --example sample -- out.html`.
#![expect(clippy::print_stdout, reason = "an example prints")]

use report::{Mode, RelayReport, Report, SecondPoint, Spread};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("give the path of the file to write")?;
    let report = sample();
    println!("{}", report::table(&report.relays));
    report.write_html(&path)?;
    println!("The same with plots: {}", path.display());
    Ok(())
}

fn sample() -> Report {
    let mut relays = vec![
        relay("slow", Some(10.0), 9.7, 1),
        relay("quarter", Some(250.0), 243.0, 1),
        relay("half", Some(500.0), 471.0, 2),
        relay("threequarters", Some(750.0), 702.0, 3),
        relay("unlimited", None, 893.0, 3),
    ];
    relays[2].mode = Mode::Echo;
    let unlimited = &mut relays[4];
    unlimited.conclusive = false;
    unlimited.conclusive_limit_mbit_per_s = Some(711.0);
    unlimited.inconclusive_reason = Some(
        "the team is too small: at least 2637 Mbit/s of measurers are needed, 2000 Mbit/s are available"
            .into(),
    );
    unlimited.bounds_mbit_per_s = unlimited.bounds_mbit_per_s.map(|(low, _)| (low, None));
    relays.push(RelayReport {
        nickname: "<script>alert(1)".into(),
        fingerprint: "F".repeat(40),
        limit_mbit_per_s: Some(100.0),
        error: Some("relay: cell 4711 of circuit 3 came back with other content than sent".into()),
        rounds: 1,
        seconds: 30,
        cells_checked: 12,
        series: round(1, 60.0).take(9).collect(),
        ..RelayReport::default()
    });
    Report {
        title: "FlashFlow: capacity of six relays".into(),
        generated_unix_s: 1_795_264_800,
        software_version: env!("CARGO_PKG_VERSION").into(),
        tor_version: Some("0.4.8.16".into()),
        parameters: [
            ("sockets (s)", "160"),
            ("seconds per round (t)", "30 s"),
            ("multiplier (m)", "2.25"),
            ("error bounds (ε₁ below, ε₂ above)", "0.20, 0.05"),
            ("share of cells checked (p)", "1e-5"),
        ]
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec(),
        notes: vec!["These numbers are invented.".into()],
        relays,
        bandwidth_file: Some("/var/lib/flashflow/v3bw/latest.v3bw".into()),
        weights_in_consensus: Some(true),
    }
}

fn relay(nickname: &str, limit_mbit_per_s: Option<f64>, estimate: f64, rounds: u32) -> RelayReport {
    let shares = (1..=rounds).map(|round| f64::from(round) / f64::from(rounds));
    RelayReport {
        nickname: nickname.into(),
        fingerprint: "0123456789ABCDEF0123456789ABCDEF01234567".into(),
        limit_mbit_per_s,
        estimate_mbit_per_s: Some(estimate),
        relay_reported_mbit_per_s: Some(estimate * 1.012),
        conclusive: true,
        conclusive_limit_mbit_per_s: Some(estimate * 1.15),
        bounds_mbit_per_s: Some((estimate / 1.05, Some(estimate / 0.8))),
        spread_mbit_per_s: Some(Spread {
            min: estimate * 0.9,
            lower_quartile: estimate * 0.975,
            upper_quartile: estimate * 1.02,
            max: estimate * 1.3,
        }),
        rounds,
        seconds: 30,
        cells_checked: u64::from(rounds) * 17_431,
        weight_kb_s: Some(weight(estimate)),
        consensus_weight_kb_s: Some(weight(estimate)),
        series: shares.zip(1..).flat_map(|(share, n)| round(n, estimate * share)).collect(),
        ..RelayReport::default()
    }
}

/// A round with a burst at its start, as tor's token buckets permit, and some noise.
fn round(round: u32, rate: f64) -> impl Iterator<Item = SecondPoint> {
    (0..30).map(move |second| {
        let noise = 1.0 + 0.03 * (f64::from(second * second + 7 * round) * 1.7).sin();
        let measured_mbit_per_s = rate * if second == 0 { 1.3 } else { noise };
        let relay_reported_mbit_per_s = Some(measured_mbit_per_s * 1.012);
        SecondPoint { round, second, measured_mbit_per_s, relay_reported_mbit_per_s }
    })
}

#[expect(clippy::cast_possible_truncation, reason = "the invented rates are small")]
#[expect(clippy::cast_sign_loss, reason = "and positive")]
fn weight(mbit_per_s: f64) -> u64 {
    (mbit_per_s * 125.0).round() as u64
}
