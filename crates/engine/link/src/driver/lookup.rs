//! DNS queries: issued on the driver's thread, answered on any thread.

use super::options::Waker;
use onion::node::{DnsAnswer, DnsQuery, Lookup, LookupId};
use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};

/// Answers the DNS queries of a driver.
pub trait Resolver: Send {
    /// Starts resolving a name. Called on the driver's thread: it must not block.
    fn ask(&mut self, question: DnsQuery, reply: Reply);
}

/// Receives the answer to one query. Dropping it without an answer sends [`DnsAnswer::Failed`].
#[derive(Debug)]
pub struct Reply {
    id: LookupId,
    /// `None` after the answer.
    to: Option<(Sender<(LookupId, DnsAnswer)>, Waker)>,
}

impl Reply {
    /// Sends the answer to the node and wakes its driver.
    pub fn answer(mut self, answer: DnsAnswer) {
        self.send(answer);
    }

    fn send(&mut self, answer: DnsAnswer) {
        if let Some((answers, waker)) = self.to.take() {
            // Ignored if the driver has been dropped.
            let _ = answers.send((self.id, answer));
            waker.wake();
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send(DnsAnswer::Failed);
    }
}

/// The queries and answers of a driver.
pub(crate) struct Lookups {
    resolver: Option<Box<dyn Resolver>>,
    answers: Receiver<(LookupId, DnsAnswer)>,
    sender: Sender<(LookupId, DnsAnswer)>,
}

impl Lookups {
    /// Without a resolver.
    pub(crate) fn new() -> Self {
        let (sender, answers) = mpsc::channel();
        Self { resolver: None, answers, sender }
    }

    pub(crate) fn set_resolver(&mut self, resolver: Box<dyn Resolver>) {
        self.resolver = Some(resolver);
    }

    /// Issues a query. Without a resolver it fails.
    pub(crate) fn ask(&mut self, lookup: Lookup, waker: Waker) {
        let reply = Reply { id: lookup.id, to: Some((self.sender.clone(), waker)) };
        if let Some(resolver) = &mut self.resolver {
            resolver.ask(lookup.question, reply);
        }
    }

    /// The next answer.
    pub(crate) fn poll_answer(&self) -> Option<(LookupId, DnsAnswer)> {
        self.answers.try_recv().ok()
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("has_resolver", &self.resolver.is_some()).finish()
    }
}
