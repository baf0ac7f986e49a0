use super::*;
use proptest::prelude::*;

/// A reference implementation that searches all events each time.
fn naive(events: &[(i64, Event)], at: usize, length_s: i64) -> Windowed {
    let now = events[at].0;
    let is_in = |time: i64| time > now - length_s && time <= now;
    let past = &events[..=at];
    let published: Vec<(i64, u32)> =
        past.iter().filter_map(|(time, event)| Some((*time, event.published()?))).collect();
    let mut values: Vec<f64> = published
        .iter()
        .filter(|(time, _)| is_in(*time))
        .map(|(_, value)| f64::from(*value))
        .collect();
    if values.is_empty() {
        values.extend(published.last().map(|(_, value)| f64::from(*value)));
    }
    let shares: Vec<f64> = past
        .iter()
        .filter(|(time, _)| is_in(*time))
        .filter_map(|(_, event)| event.share())
        .collect();
    let capacity = values.iter().copied().reduce(f64::max);
    Windowed {
        #[expect(clippy::cast_possible_truncation, reason = "it was a u32")]
        capacity_byte_per_s: capacity.map(|capacity| capacity as u32),
        advertised_rsd: rsd(&values),
        weight_rsd: rsd(&shares),
    }
}

fn spec(length_s: i64) -> WindowSpec {
    WindowSpec { length_s, has_capacity: true, has_advertised_rsd: true, has_weight_rsd: true }
}

fn rsd(values: &[f64]) -> Option<f64> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean > 0.0).then(|| variance.sqrt() / mean)
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Published(u32),
    Listed(Option<f64>),
}

impl Event {
    fn published(self) -> Option<u32> {
        if let Self::Published(value) = self { Some(value) } else { None }
    }

    fn share(self) -> Option<f64> {
        if let Self::Listed(share) = self { share } else { None }
    }
}

fn is_near(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-7,
        (a, b) => a.is_none() && b.is_none(),
    }
}

proptest! {
    #[test]
    fn windows_hold_what_a_search_finds(
        steps in proptest::collection::vec((
            prop_oneof![Just(0_i64), 1..5_000_i64, Just(86_400_i64), Just(40_000_000_i64)],
            prop_oneof![
                (0_u32..5).prop_map(Event::Published),
                (0_u32..u32::MAX).prop_map(Event::Published),
                proptest::option::of(0.0..1e-3_f64).prop_map(Event::Listed),
            ],
        ), 0..80),
        lengths in proptest::collection::vec(1..200_000_i64, 1..4),
    ) {
        let mut time = 0;
        let events: Vec<(i64, Event)> = steps.iter().map(|(step, event)| {
            time += step;
            (time, *event)
        }).collect();
        let mut sliding = Sliding::new(&lengths.iter().map(|length| spec(*length)).collect::<Vec<_>>());
        for (at, (time, event)) in events.iter().enumerate() {
            match event {
                Event::Published(value) => sliding.published(*time, *value),
                Event::Listed(share) => {
                    let mut found = Vec::new();
                    sliding.listed(*time, *share, |_, windowed| found.push(windowed));
                    for (length, found) in lengths.iter().zip(found) {
                        let wanted = naive(&events, at, *length);
                        prop_assert_eq!(found.capacity_byte_per_s, wanted.capacity_byte_per_s);
                        prop_assert!(is_near(found.advertised_rsd, wanted.advertised_rsd), "{:?} {:?}", found, wanted);
                        prop_assert!(is_near(found.weight_rsd, wanted.weight_rsd), "{:?} {:?}", found, wanted);
                    }
                }
            }
        }
    }
}

#[test]
fn a_window_excludes_values_of_exactly_its_length() {
    let mut sliding = Sliding::new(&[spec(100)]);
    sliding.published(0, 9);
    sliding.published(50, 5);
    let mut capacity = |time| {
        let mut found = None;
        sliding.listed(time, None, |_, windowed| found = windowed.capacity_byte_per_s);
        found
    };
    assert_eq!(
        [capacity(99), capacity(100), capacity(149), capacity(1000)],
        [Some(9), Some(5), Some(5), Some(5)]
    );
}
