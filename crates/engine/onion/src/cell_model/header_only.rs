mod body;
mod data;
mod handshake;
mod layers;

pub use body::{HeaderOnlyBody, HeaderOnlyCell};
pub use data::{HeaderOnlyPayload, Run, RunRoom};

use super::{CellModel, HandshakeReply};
use crate::cell::msg::{Create2, HANDSHAKE_NTOR, HANDSHAKE_NTOR_V3};
use crate::cell::relay::RelayFormat;
use crate::crypto::ntor_v3::extension::{Request, Response};
use crate::flow::control::Agreed;
use crate::identity::RelayIds;
use alloc::vec::Vec;
use data::RunBuffer;
use handshake::NullHandshake;
use layers::{Count, Counts};

/// Cells without content, for simulations: nothing is encrypted, and streams carry lengths.
///
/// A layer is a number: the distance to the relay that the cell is for, or that sent it. The tag of a cell is
/// the number of cells that its sender had sealed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderOnly;

impl CellModel for HeaderOnly {
    type Cell = HeaderOnlyCell;
    type Body = HeaderOnlyBody;
    type PayloadSlice<'a> = HeaderOnlyPayload<'a>;
    type Room<'a> = &'a mut RunRoom;
    type Buffer = RunBuffer;
    type Keys = RelayFormat;
    type FastKeys = ();
    type Layer = Count;
    type EchoLayer = Count;
    type Layers = Counts;
    type Handshake = NullHandshake;
    type Identity = RelayIds;

    fn ids(identity: &RelayIds) -> RelayIds {
        *identity
    }

    fn answer_fast(_body: &HeaderOnlyBody, _y: [u8; 20]) -> (Vec<u8>, ()) {
        (Vec::new(), ())
    }

    fn answer(
        _identity: &RelayIds,
        create: &Create2<'_>,
        offered: Agreed,
        ephemeral: impl FnOnce() -> [u8; 32],
    ) -> Option<HandshakeReply<Self>> {
        let (data, agreed, keys) = match create.handshake_type {
            HANDSHAKE_NTOR => (Vec::new(), Agreed::default(), RelayFormat::V0),
            HANDSHAKE_NTOR_V3 => {
                let request = Request::parse(create.data).ok()?;
                let agreed = request.agree(offered)?;
                let congestion_sendme_cells = agreed.congestion_sendme_cells;
                (Response { congestion_sendme_cells }.encode(), agreed, request.format())
            }
            _ => return None,
        };
        ephemeral();
        Some(HandshakeReply { data, keys, agreed })
    }
}

impl From<()> for RelayFormat {
    /// The keys of CREATE_FAST.
    fn from((): ()) -> Self {
        Self::V0
    }
}
