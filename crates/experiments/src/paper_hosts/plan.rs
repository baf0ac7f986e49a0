//! What is varied, and the paper's hosts.

use super::Options;
use crate::common::or;
use crate::mode::Mode;
use clap::ValueEnum;
use coordinator::{Params, PathParams};
use lab::wan::{Access, Congestion, Narrow, Queue, Way};
use measurer::TeamOptions;
use onion::{Duration, Rate};
use std::fmt;

/// What may wait at a host's link.
const QUEUE: Duration = Duration::from_millis(50);

/// Load before the seconds that count, where the number of sockets is given.
const LEAD_S: u32 = 4;

/// A host of the paper's Table 1.
pub(super) struct Host {
    pub(super) name: &'static str,
    /// Round trip to US-SW.
    pub(super) rtt_ms: u32,
    /// What all others together brought to it by UDP.
    mbit_per_s: f64,
}

/// The relay's host is the last one.
pub(super) const HOSTS: [Host; 5] = [
    Host { name: "US-NW", rtt_ms: 40, mbit_per_s: 946.0 },
    Host { name: "US-E", rtt_ms: 62, mbit_per_s: 941.0 },
    Host { name: "NL", rtt_ms: 137, mbit_per_s: 1611.0 },
    Host { name: "IN", rtt_ms: 210, mbit_per_s: 1076.0 },
    Host { name: "US-SW", rtt_ms: 0, mbit_per_s: 954.0 },
];

/// The place of the relay's host.
pub(super) const US_SW: usize = HOSTS.len() - 1;

impl Host {
    pub(super) fn rate(&self) -> Rate {
        Rate::from_mbit_per_s(self.mbit_per_s)
    }

    /// Its link.
    pub(super) fn access(&self) -> Access {
        Access::both(Narrow { rate: self.rate(), queue: Queue::Time(QUEUE) })
    }

    /// Its way to the relay, or back.
    pub(super) fn way(&self, loss_percent: f64) -> Way {
        let latency = Duration::from_micros(u64::from(self.rtt_ms) * 500);
        let loss = if self.rtt_ms == 0 { 0.0 } else { loss_percent / 100.0 };
        Way::with_latency(latency).losing(loss)
    }
}

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Vary {
    /// Who measures (§6.2).
    Team,
    /// How many sockets a single host opens (E.1).
    Sockets,
    /// How many times the capacity is offered (E.2).
    Multiplier,
    /// How long a measurement is (E.3).
    Seconds,
    /// How large the socket buffers of the kernels may grow, for a single socket (D.1).
    Buffers,
}

impl Vary {
    const ALL: [Self; 5] =
        [Self::Team, Self::Sockets, Self::Multiplier, Self::Seconds, Self::Buffers];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Team => "team",
            Self::Sockets => "sockets",
            Self::Multiplier => "multiplier",
            Self::Seconds => "seconds",
            Self::Buffers => "buffers",
        }
    }
}

/// One run.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) vary: Vary,
    /// The relay, by its place among the limits.
    pub(super) relay: usize,
    /// Who measures, by their places.
    pub(super) hosts: Vec<usize>,
    /// How many sockets; found out by the distance if `None`.
    pub(super) sockets: Option<u32>,
    pub(super) multiplier: f64,
    pub(super) seconds: u32,
    /// Whether the kernels' buffers may grow to 64 MiB, as the paper's tuned ones.
    pub(super) is_tuned: bool,
}

impl Setting {
    /// The names of those who measure.
    pub(super) fn team(&self) -> String {
        let names: Vec<&str> = self.hosts.iter().map(|it| HOSTS[*it].name).collect();
        names.join("+")
    }

    pub(super) fn params(&self) -> Params {
        let (multiplier, seconds) = (self.multiplier, self.seconds);
        let params = Params { multiplier, seconds, ..TeamOptions::default().params };
        match self.sockets {
            None => params,
            Some(sockets) => Params { sockets, max_rounds: 1, ..params },
        }
    }

    /// What the path asks for, where that is given.
    pub(super) fn path(&self) -> Option<PathParams> {
        let plain = |first_sockets| PathParams { first_sockets, lead_s: LEAD_S, probes: false };
        self.sockets.map(plain)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.team())?;
        match self.vary {
            Vary::Team => Ok(()),
            Vary::Sockets => write!(f, ", {} sockets", self.sockets.unwrap_or_default()),
            Vary::Multiplier => write!(f, ", m = {}", self.multiplier),
            Vary::Seconds => write!(f, ", {} s", self.seconds),
            Vary::Buffers if self.is_tuned => f.write_str(", buffers up to 64 MiB"),
            Vary::Buffers => f.write_str(", buffers as they are"),
        }
    }
}

