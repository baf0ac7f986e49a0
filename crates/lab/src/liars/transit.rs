use super::{LIES_MAX, chance};
use onion::cell::BODY_LEN;
use onion::cell::msg::DestroyReason;
use onion::node::ConnId;
use onion::router::{Behavior, ForwardAction, OnLink};
use rand::Rng;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// What relay cells carry.
type Body = [u8; BODY_LEN];

/// How a relay treats those who send through it.
///
/// "Cells" are the relay cells that pass from the one who built the circuit to the next hop; "every
/// n-th" counts on each circuit, "after n" counts all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TransitLie {
    /// Saves itself the decryption and passes cells on as they came: more cells for the same CPU.
    SkipsDecryption,
    /// Does not wait for cells: makes up random ones and sends them to the next hop, this many ahead
    /// of those that it has received. So it hides a slow way in.
    AnswersAhead(u32),
    /// Replaces this share of the cells by random bytes: saves the work on some, in the hope that
    /// others are checked.
    Forges {
        /// Chance of each cell to be replaced, from 0 to 1.
        share: f64,
    },
    /// Sends every n-th cell twice: one cell more for no reception and no work.
    Duplicates(NonZeroU64),
    /// Sends the cell before again in place of every n-th one: a forgery that looks like a cell.
    Replays(NonZeroU64),
    /// Swaps every n-th cell with the one after.
    Reorders(NonZeroU64),
    /// Does not send every n-th cell: a queue that overflows.
    Drops(NonZeroU64),
    /// Flips one bit in every n-th cell.
    Alters(NonZeroU64),
    /// After n cells passes nothing on any more, and keeps its links.
    Stalls(u64),
    /// After n cells closes all its links.
    ClosesLinks(u64),
    /// After n cells destroys all circuits, as a relay whose memory is full (reason 5).
    DestroysCircuits(u64),
    /// Ends the first n circuits that are begun on each link with CREATE_FAST behind its own answer, as finished (reason 9).
    /// C tor does it by mistake: it takes a link that it has sent nothing on for one that has long been idle.
    SweepsNewLinks(usize),
    /// Sends this number of PADDING cells behind each cell. They fill the measurer's path, so that other relays that it measures bring
    /// back less.
    Floods(u32),
    /// Extends no circuit, as if the next hop could not be reached (reason 6).
    RefusesToExtend,
}

/// Where a relay has lied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiedAt {
    /// The circuit, by the order in which their first cells came.
    pub circuit: u32,
    /// The cell that it passed on wrongly or not at all, by the order in which they came, from zero.
    pub cell: u64,
}

/// A router's conduct towards those who send through it: a lie, or none.
#[derive(Clone, Debug, Default)]
pub struct TransitLiar {
    lie: Option<TransitLie>,
    circuits: BTreeMap<OnLink, Passage>,
    /// Cells of all circuits.
    passed_cells: u64,
    /// Circuits that have been begun on each link.
    begun: BTreeMap<ConnId, usize>,
    lies: Vec<LiedAt>,
}

/// The cells of one circuit.
#[derive(Clone, Debug)]
struct Passage {
    circuit: u32,
    seen_cells: u64,
    /// The last cell, as it should have left.
    last: Body,
    /// The cell that leaves behind the one after it.
    held: Option<Body>,
}

impl TransitLiar {
    /// Tells this lie; behaves as an honest relay if there is none.
    #[must_use]
    pub fn new(lie: Option<TransitLie>) -> Self {
        Self { lie, ..Self::default() }
    }

    /// Where it has lied: the first few thousand places.
    #[must_use]
    pub fn lies(&self) -> &[LiedAt] {
        &self.lies
    }
}

