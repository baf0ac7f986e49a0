//! The paper's hosts, and the runs of the experiment.

use super::Options;
use crate::common::{as_text, values_or, values_or_all};
use crate::mode::Mode;
use clap::ValueEnum;
use coordinator::{Params, PathParams};
use lab::wan::{Access, Bottleneck, Queue};
use onion::{Duration, Rate};
use serde::Serialize;
use std::fmt;

/// The queue of a host's link.
const QUEUE: Duration = Duration::from_millis(50);

/// Seconds of load before the measured seconds, if the number of sockets is given.
const LEAD_S: u32 = 4;

/// A host of the paper's Table 1.
pub(crate) struct Host {
    pub(crate) name: &'static str,
    /// Round trip to US-SW.
    pub(crate) rtt_ms: u32,
    /// The rate at which all others together sent to it over UDP.
    mbit_per_s: f64,
}

/// The relay's host is the last one.
pub(crate) const HOSTS: [Host; 5] = [
    Host { name: "US-NW", rtt_ms: 40, mbit_per_s: 946.0 },
    Host { name: "US-E", rtt_ms: 62, mbit_per_s: 941.0 },
    Host { name: "NL", rtt_ms: 137, mbit_per_s: 1611.0 },
    Host { name: "IN", rtt_ms: 210, mbit_per_s: 1076.0 },
    Host { name: "US-SW", rtt_ms: 0, mbit_per_s: 954.0 },
];

/// The place of the relay's host.
pub(crate) const US_SW: usize = HOSTS.len() - 1;

impl Host {
    pub(super) fn rate(&self) -> Rate {
        Rate::from_mbit_per_s(self.mbit_per_s)
    }

    /// The access link.
    pub(crate) fn access(&self) -> Access {
        Access::both(Bottleneck { rate: self.rate(), queue: Queue::Time(QUEUE) })
    }
}

/// The varied parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Vary {
    /// The measurers (§6.2).
    Team,
    /// The sockets of a single host (E.1).
    Sockets,
    /// The load, in multiples of the capacity (E.2).
    Multiplier,
    /// The length of a measurement (E.3).
    Seconds,
    /// The largest socket buffers of the kernels, for a single socket (D.1), or for each of --sockets (D.2).
    Buffers,
}

/// Hosts that measure together, by their places.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hosts(pub(super) Vec<usize>);

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|host| HOSTS[*host].name).collect();
        f.write_str(&names.join("+"))
    }
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cell {
    pub(super) mode: Mode,
    pub(super) limit_mbit_per_s: f64,
    pub(super) vary: Vary,
    #[serde(serialize_with = "as_text")]
    pub(super) hosts: Hosts,
    /// By distance and rate if `None`.
    pub(super) sockets: Option<u32>,
    pub(super) multiplier: f64,
    pub(super) seconds: u32,
    /// Whether the kernels' buffers may grow to 64 MiB, as in the paper's tuned kernels.
    pub(super) tuned: bool,
    /// The relay, by its place among the limits.
    #[serde(skip)]
    pub(super) relay: usize,
}

impl Cell {
    pub(super) fn params(&self) -> Params {
        let (multiplier, seconds) = (self.multiplier, self.seconds);
        let may_have_clients = false;
        let params = Params { multiplier, seconds, may_have_clients, ..Params::default() };
        match self.sockets {
            None => params,
            Some(sockets) => Params { sockets, max_rounds: 1, ..params },
        }
    }

    /// The parameters of the path, where the number of sockets is given.
    pub(super) fn path(&self) -> Option<PathParams> {
        let plain = |first_sockets| PathParams {
            first_sockets,
            lead_s: LEAD_S,
            probes: false,
            few_circuits_s: 0,
        };
        self.sockets.map(plain)
    }

    /// The run that determines what the relay carries.
    pub(super) fn truth(&self, seconds: u32) -> Self {
        let multiplier = Params::default().multiplier;
        let hosts = Hosts(vec![US_SW]);
        Self { vary: Vary::Team, hosts, sockets: None, multiplier, seconds, ..self.clone() }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limit = Rate::from_mbit_per_s(self.limit_mbit_per_s);
        write!(f, "{} {limit}, {}", self.mode.name(), self.hosts)?;
        match self.vary {
            Vary::Team => Ok(()),
            Vary::Sockets => write!(f, ", {} sockets", self.sockets.unwrap_or_default()),
            Vary::Multiplier => write!(f, ", m = {}", self.multiplier),
            Vary::Seconds => write!(f, ", {} s", self.seconds),
            Vary::Buffers => {
                let sockets = report::plural(self.sockets.unwrap_or_default().into(), "socket");
                let buffers = if self.tuned { "buffers up to 64 MiB" } else { "default buffers" };
                write!(f, ", {sockets}, {buffers}")
            }
        }
    }
}

