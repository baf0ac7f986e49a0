use super::{NodeId, Wire};

/// The traffic of all connections of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes taken from the node so far.
    pub sent_bytes: u64,
    /// Bytes given to the node so far.
    pub received_bytes: u64,
    /// Bytes in the send buffers of its connections over paths with a model: unsent or unacknowledged, in the
    /// kernel's memory.
    pub buffered_bytes: u64,
}

impl Wire {
    /// The traffic of a node's connections.
    #[must_use]
    pub fn tally(&self, node: NodeId) -> Tally {
        let resident = &self.residents[node.0];
        let ends =
            resident.conns.values().filter_map(|(link, side)| self.links.get(link)?.end(*side));
        let buffered =
            ends.filter_map(|end| end.tcp.as_ref()).map(|tcp| tcp.sender.buffered_bytes());
        Tally {
            sent_bytes: resident.sent_bytes,
            received_bytes: resident.received_bytes,
            buffered_bytes: buffered.sum(),
        }
    }
}
