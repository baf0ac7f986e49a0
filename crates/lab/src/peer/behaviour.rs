use onion::identity::OwnIdentity;
use std::num::NonZeroU64;
use std::sync::Arc;

/// How a [`Peer`](super::Peer) treats those who measure it.
///
/// "Cells" are the relay cells that it passes on from the one who built the circuit to the next hop;
/// "every n-th" counts on each circuit, "after n" counts all of them.
#[derive(Clone, Debug)]
pub enum Behaviour {
    /// As tor, as far as transit goes; a lost next hop is told by TRUNCATED, where tor 0.4.9 destroys.
    Honest,
    /// Saves itself the decryption and passes cells on as they came: more cells for the same CPU.
    SkipsDecryption,
    /// Does not wait for cells: makes up random ones and sends them to the next hop, this many ahead
    /// of those that it has received. So it hides a slow way in.
    AnswersEarly {
        /// Made-up cells that it is ahead.
        lead_cells: u32,
    },
    /// Replaces this share of the cells by random bytes: saves the work on some, in the hope that
    /// others are checked.
    Forges {
        /// Chance of each cell to be replaced, from 0 to 1.
        share: f64,
    },
    /// Sends every n-th cell twice: one cell more for no reception and no work.
    Duplicates(NonZeroU64),
    /// Sends the cell before again in place of every n-th one: a forgery that looks like a cell.
    Replays(NonZeroU64),
    /// Swaps every n-th cell with the one after.
    Reorders(NonZeroU64),
    /// Does not send every n-th cell: a queue that overflows.
    Drops(NonZeroU64),
    /// Flips one bit in every n-th cell.
    Alters(NonZeroU64),
    /// After n cells neither reads nor sends anything, and keeps its connections.
    Stalls(u64),
    /// After n cells closes all its connections.
    Closes(u64),
    /// After n cells destroys all circuits, as a relay whose memory is full (reason 5).
    DestroysCircuits(u64),
    /// Proves another identity than the one that is dialled: an impostor, or a wrong address.
    WrongIdentity(Arc<OwnIdentity>),
    /// Answers EXTEND2 with DESTROY, reason 6: as if the next hop could not be reached.
    RefusesExtend,
    /// Passes cells on as tor does, and carries a stranger who, every n cells, asks the next hop in
    /// vain for a circuit over the same connection.
    CarriesStranger(NonZeroU64),
    /// Accepts the connection and TLS, and never says a word.
    NeverAnswers,
}
