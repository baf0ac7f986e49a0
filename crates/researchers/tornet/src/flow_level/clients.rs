//! Downloads of honest clients by the weights of a balancer, with an adversary among the relays.
//!
//! Flows of three relays each share all hosts max-min fairly, and want what the scene's flows want. A measured download is one
//! more flow: it gets the smallest of its fair shares at three relays, as if all other flows took what is left.

use super::Scene;
use super::scene::DOWNLOAD_MAX_BIT_PER_S;
use sim::world::SplitMix64;

/// Relays of a circuit.
const HOPS: usize = 3;

/// Measured downloads.
const DOWNLOADS: usize = 2000;

/// The downloads of honest clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Downloads {
    /// The rate of each, ascending, in bits per second.
    pub bit_per_s: Vec<f64>,
    /// The share of circuits with a relay that carries nothing. Their clients use other circuits.
    pub failed_circuits_share: f64,
}

impl Downloads {
    /// The median rate.
    #[must_use]
    pub fn median_bit_per_s(&self) -> f64 {
        self.bit_per_s.get(self.bit_per_s.len() / 2).copied().unwrap_or_default()
    }

    /// The mean rate.
    #[must_use]
    pub fn mean_bit_per_s(&self) -> f64 {
        self.bit_per_s.iter().sum::<f64>() / self.bit_per_s.len().max(1) as f64
    }
}

impl Scene {
    /// The downloads of honest clients that select relays by these weights. If fewer than three relays with weight carry anything, all circuits
    /// fail, and there are no downloads.
    #[must_use]
    pub fn downloads(&self, weights: &[f64], rng: &mut SplitMix64) -> Downloads {
        let carries = |place: usize| {
            let behavior = self.behavior_of(place);
            behavior.carries_traffic && !behavior.claims_clients
        };
        let carrying: Vec<f64> = (0..weights.len())
            .map(|place| if carries(place) { weights[place].max(0.0) } else { 0.0 })
            .collect();
        let share = carrying.iter().sum::<f64>() / weights.iter().sum::<f64>();
        let Some(paths) = Paths::new(&carrying) else {
            return Downloads { bit_per_s: Vec::new(), failed_circuits_share: 1.0 };
        };
        let mut hosts = self.hosts(rng);
        let wanted = self.wanted().unwrap_or(f64::INFINITY).min(DOWNLOAD_MAX_BIT_PER_S);
        let mut path = |_| paths.draw(rng).map(|place| self.relays[place].host);
        let flows: Vec<[usize; HOPS]> = (0..self.circuits()).map(&mut path).collect();
        let measured: Vec<[usize; HOPS]> = (0..DOWNLOADS).map(&mut path).collect();
        fill(&mut hosts, &flows, wanted);
        let fair: Vec<f64> = hosts.iter_mut().map(Host::rate_of_one_more).collect();
        let rate = |path: [usize; HOPS]| {
            path.into_iter().map(|host| fair[host]).fold(DOWNLOAD_MAX_BIT_PER_S, f64::min)
        };
        let mut bit_per_s: Vec<f64> = measured.into_iter().map(rate).collect();
        bit_per_s.sort_by(f64::total_cmp);
        let hops = i32::try_from(HOPS).unwrap_or(1);
        Downloads { bit_per_s, failed_circuits_share: 1.0 - share.powi(hops) }
    }

    /// All hosts at a random time.
    fn hosts(&self, rng: &mut SplitMix64) -> Vec<Host> {
        let count = self.relays.iter().map(|relay| relay.host + 1).max().unwrap_or(0);
        let mut hosts = vec![Host::default(); count];
        for (place, relay) in self.relays.iter().enumerate() {
            hosts[relay.host].capacity += relay.capacity * self.speed_now(place, rng);
        }
        hosts
    }
}

/// Draws circuits of different relays by their weights.
struct Paths {
    /// The sums of weights up to each relay.
    ends: Vec<f64>,
}

impl Paths {
    /// `None` if fewer than three relays have weight.
    fn new(weights: &[f64]) -> Option<Self> {
        let mut sum = 0.0;
        let end = |weight: &f64| {
            sum += weight;
            sum
        };
        let ends = weights.iter().map(end).collect();
        (weights.iter().filter(|weight| **weight > 0.0).count() >= HOPS).then_some(Self { ends })
    }

    fn draw(&self, rng: &mut SplitMix64) -> [usize; HOPS] {
        let mut taken: [Option<usize>; HOPS] = [None; HOPS];
        std::array::from_fn(|hop| {
            let mut intervals: Vec<(f64, f64)> =
                taken.iter().flatten().map(|place| self.interval(*place)).collect();
            intervals.sort_by(|one, other| one.0.total_cmp(&other.0));
            let used: f64 = intervals.iter().map(|(start, end)| end - start).sum();
            let mut at = rng.unit() * (self.ends.last().copied().unwrap_or_default() - used);
            for (start, end) in intervals {
                at += if at >= start { end - start } else { 0.0 };
            }
            let place = self.ends.partition_point(|end| *end <= at).min(self.ends.len() - 1);
            taken[hop] = Some(place);
            place
        })
    }

    /// The part of all weights that is that of a relay.
    fn interval(&self, place: usize) -> (f64, f64) {
        (place.checked_sub(1).map_or(0.0, |before| self.ends[before]), self.ends[place])
    }
}

/// A host whose capacity flows share.
#[derive(Clone, Debug, Default)]
struct Host {
    capacity: f64,
    /// What flows with a final rate have left.
    left: f64,
    /// The flows without one. A flow counts for each of its relays on this host.
    open: Vec<usize>,
    open_count: usize,
    /// The rates of all flows.
    rates: Vec<f64>,
}

