//! Links to clients and other relays: peers, queued output, rate limits, padding and upkeep.

mod limit;
mod link;
mod output;
mod padding;
mod reading;
mod uniform;
mod upkeep;

pub(super) use link::{Link, Role};
pub use output::Control;
pub(super) use output::{Output, Outputs, ParkedBy, RECORD_BYTES};
pub(super) use padding::Padder;
pub(super) use reading::Reading;
pub(super) use uniform::uniform_below;

use crate::identity::{RelayIds, RsaId};

/// The traffic of a link to another relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayLink {
    /// The authenticated peer.
    pub relay: RsaId,
    /// Bytes of relay cells received since the link opened.
    pub received_bytes: u64,
    /// Bytes of cells sent since then.
    pub sent_bytes: u64,
    /// Open circuits.
    pub circuits: usize,
}

/// The peer of a link that has opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkPeer {
    /// The relay, if it has authenticated as one.
    pub relay: Option<RelayIds>,
    /// Whether the peer claims its end's address as its own: a canonical link.
    pub is_canonical: bool,
    /// Whether the link protocol has padding (version 5).
    pub has_padding: bool,
    /// Whether both sides report forwarded cells
    /// ([`LinkProtocol::V5WithFeedback`](crate::cell::LinkProtocol::V5WithFeedback)).
    pub has_feedback: bool,
}
