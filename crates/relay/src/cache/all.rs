//! The latest descriptors of all relays as one answer, which is compressed at most once.

use super::Documents;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The latest descriptors of all relays: tens of megabytes in the public network.
#[derive(Debug, Default)]
pub(crate) struct AllDescriptors {
    texts: Vec<Bytes>,
    deflated: OnceLock<Bytes>,
}

impl AllDescriptors {
    /// Those of these documents, with our own among them. Nothing is copied, and nothing compressed.
    pub(super) fn of(documents: &Documents) -> Self {
        let relays: BTreeSet<_> =
            documents.by_relay.keys().chain(&documents.own.fingerprint).collect();
        let texts = relays.into_iter().filter_map(|relay| documents.latest(relay).cloned());
        Self { texts: texts.collect(), deflated: OnceLock::new() }
    }

    /// Whether the other one has the same descriptors, in the same memory.
    pub(super) fn has_same_texts(&self, other: &Self) -> bool {
        let pairs = || self.texts.iter().zip(&other.texts);
        self.texts.len() == other.texts.len()
            && pairs().all(|(a, b)| a.as_ptr() == b.as_ptr() && a.len() == b.len())
    }

    pub(crate) fn texts(&self) -> &[Bytes] {
        &self.texts
    }

    /// All of them compressed, which `compress` does unless it has been done. Another thread that asks meanwhile waits.
    pub(crate) fn deflated(&self, compress: impl FnOnce(&[Bytes]) -> Bytes) -> Bytes {
        self.deflated.get_or_init(|| compress(&self.texts)).clone()
    }

    /// The compressed text, if it exists already.
    pub(crate) fn ready(&self) -> Option<&Bytes> {
        self.deflated.get()
    }
}