/// How much of the grid to run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    All,
    /// The most informative cells, under five minutes for each varied parameter.
    Quick,
    /// Under five minutes for all parameters: the nearest and the farthest host only.
    Least,
}

impl Extent {
    fn choose<T: Clone>(self, all: &[T], quick: &[T], least: &[T]) -> Vec<T> {
        let chosen = match self {
            Self::All => all,
            Self::Quick => quick,
            Self::Least => least,
        };
        chosen.to_vec()
    }
}

/// The places of the nearest host and the farthest.
const NEAREST: usize = 0;
const FARTHEST: usize = US_SW - 1;

pub(super) fn seconds(options: &Options, is_quick: bool) -> u32 {
    options.seconds.unwrap_or(if is_quick { 10 } else { 30 })
}

pub(super) fn limits(options: &Options, is_quick: bool) -> Vec<f64> {
    values_or(&options.limits, is_quick, &[90.0], &[10.0, 100.0, 250.0])
}

/// All runs: in each mode those with default kernels, then those with tuned ones.
pub(super) fn cells(options: &Options, is_quick: bool) -> Vec<Cell> {
    let extent = match (is_quick, options.vary.is_empty()) {
        (false, _) => Extent::All,
        (true, false) => Extent::Quick,
        (true, true) => Extent::Least,
    };
    let modes = [Mode::Echo, Mode::Transit];
    let limits = limits(options, is_quick);
    let mut cells = Vec::new();
    for mode in values_or(&options.modes, is_quick, &modes[1..], &modes) {
        let usual = |vary, relay: usize| Cell {
            mode,
            limit_mbit_per_s: limits[relay],
            vary,
            hosts: Hosts((0..US_SW).collect()),
            sockets: options.sockets.first().copied(),
            multiplier: Params::default().multiplier,
            seconds: seconds(options, is_quick),
            tuned: false,
            relay,
        };
        let vary = values_or_all(&options.vary).into_iter();
        let mut of_mode: Vec<Cell> = vary
            .flat_map(|vary| {
                varied(vary, (extent, limits.len()), &options.sockets, |relay| usual(vary, relay))
            })
            .collect();
        // A stable sort.
        of_mode.sort_by_key(|cell| cell.tuned);
        cells.extend(of_mode);
    }
    cells
}

