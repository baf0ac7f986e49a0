use super::*;
use crate::netdir::tests::{declare, netdir, relay};
use crate::strategy::{Strategy, Uniform, Weighted};
use netdoc::PortPolicy;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

const WEB: Need = Need::Port { port: 443, is_ipv6: false };
const STRICT: PathRules = PathRules { distinct_subnets: true };
const LOOSE: PathRules = PathRules { distinct_subnets: false };

/// Any relay that may be one is a guard.
fn any_guard<'a>(netdir: &'a NetDir) -> impl Fn(&dyn Fn(&RelayInfo) -> bool) -> Option<RsaId> + 'a {
    |allowed| netdir.relays().iter().find(|relay| allowed(relay)).map(|relay| relay.fingerprint)
}

fn chosen(netdir: &NetDir, rules: PathRules, need: Need, seed: u8) -> Result<[u8; 3], NoPath> {
    let mut rng = StdRng::from_seed([seed; 32]);
    let path = select_path(netdir, &Weighted, rules, need, &mut rng, any_guard(netdir));
    path.map(|path| path.map(|relay| relay.fingerprint.0[0]))
}

#[test]
fn the_error_names_the_missing_position() {
    assert_eq!(chosen(&netdir([]), LOOSE, WEB, 1), Err(NoPath::Exit));
    assert_eq!(chosen(&netdir([relay(1)]), LOOSE, WEB, 1), Err(NoPath::Guard));
    assert_eq!(chosen(&netdir([relay(1), relay(2)]), LOOSE, WEB, 1), Err(NoPath::Middle));
    let three = netdir([1, 2, 3].map(relay));
    assert!(chosen(&three, STRICT, WEB, 1).is_ok());
    let ssh = Need::Port { port: 22, is_ipv6: false };
    assert_eq!(chosen(&three, LOOSE, ssh, 1), Err(NoPath::Exit));
    let ipv6 = Need::Port { port: 443, is_ipv6: true };
    assert_eq!(chosen(&three, LOOSE, ipv6, 1), Err(NoPath::Exit));
    assert!(chosen(&three, LOOSE, Need::Lookup, 1).is_ok());
}

#[test]
fn relays_of_one_subnet_share_a_path_only_if_the_rules_permit_it() {
    let near = netdir([1, 2, 3].map(|number| {
        let mut neighbour = relay(number);
        neighbour.address = [127, 0, 0, 1].into();
        neighbour
    }));
    assert!(chosen(&near, LOOSE, WEB, 1).is_ok());
    assert_eq!(chosen(&near, STRICT, WEB, 1), Err(NoPath::Guard));
}

#[test]
fn slow_and_unstable_relays_are_selected_only_without_alternatives() {
    let mut slow = relay(1);
    slow.flags = slow.flags.iter().filter(|flag| *flag != Flag::Fast).collect();
    let mut unstable = relay(2);
    unstable.flags = unstable.flags.iter().filter(|flag| *flag != Flag::Stable).collect();
    let all = netdir([slow.clone(), unstable, relay(3)]);
    let mut rng = StdRng::from_seed([1; 32]);
    let mut seen = |netdir: &NetDir, lasts| {
        let mut seen = [false; 4];
        for _ in 0..100 {
            let drawn =
                select_relay(netdir, &Uniform, Position::Middle, &[], lasts, &mut rng, |_| true);
            seen[usize::from(drawn.expect("one").fingerprint.0[0])] = true;
        }
        seen
    };
    assert_eq!(seen(&all, false), [false, false, true, true]);
    assert_eq!(seen(&all, true), [false, false, false, true]);
    assert_eq!(seen(&netdir([slow]), true), [false, true, false, false]);
    assert!(Need::Port { port: 6667, is_ipv6: false }.is_long_lived() && !WEB.is_long_lived());
}

#[test]
fn without_weights_relays_are_drawn_uniformly_else_those_without_weight_are_not_drawn() {
    let weightless = |number| {
        let mut light = relay(number);
        light.weight_kb_s = 0;
        light
    };
    let none = netdir([1, 2, 3].map(weightless));
    let firsts: std::collections::BTreeSet<_> =
        (0..50).map(|seed| chosen(&none, LOOSE, WEB, seed).expect("a path")[2]).collect();
    assert_eq!(firsts.len(), 3);
    let mut others = [1, 2, 3, 4].map(weightless);
    others[2].weight_kb_s = 1;
    for seed in 0..50 {
        assert_eq!(chosen(&netdir(others.clone()), LOOSE, WEB, seed).expect("a path")[2], 3);
    }
}

