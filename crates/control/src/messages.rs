//! What goes over a session, as Protocol Buffers: plain structures whose tags are the format.
//!
//! ```proto
//! service Measurer { rpc Session(stream FromCoordinator) returns (stream FromMeasurer); }
//! ```
//!
//! Times are relative, in nanoseconds: the two clocks need not agree. Fields that are unknown are
//! skipped, so that the format can grow; a change of meaning changes the package's name,
//! `flashflow.control.v1`. What a message may hold is checked in `convert`.

/// No message is longer, either way. The longest honest one has some 700 bytes.
pub(crate) const MESSAGE_MAX_BYTES: usize = 8192;

/// Coordinator to measurer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FromCoordinator {
    /// Which round is meant. The coordinator counts its rounds in a session, beginning with 1; a number
    /// never comes back.
    #[prost(uint64, tag = "1")]
    pub measurement: u64,
    /// What to do.
    #[prost(oneof = "Instruction", tags = "2, 3, 4")]
    pub order: Option<Instruction>,
}

/// What a coordinator wants.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Instruction {
    /// Open sockets and circuits, and send nothing yet.
    #[prost(message, tag = "2")]
    Prepare(Prepare),
    /// Send.
    #[prost(message, tag = "3")]
    Start(Start),
    /// End the round; harmless if it has ended.
    #[prost(message, tag = "4")]
    Stop(Stop),
}

/// A [`measurer::member::RoundOrder`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Prepare {
    /// The target's IP address: 4 or 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub address: Vec<u8>,
    /// Its port, 1 to 65,535.
    #[prost(uint32, tag = "2")]
    pub port: u32,
    /// SHA-1 of its RSA identity key: 20 bytes.
    #[prost(bytes = "vec", tag = "3")]
    pub rsa_id: Vec<u8>,
    /// Its Ed25519 identity: 32 bytes, or absent where unknown.
    #[prost(bytes = "vec", optional, tag = "4")]
    pub ed25519_id: Option<Vec<u8>>,
    /// How cells come back.
    #[prost(oneof = "WayBack", tags = "5, 6")]
    pub way_back: Option<WayBack>,
    /// What the target lets one address do.
    #[prost(message, optional, tag = "7")]
    pub defences: Option<Defences>,
    /// Sockets to the target, 1 to 10,000.
    #[prost(uint32, tag = "8")]
    pub sockets: u32,
    /// What to send at most; not zero.
    #[prost(uint64, tag = "9")]
    pub rate_bit_per_s: u64,
    /// Length of the round, 1 to 600.
    #[prost(uint32, tag = "10")]
    pub seconds: u32,
    /// One cell in so many is checked; not zero.
    #[prost(uint32, tag = "11")]
    pub check_one_in: u32,
    /// Round trip to the target, where known.
    #[prost(uint64, optional, tag = "12")]
    pub rtt_ns: Option<u64>,
    /// Measurers at this one's address, 1 to 1000.
    #[prost(uint32, tag = "13")]
    pub sharing: u32,
    /// Time for opening sockets and circuits, an hour at most.
    #[prost(uint64, tag = "14")]
    pub setup_timeout_ns: u64,
    /// Longest silence of the target, an hour at most.
    #[prost(uint64, tag = "15")]
    pub stall_timeout_ns: u64,
    /// The second with which every other socket begins, below `seconds`; absent if all begin at once.
    #[prost(uint32, optional, tag = "16")]
    pub held_back_s: Option<u32>,
}

/// How cells come back from the target.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum WayBack {
    /// Through it, to the measurer's own second hops.
    #[prost(message, tag = "5")]
    Transit(Transit),
    /// On the circuits that they came on.
    #[prost(message, tag = "6")]
    Echo(Echo),
}

/// Transit.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Transit {
    /// Links authenticate as a relay's even where nothing is gained by it.
    #[prost(bool, tag = "1")]
    pub always_authenticate: bool,
}

/// Echo.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Echo {
    /// Of the order that the target has accepted: 32 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub nonce: Vec<u8>,
}

/// A [`measurer::Defences`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Defences {
    /// Cells in a circuit's queue at which the target kills the circuit, at least 50.
    #[prost(uint32, tag = "1")]
    pub queue_limit_cells: u32,
    /// Connections of one address, where limited.
    #[prost(uint32, optional, tag = "2")]
    pub max_connections: Option<u32>,
    /// Connections at once, after a pause.
    #[prost(uint32, tag = "3")]
    pub connect_burst: u32,
    /// Connections per second; not zero.
    #[prost(uint32, tag = "4")]
    pub connect_per_s: u32,
    /// Clients' circuits of one address, where limited.
    #[prost(uint32, optional, tag = "5")]
    pub max_client_circuits: Option<u32>,
}

/// The start of a round.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Start {
    /// From the arrival of this message, a minute at most.
    #[prost(uint64, tag = "1")]
    pub delay_ns: u64,
}

/// The end of a round.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Stop {}

/// Measurer to coordinator.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FromMeasurer {
    /// Which round is meant; 0 for none.
    #[prost(uint64, tag = "1")]
    pub measurement: u64,
    /// What there is to tell.
    #[prost(oneof = "Word", tags = "2, 3, 4, 5, 6, 7")]
    pub word: Option<Word>,
}

/// What a measurer tells.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Word {
    /// The session stands; its first message.
    #[prost(message, tag = "2")]
    Hello(Hello),
    /// Sockets and circuits stand.
    #[prost(message, tag = "3")]
    Ready(Ready),
    /// A second is over.
    #[prost(message, tag = "4")]
    Second(Second),
    /// How busy it was.
    #[prost(message, tag = "5")]
    Load(Load),
    /// The round has ended without a result.
    #[prost(message, tag = "6")]
    Failed(Failed),
    /// An order is not obeyed.
    #[prost(message, tag = "7")]
    Refused(Refused),
}

