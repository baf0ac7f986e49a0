//! The relays, their clients and an adversary, as a model of flows.
//!
//! The number of flows at a relay is Poisson distributed, in proportion to its weight, as in MLEFlow's simulator (Darir et
//! al., PoPETs 2022). Flows share a relay's capacity fairly, and each wants the same rate.

use super::draws::{noise, poisson, quantile};
use super::{Attack, Behavior};
use sim::world::SplitMix64;

/// The mean number of flows at a relay: MLEFlow's simulator has a million for 6,000 relays.
const FLOWS_PER_RELAY: f64 = 160.0;

/// The largest rate of a single download: tor's 500 cells of 498 bytes in a round trip of 66 ms.
pub(super) const DOWNLOAD_MAX_BIT_PER_S: f64 = 30e6;

/// The largest of the numbers of flows in the 43,200 windows of ten seconds of five days, in standard deviations above the mean.
/// Descriptors contain that maximum (dir-spec §2.1.1).
const PEAK_DEVIATIONS: f64 = 4.1;

/// The rate of a part-time relay while it is slow, over that while it is fast.
const SLOW: f64 = 0.1;

/// Whose a relay is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Of an honest operator.
    Honest,
    /// Trusted by the authorities.
    Trusted,
    /// Of the adversary.
    Adversary,
}

/// A relay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRelay {
    /// What it carries for clients, as a mean over time, in bits per second.
    pub capacity: f64,
    /// Whose it is.
    pub role: Role,
    /// The number of its host, whose capacity is that of all its relays.
    pub host: usize,
}

/// How to draw a scene.
#[derive(Clone, Debug, PartialEq)]
pub struct SceneOptions {
    /// Capacities from whose distribution those of the relays are drawn, in bits per second.
    pub sample: Vec<f64>,
    /// The number of hosts; each has a relay, and those of an adversary may have more.
    pub relays: usize,
    /// The share of relays and of capacity that the authorities trust.
    pub trusted_share: f64,
    /// What clients want, over the capacity of all relays; `None` if flows take all that they get.
    pub load: Option<f64>,
    /// The adversary.
    pub attack: Attack,
    /// The random seed.
    pub seed: u64,
}

#[cfg(test)]
impl SceneOptions {
    /// A scene for tests, with capacities from 1 to 1,000 Mbit/s.
    pub(super) fn with_attack(attack: &str, seed: u64) -> Self {
        Self {
            sample: (0..=30).map(|place| 1e6 * 10f64.powf(f64::from(place) / 10.0)).collect(),
            relays: 300,
            trusted_share: 0.2,
            load: Some(0.5),
            attack: Attack::named(attack).expect("one of the table"),
            seed,
        }
    }
}

/// Relays with their clients, and an adversary.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// All relays.
    pub relays: Vec<FlowRelay>,
    /// What the adversary's relays do.
    pub behavior: Behavior,
    /// The mean number of flows in the whole network.
    flows: f64,
    /// What each flow wants; `None` if it takes all that it gets.
    wanted: Option<f64>,
}

impl Scene {
    /// Draws relays and adversary.
    #[must_use]
    pub fn draw(options: &SceneOptions) -> Self {
        let SceneOptions { relays: hosts, attack, .. } = options;
        let mut rng = SplitMix64::of(options.seed, 1);
        let mut sample = options.sample.clone();
        sample.sort_by(f64::total_cmp);
        let capacities = (0..*hosts).map(|_| quantile(&sample, rng.unit()));
        let relay = |(host, capacity)| FlowRelay { capacity, role: Role::Honest, host };
        let mut relays: Vec<FlowRelay> = capacities.enumerate().map(relay).collect();
        // In a random order, the adversary's come first, and then the trusted ones.
        for place in (1..relays.len()).rev() {
            let other = usize::try_from(rng.below(place as u64 + 1)).unwrap_or(0);
            relays.swap(place, other);
        }
        let total: f64 = relays.iter().map(|relay| relay.capacity).sum();
        let (adversaries, others) = relays.split_at_mut(count(attack.relay_share, *hosts));
        take(adversaries, Role::Adversary, attack.capacity_share * total);
        let trusted = count(options.trusted_share, *hosts).min(others.len());
        let (trusted, others) = others.split_at_mut(trusted);
        take(trusted, Role::Trusted, options.trusted_share * total);
        take(others, Role::Honest, (1.0 - attack.capacity_share - options.trusted_share) * total);
        let behavior = attack.behavior;
        let relays = relays.into_iter().flat_map(|relay| {
            let is_adversary = relay.role == Role::Adversary;
            let identities = if is_adversary { behavior.identities.max(1) } else { 1 };
            let capacity = relay.capacity / f64::from(identities);
            (0..identities).map(move |_| FlowRelay { capacity, ..relay })
        });
        let flows = FLOWS_PER_RELAY * *hosts as f64;
        let wanted = options.load.map(|load| load * total / flows);
        Self { relays: relays.collect(), behavior, flows, wanted }
    }