/// How much of it is played.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    All,
    /// What tells most, in under five minutes for each thing that is varied.
    Quick,
    /// In under five minutes for all of them: by the nearest host and the farthest.
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

pub(super) struct Plan {
    pub(super) seconds: u32,
    pub(super) limits: Vec<Rate>,
    pub(super) modes: Vec<Mode>,
    pub(super) congestion: Congestion,
    pub(super) loss_percent: f64,
    pub(super) seed: u64,
    /// Where they are not varied; found out by the distance if `None`.
    pub(super) sockets: Option<u32>,
    pub(super) settings: Vec<Setting>,
}

impl Plan {
    pub(super) fn new(options: &Options, is_quick: bool) -> Self {
        let limits = or(&options.limits, is_quick, &[90.0], &[10.0, 100.0, 250.0]);
        let modes = [Mode::Echo, Mode::Transit];
        let mut plan = Self {
            seconds: options.seconds.unwrap_or(if is_quick { 10 } else { 30 }),
            limits: limits.iter().map(|mbit| Rate::from_mbit_per_s(*mbit)).collect(),
            modes: or(&options.modes, is_quick, &modes[1..], &modes),
            congestion: options.congestion,
            loss_percent: options.loss_percent,
            seed: options.seed,
            sockets: options.sockets,
            settings: Vec::new(),
        };
        let extent = match (is_quick, options.vary.is_empty()) {
            (false, _) => Extent::All,
            (true, false) => Extent::Quick,
            (true, true) => Extent::Least,
        };
        for vary in or(&options.vary, is_quick, &Vary::ALL, &Vary::ALL) {
            let settings = plan.varied(vary, extent);
            plan.settings.extend(settings);
        }
        plan
    }

    /// A run by all hosts with the paper's parameters.
    fn usual(&self, vary: Vary, relay: usize) -> Setting {
        Setting {
            vary,
            relay,
            hosts: (0..US_SW).collect(),
            sockets: self.sockets,
            multiplier: Params::default().multiplier,
            seconds: self.seconds,
            is_tuned: false,
        }
    }

    fn varied(&self, vary: Vary, extent: Extent) -> Vec<Setting> {
        let relays = 0..self.limits.len();
        let last = self.limits.len() - 1;
        let hosts: Vec<usize> = (0..US_SW).collect();
        let usual = |relay| self.usual(vary, relay);
        match vary {
            Vary::Team => {
                let is_in = |team: usize| (0..US_SW).filter(move |host| team >> host & 1 == 1);
                let teams = (1..1usize << US_SW).map(|team| is_in(team).collect::<Vec<_>>());
                // In haste, each alone and all together.
                let alone = extent.choose(&hosts, &hosts, &[NEAREST, FARTHEST]);
                let is_played = |it: &Vec<usize>| match &it[..] {
                    [host] => alone.contains(host),
                    _ => extent == Extent::All || it.len() == US_SW,
                };
                let teams = teams.filter(is_played);
                let of_team = |hosts: Vec<usize>| relays.clone().map(move |it| (it, hosts.clone()));
                let setting = |(relay, hosts)| Setting { hosts, ..usual(relay) };
                teams.flat_map(of_team).map(setting).collect()
            }
            Vary::Sockets => {
                let counts =
                    extent.choose(&[5, 10, 20, 40, 80, 160, 300], &[8, 40, 160], &[8, 40, 160]);
                let all: Vec<usize> = (0..HOSTS.len()).collect();
                let hosts = extent.choose(&all, &hosts, &[FARTHEST]);
                let of_host = |host: usize| counts.iter().map(move |sockets| (host, *sockets));
                let setting = |(host, sockets)| Setting {
                    hosts: vec![host],
                    sockets: Some(sockets),
                    ..usual(last)
                };
                hosts.into_iter().flat_map(of_host).map(setting).collect()
            }
            Vary::Multiplier => {
                let hundredths: Vec<u32> =
                    extent.choose(&[150, 175, 200, 225, 250], &[150, 225], &[150]);
                let of_relay =
                    |relay| hundredths.iter().map(move |it| (relay, f64::from(*it) / 100.0));
                let setting = |(relay, multiplier)| Setting { multiplier, ..usual(relay) };
                relays.flat_map(of_relay).map(setting).collect()
            }
            Vary::Seconds => {
                let lengths = extent.choose(&[10, 20, 30, 60], &[10, 30], &[20]);
                let of_relay = |relay| lengths.iter().map(move |it| (relay, *it));
                let setting = |(relay, seconds)| Setting { seconds, ..usual(relay) };
                relays.flat_map(of_relay).map(setting).collect()
            }
            Vary::Buffers => {
                let of_host = |host: usize| [false, true].map(|is_tuned| (host, is_tuned));
                let setting = |(host, is_tuned)| Setting {
                    hosts: vec![host],
                    sockets: Some(1),
                    is_tuned,
                    ..usual(last)
                };
                let hosts = extent.choose(&hosts, &hosts, &[FARTHEST]);
                hosts.into_iter().flat_map(of_host).map(setting).collect()
            }
        }
    }

