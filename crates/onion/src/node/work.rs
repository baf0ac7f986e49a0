use alloc::boxed::Box;
use core::any::Any;
use core::fmt;

/// Work that takes long enough to be in the way of cells, and needs nothing of its [`Node`](super::Node).
///
/// A driver with other threads has it done on one of them; another does it at once.
pub struct Work(Box<dyn FnOnce() -> Done + Send>);

impl Work {
    /// What `work` does. Its outcome goes to [`Node::handle_work`](super::Node::handle_work).
    pub fn new<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Box::new(move || Done(Box::new(work()))))
    }

    /// Does it.
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

/// What [`Work`] has come to. Only the node that wanted it knows its type.
pub struct Done(Box<dyn Any + Send>);

impl Done {
    /// The outcome.
    ///
    /// # Errors
    /// Itself, if it is of another type.
    pub fn into<T: 'static>(self) -> Result<T, Self> {
        self.0.downcast().map(|it| *it).map_err(Self)
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done")
    }
}