/// The first message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// What the measurer can send and receive over all its rounds.
    #[prost(uint64, tag = "1")]
    pub capacity_bit_per_s: u64,
    /// Its version of FlashFlow.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Rounds that it does at once at most, of all coordinators. Measurers of before do not say.
    #[prost(uint32, optional, tag = "3")]
    pub rounds_max: Option<u32>,
    /// Sockets to relays that it has room for, over all its rounds. Measurers of before do not say.
    #[prost(uint32, optional, tag = "4")]
    pub sockets_max: Option<u32>,
}

/// Ready to start.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Ready {
    /// Sockets that work.
    #[prost(uint32, tag = "1")]
    pub sockets: u32,
}

/// An [`onion::measure::Second`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Second {
    /// From zero.
    #[prost(uint32, tag = "1")]
    pub index: u32,
    /// Bytes of cells that came back.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// Cells whose content was checked.
    #[prost(uint64, tag = "3")]
    pub checked_cells: u64,
    /// What the kernels say of its sockets, where they do. Measurers of before do not know of it.
    #[prost(message, optional, tag = "4")]
    pub account: Option<Account>,
}

/// A [`coordinator::Account`]: what the kernels say of the sockets in a second. Times are summed over
/// sockets or pumps as there, and so are at most 100,000 hours.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Account {
    /// Time that it is of, an hour at most.
    #[prost(uint64, tag = "1")]
    pub elapsed_ns: u64,
    /// The same, for each pump.
    #[prost(uint64, tag = "2")]
    pub pump_time_ns: u64,
    /// The same, for each socket.
    #[prost(uint64, tag = "3")]
    pub socket_time_ns: u64,
    /// Sockets, 1 to 100,000.
    #[prost(uint32, tag = "4")]
    pub sockets: u32,
    /// With data under way or waiting.
    #[prost(uint64, tag = "5")]
    pub busy_ns: u64,
    /// Held back by the relay's receive window.
    #[prost(uint64, tag = "6")]
    pub peer_window_ns: u64,
    /// Held back by the own send buffer.
    #[prost(uint64, tag = "7")]
    pub send_buffer_ns: u64,
    /// With less to send than the congestion window allowed.
    #[prost(uint64, tag = "8")]
    pub app_limited_ns: u64,
    /// Bytes sent for the first time.
    #[prost(uint64, tag = "9")]
    pub sent_bytes: u64,
    /// Bytes sent again.
    #[prost(uint64, tag = "10")]
    pub retransmitted_bytes: u64,
    /// Bytes not sent yet.
    #[prost(uint64, tag = "11")]
    pub unsent_bytes: u64,
    /// Bytes sent and not acknowledged.
    #[prost(uint64, tag = "12")]
    pub unacked_bytes: u64,
    /// Bytes of cells sent and not come back.
    #[prost(uint64, tag = "13")]
    pub outstanding_bytes: u64,
    /// The least round trip, where known; an hour at most, as the next.
    #[prost(uint64, optional, tag = "14")]
    pub least_rtt_ns: Option<u64>,
    /// The mean round trip, where known.
    #[prost(uint64, optional, tag = "15")]
    pub mean_rtt_ns: Option<u64>,
    /// Segments with data that came back.
    #[prost(uint64, tag = "16")]
    pub received_segments: u64,
    /// Packets that came back out of order.
    #[prost(uint64, tag = "17")]
    pub out_of_order_packets: u64,
    /// Held back by the assigned rate.
    #[prost(uint64, tag = "18")]
    pub throttled_ns: u64,
    /// Time that its busiest thread ran or was ready to run.
    #[prost(uint64, tag = "19")]
    pub busiest_ns: u64,
    /// For how long nothing had come back, an hour at most, as the next. Measurers of before say nothing of either.
    #[prost(uint64, tag = "20")]
    pub silent_ns: u64,
    /// After how much of that the relay's host was in reach for the rest.
    #[prost(uint64, optional, tag = "21")]
    pub answered_after_ns: Option<u64>,
}

/// A [`measurer::WorkerLoad`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Load {
    /// Processor time.
    #[prost(uint64, tag = "1")]
    pub cpu_ns: u64,
    /// Time waited for a processor.
    #[prost(uint64, tag = "2")]
    pub waited_ns: u64,
    /// Time spent sending.
    #[prost(uint64, tag = "3")]
    pub wall_ns: u64,
    /// Bytes sent.
    #[prost(uint64, tag = "4")]
    pub sent_bytes: u64,
    /// TLS records sent.
    #[prost(uint64, tag = "5")]
    pub sent_records: u64,
    /// Bytes received.
    #[prost(uint64, tag = "6")]
    pub received_bytes: u64,
    /// TLS records received.
    #[prost(uint64, tag = "7")]
    pub received_records: u64,
    /// Processor time and waiting of its busiest thread.
    #[prost(uint64, tag = "8")]
    pub busiest_ns: u64,
}

/// The end of a round without a result.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Failed {
    /// A [`measurer::member::FailureKind`], numbered from 1 in its order, which new ones end.
    #[prost(uint32, tag = "1")]
    pub kind: u32,
    /// What happened.
    #[prost(string, tag = "2")]
    pub detail: String,
}

/// An order that is not obeyed. The session goes on, and so do its other rounds.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Refused {
    /// A [`RefusalCode`](crate::RefusalCode).
    #[prost(uint32, tag = "1")]
    pub code: u32,
    /// Why, in words.
    #[prost(string, tag = "2")]
    pub reason: String,
}
