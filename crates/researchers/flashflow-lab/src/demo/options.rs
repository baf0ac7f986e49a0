//! Options of `flashflow-lab demo`.

use clap::Args;
use std::path::PathBuf;
use terminal::TeamArguments;

/// The length of a measurement of the quick demo.
const QUICK_SECONDS: u32 = 5;

/// Start a private Tor network on this machine and measure it end to end.
///
/// Processes of C tor form a network on loopback. Each relay is measured. If all limits together are at most a quarter of a
/// measurer's capacity, relays are measured at the same time. The authorities of the network vote with the resulting bandwidth file,
/// and the next consensus is compared with it. The results are the bandwidth file and an HTML report. No traffic leaves this machine,
/// and everything else is removed.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab demo --quick
  flashflow-lab demo
  flashflow-lab demo --limits 10,50,100,250 --seconds 10 --json
  flashflow-lab demo --relays 2 --limits 0 --out /tmp/results
  flashflow-lab demo --tor target/patched-tor/bin/tor --tor-limits 20,90

Exit status: 0 all relays measured and the weights voted; 1 failed; 2 wrong arguments;
130 interrupted.")]
pub(crate) struct DemoOptions {
    /// Only two relays of C tor, limited to 10 and 50 Mbit/s, and measurements of 5 seconds: about 40 seconds in all.
    #[arg(long, conflicts_with_all = ["relays", "limits", "echo_limits", "seconds"])]
    pub(crate) quick: bool,
    /// Number of relays, 1 to 50. By default one for each limit.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) relays: Option<u32>,
    /// Rate limits of the relays in Mbit/s, used cyclically; 0 for no limit.
    #[arg(long, value_delimiter = ',', default_value = "10,50,100,250", value_name = "MBIT,…")]
    pub(crate) limits: Vec<f64>,
    /// Rate limits in Mbit/s of additional FlashFlow relays, which take part in their measurement (echo); 0 for no limit, `none` for
    /// no such relays.
    #[arg(long, value_delimiter = ',', default_value = "50", value_name = "MBIT,…",
        value_parser = echo_limit)]
    pub(crate) echo_limits: Vec<Option<f64>>,
    /// A patched tor (`make tor` in the source), of which additional relays are started. They take part in their measurement, too.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) tor: Option<PathBuf>,
    /// Rate limits in Mbit/s of the relays of the patched tor; 0 for no limit.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "20",
        value_name = "MBIT,…",
        requires = "tor"
    )]
    pub(crate) tor_limits: Vec<f64>,
    /// Keep the folder of the network with all logs, and print its path.
    #[arg(long)]
    pub(crate) keep: bool,
    /// Folder for the bandwidth file and the report.
    #[arg(long, value_name = "DIR", default_value = "flashflow-demo")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) team: TeamArguments,
}

impl DemoOptions {
    /// These options, with those that `--quick` sets.
    pub(super) fn settled(&self) -> Self {
        if !self.quick {
            return self.clone();
        }
        let team = TeamArguments { seconds: QUICK_SECONDS, ..self.team.clone() };
        Self { limits: vec![10.0, 50.0], echo_limits: vec![None], team, ..self.clone() }
    }
}

/// A limit in Mbit/s, or `none`.
fn echo_limit(text: &str) -> Result<Option<f64>, String> {
    match text {
        "none" | "" => Ok(None),
        _ => text.parse().map(Some).map_err(|error| format!("{text:?} is not a rate: {error}")),
    }
}
