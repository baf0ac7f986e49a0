use super::*;
use crate::testing::{id, uniform};
use proptest::collection::vec;
use proptest::prelude::*;
use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};
use std::vec;

/// Estimates of relays, of which the first `sharing` are on one machine, from period to period: multiplied by a factor
/// of the machine between 0.7 and 1, and by an `own` part.
fn network(seed: u8, relays: u16, sharing: u16, pairs: u32, own: f64) -> CoLocationTest {
    let rng = &mut ChaCha12Rng::from_seed([seed; 32]);
    let mut test = CoLocationTest::default();
    for _ in 0..pairs {
        let common = [(); 2].map(|()| 0.7 + 0.3 * uniform(rng));
        let mut both = vec![];
        for number in 0..relays {
            let machine =
                if number < sharing { common } else { [(); 2].map(|()| 0.7 + 0.3 * uniform(rng)) };
            let found = |machine: f64, rng: &mut ChaCha12Rng| {
                Rate::from_mbit_per_s(f64::from(number + 1) * machine * (1.0 - own * uniform(rng)))
            };
            both.push((id(number), found(machine[0], rng), found(machine[1], rng)));
        }
        test.add(&both);
    }
    test
}

#[test]
fn relays_of_one_machine_are_found_and_no_others() {
    // 60 relays are 1,770 pairs; four on one machine are six of them.
    let found = network(1, 60, 4, 90, 0.1).suspicions(|_, _| false);
    assert_eq!(found.len(), 6, "{found:#?}");
    let of_machine = |suspicion: &Suspicion| {
        suspicion.relays.0 < suspicion.relays.1 && suspicion.relays.1 <= id(3)
    };
    assert!(found.iter().all(of_machine), "{found:#?}");
    assert!(found.is_sorted_by(|a, b| a.by_chance <= b.by_chance));
    assert!(
        found
            .iter()
            .all(|suspicion| suspicion.moves > 40 && suspicion.alike * 10 > suspicion.moves * 7),
        "{found:#?}"
    );
    // Pairs that are measured together anyway are not reported.
    let others = network(1, 60, 4, 90, 0.1).suspicions(|one, _| one == id(0));
    assert_eq!(others.len(), 3, "{others:#?}");
    // A few weeks are not enough.
    assert_eq!(network(1, 60, 4, 10, 0.1).suspicions(|_, _| false), []);
}

/// In 60 networks of 1,770 pairs each, chance alone yields 0.6 suspicions on average.
#[test]
fn chance_alone_yields_hardly_any_suspicion() {
    let networks = (0..60).map(|seed| network(seed, 60, 0, 64, 0.3));
    let found: usize = networks.map(|network| network.suspicions(|_, _| false).len()).sum();
    assert!(found <= 4, "{found}");
}

#[test]
fn effects_on_all_relays_are_no_similarity() {
    let rng = &mut ChaCha12Rng::from_seed([3; 32]);
    let mut test = CoLocationTest::default();
    for pair in 0..60 {
        // A measurer is slow every other time.
        let all = if pair % 2 == 0 { 0.5 } else { 1.9 };
        let mut found = |number: u16| 1e9 * f64::from(number + 1) * (0.9 + 0.1 * uniform(rng));
        let mut one = |number: u16| {
            let rates = [found(number), found(number) * all];
            let [first, second] = rates.map(|bits| Rate::from_mbit_per_s(bits / 1e6));
            (id(number), first, second)
        };
        test.add(&(0..40).map(&mut one).collect::<Vec<_>>());
    }
    assert_eq!(test.suspicions(|_, _| false), []);
}

#[test]
fn too_few_relays_and_too_many_periods_are_ignored() {
    let both = |relays: u16, first: f64| {
        let mbit = Rate::from_mbit_per_s;
        let one = |number: u16| (id(number), mbit(first), mbit(f64::from(number)));
        (0..relays).map(one).collect::<Vec<_>>()
    };
    let mut test = CoLocationTest::default();
    test.add(&both(19, 1.0));
    test.add(&both(40, 0.0));
    assert_eq!((test.pairs_of_periods, test.relays.len()), (0, 0));
    for _ in 0..200 {
        test.add(&both(21, 1.0));
    }
    assert_eq!(test.pairs_of_periods, CoLocationTest::PAIRS_OF_PERIODS_MAX);
    assert_eq!(test.relays.len(), 20, "all but the median");
    // All alike, or all different: the ten below the middle, and the ten above it.
    let moves = test.relays[&id(20)];
    assert_eq!((moves.made, moves.up), (u128::MAX, u128::MAX));
    // A relay that always moves the same way is similar to none: its moves have no information.
    assert_eq!(test.suspicions(|_, _| false), []);
}

