use ::control::fuzzing::{from_coordinator, from_measurer, samples};

/// Messages between coordinator and measurer: the first byte selects the sender.
pub fn control_plane(data: &[u8]) {
    let Some((direction, message)) = data.split_first() else { return };
    let _is_understood =
        if direction % 2 == 0 { from_coordinator(message) } else { from_measurer(message) };
}

/// Valid messages, each preceded by its direction.
pub(crate) fn control_plane_seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let (orders, words) = samples();
    let with = |direction: u8, (name, message): (&'static str, Vec<u8>)| {
        ("control_plane", name, [&[direction][..], &message].concat())
    };
    let orders = orders.into_iter().map(|sample| with(0, sample));
    orders.chain(words.into_iter().map(|sample| with(1, sample))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_parsed() {
        let (orders, words) = samples();
        let prepares = orders.iter().filter(|(_, message)| from_coordinator(message));
        assert_eq!(prepares.count(), 2, "a start is not an order to prepare");
        assert!(words.iter().all(|(_, message)| from_measurer(message)));
    }
}
