//! What an exit has said on a set, and what a program may have had of it: an account of its own, that shares no code with the engine.

use onion::cell::relay::RelayCommand;
use std::collections::{BTreeMap, BTreeSet};

/// What was said under each number, by the client's count; under some more than one thing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    stream: u16,
    /// The number of the stream's first message.
    first: u64,
    messages: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Said {
    /// A stream begins after this number of messages of others.
    pub(crate) fn begin(&mut self, stream: u16, before: u64) {
        (self.stream, self.first) = (stream, before + 1);
        self.messages.clear();
    }

    pub(crate) fn note(&mut self, number: u64, stream: u16, command: RelayCommand, data: &[u8]) {
        let is_data = command == RelayCommand::DATA && stream == self.stream;
        let data = if is_data { data.to_vec() } else { Vec::new() };
        self.messages.entry(number).or_default().push(data);
    }

    /// All that was said, if it was said as the protocol has it.
    pub(crate) fn whole(&self) -> Vec<u8> {
        self.messages.values().flat_map(|all| all.first().cloned().unwrap_or_default()).collect()
    }

    /// Whether a program that has had these bytes has had what was said, from the first message on, each once and in their order, and
    /// nothing else.
    pub(crate) fn may_have_given(&self, got: &[u8]) -> bool {
        // Where under each number one of several things may have been believed: the places where it may be.
        let mut places = BTreeSet::from([0]);
        for number in self.first.. {
            if places.contains(&got.len()) {
                return true;
            }
            let Some(all) = self.messages.get(&number) else { return false };
            let after = |place: &usize| {
                let (place, rest) = (*place, &got[*place..]);
                let fits = move |data: &&Vec<u8>| rest.starts_with(data) || data.starts_with(rest);
                all.iter().filter(fits).map(move |data| (place + data.len()).min(got.len()))
            };
            places = places.iter().flat_map(after).collect();
        }
        false
    }
}
