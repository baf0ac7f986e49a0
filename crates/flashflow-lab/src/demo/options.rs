//! What `flashflow-lab demo` accepts.

use clap::Args;
use std::path::PathBuf;
use terminal::TeamArguments;

/// Bring up a private Tor network on this machine and measure it end to end.
///
/// Stock tor processes form a network on loopback; every relay is measured; the results become a
/// bandwidth file, by which the network's own authorities vote; the next consensus is compared with
/// it. Leaves an HTML report. Nothing leaves this machine, and nothing stays behind but the results.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab demo
  flashflow-lab demo --limits 10,50,100,250 --seconds 10 --json
  flashflow-lab demo --relays 2 --limits 0 --out /tmp/results

Exit status: 0 all relays measured and the weights voted; 1 something failed; 2 wrong arguments;
130 interrupted.")]
pub(crate) struct DemoOptions {
    /// Number of relays, 1 to 50; by default as many as there are limits.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) relays: Option<u32>,
    /// Rate limits of the relays in Mbit/s, taken in turn; 0 for no limit.
    #[arg(long, value_delimiter = ',', default_value = "10,50,100,250", value_name = "MBIT,…")]
    pub(crate) limits: Vec<f64>,
    /// Rate limits in Mbit/s of relays of our own beside them, which take part in their measurement
    /// (echo); 0 for no limit, `none` for no such relays.
    #[arg(long, value_delimiter = ',', default_value = "50", value_name = "MBIT,…",
        value_parser = echo_limit)]
    pub(crate) echo_limits: Vec<Option<f64>>,
    /// Keep the network's folder with all logs, and say where it is.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Folder for bandwidth file and report.
    #[arg(long, value_name = "DIR", default_value = "flashflow-demo")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) team: TeamArguments,
}

/// A limit in Mbit/s, or `none`.
fn echo_limit(text: &str) -> Result<Option<f64>, String> {
    match text {
        "none" | "" => Ok(None),
        _ => text.parse().map(Some).map_err(|error| format!("{text:?} is no rate: {error}")),
    }
}
