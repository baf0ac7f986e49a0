use super::{NoPath, Position, Strategy};
use crate::netdir::{NetDir, RelayInfo};
use netdoc::RsaId;
use netdoc::bwfile::BandwidthFile;
use std::collections::BTreeMap;

/// Selects relays by the weights of a bandwidth file, such as FlashFlow's, instead of consensus weights, times the
/// position weight (dir-spec §3.8.3). A relay without a measurement in the file has weight zero.
#[derive(Clone, Debug)]
pub struct Measured {
    weights_kb_s: BTreeMap<RsaId, u64>,
}

impl Measured {
    /// Uses this file.
    #[must_use]
    pub fn new(file: &BandwidthFile) -> Self {
        let measured = file.relays.iter().filter(|line| !line.unmeasured);
        Self { weights_kb_s: measured.map(|line| (line.node_id, line.bw_kb_s)).collect() }
    }

    /// The number of relays with a measurement.
    #[must_use]
    pub fn len(&self) -> usize {
        self.weights_kb_s.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.weights_kb_s.is_empty()
    }
}

impl Strategy for Measured {
    fn name(&self) -> &'static str {
        "measured"
    }

    fn weight(
        &self,
        netdir: &NetDir,
        relay: &RelayInfo,
        position: Position,
        _: &[&RelayInfo],
    ) -> f64 {
        let weight = self.weights_kb_s.get(&relay.fingerprint).copied().unwrap_or(0);
        weight as f64 * netdir.position_share(relay.flags, position)
    }

    fn check(&self, netdir: &NetDir) -> Result<(), NoPath> {
        let weighs = |relay: &RelayInfo| {
            self.weights_kb_s.get(&relay.fingerprint).is_some_and(|weight| *weight > 0)
        };
        if netdir.relays().iter().any(weighs) { Ok(()) } else { Err(NoPath::Unmeasured) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdir::tests::{netdir, relay, weighted};

    #[test]
    fn weights_come_from_the_bandwidth_file_and_not_from_the_consensus() {
        let name = |number: u8| RsaId([number; 20]);
        let text = format!(
            "1600000000\nversion=1.4.0\nsoftware=flashflow\n=====\nbw=700 node_id=${}\nbw=5 node_id=${} unmeasured=1\n",
            name(1),
            name(2)
        );
        let file = BandwidthFile::parse(text.as_bytes()).expect("a file").file;
        let measured = Measured::new(&file);
        assert_eq!(measured.len(), 1);
        let network = weighted(netdir([1, 2, 3].map(relay)), &[("Wgg", 5000)]);
        let weights =
            [1, 2, 3].map(|number| measured.weight(&network, &relay(number), Position::Guard, &[]));
        assert_eq!(weights, [350.0, 0.0, 0.0]);
        assert_eq!(measured.check(&network), Ok(()));
        // The file has no measurement of the second relay, and no line of the third.
        let others = weighted(netdir([2, 3].map(relay)), &[]);
        assert_eq!(measured.check(&others), Err(NoPath::Unmeasured));
    }
}
