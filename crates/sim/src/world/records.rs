use super::message::HostId;
use onion::{Duration, Instant};

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All has come.
    Complete,
    /// Not all had come in time.
    TimedOut,
    /// No circuit carried it: those that were tried are gone.
    Lost,
    /// Not yet: it was under way when the world ended.
    UnderWay,
}

/// A transfer that is over, or was under way at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The client.
    pub client: HostId,
    /// Its size by the place in the list of a [`Fetch`](super::Fetch); `None` if the packet model made it.
    pub size: Option<u8>,
    /// The place of a scanner's probe in its list; `None` of all others.
    pub probe: Option<u32>,
    /// Bytes that came to the client.
    pub bytes: u64,
    /// When it was asked for: before there was a circuit, perhaps.
    pub begun: Instant,
    /// From there to the first byte.
    pub first_byte: Option<Duration>,
    /// And to the last.
    pub last_byte: Option<Duration>,
    /// How it ended.
    pub ending: Ending,
}
