//! The messages that an exit has sent on a set, and the data that a program may receive from them. It shares no code with
//! the engine.

use onion::cell::relay::RelayCommand;
use std::collections::{BTreeMap, BTreeSet};

/// The messages with each sequence number, as the client counts; some numbers have more than one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript {
    stream: u16,
    /// The number of the stream's first message.
    first: u64,
    messages: BTreeMap<u64, Vec<Vec<u8>>>,
}

impl Transcript {
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

    /// All data, if the exit followed the protocol.
    pub(crate) fn whole(&self) -> Vec<u8> {
        self.messages.values().flat_map(|all| all.first().cloned().unwrap_or_default()).collect()
    }

    /// Whether a program may have received these bytes: the data of the messages from the first one on, each once and in
    /// order, and nothing else.
    pub(crate) fn permits(&self, got: &[u8]) -> bool {
        // The client may have accepted any of several messages with one number: all possible positions.
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
