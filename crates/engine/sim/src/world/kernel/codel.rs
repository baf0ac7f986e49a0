//! The download queue of Shadow's hosts: CoDel (RFC 8289).

/// The target delay of a packet. The RFC has 5 ms, Shadow 10.
const TARGET_NS: u64 = 10_000_000;

/// The interval for which packets may exceed it.
const INTERVAL_NS: u64 = 100_000_000;

/// Drops packets so that there is no standing queue. Packets wait in order, so the dequeue time is known on
/// arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Codel {
    /// When packets will have exceeded the target for the interval.
    interval_end: Option<u64>,
    /// In the dropping state: when the next packet is dropped.
    drop_next: u64,
    is_dropping: bool,
    drops: u32,
    drops_before: u32,
}

impl Codel {
    /// Whether a packet with this delay is dropped at its dequeue time.
    pub(super) fn drops(&mut self, now: u64, waited_ns: u64) -> bool {
        if waited_ns < TARGET_NS {
            self.interval_end = None;
            self.is_dropping = false;
            return false;
        }
        let end = *self.interval_end.get_or_insert(now + INTERVAL_NS);
        if now < end {
            self.is_dropping = false;
            return false;
        }
        if self.is_dropping {
            if now < self.drop_next {
                return false;
            }
            self.drops += 1;
            self.drop_next += pause_ns(self.drops);
        } else {
            self.is_dropping = true;
            // If the queue is soon standing again, the drop rate resumes where it was.
            let recent = self.drops - self.drops_before;
            let is_soon = now.saturating_sub(self.drop_next) < 16 * INTERVAL_NS;
            self.drops = if is_soon && recent > 1 { recent } else { 1 };
            self.drops_before = self.drops;
            self.drop_next = now + pause_ns(self.drops);
        }
        true
    }
}

/// The control law: the interval shrinks with the number of drops.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most a tenth of a second"
)]
fn pause_ns(drops: u32) -> u64 {
    (INTERVAL_NS as f64 / libm::sqrt(f64::from(drops))) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MS: u64 = 1_000_000;

    /// When packets are dropped that arrive each millisecond and have waited for this number of milliseconds.
    fn drops_at_ms(codel: &mut Codel, from_ms: u64, waited_ms: &[u64]) -> Vec<u64> {
        let dropped =
            (from_ms..).zip(waited_ms).filter(|(now, waited)| codel.drops(now * MS, **waited * MS));
        dropped.map(|(now, _)| now).collect()
    }

    #[test]
    fn a_standing_queue_is_dropped_from_increasingly_often() {
        let mut codel = Codel::default();
        assert!(drops_at_ms(&mut codel, 0, &[9; 500]).is_empty(), "a short queue is kept");
        // After a tenth of a second, then after 100 ms / √n (RFC 8289 §3.2): 100, 71, 58, 50, 45.
        let standing = drops_at_ms(&mut codel, 500, &[30; 430]);
        assert_eq!(standing, [600, 700, 771, 829, 879, 924]);
        assert!(drops_at_ms(&mut codel, 930, &[5; 50]).is_empty());
        // Soon again: the rate continues.
        let again = drops_at_ms(&mut codel, 980, &[30; 160]);
        assert_eq!(again[0], 1080, "{again:?}");
        assert!(again[1] - again[0] < 50, "{again:?}");
        // Much later, the drop rate starts again from its initial value.
        drops_at_ms(&mut codel, 1140, &[5; 3_000]);
        assert_eq!(drops_at_ms(&mut codel, 4_140, &[30; 250]), [4_240, 4_340]);
    }

    #[test]
    fn a_short_burst_loses_nothing() {
        let mut codel = Codel::default();
        let bursts: Vec<u64> = (0..2_000).map(|ms| if ms % 150 < 90 { 60 } else { 2 }).collect();
        assert!(drops_at_ms(&mut codel, 0, &bursts).is_empty());
    }
}