proptest! {
    /// Networks with families, neighbours, and exits of different policies.
    #[test]
    fn no_path_breaks_a_rule(
        kinds in prop::collection::vec((any::<u8>(), 0_u8..4, 0_u8..3, any::<bool>()), 3..12),
        families in prop::collection::vec((0_usize..12, 0_usize..12, any::<bool>()), 0..10),
        seed: u8,
        port in prop::sample::select(vec![22_u16, 80, 443]),
        distinct_subnets: bool,
    ) {
        let mut relays: Vec<RelayInfo> = (1..).map(relay).take(kinds.len()).collect();
        for (relay, (weight, subnet, policy, is_bad)) in relays.iter_mut().zip(kinds) {
            relay.weight_kb_s = weight.into();
            relay.address = [10, subnet, 0, 1].into();
            relay.policy = [PortPolicy::REJECT_ALL, PortPolicy::parse(b"accept 80").expect("a policy"),
                PortPolicy::parse(b"reject 25").expect("a policy")][usize::from(policy)].clone();
            if is_bad {
                relay.flags = relay.flags.iter().chain([Flag::BadExit]).collect();
            }
        }
        for (a, b, is_mutual) in families {
            let (a, b) = (a % relays.len(), b % relays.len());
            let (one, other) = (relays[a].clone(), relays[b].clone());
            declare(&mut relays[a], &other, false);
            if is_mutual {
                declare(&mut relays[b], &one, false);
            }
        }
        let network = netdir(relays);
        let need = Need::Port { port, is_ipv6: false };
        let rules = PathRules { distinct_subnets };
        let mut rng = StdRng::from_seed([seed; 32]);
        if let Ok([first, middle, exit]) =
            select_path(&network, &Weighted, rules, need, &mut rng, any_guard(&network))
        {
            prop_assert!(exit.policy.allows(port) && !exit.flags.contains(Flag::BadExit));
            for (a, b) in [(first, middle), (first, exit), (middle, exit)] {
                prop_assert!(a.fingerprint != b.fingerprint);
                prop_assert!(!a.is_family_of(b));
                prop_assert!(!distinct_subnets || a.address.octets()[..2] != b.address.octets()[..2]);
            }
        }
    }
}

fn legs(
    netdir: &NetDir,
    count: usize,
    taken: &[[RsaId; 3]],
    seed: u8,
) -> Result<Vec<[RsaId; 3]>, NoPath> {
    let mut rng = StdRng::from_seed([seed; 32]);
    let wanted = WantedLegs { count, taken };
    let found = select_legs(netdir, &Weighted, LOOSE, WEB, wanted, &mut rng, any_guard(netdir));
    found.map(|legs| legs.iter().map(|leg| leg.map(|relay| relay.fingerprint)).collect())
}

#[test]
fn an_exit_without_conflux_gets_no_legs() {
    let mut all = [1, 2, 3, 4, 5].map(relay);
    all.iter_mut().for_each(|relay| relay.has_conflux = false);
    assert_eq!(legs(&netdir(all.clone()), 2, &[], 1), Err(NoPath::Exit));
    all[2].has_conflux = true;
    let found = legs(&netdir(all.clone()), 2, &[], 1).expect("one exit does");
    assert!(found.iter().all(|leg| leg[2] == all[2].fingerprint), "{found:?}");
    all[2].has_congestion_control = false;
    assert_eq!(legs(&netdir(all), 2, &[], 1), Err(NoPath::Exit));
}

#[test]
fn too_few_relays_for_legs_are_an_error() {
    // An exit, and one relay that may be guard or middle of a single leg.
    assert_eq!(legs(&netdir([1, 2].map(relay)), 2, &[], 1), Err(NoPath::Middle));
    // Two guards that are each other's middle: the least that does.
    let least = legs(&netdir([1, 2, 3].map(relay)), 2, &[], 1).expect("enough");
    assert_eq!((least[0][0], least[0][1]), (least[1][1], least[1][0]), "{least:?}");
}

proptest! {
    /// Proposal 329 §2.2: one exit, and neither guard nor middle twice; with relays enough nothing else in common either.
    #[test]
    fn legs_have_only_their_exit_in_common(seed: u8, count in 1usize..=4, known in 0usize..=3) {
        let all = netdir((1..=17).map(relay));
        let taken = legs(&all, known, &[], seed).expect("enough");
        let found = legs(&all, count, &taken, seed.wrapping_add(1)).expect("enough");
        let paths = [taken, found].concat();
        let exit = paths[0][2];
        prop_assert!(paths.iter().all(|path| path[2] == exit));
        let mut others: Vec<RsaId> =
            paths.iter().flat_map(|path| [path[0], path[1]]).chain([exit]).collect();
        others.sort_unstable();
        others.dedup();
        prop_assert_eq!(others.len(), 2 * paths.len() + 1);
    }

    /// Each leg is a path, and the strategy's rules hold for paths: for guards that a client keeps to, too.
    #[test]
    fn each_leg_keeps_the_rules_of_the_strategy(seed: u8, count in 1usize..=3) {
        let network = netdir((1..=17).map(relay));
        let mut rng = StdRng::from_seed([seed; 32]);
        let wanted = WantedLegs { count, taken: &[] };
        let legs =
            select_legs(&network, &Parity, LOOSE, WEB, wanted, &mut rng, any_guard(&network));
        for leg in legs.expect("enough") {
            let [guard, _, exit] = leg.map(|relay| relay.fingerprint.0[0] % 2);
            prop_assert_ne!(guard, exit);
        }
    }
}

/// The first hop is odd where the exit is even, and the other way round.
#[derive(Debug)]
struct Parity;

impl Strategy for Parity {
    fn name(&self) -> &'static str {
        "parity"
    }

    fn weight(&self, _: &NetDir, _: &RelayInfo, _: Position, _: &[&RelayInfo]) -> f64 {
        1.0
    }

    fn admits(
        &self,
        _: &NetDir,
        relay: &RelayInfo,
        position: Position,
        chosen: &[&RelayInfo],
    ) -> bool {
        let parity = |relay: &RelayInfo| relay.fingerprint.0[0] % 2;
        match (position, chosen.last()) {
            (Position::Guard, Some(exit)) => parity(relay) != parity(exit),
            _ => true,
        }
    }
}
