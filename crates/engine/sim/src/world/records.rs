use super::message::HostId;
use alloc::vec::Vec;
use onion::{Duration, Instant};

/// How a transfer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It completed.
    Complete,
    /// It did not complete in time.
    TimedOut,
    /// All circuits that were tried are lost.
    Lost,
    /// It was running when the world ended.
    UnderWay,
}

/// A transfer that has ended, or was running at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The client.
    pub client: HostId,
    /// Its size as the index in the list of a [`Fetch`](super::Fetch); `None` for the packet model.
    pub size: Option<u8>,
    /// The index of a scanner's probe in its list; `None` for all others.
    pub probe: Option<u32>,
    /// Bytes received by the client.
    pub bytes: u64,
    /// When it was requested: possibly before there was a circuit.
    pub begun: Instant,
    /// From there to the first byte.
    pub first_byte: Option<Duration>,
    /// From there to the last byte.
    pub last_byte: Option<Duration>,
    /// How it ended.
    pub ending: Ending,
}

/// The measurements of a scanner's open circuit. Its download is a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitTimes {
    /// The scanner.
    pub client: HostId,
    /// The index of the probe in its list.
    pub probe: u32,
    /// The time to open the link to the first hop.
    pub link_time: Duration,
    /// The time from the circuit's first cell to each hop's answer.
    pub hop_times: Vec<Duration>,
    /// Round trips, in the order of [`Probe::round_trips`](super::Probe::round_trips); fewer if the circuit was lost or the time is over.
    pub round_trips: Vec<Duration>,
}