/// Gives each flow its max-min fair rate, at most `wanted`: the host with the smallest share for each of its flows decides theirs first.
fn fill(hosts: &mut [Host], flows: &[[usize; HOPS]], wanted: f64) {
    for host in hosts.iter_mut() {
        host.left = host.capacity;
    }
    for (flow, path) in flows.iter().enumerate() {
        for host in path {
            hosts[*host].open.push(flow);
            hosts[*host].open_count += 1;
        }
    }
    let mut is_open = vec![true; flows.len()];
    let level = |host: &Host| host.left.max(0.0) / host.open_count as f64;
    loop {
        let full = (0..hosts.len()).filter(|host| hosts[*host].open_count > 0);
        let Some(full) =
            full.min_by(|one, other| level(&hosts[*one]).total_cmp(&level(&hosts[*other])))
        else {
            return;
        };
        let rate = level(&hosts[full]);
        let decided: Vec<usize> = match rate >= wanted {
            true => (0..flows.len()).collect(),
            false => std::mem::take(&mut hosts[full].open),
        };
        let rate = rate.min(wanted);
        for flow in decided {
            if std::mem::replace(&mut is_open[flow], false) {
                for host in flows[flow] {
                    hosts[host].left -= rate;
                    hosts[host].open_count -= 1;
                    hosts[host].rates.push(rate);
                }
            }
        }
    }
}

impl Host {
    /// What one more flow gets: its fair share, if those that get more give it up.
    fn rate_of_one_more(&mut self) -> f64 {
        self.rates.sort_by(f64::total_cmp);
        let mut left = self.capacity;
        for (place, rate) in self.rates.iter().enumerate() {
            let share = left / (self.rates.len() - place + 1) as f64;
            if share <= *rate {
                return share;
            }
            left -= rate;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Role, SceneOptions};
    use super::*;

    fn hosts(capacities: &[f64]) -> Vec<Host> {
        capacities.iter().map(|capacity| Host { capacity: *capacity, ..Host::default() }).collect()
    }

    #[test]
    fn flows_share_hosts_max_min_fairly() {
        let mut all = hosts(&[2.0, 10.0, 100.0, 100.0]);
        // Two flows through the first host get one each, and leave 8 of the second to its third flow.
        fill(&mut all, &[[0, 1, 2], [0, 1, 3], [1, 2, 3]], 50.0);
        assert_eq!(all[1].rates, [1.0, 1.0, 8.0]);
        let mut all = hosts(&[2.0, 10.0, 100.0, 100.0]);
        fill(&mut all, &[[0, 1, 2], [0, 1, 3], [1, 2, 3]], 3.0);
        assert_eq!((&all[1].rates, all[1].left), (&vec![1.0, 1.0, 3.0], 5.0));
        assert_eq!(all[1].rate_of_one_more(), 5.0, "what the others leave");
        assert!((all[0].rate_of_one_more() - 2.0 / 3.0).abs() < 1e-9, "a share like theirs");
    }

    #[test]
    fn circuits_have_different_relays_in_proportion_to_their_weights() {
        let paths = Paths::new(&[0.0, 0.97, 0.01, 0.02]).expect("three relays");
        let mut rng = SplitMix64::new(1);
        let mut first = [0; 4];
        for _ in 0..10_000 {
            let mut path = paths.draw(&mut rng);
            first[path[0]] += 1;
            path.sort_unstable();
            assert_eq!(path, [1, 2, 3]);
        }
        assert!((150..250).contains(&first[3]), "{first:?}");
        assert!(Paths::new(&[1.0, 0.0, 1.0]).is_none());
    }

    #[test]
    fn downloads_are_slower_with_wrong_weights_and_avoid_relays_that_carry_nothing() {
        let median = |scene: &Scene, weights: &[f64]| {
            let downloads = scene.downloads(weights, &mut SplitMix64::new(1));
            (downloads.median_bit_per_s(), downloads.failed_circuits_share)
        };
        for load in [Some(0.5), None] {
            let options = SceneOptions { load, ..SceneOptions::with_attack("client-claims", 1) };
            let scene = Scene::draw(&options);
            let honest = scene.before_attack();
            let even = vec![1.0; scene.relays.len()];
            let (best, failed) = median(&honest, &honest.capacities());
            assert_eq!(failed, 0.0);
            assert!(best > 2.0 * median(&honest, &even).0, "{load:?}: {best}");
            // The adversary has 2 % of the weight, so that others have 2 % more load: hardly more than chance.
            let (attacked, failed) = median(&scene, &scene.capacities());
            assert!((failed - (1.0 - 0.98f64.powi(3))).abs() < 1e-9, "{failed}");
            assert!((0.9..1.02).contains(&(attacked / best)), "{load:?}: {attacked} of {best}");
            let nowhere = vec![0.0; scene.relays.len()];
            assert_eq!(median(&scene, &nowhere), (0.0, 1.0), "all circuits fail");
        }
    }

    #[test]
    fn relays_of_one_host_share_it() {
        let scene = Scene::draw(&SceneOptions::with_attack("one-host", 1));
        let hosts = scene.hosts(&mut SplitMix64::new(1));
        let all =
            |role: Role| scene.places(role).map(|place| scene.relays[place].capacity).sum::<f64>();
        assert_eq!(hosts.len(), 300);
        let total: f64 = hosts.iter().map(|host| host.capacity).sum();
        let expected = all(Role::Adversary) + all(Role::Trusted) + all(Role::Honest);
        assert!((total / expected - 1.0).abs() < 1e-9);
    }
}