/// The runs in which one parameter differs from the `usual` run of a relay.
fn varied(
    vary: Vary,
    (extent, relays): (Extent, usize),
    sockets: &[u32],
    usual: impl Fn(usize) -> Cell,
) -> Vec<Cell> {
    let last = relays - 1;
    let hosts: Vec<usize> = (0..US_SW).collect();
    let mut cells = Vec::new();
    match vary {
        Vary::Team => {
            let is_in = |team: usize| (0..US_SW).filter(move |host| team >> host & 1 == 1);
            let alone = extent.choose(&hosts, &hosts, &[NEAREST, FARTHEST]);
            for team in (1..1usize << US_SW).map(|team| is_in(team).collect::<Vec<_>>()) {
                // With --quick, each alone and all together.
                let is_included = match &team[..] {
                    [host] => alone.contains(host),
                    _ => extent == Extent::All || team.len() == US_SW,
                };
                let of_relay = |relay| Cell { hosts: Hosts(team.clone()), ..usual(relay) };
                cells.extend((0..relays).filter(|_| is_included).map(of_relay));
            }
        }
        Vary::Sockets => {
            let counts =
                extent.choose(&[5, 10, 20, 40, 80, 160, 300], &[8, 40, 160], &[8, 40, 160]);
            let all: Vec<usize> = (0..HOSTS.len()).collect();
            for host in extent.choose(&all, &hosts, &[FARTHEST]) {
                let of_host = |sockets: &u32| Cell {
                    hosts: Hosts(vec![host]),
                    sockets: Some(*sockets),
                    ..usual(last)
                };
                cells.extend(counts.iter().map(of_host));
            }
        }
        Vary::Multiplier => {
            let multipliers = extent.choose(&[1.5, 1.75, 2.0, 2.25, 2.5], &[1.5, 2.25], &[1.5]);
            for relay in 0..relays {
                let of_relay = |multiplier: &f64| Cell { multiplier: *multiplier, ..usual(relay) };
                cells.extend(multipliers.iter().map(of_relay));
            }
        }
        Vary::Seconds => {
            let lengths = extent.choose(&[10, 20, 30, 60], &[10, 30], &[20]);
            for relay in 0..relays {
                cells
                    .extend(lengths.iter().map(|length| Cell { seconds: *length, ..usual(relay) }));
            }
        }
        Vary::Buffers => {
            let counts = if sockets.is_empty() { &[1] } else { sockets };
            for host in extent.choose(&hosts, &hosts, &[FARTHEST]) {
                for count in counts {
                    let of_host = |tuned| Cell {
                        hosts: Hosts(vec![host]),
                        sockets: Some(*count),
                        tuned,
                        ..usual(last)
                    };
                    cells.extend([false, true].map(of_host));
                }
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::parse_options;

    fn planned(is_quick: bool, options: &str) -> Vec<Cell> {
        cells(&parse_options(&format!("--modes transit {options}")), is_quick)
    }

    fn of(cells: &[Cell], vary: Vary) -> Vec<String> {
        let names = cells.iter().filter(|cell| cell.vary == vary).map(ToString::to_string);
        names.filter_map(|name| name.split_once(", ").map(|(_, rest)| rest.to_owned())).collect()
    }

    #[test]
    fn all_teams_of_the_four_hosts_measure_each_relay() {
        let teams = of(&planned(false, ""), Vary::Team);
        assert_eq!(teams.len(), 15 * 3);
        assert_eq!(teams.iter().filter(|team| **team == "US-NW+US-E+NL+IN").count(), 3);
        assert!(
            teams.iter().all(|team| !team.contains("US-SW")),
            "the relay's host does not measure"
        );
    }

    #[test]
    fn a_quick_run_varies_named_parameters_at_all_hosts_and_all_parameters_at_the_farthest() {
        let all = planned(true, "");
        assert_eq!(of(&all, Vary::Team), ["US-NW", "IN", "US-NW+US-E+NL+IN"]);
        assert_eq!(of(&all, Vary::Sockets), ["IN, 8 sockets", "IN, 40 sockets", "IN, 160 sockets"]);
        assert_eq!(all.len(), 10, "each takes some 20 s");
        assert_eq!(planned(true, "--vary sockets").len(), 12);
        assert_eq!(planned(true, "--vary team").len(), 5);
    }

    #[test]
    fn given_sockets_apply_to_other_runs_but_not_to_the_truth() {
        let paper = planned(false, "--vary team,sockets --sockets 160");
        let teams = paper.iter().filter(|cell| cell.vary == Vary::Team);
        assert!(
            teams
                .into_iter()
                .all(|team| team.sockets == Some(160) && team.params().max_rounds == 1)
        );
        assert_eq!(paper[0].truth(30).sockets, None);
        let buffers = of(&planned(false, "--vary buffers --sockets 1,20"), Vary::Buffers);
        assert_eq!(buffers.len(), 4 * 2 * 2);
        assert_eq!(buffers[0], "US-NW, 1 socket, default buffers");
        assert!(
            buffers.contains(&"IN, 20 sockets, buffers up to 64 MiB".to_owned()),
            "{buffers:?}"
        );
        let varied = of(&paper, Vary::Sockets);
        assert!(varied.contains(&"IN, 5 sockets".to_owned()), "{varied:?}");
    }

    #[test]
    fn one_parameter_varies_at_a_time() {
        let cells = planned(false, "");
        assert_eq!(of(&cells, Vary::Sockets).len(), 5 * 7);
        assert_eq!(of(&cells, Vary::Buffers).len(), 4 * 2);
        for cell in &cells {
            let is_usual = cell.multiplier.to_bits() == 2.25f64.to_bits();
            assert!(is_usual || cell.vary == Vary::Multiplier);
            assert!(cell.seconds == 30 || cell.vary == Vary::Seconds);
            let is_given = matches!(cell.vary, Vary::Sockets | Vary::Buffers);
            assert_eq!(cell.sockets.is_some(), is_given);
            assert_eq!(cell.params().max_rounds == 1, is_given, "given sockets do not grow");
            assert_eq!(cell.path().map(|path| path.first_sockets), cell.sockets);
        }
        let mut names: Vec<String> = cells.iter().map(ToString::to_string).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), cells.len(), "each run has a separate file");
    }
}
