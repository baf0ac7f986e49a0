//! What a relay may do amiss, for tests of those who measure it.

mod dishonest;

use super::circuits::OnLink;
use crate::cell::msg::DestroyReason;
use crate::cell_model::{CellModel, EchoLayer, Tor};
use crate::measure::protocol::{ClientSecond, SentBack};
use crate::rate::Rate;
use alloc::vec::Vec;
use rand_core::Rng;

/// What becomes of a cell on its way to the next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardAction {
    /// It goes on.
    Forward,
    /// It goes on, and behind it so many cells of the relay's own making, each by
    /// [`Behavior::add`]. Where the circuit's queue has no room for them, the circuit is destroyed,
    /// reason 5.
    ForwardWith(u32),
    /// It goes nowhere.
    Drop,
    /// It is the last one: all circuits of the relay are destroyed, and both sides are told this reason.
    DestroyCircuits(DestroyReason),
    /// It is the last one: all links of the relay are closed.
    CloseLinks,
}

/// How a relay treats those who measure it. All defaults are honest; tests override some.
pub trait Behavior<S: CellModel = Tor> {
    /// What becomes of a cell that is to pass to the next hop. `cell` is what leaves: it waits in its
    /// circuit's queue, with the relay's layer off. `received` is the same as it came, `from` there.
    #[inline]
    fn pass(
        &mut self,
        _rng: &mut impl Rng,
        _from: OnLink,
        _received: &S::Body,
        _cell: &mut S::Body,
    ) -> ForwardAction {
        ForwardAction::Forward
    }

    /// Writes one of the cells that [`pass`](Self::pass) wants to have behind another. `cell` holds
    /// something of earlier use.
    fn add(&mut self, _rng: &mut impl Rng, _from: OnLink, _cell: &mut S::Body) {}

    /// Why it ends a circuit as soon as it has answered its CREATE_FAST, if it does.
    fn ends_at_once(&mut self, _at: OnLink) -> Option<DestroyReason> {
        None
    }

    /// Why it refuses to extend circuits, if it does.
    fn refuses_to_extend(&self) -> Option<DestroyReason> {
        None
    }

    /// Whether it hears what is said of measurements. One that does not, as stock tor, ignores it.
    fn hears_of_measurements(&self) -> bool {
        true
    }

    /// Turns a cell of a measurement circuit into its answer: takes the layer off, and nothing else.
    #[inline]
    fn answer(&mut self, _rng: &mut impl Rng, layer: &mut S::EchoLayer, cell: &mut S::Body) {
        layer.apply(cell);
    }

    /// Whether it leaves a cell of a measurement circuit unanswered.
    #[inline]
    fn swallows(&mut self) -> bool {
        false
    }

    /// Cells that it makes up on a new measurement circuit before it has received any.
    fn answers_ahead(&self) -> u32 {
        0
    }

    /// PADDING cells that it sends behind a cell that it sends back or passes on, on the same link.
    #[inline]
    fn unsolicited(&mut self) -> u32 {
        0
    }

    /// What it tells of a second with so much measurement traffic.
    fn report(&mut self, honest: ClientSecond, _measured_bytes: u64) -> ClientSecond {
        honest
    }

    /// What it tells of what it has sent back to each measurer in a second.
    fn report_sent_back(&mut self, honest: Vec<SentBack>) -> Vec<SentBack> {
        honest
    }

    /// What clients may be sent, where the measurement's rules allow `allowed_bytes`.
    #[inline]
    fn clients_may_send(&self, allowed_bytes: u64) -> u64 {
        allowed_bytes
    }

    /// The rate that it sends with while it is measured, where it is not the usual one.
    #[inline]
    fn rate_while_measured(&self) -> Option<Rate> {
        None
    }
}

/// Does as the protocol says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Honest;

impl<S: CellModel> Behavior<S> for Honest {}
