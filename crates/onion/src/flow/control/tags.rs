use super::FlowError;
use crate::cell::msg::Sendme;
use alloc::collections::VecDeque;
use subtle::ConstantTimeEq;

/// Bytes of a tag: the whole running digest of a cell, of which the cell shows four.
pub const SENDME_TAG_LEN: usize = 20;

/// The tags of cells that wait for their SENDME, oldest first (proposal 289).
///
/// The window of the circuit bounds them: one tag for each whole increment under way.
#[derive(Clone, Debug, Default)]
pub struct SendmeTags {
    expected: VecDeque<[u8; SENDME_TAG_LEN]>,
}

impl SendmeTags {
    /// None expected yet. Takes no memory beyond its own size.
    #[must_use]
    pub const fn new() -> Self {
        Self { expected: VecDeque::new() }
    }

    /// SENDMEs that are expected.
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
    pub fn expect(&mut self, tag: [u8; SENDME_TAG_LEN]) {
        self.expected.push_back(tag);
    }

    /// Handles a SENDME: an error, or it acknowledges the oldest cell that waits.
    ///
    /// `may_be_bare` on circuits that began with CREATE_FAST: clients from before proposal 289 fetch
    /// directories over them, and their SENDMEs have no tag.
    ///
    /// # Errors
    /// Where nobody waits for it, or it does not prove that the cell was seen.
    pub fn handle_sendme(
        &mut self,
        sendme: &Sendme<'_>,
        may_be_bare: bool,
    ) -> Result<(), FlowError> {
        let expected = self.expected.pop_front().ok_or(FlowError::UnexpectedSendme)?;
        match sendme {
            Sendme::Bare if may_be_bare => Ok(()),
            Sendme::Bare => Err(FlowError::SendmeVersion(0)),
            Sendme::Tagged(tag) if bool::from(expected[..].ct_eq(tag)) => Ok(()),
            Sendme::Tagged(_) => Err(FlowError::WrongTag),
            Sendme::Unknown(version) => Err(FlowError::SendmeVersion(*version)),
        }
    }
}
