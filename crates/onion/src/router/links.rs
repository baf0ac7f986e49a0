//! Links to clients and other relays: who is at the other end, what waits to be written, and when.

mod limit;
mod link;
mod output;
mod padding;
mod uniform;
mod upkeep;

pub(super) use link::{Link, Role};
pub use output::Control;
pub(super) use output::{Output, Outputs, Parked, RECORD_BYTES};
pub(super) use padding::Padder;
pub(super) use uniform::uniform_below;

use crate::identity::{RelayIds, RsaId};

/// What a link to another relay carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayLink {
    /// The relay there, which has proved to be it.
    pub relay: RsaId,
    /// Bytes of circuits' cells that have come by it since it opened.
    pub received_bytes: u64,
    /// Bytes of cells that were sent by it since then.
    pub sent_bytes: u64,
    /// Circuits on it now.
    pub circuits: usize,
}

/// Who is at the other end of a link that has opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkPeer {
    /// The relay there, if it has proved to be one.
    pub relay: Option<RelayIds>,
    /// It says that its end has an address of its own: what tor calls canonical.
    pub is_canonical: bool,
    /// The link's protocol has padding (version 5).
    pub has_padding: bool,
    /// Both sides say which cells they have passed on
    /// ([`LinkProtocol::V5WithFeedback`](crate::cell::LinkProtocol::V5WithFeedback)).
    pub has_feedback: bool,
}
