use super::config::NodeId;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::Instant;

/// The timers of all nodes. Finding the next one costs nothing, however many there are.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// The current timeout by node.
    wanted: Vec<Option<Instant>>,
    /// All timeouts that were ever set and have not expired: obsolete ones are skipped.
    heap: BinaryHeap<Reverse<(Instant, NodeId)>>,
}

impl Timers {
    /// Sets or clears a node's timeout. A time in the past is due now.
    pub(super) fn set(&mut self, now: Instant, node: NodeId, at: Option<Instant>) {
        if self.wanted.len() <= node.0 {
            self.wanted.resize(node.0 + 1, None);
        }
        let at = at.map(|at| at.max(now));
        if self.wanted[node.0] != at {
            self.wanted[node.0] = at;
            self.heap.extend(at.map(|at| Reverse((at, node))));
            self.tidy();
        }
    }

    /// The next timeout that is due; at equal times, of the node that was added first.
    pub(super) fn next(&self) -> Option<(Instant, NodeId)> {
        self.heap.peek().map(|Reverse(first)| *first)
    }

    /// A node is being woken, and sets a new timeout.
    pub(super) fn take(&mut self, node: NodeId) {
        self.wanted[node.0] = None;
        self.tidy();
    }

    /// Keeps the first entry current, and the rest from growing.
    fn tidy(&mut self) {
        let wanted = &self.wanted;
        let holds = |(at, node): (Instant, NodeId)| wanted[node.0] == Some(at);
        if self.heap.len() > 64 + 4 * wanted.len() {
            self.heap = (0..)
                .zip(wanted)
                .filter_map(|(node, at)| Some(Reverse(((*at)?, NodeId(node)))))
                .collect();
        }
        while self.heap.peek().is_some_and(|Reverse(first)| !holds(*first)) {
            self.heap.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn timers_fire_in_order_of_time_then_insertion(
            steps in prop::collection::vec((0usize..6, prop::option::of(0u64..50)), 1..200),
        ) {
            let mut timers = Timers::default();
            let mut model = [None; 6];
            for (node, at) in steps {
                let at = at.map(Instant::from_nanos);
                timers.set(Instant::ORIGIN, NodeId(node), at);
                model[node] = at;
                let next = (0..6).filter_map(|node| Some((model[node]?, NodeId(node)))).min();
                prop_assert_eq!(timers.next(), next);
                if let Some((at, node)) = next && at.as_nanos() % 3 == 0 {
                    timers.take(node);
                    model[node.0] = None;
                }
            }
        }
    }
}
