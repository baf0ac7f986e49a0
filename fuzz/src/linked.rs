use sim::linked::{Linked, LinkedPlan};

/// A set of linked circuits with both its ends, the engine's: cells of its legs arrive in any order, links are cut at one end before
/// the other, legs are added. What comes is what was sent, from its beginning on, and all of it unless the set is lost; no more waits
/// than may. If the third byte is odd, somebody speaks for the ends, too: then bounds and accounts hold all the same.
pub fn conflux(data: &[u8]) {
    let (choices, script) = data.split_at(data.len().min(3));
    let choice = |at: usize| choices.get(at).copied().unwrap_or(0);
    let mut linked = Linked::new(&LinkedPlan::of_bytes([choice(0), choice(1)]));
    linked.play(script, !choice(2).is_multiple_of(2), Linked::check);
    linked.conclude();
}
