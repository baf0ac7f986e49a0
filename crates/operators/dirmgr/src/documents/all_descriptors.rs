//! The latest descriptors of all relays as one answer, which is compressed at most once.

use super::Documents;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::OnceLock;

/// The latest descriptors of all relays: tens of megabytes for the public network.
#[derive(Debug, Default)]
pub struct AllDescriptors {
    texts: Vec<Bytes>,
    deflated: OnceLock<Bytes>,
}

impl AllDescriptors {
    /// The latest descriptors, including this relay's own. Copies and compresses nothing.
    pub(crate) fn from_documents(documents: &Documents) -> Self {
        let relays: BTreeSet<_> =
            documents.by_relay.keys().chain(&documents.own.fingerprint).collect();
        let texts = relays.into_iter().filter_map(|relay| documents.latest(relay).cloned());
        Self { texts: texts.collect(), deflated: OnceLock::new() }
    }

    /// Whether both share the memory of all descriptors.
    pub(crate) fn has_same_texts(&self, other: &Self) -> bool {
        let mut pairs = self.texts.iter().zip(&other.texts);
        self.texts.len() == other.texts.len()
            && pairs.all(|(a, b)| a.as_ptr() == b.as_ptr() && a.len() == b.len())
    }

    /// The descriptors, uncompressed.
    #[must_use]
    pub fn texts(&self) -> &[Bytes] {
        &self.texts
    }

    /// All descriptors, compressed by `compress` on the first call. Other threads that call it
    /// meanwhile wait.
    pub fn deflated(&self, compress: impl FnOnce(&[Bytes]) -> Bytes) -> Bytes {
        self.deflated.get_or_init(|| compress(&self.texts)).clone()
    }

    /// The compressed text, if it exists already.
    #[must_use]
    pub fn ready(&self) -> Option<&Bytes> {
        self.deflated.get()
    }
}
