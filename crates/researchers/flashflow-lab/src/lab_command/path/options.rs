//! Options of `flashflow-lab lab path`.

use clap::Args;
use cli::Error;
use lab::wan::{Bottleneck, Congestion, Jitter, Loss, Queue, Reordering, WanPath, WanSpec};
use onion::{Duration, Rate};

/// Make a path with latency, loss and bottlenecks between two hosts, `near` and `far`.
///
/// Each host is a network namespace, which needs root. An option applies to both directions, unless its `--back-…` variant sets
/// the direction from far to near. A command after `--` runs at the near host, and the path is removed when it ends. Without a
/// command the path stays until Ctrl-C, and the command line to enter each host is printed. Commands get the environment variables
/// FLASHFLOW_NEAR and FLASHFLOW_FAR (addresses), FLASHFLOW_NEAR_NETNS and FLASHFLOW_FAR_NETNS (paths for `nsenter --net=`). Their
/// standard output goes to standard error.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow-lab lab path --rtt-ms 100 --loss-percent 0.1 --congestion reno
  flashflow-lab lab path --rtt-ms 40 --rate-mbit-per-s 50 --back-rate-mbit-per-s 10 --seconds 30 -- ping -c 5 10.77.0.2
  flashflow-lab lab path --far 'nc -l -p 80 >/dev/null' -- sh -c 'sleep 1; head -c 10M /dev/zero | nc -N $FLASHFLOW_FAR 80'

Exit status: 0 done; 1 the command or something else failed; 2 wrong arguments; 130 interrupted.")]
pub(crate) struct PathOptions {
    /// Round-trip time in milliseconds; half of it in each direction.
    #[arg(long, default_value_t = 100.0, value_name = "MS")]
    rtt_ms: f64,
    #[command(flatten)]
    out: OutOptions,
    #[command(flatten)]
    back: BackOptions,
    /// Additional delay of reordered packets, in milliseconds.
    #[arg(long, default_value_t = 10.0, value_name = "MS")]
    reorder_ms: f64,
    /// Let jitter reorder packets: each packet has an independent delay.
    #[arg(long)]
    jitter_reorders: bool,
    /// TCP congestion control at both hosts: bbr, cubic or reno. By default, that of this machine.
    #[arg(long, value_name = "NAME")]
    congestion: Option<Congestion>,
    /// TCP congestion control at the far host only.
    #[arg(long, value_name = "NAME")]
    far_congestion: Option<Congestion>,
    /// Seed of all random decisions about packets.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Remove the path after this number of seconds.
    #[arg(long)]
    pub(super) seconds: Option<u32>,
    /// Shell command for the far host. It starts before the command of the near host, and is killed when that ends.
    #[arg(long, value_name = "COMMAND-LINE")]
    pub(super) far: Option<String>,
    /// Command for the near host.
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<String>,
}

/// The direction from near to far.
#[derive(Debug, Args)]
struct OutOptions {
    /// Maximum jitter in milliseconds, in addition to half the round-trip time.
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    jitter_ms: f64,
    /// Random packet loss, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    loss_percent: f64,
    /// Mean length of a burst of losses, in packets.
    #[arg(long, value_name = "PACKETS")]
    burst_packets: Option<f64>,
    /// Rate of the bottleneck, in Mbit/s of IP packets.
    #[arg(long, value_name = "MBIT")]
    rate_mbit_per_s: Option<f64>,
    /// Queue of the bottleneck, in milliseconds at its rate.
    #[arg(long, default_value_t = 100.0, value_name = "MS")]
    queue_ms: f64,
    /// Reordered packets, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    reorder_percent: f64,
    /// Duplicated packets, in percent.
    #[arg(long, default_value_t = 0.0, value_name = "PERCENT")]
    duplicate_percent: f64,
    /// Drop all packets.
    #[arg(long)]
    blackhole: bool,
}

/// The direction from far to near, where it differs.
#[derive(Debug, Args)]
struct BackOptions {
    /// Jitter from far to near.
    #[arg(long, value_name = "MS")]
    back_jitter_ms: Option<f64>,
    /// Loss from far to near.
    #[arg(long, value_name = "PERCENT")]
    back_loss_percent: Option<f64>,
    /// Mean length of a burst of losses from far to near.
    #[arg(long, value_name = "PACKETS")]
    back_burst_packets: Option<f64>,
    /// Rate of the bottleneck from far to near; 0 for none.
    #[arg(long, value_name = "MBIT")]
    back_rate_mbit_per_s: Option<f64>,
    /// Queue of the bottleneck from far to near.
    #[arg(long, value_name = "MS")]
    back_queue_ms: Option<f64>,
    /// Reordered packets from far to near.
    #[arg(long, value_name = "PERCENT")]
    back_reorder_percent: Option<f64>,
    /// Duplicated packets from far to near.
    #[arg(long, value_name = "PERCENT")]
    back_duplicate_percent: Option<f64>,
    /// Drop all packets from far to near. --blackhole affects the other direction only.
    #[arg(long)]
    back_blackhole: bool,
}

impl PathOptions {
    /// The network that the options describe.
    pub(super) fn spec(&self) -> Result<WanSpec, Error> {
        let (out, back) = (&self.out, &self.back);
        let back = OutOptions {
            jitter_ms: back.back_jitter_ms.unwrap_or(out.jitter_ms),
            loss_percent: back.back_loss_percent.unwrap_or(out.loss_percent),
            // Without loss there are no bursts.
            burst_packets: back.back_burst_packets.or(out.burst_packets),
            rate_mbit_per_s: back
                .back_rate_mbit_per_s
                .or(out.rate_mbit_per_s)
                .filter(|&rate| rate != 0.0),
            queue_ms: back.back_queue_ms.unwrap_or(out.queue_ms),
            reorder_percent: back.back_reorder_percent.unwrap_or(out.reorder_percent),
            duplicate_percent: back.back_duplicate_percent.unwrap_or(out.duplicate_percent),
            blackhole: back.back_blackhole,
        };
        let spec = WanSpec::pair(self.path(out)?).with_path(
            WanSpec::FAR,
            WanSpec::NEAR,
            self.path(&back)?,
        );
        let mut spec = spec.with_seed(self.seed);
        let congestion = [self.congestion, self.far_congestion.or(self.congestion)];
        for (host, congestion) in spec.hosts.iter_mut().zip(congestion) {
            host.congestion = congestion;
        }
        Ok(spec)
    }

    fn path(&self, options: &OutOptions) -> Result<WanPath, Error> {
        let share = |percent: f64| percent / 100.0;
        let loss = match options.burst_packets {
            Some(mean_packets) => Loss::Bursts { share: share(options.loss_percent), mean_packets },
            None => Loss::Random { share: share(options.loss_percent) },
        };
        let queue = Queue::Time(millis(options.queue_ms)?);
        let bottleneck = options
            .rate_mbit_per_s
            .map(|rate| Bottleneck { rate: Rate::from_mbit_per_s(rate), queue });
        Ok(WanPath {
            latency: millis(self.rtt_ms)? / 2,
            jitter: Jitter { up_to: millis(options.jitter_ms)?, reorders: self.jitter_reorders },
            loss,
            bottleneck,
            reordering: Reordering {
                share: share(options.reorder_percent),
                held_back: millis(self.reorder_ms)?,
            },
            duplicate_share: share(options.duplicate_percent),
            is_blackhole: options.blackhole,
        })
    }
}

fn millis(millis: f64) -> Result<Duration, Error> {
    let wrong = |_| Error::Usage(format!("{millis} is not a number of milliseconds"));
    Duration::try_from_secs_f64(millis / 1e3).map_err(wrong)
}
