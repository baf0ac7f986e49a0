use testkit::linked::{LinkedPair, LinkedParams};

/// Both ends of a set of linked circuits: cells of its legs arrive in any order, links fail at one end before the
/// other, legs are added. The received data is a prefix of the sent data, and all of it unless the set is lost; queues
/// respect their limits. If the third byte is odd, an adversary also sends in the name of the ends: limits and
/// counters still hold.
pub fn conflux(data: &[u8]) {
    let (choices, script) = data.split_at(data.len().min(3));
    let choice = |at: usize| choices.get(at).copied().unwrap_or(0);
    let mut linked = LinkedPair::new(&LinkedParams::from_bytes([choice(0), choice(1)]));
    linked.run_script(script, !choice(2).is_multiple_of(2), LinkedPair::check);
    linked.conclude();
}
