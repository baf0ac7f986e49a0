//! Misbehaviour of a relay, for tests of those who measure it.
//!
//! Everything that a relay could do to those who measure it goes through the trait [`Behavior`]. Its defaults
//! are the honest relay; a type parameter selects the implementation, so with [`Honest`] nothing of it is left
//! in the code. `lab::liars` has the dishonest ones, for both kinds of measurement.

mod dishonest;

use super::circuits::OnLink;
use crate::cell::msg::DestroyReason;
use crate::cell_model::{CellModel, EchoLayer, Tor};
use crate::measure::protocol::{ClientSecond, SentBack};
use crate::rate::Rate;
use alloc::vec::Vec;
use rand_core::Rng;

/// What the relay does with a cell for the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardAction {
    /// Forwards it.
    Forward,
    /// Forwards it, followed by this number of cells that [`Behavior::fabricate`] fabricates. If the circuit's queue
    /// is full, the circuit is destroyed, reason 5.
    ForwardWith(u32),
    /// Drops it.
    Drop,
    /// Forwards it, then destroys all circuits of the relay with this reason.
    DestroyCircuits(DestroyReason),
    /// Forwards it, then closes all links of the relay.
    CloseLinks,
}

/// How a relay treats those who measure it. All defaults are honest; tests override some.
pub trait Behavior<S: CellModel = Tor> {
    /// Decides about a cell for the next hop. `cell` is the outgoing cell in its circuit's queue, with the
    /// relay's layer removed. `received` is the cell as received from `from`.
    #[inline]
    fn forward(
        &mut self,
        _rng: &mut impl Rng,
        _from: OnLink,
        _received: &S::Body,
        _cell: &mut S::Body,
    ) -> ForwardAction {
        ForwardAction::Forward
    }

    /// Writes one of the extra cells that [`forward`](Self::forward) asked for. `cell` holds the remains of an
    /// earlier cell.
    fn fabricate(&mut self, _rng: &mut impl Rng, _from: OnLink, _cell: &mut S::Body) {}

    /// The reason to destroy a circuit immediately after answering its CREATE_FAST; `None` keeps it.
    fn destroys_at_once(&mut self, _at: OnLink) -> Option<DestroyReason> {
        None
    }

    /// The reason to refuse all EXTEND2 messages; `None` accepts them.
    fn refuses_to_extend(&self) -> Option<DestroyReason> {
        None
    }

    /// Whether the relay understands the measurement protocol. C tor ignores its messages.
    fn understands_measurements(&self) -> bool {
        true
    }

    /// Turns a cell of a measurement circuit into its answer. An honest relay removes its layer and changes
    /// nothing else.
    #[inline]
    fn answer(&mut self, _rng: &mut impl Rng, layer: &mut S::EchoLayer, cell: &mut S::Body) {
        layer.apply(cell);
    }

    /// Whether the relay drops this cell of a measurement circuit.
    #[inline]
    fn drops_answer(&mut self) -> bool {
        false
    }

    /// The number of answers that it fabricates on a new measurement circuit before it receives any cell.
    fn fabricated_answers(&self) -> u32 {
        0
    }

    /// The number of PADDING cells that it sends after each cell that it returns or forwards, on the same link.
    #[inline]
    fn unsolicited_cells(&mut self) -> u32 {
        0
    }

    /// The report for a second with `measured_bytes` of measurement traffic.
    fn report(&mut self, honest: ClientSecond, _measured_bytes: u64) -> ClientSecond {
        honest
    }

    /// The report of the bytes returned to each measurer in a second.
    fn report_sent_back(&mut self, honest: Vec<SentBack>) -> Vec<SentBack> {
        honest
    }

    /// The bytes that clients may be sent, if the measurement's rules allow `allowed_bytes`.
    #[inline]
    fn clients_may_send(&self, allowed_bytes: u64) -> u64 {
        allowed_bytes
    }

    /// The rate limit while it is measured, if it differs from the configured one.
    #[inline]
    fn rate_while_measured(&self) -> Option<Rate> {
        None
    }
}

/// Follows the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Honest;

impl<S: CellModel> Behavior<S> for Honest {}