    /// The run that tells what a relay can carry.
    pub(super) fn truth(&self, relay: usize) -> Setting {
        Setting { hosts: vec![US_SW], sockets: None, ..self.usual(Vary::Team, relay) }
    }

    /// Runs in all, without those that tell the truth.
    pub(super) fn runs(&self) -> usize {
        self.settings.len() * self.modes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(is_quick: bool) -> Plan {
        plan_of(is_quick, Vec::new())
    }

    fn plan_of(is_quick: bool, vary: Vec<Vary>) -> Plan {
        plan_with(is_quick, vary, None)
    }

    fn plan_with(is_quick: bool, vary: Vec<Vary>, sockets: Option<u32>) -> Plan {
        let options = Options {
            vary,
            sockets,
            seconds: None,
            limits: Vec::new(),
            modes: Vec::new(),
            congestion: Congestion::Cubic,
            loss_percent: 0.0,
            seed: 1,
        };
        Plan::new(&options, is_quick)
    }

    fn of(plan: &Plan, vary: Vary) -> Vec<String> {
        plan.settings.iter().filter(|it| it.vary == vary).map(ToString::to_string).collect()
    }

    #[test]
    fn all_teams_of_the_four_hosts_measure_each_relay() {
        let teams = of(&plan(false), Vary::Team);
        assert_eq!(teams.len(), 15 * 3);
        assert_eq!(teams.iter().filter(|it| **it == "US-NW+US-E+NL+IN").count(), 3);
        assert!(
            teams.iter().all(|it| !it.contains("US-SW")),
            "the relay's own host is no measurer"
        );
    }

    #[test]
    fn in_haste_one_thing_that_is_asked_for_is_played_at_all_hosts_and_everything_at_the_farthest()
    {
        let all = plan(true);
        assert_eq!(of(&all, Vary::Team), ["US-NW", "IN", "US-NW+US-E+NL+IN"]);
        assert_eq!(of(&all, Vary::Sockets), ["IN, 8 sockets", "IN, 40 sockets", "IN, 160 sockets"]);
        assert_eq!(all.settings.len(), 10, "each takes some 20 s");
        let sockets = plan_of(true, vec![Vary::Sockets]);
        assert_eq!(sockets.settings.len(), 12);
        assert_eq!(plan_of(true, vec![Vary::Team]).settings.len(), 5);
    }

    #[test]
    fn the_papers_sockets_are_opened_only_if_asked_for_and_not_for_the_truth() {
        let paper = plan_with(false, vec![Vary::Team, Vary::Sockets], Some(160));
        let teams = paper.settings.iter().filter(|it| it.vary == Vary::Team);
        assert!(teams.into_iter().all(|it| it.sockets == Some(160) && it.params().max_rounds == 1));
        assert_eq!(paper.truth(0).sockets, None);
        let varied = of(&paper, Vary::Sockets);
        assert!(varied.contains(&"IN, 5 sockets".to_owned()), "{varied:?}");
    }

    #[test]
    fn one_thing_is_varied_at_a_time() {
        let plan = plan(false);
        assert_eq!(of(&plan, Vary::Sockets).len(), 5 * 7);
        assert_eq!(of(&plan, Vary::Buffers).len(), 4 * 2);
        for it in &plan.settings {
            let is_usual = it.multiplier.to_bits() == 2.25f64.to_bits();
            assert!(is_usual || it.vary == Vary::Multiplier);
            assert!(it.seconds == 30 || it.vary == Vary::Seconds);
            let is_given = matches!(it.vary, Vary::Sockets | Vary::Buffers);
            assert_eq!(it.sockets.is_some(), is_given);
            assert_eq!(it.params().max_rounds == 1, is_given, "what is given is not widened");
            assert_eq!(it.path().map(|it| it.first_sockets), it.sockets);
        }
    }
}
