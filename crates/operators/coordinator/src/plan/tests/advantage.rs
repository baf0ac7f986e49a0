//! The success of a relay that guesses its slot, given everything but the seed.

use super::*;

const SLOTS: u32 = 24;
const RELAYS: u16 = 40;
/// The number of periods that the adversary has observed, and of those in which it guesses.
const PERIODS: usize = 1500;

fn network() -> Vec<Machine> {
    // Large relays choose among all slots, small ones among the rest.
    (0..RELAYS).map(|number| single(number, 1.0 + f64::from(number * number) / 20.0)).collect()
}

/// The relays need nearly all of its capacity.
fn teams() -> [TeamRoom; 1] {
    let needed: Rate = network().iter().map(|machine| machine.guess().scaled(F)).sum();
    [TeamRoom::of(needed.scaled(1.15 / f64::from(SLOTS)))]
}

fn slots_of(seed: &Seed) -> Vec<Option<u32>> {
    let plan = Plan::randomised(seed, SLOTS, &teams(), F, network());
    (0..RELAYS).map(|number| plan.slot(id(number), 0)).collect()
}

/// The excess of right guesses over the expected number by chance, in standard deviations.
fn advantage(right: usize, guesses: usize) -> f64 {
    let (right, guesses, chance) = (right as f64, guesses as f64, 1.0 / f64::from(SLOTS));
    (right - guesses * chance) / (guesses * chance * (1.0 - chance)).sqrt()
}

#[test]
fn an_adversary_without_the_seed_guesses_no_better_than_chance() {
    let master = Seed::from_bytes([9; 32]);
    let day = |day: u64| slots_of(&master.of_period(day * 86_400, 86_400));
    let periods: Vec<Vec<Option<u32>>> = (0..2 * PERIODS as u64).map(day).collect();
    let (seen, later) = periods.split_at(PERIODS);
    let all = later.iter().flatten().count();
    assert!(all > later.len() * usize::from(RELAYS) * 9 / 10, "nearly all have a slot: {all}");

    // The slot that each relay had most often so far.
    let favourite = |relay: usize| {
        let count = |slot: &u32| seen.iter().filter(|day| day[relay] == Some(*slot)).count();
        (0..SLOTS).max_by_key(count)
    };
    let favourites: Vec<Option<u32>> = (0..usize::from(RELAYS)).map(favourite).collect();
    // A seed from public data: the consensus and its shared random value.
    let greedy = Plan::greedy(&teams(), F, network());
    let greedy: Vec<_> = (0..RELAYS).map(|number| greedy.slot(id(number), 0)).collect();
    let public = slots_of(&Seed::from_bytes([0; 32]));
    let first = vec![Some(0); usize::from(RELAYS)];

    let score = |name: &str, guess: &dyn Fn(usize) -> Vec<Option<u32>>| {
        let right = |(day, slots): (usize, &Vec<Option<u32>>)| {
            let pairs = slots.iter().zip(guess(day));
            pairs.filter(|(slot, guess)| slot.is_some() && **slot == *guess).count()
        };
        let right = later.iter().enumerate().map(right).sum();
        let advantage = advantage(right, all);
        assert!(advantage.abs() < 5.0, "{name}: {advantage} standard deviations from chance");
    };
    score("the slot that it had most often", &|_| favourites.clone());
    score("yesterday's", &|day| periods[day + PERIODS - 1].clone());
    score("the one after yesterday's", &|day| {
        let yesterday = &periods[day + PERIODS - 1];
        yesterday.iter().map(|slot| slot.map(|slot| (slot + 1) % SLOTS)).collect()
    });
    score("that of the greedy plan", &|_| greedy.clone());
    score("that of a public seed", &|_| public.clone());
    score("the first", &|_| first.clone());
}

/// Also in a nearly full plan, in which large relays are placed first.
#[test]
fn no_slot_is_likelier_than_another() {
    for (name, relay) in
        [("the largest", RELAYS - 1), ("a medium one", RELAYS / 2), ("the smallest", 0)]
    {
        let mut counts = vec![0u32; SLOTS as usize];
        for day in 0..PERIODS as u64 {
            let slots = slots_of(&Seed::from_bytes([5; 32]).of_period(day, 86_400));
            let Some(slot) = slots[usize::from(relay)] else { continue };
            counts[slot as usize] += 1;
        }
        let drawn: u32 = counts.iter().sum();
        let expected = f64::from(drawn) / f64::from(SLOTS);
        let chi_squared: f64 =
            counts.iter().map(|count| (f64::from(*count) - expected).powi(2) / expected).sum();
        // 23 degrees of freedom: 60 is exceeded once in 30,000 times.
        assert!(chi_squared < 60.0, "{name}: {chi_squared}");
    }
}
