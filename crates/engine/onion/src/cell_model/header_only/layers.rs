use super::HeaderOnly;
use super::body::HeaderOnlyBody;
use crate::cell::Command;
use crate::cell::relay::RelayFormat;
use crate::cell_model::{EchoLayer, Layer, Layers};
use crate::crypto::CryptError;
use crate::flow::control::SendmeTag;
use alloc::vec::Vec;

/// The relay's side of a layer: counts of cells sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    sent: u64,
    received: u64,
    format: RelayFormat,
}

impl Count {
    /// As many bytes as in the other model.
    fn tag(self, count: u64) -> SendmeTag {
        let mut tag = [0; 20];
        tag[..8].copy_from_slice(&count.to_be_bytes());
        match (self.format, tag.first_chunk::<16>()) {
            (RelayFormat::V1, Some(tag)) => (*tag).into(),
            _ => tag.into(),
        }
    }
}

impl Layer<HeaderOnly> for Count {
    fn new(format: &RelayFormat) -> Self {
        Self { format: *format, ..Self::default() }
    }

    #[inline]
    fn format(&self) -> RelayFormat {
        self.format
    }

    #[inline]
    fn decrypt(&mut self, _command: Command, body: &mut HeaderOnlyBody) -> bool {
        let layers = body.layers();
        if layers > 0 || body.is_noise() {
            body.set_layers(layers.saturating_sub(1));
            return false;
        }
        self.received += 1;
        true
    }

    fn originate(&mut self, body: &mut HeaderOnlyBody) {
        self.sent += 1;
        body.set_layers(1);
    }

    #[inline]
    fn pass_back(&mut self, body: &mut HeaderOnlyBody) {
        body.set_layers(body.layers().saturating_add(1));
    }

    fn sent_tag(&self) -> SendmeTag {
        self.tag(self.sent)
    }

    fn received_tag(&self) -> SendmeTag {
        self.tag(self.received)
    }
}

impl EchoLayer<HeaderOnly> for Count {
    fn new((): &()) -> Self {
        Self::default()
    }

    fn apply(&mut self, _body: &mut HeaderOnlyBody) {
        self.received += 1;
    }
}

/// The client's side of the layers.
#[derive(Debug, Default)]
pub struct Counts {
    hops: Vec<Count>,
}

impl Layers<HeaderOnly> for Counts {
    fn push(&mut self, format: &RelayFormat) {
        self.hops.push(<Count as Layer<HeaderOnly>>::new(format));
    }

    fn len(&self) -> usize {
        self.hops.len()
    }

    fn format(&self, hop: usize) -> RelayFormat {
        self.hops.get(hop).map_or_else(RelayFormat::default, |hop| hop.format)
    }

    fn seal(&mut self, hop: usize, _command: Command, body: &mut HeaderOnlyBody) {
        let Some(count) = self.hops.get_mut(hop) else { return };
        count.sent += 1;
        body.set_layers(u8::try_from(hop).unwrap_or(u8::MAX));
    }

    fn open(&mut self, body: &mut HeaderOnlyBody) -> Result<usize, CryptError> {
        if body.is_noise() {
            return Err(CryptError);
        }
        let hop = usize::from(body.layers()).checked_sub(1).ok_or(CryptError)?;
        let count = self.hops.get_mut(hop).ok_or(CryptError)?;
        count.received += 1;
        body.set_layers(0);
        Ok(hop)
    }

    fn sent_tag(&self, hop: usize) -> SendmeTag {
        self.hops.get(hop).copied().map_or_else(|| [0; 20].into(), |hop| hop.tag(hop.sent))
    }

    fn received_tag(&self, hop: usize) -> SendmeTag {
        self.hops.get(hop).copied().map_or_else(|| [0; 20].into(), |hop| hop.tag(hop.received))
    }
}