    /// The scene before the attack: all relays are honest.
    #[must_use]
    pub fn before_attack(&self) -> Self {
        Self { behavior: Behavior::HONEST, ..self.clone() }
    }

    /// The capacities of all relays.
    #[must_use]
    pub fn capacities(&self) -> Vec<f64> {
        self.relays.iter().map(|relay| relay.capacity).collect()
    }

    /// The shares of all relays in the capacity of the network.
    pub(super) fn even_weights(&self) -> Vec<f64> {
        let mut weights = self.capacities();
        super::normalise(&mut weights);
        weights
    }

    /// The places of the adversary's relays.
    pub fn adversaries(&self) -> impl Iterator<Item = usize> {
        self.places(Role::Adversary)
    }

    /// The places of relays with this role.
    pub(super) fn places(&self, role: Role) -> impl Iterator<Item = usize> {
        let relays = self.relays.iter().enumerate();
        relays.filter(move |(_, relay)| relay.role == role).map(|(place, _)| place)
    }

    /// What a relay does.
    pub(super) fn behavior_of(&self, place: usize) -> Behavior {
        match self.relays[place].role {
            Role::Adversary => self.behavior,
            Role::Honest | Role::Trusted => Behavior::HONEST,
        }
    }

    /// What each flow wants; `None` if it takes all that it gets.
    pub(super) const fn wanted(&self) -> Option<f64> {
        self.wanted
    }

    /// Circuits of three relays that are as many flows.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of circuits"
    )]
    pub(super) fn circuits(&self) -> usize {
        (self.flows / 3.0) as usize
    }

    /// The mean number of flows at a relay with this share of all weight.
    pub(super) fn mean_flows(&self, share: f64) -> f64 {
        self.flows * share
    }

    /// The number of flows at a relay with this share of all weight, at some time.
    pub(super) fn flows(&self, share: f64, rng: &mut SplitMix64) -> f64 {
        poisson(self.mean_flows(share), rng)
    }

    /// What a relay carries with this number of flows.
    pub(super) fn carried(&self, place: usize, flows: f64) -> f64 {
        let capacity = self.relays[place].capacity;
        match self.wanted {
            Some(wanted) => capacity.min(flows * wanted),
            None if flows > 0.0 => capacity,
            None => 0.0,
        }
    }

    /// What clients want of a relay with this share of all weight, on average.
    pub(super) fn offered(&self, share: f64) -> f64 {
        self.wanted.map_or(f64::INFINITY, |wanted| self.mean_flows(share) * wanted)
    }

    /// What one more flow gets at a relay: its fair share, or what the others leave.
    pub(super) fn rate_of_one_more(&self, place: usize, flows: f64) -> f64 {
        let capacity = self.relays[place].capacity;
        let fair = capacity / (flows + 1.0);
        let left = self.wanted.map_or(0.0, |wanted| capacity - flows * wanted);
        fair.max(left).min(DOWNLOAD_MAX_BIT_PER_S)
    }

    /// The rate of a scanner's download through a relay.
    pub(super) fn download(&self, place: usize, flows: f64, rng: &mut SplitMix64) -> f64 {
        let behavior = self.behavior_of(place);
        let rate = if behavior.prefers_measurements || !behavior.carries_traffic {
            (self.relays[place].capacity * behavior.shown_factor).min(DOWNLOAD_MAX_BIT_PER_S)
        } else {
            self.rate_of_one_more(place, flows) * behavior.shown_factor
        };
        rate * self.speed_now(place, rng) * noise(rng)
    }

    /// The speed of a relay at a random time, over its mean.
    pub(super) fn speed_now(&self, place: usize, rng: &mut SplitMix64) -> f64 {
        let share = self.behavior_of(place).time_share;
        let fast = 1.0 / (share + SLOW * (1.0 - share));
        if share >= 1.0 || rng.unit() < share { fast } else { fast * SLOW }
    }

    /// The observed bandwidth in the descriptor of a relay with this share of all weight: its best ten seconds of five days.
    pub(super) fn self_report(&self, place: usize, share: f64) -> f64 {
        let mean = self.mean_flows(share);
        // Bernstein's bound, for Poisson distributions with a small mean.
        let peak = mean + PEAK_DEVIATIONS * mean.sqrt() + PEAK_DEVIATIONS.powi(2) / 6.0;
        self.carried(place, peak) * self.behavior_of(place).report_factor
    }
}

