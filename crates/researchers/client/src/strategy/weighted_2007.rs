use super::{Position, Strategy};
use crate::netdir::{NetDir, RelayInfo};

/// The limit of advertised bandwidths, in kB/s; it had been 1,500 before.
const MOST_KB_S: u32 = 5000;

/// Selects relays as C tor did in 2007 (Panchenko et al., §II-B): by advertised bandwidth, here the consensus weight, up to 5 MB/s. Exits
/// are used at other positions only if they have at least a third of all bandwidth, and then their bandwidth is multiplied by (*E* − *T*/3)/*E*,
/// for *E* of exits and *T* of all relays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weighted2007;

fn bandwidth(relay: &RelayInfo) -> f64 {
    f64::from(relay.weight_kb_s.min(MOST_KB_S))
}

impl Strategy for Weighted2007 {
    fn name(&self) -> &'static str {
        "weighted-2007"
    }

    fn weight(
        &self,
        netdir: &NetDir,
        relay: &RelayInfo,
        position: Position,
        _: &[&RelayInfo],
    ) -> f64 {
        if position == Position::Exit || !relay.is_exit() {
            return bandwidth(relay);
        }
        let (mut all, mut exits) = (0.0, 0.0);
        for relay in netdir.relays() {
            all += bandwidth(relay);
            exits += if relay.is_exit() { bandwidth(relay) } else { 0.0 };
        }
        bandwidth(relay) * ((exits - all / 3.0) / exits).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netdir::tests::{netdir, relay};
    use netdoc::PortPolicy;

    /// The weight of each of four relays in the middle: the first two are exits.
    fn weights(kb_s: [u32; 4]) -> [f64; 4] {
        let relay_with_weight = |(number, kb_s): (u8, u32)| {
            let mut made = relay(number);
            made.weight_kb_s = kb_s;
            if number > 2 {
                made.policy = PortPolicy::REJECT_ALL;
            }
            made
        };
        let relays: Vec<RelayInfo> = (1..).zip(kb_s).map(relay_with_weight).collect();
        let network = netdir(relays.clone());
        assert_eq!(Weighted2007.weight(&network, &relays[0], Position::Exit, &[]), 600.0);
        [0, 1, 2, 3].map(|at| Weighted2007.weight(&network, &relays[at], Position::Middle, &[]))
    }

    #[test]
    fn exits_are_spared_in_the_middle_and_large_relays_are_clipped() {
        // Exits have 1,200 of 2,400: (1,200 − 800)/1,200.
        assert_eq!(weights([600, 600, 1000, 200]), [200.0, 200.0, 1000.0, 200.0]);
        // 1,200 of 11,200, as 40,000 counts as 5,000: less than a third.
        assert_eq!(weights([600, 600, 5000, 40_000]), [0.0, 0.0, 5000.0, 5000.0]);
    }
}
