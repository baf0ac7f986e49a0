use super::super::path::Reordering;
use super::*;

fn fates(path: &WanPath, seed: u64, count: usize) -> Vec<Fate> {
    let mut fates = Fates::new(seed, 0, 1);
    (0..count).map(|_| fates.next(path)).collect()
}

fn share(fates: &[Fate], has_it: impl Fn(&Fate) -> bool) -> f64 {
    let count = u32::try_from(fates.iter().filter(|fate| has_it(fate)).count()).expect("few");
    f64::from(count) / f64::from(u32::try_from(fates.len()).expect("few"))
}

/// A path with all impairments.
fn rough() -> WanPath {
    WanPath {
        jitter: Jitter { up_to: Duration::from_millis(8), reorders: true },
        reordering: Reordering { share: 0.2, held_back: Duration::from_millis(1) },
        duplicate_share: 0.3,
        ..WanPath::default().with_loss(0.1)
    }
}

#[test]
fn the_shares_of_fates_match_the_specification() {
    let fates = fates(&rough(), 3, 100_000);
    // √(0.25 / 100,000) is 0.0016.
    let is_near = |share: f64, wanted: f64| (share - wanted).abs() < 0.008;
    assert!(is_near(share(&fates, |fate| fate.is_lost), 0.1));
    assert!(is_near(share(&fates, |fate| fate.is_held_back), 0.2));
    assert!(is_near(share(&fates, |fate| fate.is_duplicated), 0.3));
    assert!(is_near(share(&fates, |fate| fate.own_delay < Duration::from_millis(2)), 0.25));
    assert!(fates.iter().all(|fate| fate.own_delay <= Duration::from_millis(8)));
}

#[test]
fn a_fate_depends_only_on_seed_path_and_packet_number() {
    let all = fates(&rough(), 3, 1000);
    assert_eq!(fates(&rough(), 3, 1000), all);
    assert_ne!(fates(&rough(), 4, 1000), all);
    for (from, to) in [(1, 0), (0, 2), (2, 1)] {
        let mut other = Fates::new(3, from, to);
        assert_ne!((0..1000).map(|_| other.next(&rough())).collect::<Vec<_>>(), all);
    }
    let only_losing = fates(&WanPath::default().with_loss(0.1), 3, 1000);
    assert!(all.iter().zip(&only_losing).all(|(one, other)| one.is_lost == other.is_lost));
}

#[test]
fn bursts_have_the_specified_share_and_mean_length() {
    for (wanted, mean) in [(0.02, 5.0), (0.3, 3.0), (0.01, 1.0)] {
        let fates = fates(&WanPath::default().with_burst_loss(wanted, mean), 5, 400_000);
        let lost = share(&fates, |fate| fate.is_lost);
        assert!((lost / wanted - 1.0).abs() < 0.1, "{lost} of {wanted}");
        let begins = |pair: &&[Fate]| !pair[0].is_lost && pair[1].is_lost;
        let bursts = u32::try_from(fates.windows(2).filter(begins).count()).expect("few");
        let length = lost * 400_000.0 / f64::from(bursts);
        assert!((length / mean - 1.0).abs() < 0.1, "{length} of {mean}");
    }
}

#[test]
fn a_perfect_path_harms_no_packet_and_a_loss_of_one_loses_all() {
    let fine = fates(&WanPath::default(), 1, 10_000);
    let unharmed = Fate {
        is_lost: false,
        is_held_back: false,
        is_duplicated: false,
        own_delay: Duration::ZERO,
    };
    assert!(fine.iter().all(|&fate| fate == unharmed));
    assert!(fates(&WanPath::default().with_loss(1.0), 1, 10_000).iter().all(|fate| fate.is_lost));
}

#[test]
fn a_correlated_delay_stays_within_its_bounds_and_changes_slower_than_time() {
    for up_to in [Duration::from_micros(1), Duration::from_millis(3), Duration::from_secs(1)] {
        let mut fates = Fates::new(9, 0, 1);
        let step = Duration::from_micros(100);
        let mut last = fates.correlated_delay(up_to, Instant::ORIGIN);
        let (mut least, mut most) = (last, last);
        for number in 1..200_000 {
            let delay = fates.correlated_delay(up_to, Instant::ORIGIN + step * number);
            assert!(delay <= up_to);
            assert!(delay.abs_diff(last) <= step, "{last:?} {delay:?}");
            last = delay;
            (least, most) = (least.min(delay), most.max(delay));
        }
        // It covers most of the range.
        assert!(least < up_to / 4 && most > up_to * 3 / 4, "{least:?} {most:?} {up_to:?}");
        // It is a function of time.
        let mut again = Fates::new(9, 0, 1);
        assert_eq!(again.correlated_delay(up_to, Instant::ORIGIN + step * 199_999), last);
    }
}