/// Gives relays to a party, with this capacity in all.
fn take(relays: &mut [FlowRelay], role: Role, capacity: f64) {
    let sum: f64 = relays.iter().map(|relay| relay.capacity).sum();
    for relay in relays {
        relay.role = role;
        relay.capacity *= capacity / sum;
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of relays")]
fn count(share: f64, of: usize) -> usize {
    let wanted = (share * of as f64).round() as usize;
    if share > 0.0 { wanted.clamp(1, of) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parties_have_their_shares_of_relays_and_of_capacity() {
        let scene = Scene::draw(&SceneOptions::with_attack("one-host", 3));
        let total: f64 = scene.capacities().iter().sum();
        let of = |role| scene.places(role).map(|place| scene.relays[place].capacity).sum::<f64>();
        let share = |role| of(role) / total;
        assert!((share(Role::Adversary) - 0.02).abs() < 1e-9);
        assert!((share(Role::Trusted) - 0.2).abs() < 1e-9);
        assert_eq!(scene.adversaries().count(), 4 * 6, "four relays on each of six hosts");
        assert_eq!(scene.places(Role::Trusted).count(), 60);
        assert_eq!(
            scene,
            Scene::draw(&SceneOptions::with_attack("one-host", 3)),
            "the seed decides all"
        );
        assert_ne!(scene, Scene::draw(&SceneOptions::with_attack("one-host", 4)));
    }

    #[test]
    fn flows_share_a_relay_and_one_more_gets_what_they_leave() {
        let mut scene = Scene::draw(&SceneOptions::with_attack("none", 1));
        scene.relays[0].capacity = 10e6;
        scene.wanted = Some(1e6);
        let rates =
            |scene: &Scene, flows| (scene.carried(0, flows), scene.rate_of_one_more(0, flows));
        assert_eq!(rates(&scene, 4.0), (4e6, 6e6));
        assert_eq!(rates(&scene, 19.0), (10e6, 0.5e6));
        scene.wanted = None;
        assert_eq!(rates(&scene, 4.0), (10e6, 2e6));
        assert_eq!(rates(&scene, 0.0), (0.0, 10e6));
    }

    /// The reason why TorFlow underestimates large relays: a descriptor shows what a relay carried.
    #[test]
    fn a_large_relay_with_half_a_load_never_shows_its_capacity() {
        let mut scene = Scene::draw(&SceneOptions::with_attack("none", 1));
        let total: f64 = scene.capacities().iter().sum();
        let report = |scene: &mut Scene, share: f64| {
            scene.relays[0].capacity = share * total;
            scene.self_report(0, share) / (share * total)
        };
        let large = report(&mut scene, 0.05);
        assert!((0.5..0.6).contains(&large), "{large}");
        assert!((report(&mut scene, 1e-4) - 1.0).abs() < 1e-9, "a small one does");
    }

    #[test]
    fn a_part_time_relay_has_its_mean_speed() {
        let scene = Scene::draw(&SceneOptions::with_attack("part-time", 1));
        let mut rng = SplitMix64::new(3);
        let place = scene.adversaries().next().expect("one");
        let mean = (0..20_000).map(|_| scene.speed_now(place, &mut rng)).sum::<f64>() / 2e4;
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
