//! Questions to the domain name system: asked on the driver's thread, answered on any other.

use super::options::Remote;
use onion::node::{DnsAnswer, DnsQuery, Lookup, LookupId};
use std::fmt;
use std::sync::mpsc::{self, Receiver, Sender};

/// Who answers a driver's questions to the domain name system.
pub trait Resolver: Send {
    /// Begins to look for an answer. Called on the driver's thread: it may not block.
    fn ask(&mut self, question: DnsQuery, reply: Reply);
}

/// Where the answer to one question goes. Dropped without one, it says [`DnsAnswer::Failed`].
#[derive(Debug)]
pub struct Reply {
    id: LookupId,
    /// Taken by the answer.
    to: Option<(Sender<(LookupId, DnsAnswer)>, Remote)>,
}

impl Reply {
    /// Tells the node; its driver wakes for it.
    pub fn answer(mut self, answer: DnsAnswer) {
        self.send(answer);
    }

    fn send(&mut self, answer: DnsAnswer) {
        if let Some((answers, remote)) = self.to.take() {
            // A driver that has ended wants no answer.
            let _ = answers.send((self.id, answer));
            remote.wake();
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.send(DnsAnswer::Failed);
    }
}

/// A driver's questions and answers.
pub(crate) struct Lookups {
    resolver: Option<Box<dyn Resolver>>,
    answers: Receiver<(LookupId, DnsAnswer)>,
    sender: Sender<(LookupId, DnsAnswer)>,
}

impl Lookups {
    /// Without anybody to ask.
    pub(crate) fn new() -> Self {
        let (sender, answers) = mpsc::channel();
        Self { resolver: None, answers, sender }
    }

    pub(crate) fn set_resolver(&mut self, resolver: Box<dyn Resolver>) {
        self.resolver = Some(resolver);
    }

    /// Asks. Without a resolver the answer is that there is none.
    pub(crate) fn ask(&mut self, lookup: Lookup, remote: Remote) {
        let reply = Reply { id: lookup.id, to: Some((self.sender.clone(), remote)) };
        if let Some(resolver) = &mut self.resolver {
            resolver.ask(lookup.question, reply);
        }
    }

    /// The next answer that has come.
    pub(crate) fn poll_answer(&self) -> Option<(LookupId, DnsAnswer)> {
        self.answers.try_recv().ok()
    }
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lookups").field("has_resolver", &self.resolver.is_some()).finish()
    }
}
