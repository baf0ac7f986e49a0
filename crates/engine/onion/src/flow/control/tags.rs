use super::FlowError;
use crate::cell::msg::Sendme;
use alloc::collections::VecDeque;
use subtle::ConstantTimeEq;

/// The length of the longest tag.
const LEN_MAX: usize = 20;

/// The proof that a cell was received: with keystreams the full running digest of 20 bytes, of which the cell
/// contains four; with Counter Galois Onion the first 16 bytes of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendmeTag {
    bytes: [u8; LEN_MAX],
    len: u8,
}

impl SendmeTag {
    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl From<[u8; 20]> for SendmeTag {
    fn from(bytes: [u8; 20]) -> Self {
        Self { bytes, len: 20 }
    }
}

impl From<[u8; 16]> for SendmeTag {
    fn from(tag: [u8; 16]) -> Self {
        let mut bytes = [0; LEN_MAX];
        bytes[..16].copy_from_slice(&tag);
        Self { bytes, len: 16 }
    }
}

/// The tags of cells that wait for their SENDME, oldest first (proposal 289).
///
/// The circuit's window bounds them: one tag for each whole increment in flight.
#[derive(Clone, Debug, Default)]
pub struct SendmeTags {
    expected: VecDeque<SendmeTag>,
}

impl SendmeTags {
    /// No SENDME is expected. Allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { expected: VecDeque::new() }
    }

    /// The number of expected SENDMEs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expected.len()
    }

    /// Whether none is expected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// A cell was sent that a SENDME will acknowledge, see
    /// [`CircuitFlow::handle_sent`](super::CircuitFlow::handle_sent).
    pub fn expect(&mut self, tag: impl Into<SendmeTag>) {
        self.expected.push_back(tag.into());
    }

    /// Handles a SENDME: it acknowledges the oldest waiting cell, or is an error.
    ///
    /// `may_be_bare` on circuits that were created with CREATE_FAST: clients older than proposal 289 fetch
    /// directory documents over them, and their SENDMEs have no tag.
    ///
    /// # Errors
    /// If no cell waits for it, or it does not prove that the cell was received.
    pub fn handle_sendme(
        &mut self,
        sendme: &Sendme<'_>,
        may_be_bare: bool,
    ) -> Result<(), FlowError> {
        let expected = self.expected.pop_front().ok_or(FlowError::UnexpectedSendme)?;
        match sendme {
            Sendme::Bare if may_be_bare => Ok(()),
            Sendme::Bare => Err(FlowError::SendmeVersion(0)),
            Sendme::Tagged(tag) if bool::from(expected.as_bytes().ct_eq(tag)) => Ok(()),
            Sendme::Tagged(_) => Err(FlowError::WrongTag),
            Sendme::Unknown(version) => Err(FlowError::SendmeVersion(*version)),
        }
    }
}
