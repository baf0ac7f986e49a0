use crate::cell::CircId;
use crate::circuit::{Builder, CircuitError};
use crate::crypto::{HopKeys, Keystream, fast};
use crate::flow::InFlightWindow;
use crate::measure::content::Content;
use crate::node::ConnId;

/// One circuit to the target or through it, and back.
#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) origin: ConnId,
    /// Its ID on the link where it begins.
    pub(super) origin_id: CircId,
    pub(super) state: State,
    /// Whether it has been retried; see [`is_swept`](Self::is_swept).
    pub(super) is_second_try: bool,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the large variant is the long-lived one")]
pub(super) enum State {
    /// Waits for its link to open.
    Waiting,
    /// A circuit of two hops is being built.
    Building(Builder),
    /// A circuit of one hop is being created.
    Creating(fast::Client),
    Up(Flow),
    Dead,
}

/// The state of an open circuit.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) window: InFlightWindow,
    pub(super) content: Content,
    /// The layer shared with the target.
    pub(super) forward: Keystream,
    /// Cells of its keystream that were used before the first cell that counts.
    pub(super) cells_before: u64,
}

impl Flow {
    pub(super) fn new(
        first_hop: &HopKeys,
        content_key: &[u8; 16],
        window_cap_cells: u32,
        cells_before: u64,
    ) -> Self {
        Self {
            window: InFlightWindow::new(window_cap_cells),
            content: Content::new(content_key),
            forward: Keystream::new(&first_hop.key_forward),
            cells_before,
        }
    }
}

impl Circuit {
    /// Whether the target has [destroyed it as idle](CircuitError::may_be_swept), and another try is left.
    pub(super) fn is_swept(&self, error: &CircuitError) -> bool {
        let is_begun = matches!(self.state, State::Building(_) | State::Creating(_));
        is_begun && error.may_be_swept() && !self.is_second_try
    }

    pub(super) const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    pub(super) const fn is_settled(&self) -> bool {
        matches!(self.state, State::Up(_) | State::Dead)
    }
}
