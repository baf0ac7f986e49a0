use super::{LIES_MAX, chance};
use onion::cell::BODY_LEN;
use onion::cell::msg::DestroyReason;
use onion::node::ConnId;
use onion::router::{Behavior, ForwardAction, OnLink};
use rand::Rng;
use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// The body of a relay cell.
type Body = [u8; BODY_LEN];

/// How a relay cheats clients and measurers that send through it.
///
/// "Cells" are relay cells in the forward direction; "every n-th" counts on each circuit, "after n" counts all
/// of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TransitLie {
    /// Forwards cells without decrypting them: more cells for the same CPU time.
    SkipsDecryption,
    /// Does not wait for cells: fabricates random ones and sends them to the next hop, this number ahead of
    /// those received, to hide a slow download.
    AnswersAhead(u32),
    /// Replaces this share of the cells by random bytes, hoping that others are checked.
    Forges {
        /// The probability of replacing each cell, from 0 to 1.
        share: f64,
    },
    /// Sends every n-th cell twice: an additional cell without reception and decryption.
    Duplicates(NonZeroU64),
    /// Sends the previous cell again instead of every n-th one: a forgery that looks like a cell.
    Replays(NonZeroU64),
    /// Swaps every n-th cell with the next one.
    Reorders(NonZeroU64),
    /// Drops every n-th cell: a queue overflow.
    Drops(NonZeroU64),
    /// Flips one bit in every n-th cell.
    Alters(NonZeroU64),
    /// Stops forwarding after n cells, and keeps its links open.
    Stalls(u64),
    /// Closes all its links after n cells.
    ClosesLinks(u64),
    /// Destroys all circuits after n cells, like a relay without memory (reason 5).
    DestroysCircuits(u64),
    /// Destroys the first n circuits that are created on each link with CREATE_FAST right after its answer, as
    /// finished (reason 9). C tor does it by mistake: a link on which it has sent nothing appears to have been
    /// idle for long.
    SweepsNewLinks(usize),
    /// Sends this number of PADDING cells after each cell. They fill the measurer's download capacity, so that
    /// other relays appear slower.
    Floods(u32),
    /// Refuses to extend circuits, as if the next hop were unreachable (reason 6).
    RefusesToExtend,
}

/// The position of a lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiedAt {
    /// The circuit, in the order of first cells.
    pub circuit: u32,
    /// The cell that was forwarded wrongly or dropped, counted from zero in order of arrival.
    pub cell: u64,
}

/// A router's behavior towards senders of relay cells: a lie, or none.
#[derive(Clone, Debug, Default)]
pub struct TransitLiar {
    lie: Option<TransitLie>,
    circuits: BTreeMap<OnLink, CircuitState>,
    /// Cells of all circuits.
    passed_cells: u64,
    /// Circuits created on each link.
    created: BTreeMap<ConnId, usize>,
    lies: Vec<LiedAt>,
}

/// The state of one circuit.
#[derive(Clone, Debug)]
struct CircuitState {
    circuit: u32,
    seen_cells: u64,
    /// The last cell, correctly decrypted.
    last: Body,
    /// The cell that leaves after the next one.
    held: Option<Body>,
}

impl TransitLiar {
    /// Behaves according to this lie; honestly if there is none.
    #[must_use]
    pub fn new(lie: Option<TransitLie>) -> Self {
        Self { lie, ..Self::default() }
    }

    /// The positions of its lies: the first few thousand.
    #[must_use]
    pub fn lies(&self) -> &[LiedAt] {
        &self.lies
    }
}

impl CircuitState {
    /// The action for a cell, and whether that is a lie. `last` is the previous cell.
    fn act(
        &mut self,
        lie: TransitLie,
        rng: &mut impl Rng,
        received: &Body,
        last: Body,
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
    fn forward(
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
        let new = CircuitState { circuit, seen_cells: 0, last: *cell, held: None };
        let state = self.circuits.entry(from).or_insert(new);
        state.seen_cells += 1;
        let last = std::mem::replace(&mut state.last, *cell);
        let (action, is_lie) = state.act(lie, rng, received, last, cell);
        if is_lie && self.lies.len() < LIES_MAX {
            self.lies.push(LiedAt { circuit: state.circuit, cell: state.seen_cells - 1 });
        }
        action
    }

    fn fabricate(&mut self, rng: &mut impl Rng, from: OnLink, cell: &mut Body) {
        match self.circuits.get_mut(&from).and_then(|state| state.held.take()) {
            Some(held) => *cell = held,
            None => rng.fill_bytes(cell),
        }
    }

    fn unsolicited_cells(&mut self) -> u32 {
        if let Some(TransitLie::Floods(cells)) = self.lie { cells } else { 0 }
    }

    fn destroys_at_once(&mut self, at: OnLink) -> Option<DestroyReason> {
        let Some(TransitLie::SweepsNewLinks(count)) = self.lie else { return None };
        let created = self.created.entry(at.conn).or_default();
        *created += 1;
        (*created <= count).then_some(DestroyReason::FINISHED)
    }

    fn refuses_to_extend(&self) -> Option<DestroyReason> {
        let refuses = matches!(self.lie, Some(TransitLie::RefusesToExtend));
        refuses.then_some(DestroyReason::CONNECT_FAILED)
    }
}