#[test]
fn the_number_of_reported_pairs_is_limited() {
    // 50 relays on one machine are 1,225 pairs.
    let found = network(5, 200, 50, 128, 0.05).suspicions(|_, _| false);
    assert!((100..=400).contains(&found.len()), "{}", found.len());
    assert!(found.is_sorted_by(|a, b| a.by_chance <= b.by_chance));
    assert!(found.iter().all(|suspicion| suspicion.relays.1 < id(50)));
}

/// 46 relays that move alike are 1,035 pairs with the smallest chance.
#[test]
fn many_similar_relays_do_not_hide_other_pairs_and_removed_relays_hide_none() {
    let rng = &mut ChaCha12Rng::from_seed([6; 32]);
    let mut drawn = || (0..4).fold(0, |bits: u128, _| bits << 32 | u128::from(rng.next_u32()));
    let (fleet, machine) = (drawn(), drawn());
    // 100 of 128 moves are alike.
    let others = [(100, machine), (101, machine ^ ((1 << 28) - 1))];
    let relays = (0..46).map(|number| (number, fleet)).chain(others);
    let moves = |(number, up)| (id(number), Moves { made: u128::MAX, up });
    let mut test = CoLocationTest { relays: relays.map(moves).collect(), pairs_of_periods: 128 };
    let found = test.suspicions(|_, _| false);
    let of_machine = |suspicion: &Suspicion| suspicion.relays == (id(100), id(101));
    assert!(found.iter().any(of_machine), "{}", found.len());
    let pairs_of = |number| {
        found
            .iter()
            .filter(move |suspicion| [suspicion.relays.0, suspicion.relays.1].contains(&id(number)))
    };
    assert!((0..46).all(|number| pairs_of(number).count() >= 4), "{found:#?}");
    test.retain(|relay| relay > id(45));
    let left = test.suspicions(|_, _| false);
    assert!(left.len() == 1 && of_machine(&left[0]), "{left:#?}");
}

proptest! {
    /// The chance is what counting all ways to distribute one relay's ups over the moves gives.
    #[test]
    fn the_chance_is_a_count_of_all_cases(moves in vec(any::<(bool, bool)>(), 1..11)) {
        let bits = |of: fn(&(bool, bool)) -> bool| {
            let set = moves.iter().enumerate().filter(|(_, ups)| of(ups));
            set.fold(0u128, |bits, (place, _)| bits | 1 << place)
        };
        let made = (1 << moves.len()) - 1;
        let (one, other) = (bits(|ups| ups.0), bits(|ups| ups.1));
        let table = Table::new(Moves { made, up: one }, Moves { made, up: other });
        let alike = moves.iter().filter(|(one, other)| one == other).count();
        prop_assert_eq!(table.alike() as usize, alike);
        let cases = (0..=made).filter(|case: &u128| case.count_ones() == one.count_ones());
        let (mut all, mut as_many) = (0u32, 0u32);
        for case in cases {
            all += 1;
            as_many += u32::from((case & other).count_ones() >= table.both_up);
        }
        let expected = f64::from(as_many) / f64::from(all);
        let is_above = table.both_up * table.moves > table.ups.0 * table.ups.1;
        match table.chance_below(2.0, &Factorials::new()) {
            Some(chance) => prop_assert!(is_above && (chance - expected).abs() < 1e-9, "{chance} {expected}"),
            None => prop_assert!(!is_above),
        }
        if let Some(chance) = table.chance_below(0.05, &Factorials::new()) {
            prop_assert!(chance < 0.05);
        }
    }

    /// Neither a relay's size nor the relays measured with it change the result.
    #[test]
    fn only_directions_count(factors in vec(1u32..1000, 30), seed: u8) {
        let rng = &mut ChaCha12Rng::from_seed([seed; 32]);
        let (mut small, mut scaled) = (CoLocationTest::default(), CoLocationTest::default());
        for _ in 0..12 {
            let one = |number: u16| {
                let mut bytes = || 1_000_000 + u64::from(rng.next_u32() % 1_000_000);
                (id(number), bytes(), bytes())
            };
            let both: Vec<_> = (0..30).map(one).collect();
            let as_rates = |by: &dyn Fn(usize) -> u64| {
                let rates = both.iter().enumerate().map(|(place, (relay, first, second))| {
                    let rate = |bytes: u64| Rate::from_byte_per_s(bytes * by(place));
                    (*relay, rate(*first), rate(*second))
                });
                rates.collect::<Vec<_>>()
            };
            small.add(&as_rates(&|_| 1));
            scaled.add(&as_rates(&|place| u64::from(factors[place])));
        }
        for (relay, moves) in &small.relays {
            let other = scaled.relays[relay];
            prop_assert_eq!((moves.made, moves.up), (other.made, other.up));
        }
    }
}
