//! TCP's retransmission timeouts (RFC 6298), with Linux' bounds, for both simulated TCPs.

/// The minimum RTO.
pub(crate) const RTO_MIN_NS: u64 = 200_000_000;

/// The maximum RTO after backoff.
pub(crate) const RTO_MAX_NS: u64 = 60_000_000_000;

/// The RTO until a round-trip time is known (RFC 6298 §2.1).
pub(crate) const RTO_INITIAL_NS: u64 = 1_000_000_000;