impl Passage {
    /// What becomes of a cell, and whether that is a lie. `last` is the cell before it.
    fn pass(
        &mut self,
        lie: TransitLie,
        rng: &mut impl Rng,
        (received, last): (&Body, Body),
        cell: &mut Body,
    ) -> (ForwardAction, bool) {
        let is_nth = |n: NonZeroU64| self.seen_cells.is_multiple_of(n.get());
        let mut action = ForwardAction::Forward;
        match lie {
            TransitLie::SkipsDecryption => *cell = *received,
            TransitLie::AnswersAhead(cells) => {
                rng.fill_bytes(cell);
                if self.seen_cells == 1 {
                    action = ForwardAction::ForwardWith(cells);
                }
            }
            TransitLie::Forges { share } if chance(rng) < share => rng.fill_bytes(cell),
            TransitLie::Duplicates(n) if is_nth(n) => {
                self.held = Some(*cell);
                action = ForwardAction::ForwardWith(1);
            }
            TransitLie::Replays(n) if is_nth(n) => *cell = last,
            TransitLie::Reorders(n) if is_nth(n) => {
                self.held = Some(*cell);
                action = ForwardAction::Drop;
            }
            TransitLie::Drops(n) if is_nth(n) => action = ForwardAction::Drop,
            TransitLie::Alters(n) if is_nth(n) => {
                let bit = usize::try_from(rng.next_u32()).unwrap_or(0) % (BODY_LEN * 8);
                cell[bit / 8] ^= 1 << (bit % 8);
            }
            _ if self.held.is_some() => return (ForwardAction::ForwardWith(1), false),
            _ => return (ForwardAction::Forward, false),
        }
        (action, true)
    }
}

impl Behavior for TransitLiar {
    fn pass(
        &mut self,
        rng: &mut impl Rng,
        from: OnLink,
        received: &Body,
        cell: &mut Body,
    ) -> ForwardAction {
        let Some(lie) = self.lie else { return ForwardAction::Forward };
        self.passed_cells += 1;
        match lie {
            TransitLie::Stalls(after) if self.passed_cells > after => return ForwardAction::Drop,
            TransitLie::ClosesLinks(after) if self.passed_cells == after => {
                return ForwardAction::CloseLinks;
            }
            TransitLie::DestroysCircuits(after) if self.passed_cells == after => {
                return ForwardAction::DestroyCircuits(DestroyReason::RESOURCE_LIMIT);
            }
            _ => {}
        }
        let circuit = u32::try_from(self.circuits.len()).unwrap_or(u32::MAX);
        let (seen_cells, last, held) = (0, *cell, None);
        let new = Passage { circuit, seen_cells, last, held };
        let passage = self.circuits.entry(from).or_insert(new);
        passage.seen_cells += 1;
        let last = std::mem::replace(&mut passage.last, *cell);
        let (action, is_lie) = passage.pass(lie, rng, (received, last), cell);
        if is_lie && self.lies.len() < LIES_MAX {
            self.lies.push(LiedAt { circuit: passage.circuit, cell: passage.seen_cells - 1 });
        }
        action
    }

    fn add(&mut self, rng: &mut impl Rng, from: OnLink, cell: &mut Body) {
        match self.circuits.get_mut(&from).and_then(|passage| passage.held.take()) {
            Some(held) => *cell = held,
            None => rng.fill_bytes(cell),
        }
    }

    fn unsolicited(&mut self) -> u32 {
        if let Some(TransitLie::Floods(cells)) = self.lie { cells } else { 0 }
    }

    fn ends_at_once(&mut self, at: OnLink) -> Option<DestroyReason> {
        let Some(TransitLie::SweepsNewLinks(count)) = self.lie else { return None };
        let begun = self.begun.entry(at.conn).or_default();
        *begun += 1;
        (*begun <= count).then_some(DestroyReason::FINISHED)
    }

    fn refuses_to_extend(&self) -> Option<DestroyReason> {
        let refuses = matches!(self.lie, Some(TransitLie::RefusesToExtend));
        refuses.then_some(DestroyReason::CONNECT_FAILED)
    }
}
