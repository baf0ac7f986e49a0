use super::{Position, Strategy, position_share};
use crate::path::NoPath;
use crate::view::{RelayInfo, View};
use netdoc::Fingerprint;
use netdoc::bwfile::BandwidthFile;
use std::collections::BTreeMap;

/// By the weights of a bandwidth file, such as FlashFlow's, in the place of those of the consensus, times those of the position
/// (dir-spec §3.8.3). A relay that the file does not have, or not with a measurement, weighs nothing.
#[derive(Clone, Debug)]
pub struct Measured {
    weights_kb_s: BTreeMap<Fingerprint, u64>,
}

impl Measured {
    /// Goes by this file.
    #[must_use]
    pub fn new(file: &BandwidthFile) -> Self {
        let measured = file.relays.iter().filter(|line| !line.unmeasured);
        Self { weights_kb_s: measured.map(|line| (line.node_id, line.bw_kb_s)).collect() }
    }

    /// How many relays the file has measurements of.
    #[must_use]
    pub fn len(&self) -> usize {
        self.weights_kb_s.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights_kb_s.is_empty()
    }
}

impl Strategy for Measured {
    fn name(&self) -> &'static str {
        "measured"
    }

    fn weight(&self, view: &View, relay: &RelayInfo, position: Position, _: &[&RelayInfo]) -> f64 {
        let weight = self.weights_kb_s.get(&relay.fingerprint).copied().unwrap_or(0);
        weight as f64 * position_share(view, relay.flags, position)
    }

    fn check(&self, view: &View) -> Result<(), NoPath> {
        let weighs = |relay: &RelayInfo| {
            self.weights_kb_s.get(&relay.fingerprint).is_some_and(|weight| *weight > 0)
        };
        if view.relays().iter().any(weighs) { Ok(()) } else { Err(NoPath::Unmeasured) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{relay, view, weighted};

    #[test]
    fn a_relay_weighs_what_was_measured_and_not_what_the_consensus_says() {
        let name = |number: u8| Fingerprint::from_bytes([number; 20]);
        let text = format!(
            "1600000000\nversion=1.4.0\nsoftware=flashflow\n=====\nbw=700 node_id=${}\nbw=5 node_id=${} unmeasured=1\n",
            name(1),
            name(2)
        );
        let file = BandwidthFile::parse(text.as_bytes()).expect("a file").file;
        let measured = Measured::new(&file);
        assert_eq!(measured.len(), 1);
        let network = weighted(view([1, 2, 3].map(relay)), &[("Wgg", 5000)]);
        let weights =
            [1, 2, 3].map(|number| measured.weight(&network, &relay(number), Position::Guard, &[]));
        assert_eq!(weights, [350.0, 0.0, 0.0]);
        assert_eq!(measured.check(&network), Ok(()));
        // Of the second the file has no measurement, and of the third no line.
        let others = weighted(view([2, 3].map(relay)), &[]);
        assert_eq!(measured.check(&others), Err(NoPath::Unmeasured));
    }
}
