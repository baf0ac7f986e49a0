use alloc::collections::BTreeMap;
use alloc::string::String;
use core::net::IpAddr;
use onion::node::{Answer, Question};

/// The domain name system of a world.
#[derive(Debug, Default)]
pub(super) struct Names {
    addresses: BTreeMap<String, Answer>,
    names: BTreeMap<IpAddr, Answer>,
}

impl Names {
    pub(super) fn set(&mut self, question: Question, answer: Answer) {
        match question {
            Question::Addresses(name) => self.addresses.insert(name, answer),
            Question::Name(address) => self.names.insert(address, answer),
        };
    }

    /// What is not in the table does not exist.
    pub(super) fn answer(&self, question: &Question) -> Answer {
        let known = match question {
            Question::Addresses(name) => self.addresses.get(name),
            Question::Name(address) => self.names.get(address),
        };
        known.cloned().unwrap_or(Answer::NoSuchName)
    }
}
