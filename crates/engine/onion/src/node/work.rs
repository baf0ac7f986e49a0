//! Computations for any thread. No cell waits for a scalar multiplication or a signature.

use alloc::boxed::Box;
use core::any::Any;
use core::fmt;

/// A computation that is too slow to run between cells, and needs no access to its [`Node`](super::Node).
///
/// A driver with worker threads runs it on one of them; other drivers run it immediately.
pub struct Work(Box<dyn FnOnce() -> Done + Send>);

impl Work {
    /// Wraps `work`, whose result goes to [`Node::handle_work`](super::Node::handle_work).
    pub fn new<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Box::new(move || Done(Box::new(work()))))
    }

    /// Runs the computation.
    #[must_use]
    pub fn run(self) -> Done {
        (self.0)()
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

/// The result of a [`Work`]. Only the node that requested it knows its type.
pub struct Done(Box<dyn Any + Send>);

impl Done {
    /// The result.
    ///
    /// # Errors
    /// Returns `self` if the result has another type.
    pub fn into<T: 'static>(self) -> Result<T, Self> {
        self.0.downcast().map(|result| *result).map_err(Self)
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done")
    }
}
