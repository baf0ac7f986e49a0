use crate::measure::protocol::ClientSecond;
use crate::rate::Rate;
use crate::suite::{EchoLayer, Suite, Tor};
use rand_core::Rng;

/// How a relay treats those who measure it. All defaults are honest; tests override some.
pub trait Conduct<S: Suite = Tor> {
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

    /// What it tells of a second with so much measurement traffic.
    fn report(&mut self, honest: ClientSecond, _measured_bytes: u64) -> ClientSecond {
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

impl<S: Suite> Conduct<S> for Honest {}
