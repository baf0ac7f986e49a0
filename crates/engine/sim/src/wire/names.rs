use alloc::collections::BTreeMap;
use alloc::string::String;
use core::net::IpAddr;
use onion::node::{DnsAnswer, DnsQuery};

/// The DNS table of a wire.
#[derive(Debug, Default)]
pub(super) struct Names {
    addresses: BTreeMap<String, DnsAnswer>,
    names: BTreeMap<IpAddr, DnsAnswer>,
}

impl Names {
    pub(super) fn set(&mut self, question: DnsQuery, answer: DnsAnswer) {
        match question {
            DnsQuery::Addresses(name) => self.addresses.insert(name, answer),
            DnsQuery::Name(address) => self.names.insert(address, answer),
        };
    }

    /// Names that are not in it do not exist.
    pub(super) fn answer(&self, question: &DnsQuery) -> DnsAnswer {
        let known = match question {
            DnsQuery::Addresses(name) => self.addresses.get(name),
            DnsQuery::Name(address) => self.names.get(address),
        };
        known.cloned().unwrap_or(DnsAnswer::NoSuchName)
    }
}
