//! The current documents, shared between the thread that fetches them and those that serve them.

use crate::documents::{AllDescriptors, Documents};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The current documents. One thread replaces them; any number of threads read them.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    documents: Arc<RwLock<Arc<Documents>>>,
    diffs: Arc<DiffCounts>,
}

impl Cache {
    /// The current documents.
    #[must_use]
    pub fn get(&self) -> Arc<Documents> {
        // The lock guards one assignment, which cannot panic.
        Arc::clone(&self.documents.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts of consensus diffs served and applied.
    #[must_use]
    pub fn diffs(&self) -> &DiffCounts {
        &self.diffs
    }

    /// Replaces all documents. The compressed text of all descriptors is kept if no descriptor has
    /// changed.
    pub fn set(&self, mut documents: Documents) {
        let all = AllDescriptors::from_documents(&documents);
        let before = Arc::clone(&self.get().all);
        documents.all = if before.has_same_texts(&all) { before } else { Arc::new(all) };
        *self.documents.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(documents);
    }
}

/// Counters of consensus diffs, shared between threads.
#[derive(Debug, Default)]
pub struct DiffCounts {
    served: AtomicU64,
    applied: AtomicU64,
}

/// How many consensuses were transferred as diffs since the relay started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffTotals {
    /// Diffs sent to clients and other directories.
    pub served: u64,
    /// Diffs fetched and applied, where enough authorities had signed the result.
    pub applied: u64,
}

impl DiffCounts {
    /// Counts a diff that was sent.
    pub fn count_served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_applied(&self) {
        self.applied.fetch_add(1, Ordering::Relaxed);
    }

    /// The current counts.
    #[must_use]
    pub fn totals(&self) -> DiffTotals {
        DiffTotals {
            served: self.served.load(Ordering::Relaxed),
            applied: self.applied.load(Ordering::Relaxed),
        }
    }
}
