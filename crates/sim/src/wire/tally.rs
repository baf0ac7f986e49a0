use super::{NodeId, Wire};

/// What a node's connections have carried, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes that were taken from the node since the beginning.
    pub sent_bytes: u64,
    /// Bytes that it was given since the beginning.
    pub received_bytes: u64,
    /// Bytes in the send buffers of its connections over paths with a model: what was not sent yet or
    /// not acknowledged. A kernel holds them.
    pub buffered_bytes: u64,
}

impl Wire {
    /// What a node's connections have carried.
    #[must_use]
    pub fn tally(&self, node: NodeId) -> Tally {
        let resident = &self.residents[node.0];
        let ends =
            resident.conns.values().filter_map(|(link, side)| self.links.get(link)?.end(*side));
        let buffered = ends.filter_map(|end| end.tcp.as_ref()).map(|it| it.sender.buffered_bytes());
        Tally {
            sent_bytes: resident.sent_bytes,
            received_bytes: resident.received_bytes,
            buffered_bytes: buffered.sum(),
        }
    }
}
