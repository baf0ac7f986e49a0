use super::behaviour::Behaviour;
use onion::cell::BODY_LEN;
use rand::Rng;
use std::num::NonZeroU64;

/// What a relay cell carries.
pub(super) type Body = [u8; BODY_LEN];

/// What a lying relay makes of the cells of one circuit.
#[derive(Debug, Default)]
pub(super) struct Tamper {
    /// Cells received so far.
    seen: u64,
    /// The cell that waits for the one after it.
    held: Option<Body>,
    /// The last honest cell.
    last: Option<Body>,
}

/// What goes on instead of one cell.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// The cells, in order.
    pub(super) cells: Vec<Body>,
    /// Whether they are others than the honest one.
    pub(super) is_lie: bool,
}

impl Tamper {
    /// The number of the next cell, from zero.
    pub(super) const fn next_index(&self) -> u64 {
        self.seen
    }

    /// Passes one cell: `received` as it came, `honest` with this relay's layer off.
    pub(super) fn pass(
        &mut self,
        behaviour: &Behaviour,
        rng: &mut impl Rng,
        received: &Body,
        honest: Body,
    ) -> Passed {
        self.seen += 1;
        let last = self.last.replace(honest);
        let is_nth = |n: &NonZeroU64| self.seen.is_multiple_of(n.get());
        let cells = match behaviour {
            Behaviour::SkipsDecryption => vec![*received],
            Behaviour::AnswersEarly { lead_cells } => {
                let lead = if self.seen == 1 { *lead_cells } else { 0 };
                (0..=lead).map(|_| random_body(rng)).collect()
            }
            Behaviour::Forges { share } if chance(rng) < *share => vec![random_body(rng)],
            Behaviour::Duplicates(n) if is_nth(n) => vec![honest, honest],
            Behaviour::Replays(n) if is_nth(n) => vec![last.unwrap_or(honest)],
            Behaviour::Reorders(n) if is_nth(n) => {
                self.held = Some(honest);
                return Passed { cells: Vec::new(), is_lie: true };
            }
            Behaviour::Drops(n) if is_nth(n) => Vec::new(),
            Behaviour::Alters(n) if is_nth(n) => {
                let mut altered = honest;
                let bit = usize::try_from(rng.next_u32()).unwrap_or(0) % (BODY_LEN * 8);
                altered[bit / 8] ^= 1 << (bit % 8);
                vec![altered]
            }
            _ => {
                let cells = [Some(honest), self.held.take()].into_iter().flatten().collect();
                return Passed { cells, is_lie: false };
            }
        };
        Passed { cells, is_lie: true }
    }
}

fn random_body(rng: &mut impl Rng) -> Body {
    let mut body = [0; BODY_LEN];
    rng.fill_bytes(&mut body);
    body
}

/// A number from zero to one, one excluded.
fn chance(rng: &mut impl Rng) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}
