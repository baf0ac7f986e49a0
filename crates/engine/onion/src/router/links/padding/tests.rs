use super::*;
use crate::router::links::Output;
use proptest::prelude::*;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const ID: ConnId = ConnId(3);

/// A client's link that needs padding.
fn link() -> Link {
    let mut link = Link::accepted(Instant::ORIGIN, Output::default(), None, None);
    link.is_open = true;
    link.padding.used_for = Use::Traffic;
    link
}

fn padder() -> Padder {
    Padder::new(true, &Parameters::default())
}

/// Cells that a link gets up to this time without other traffic.
fn cells_until(padder: &mut Padder, link: &mut Link, end: Instant, rng: &mut impl Rng) -> u32 {
    let mut cells = 0;
    while let Some(now) = padder.next_at().filter(|at| *at <= end) {
        assert_eq!(padder.poll(now), Some(ID));
        cells += u32::from(padder.handle_entry(now, ID, link, true, rng));
    }
    cells
}

#[test]
fn links_of_measurements_are_not_padded_until_they_are_ordinary_again() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    for role in [Role::Coordinator, Role::Measurer] {
        let (mut padder, mut link) = (padder(), link());
        padder.consider(ID, &mut link);
        assert!(cells_until(&mut padder, &mut link, Instant::from_millis(60_000), &mut rng) > 5);
        link.role = role;
        padder.consider(ID, &mut link);
        assert_eq!(cells_until(&mut padder, &mut link, Instant::from_millis(120_000), &mut rng), 0);
        assert_eq!(padder.next_at(), None);
        link.role = Role::Ordinary;
        padder.consider(ID, &mut link);
        assert!(cells_until(&mut padder, &mut link, Instant::from_millis(180_000), &mut rng) > 5);
    }
}

#[test]
fn a_link_has_at_most_one_timer_entry() {
    let (mut padder, mut link) = (padder(), link());
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for step in 0..10_000u32 {
        let now = Instant::from_millis(u64::from(step) * 100);
        match uniform_below(&mut rng, 4) {
            0 => padder.handle_transfer(now, ID, &mut link),
            1 => padder.consider(ID, &mut link),
            2 => padder.negotiate(ID, &mut link, &[0, 2, 0, 0, 0, 0]),
            _ => {
                if padder.poll(now).is_some() {
                    padder.handle_entry(now, ID, &mut link, step % 3 > 0, &mut rng);
                }
            }
        }
        assert!(padder.entries.len() <= 1);
    }
    padder.forget(ID, &mut link.padding);
    assert_eq!(padder.next_at(), None);
    assert!(size_of::<Padding>() <= 40, "{} bytes", size_of::<Padding>());
}

#[test]
fn zero_padding_limits_cause_no_busy_loop() {
    let all = [("nf_ito_low", 0), ("nf_ito_high", 1)];
    let mut padder = Padder::new(true, &Parameters::from_consensus(all));
    let (mut link, mut rng) = (link(), ChaCha8Rng::seed_from_u64(3));
    padder.consider(ID, &mut link);
    let cells = cells_until(&mut padder, &mut link, Instant::from_millis(60_000), &mut rng);
    assert!((50..=60).contains(&cells), "{cells}");
}

proptest! {
    #[test]
    fn a_peer_lengthens_limits_and_never_shortens_them(
        low in 0..=60_000i32, high in 0..=60_000i32, asked_low: u16, asked_high: u16,
    ) {
        let parameters = Parameters::from_consensus([("nf_ito_low", low), ("nf_ito_high", high)]);
        let padder = Padder::new(true, &parameters);
        let mut padding = Padding::new(Instant::ORIGIN);
        let (before_low, before_high) = padder.limits(&padding);
        prop_assert!(before_low <= before_high);
        (padding.low_ms, padding.high_ms) = (asked_low, asked_high);
        let (low, high) = padder.limits(&padding);
        prop_assert!(low <= high && low >= before_low && high >= before_high);
    }
}
