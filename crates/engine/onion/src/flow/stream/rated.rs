//! XON and XOFF.

use super::StreamSignal;
use crate::cell::msg::Xon;
use crate::cell::relay::MAX_DATA_LEN;
use crate::flow::TokenBucket;
use crate::flow::error::FlowError;
use crate::rate::Rate;
use crate::time::{Duration, Instant};

/// Data bytes of a relay cell of any format; tor counts XOFF's limit in these.
const DATA_LEN_MIN: usize = 488;

/// The time for the edge to absorb a burst before it counts as slow, as in tor.
const XOFF_GRACE: Duration = Duration::from_millis(5);

/// The number of cells that may be buffered without the edge being slow: they arrive at once.
const BURST_CELLS: usize = 32;

/// The rates that tor treats as "no limit".
const RATE_MAX_BYTE_PER_S: u64 = i32::MAX as u64;

/// When XOFF and XON are sent (proposal 324 §6.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XonXoffParams {
    /// The buffer length above which XOFF is sent: `cc_xoff_exit` or `cc_xoff_client`, in cells.
    pub xoff_cells: u16,
    /// The amount drained for a new estimate of the rate: `cc_xon_rate`, in cells.
    pub xon_rate_cells: u16,
    /// The change of the rate that causes a new XON: `cc_xon_change_pct`.
    pub change_percent: u8,
    /// The number of estimates in the average: `cc_xon_ewma_cnt`.
    pub average_count: u8,
}

impl Default for XonXoffParams {
    fn default() -> Self {
        Self { xoff_cells: 500, xon_rate_cells: 500, change_percent: 25, average_count: 2 }
    }
}

impl XonXoffParams {
    const fn xoff_bytes(self) -> usize {
        self.xoff_cells as usize * DATA_LEN_MIN
    }

    const fn xon_rate_bytes(self) -> u64 {
        self.xon_rate_cells as u64 * MAX_DATA_LEN as u64
    }
}

/// The flow control of a stream on a circuit with congestion control (proposal 324 §4).
#[derive(Clone, Debug)]
pub struct XonXoff {
    params: XonXoffParams,
    /// The peer has stopped this end.
    is_stopped: bool,
    /// Enforces the advised rate, if there is one.
    advised: Option<TokenBucket>,
    /// This end has stopped the peer.
    has_stopped_peer: bool,
    /// Since when the buffer exceeds XOFF's limit.
    grace_began: Option<Instant>,
    drain: Drain,
    /// The rate in the last XON that was sent.
    advised_kbyte_per_s: u32,
    signal: Option<StreamSignal>,
}

/// The rate at which the edge drains the buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Drain {
    /// Since when the buffer has not been empty.
    began: Option<Instant>,
    /// Bytes drained since then, or since the last estimate.
    bytes: u64,
    /// The average of the estimates; zero for none yet.
    average_kbyte_per_s: u32,
}

impl XonXoff {
    /// The flow control of a new stream.
    #[must_use]
    pub const fn new(params: XonXoffParams) -> Self {
        Self {
            params,
            is_stopped: false,
            advised: None,
            has_stopped_peer: false,
            grace_began: None,
            drain: Drain { began: None, bytes: 0, average_kbyte_per_s: 0 },
            advised_kbyte_per_s: 0,
            signal: None,
        }
    }

    /// Whether the peer has stopped this end.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Bytes that may be read from the edge now.
    #[must_use]
    pub fn room_bytes(&mut self, now: Instant) -> u64 {
        if self.is_stopped {
            return 0;
        }
        self.advised.as_mut().map_or(u64::MAX, |bucket| bucket.available_bytes(now))
    }

    /// When `bytes` may be read, if only the advised rate prevents it now.
    #[must_use]
    pub fn has_room_at(&self, bytes: u64) -> Option<Instant> {
        if self.is_stopped {
            return None;
        }
        Some(self.advised.as_ref()?.available_at(bytes))
    }

    /// Bytes from the edge were packaged.
    pub const fn handle_packaged(&mut self, bytes: u64) {
        if let Some(bucket) = &mut self.advised {
            bucket.take(bytes);
        }
    }

    /// XOFF has arrived.
    ///
    /// # Errors
    /// If one had arrived before.
    pub const fn handle_xoff(&mut self) -> Result<(), FlowError> {
        if self.is_stopped {
            return Err(FlowError::RepeatedXoff);
        }
        self.is_stopped = true;
        Ok(())
    }

    /// XON has arrived.
    pub fn handle_xon(&mut self, now: Instant, xon: Xon) {
        self.is_stopped = false;
        let byte_per_s = u64::from(xon.advised_kbyte_per_s) * 1000;
        self.advised = (1..=RATE_MAX_BYTE_PER_S).contains(&byte_per_s).then(|| {
            let rate = Rate::from_byte_per_s(byte_per_s);
            // One second of data, as in tor's bucket.
            TokenBucket::new(rate, Duration::from_secs(1), MAX_DATA_LEN as u64, now)
        });
    }

    /// A DATA cell has arrived; `buffered_bytes` now wait for the edge.
    pub fn handle_delivered(&mut self, now: Instant, buffered_bytes: usize) {
        if buffered_bytes <= self.params.xoff_bytes() {
            self.grace_began = None;
        } else if !self.has_stopped_peer {
            let began = *self.grace_began.get_or_insert(now);
            if now - began > XOFF_GRACE {
                self.grace_began = None;
                self.has_stopped_peer = true;
                self.signal = Some(StreamSignal::Xoff);
                // The earlier estimates led to this: they were too high.
                self.drain.average_kbyte_per_s = 0;
            }
        }
        if buffered_bytes > BURST_CELLS * DATA_LEN_MIN {
            self.handle_drained(now, 0, buffered_bytes);
        }
    }

    /// `drained_bytes` were written to the edge, and `buffered_bytes` remain.
    pub fn handle_drained(&mut self, now: Instant, drained_bytes: usize, buffered_bytes: usize) {
        let is_empty = buffered_bytes == 0;
        self.drain.bytes = self.drain.bytes.saturating_add(drained_bytes as u64);
        if self.drain.began.is_none() && !is_empty {
            self.drain.began = Some(now);
            self.drain.bytes = 0;
        }
        self.drain.estimate(now, self.params);

        if self.has_stopped_peer {
            if is_empty {
                self.report();
            }
        } else if self.has_rate_changed() {
            self.report();
        }

        if is_empty {
            self.drain.began = None;
            // The edge has drained a large buffer completely: it could take more than the advised rate.
            if self.drain.bytes >= self.params.xon_rate_bytes() && self.advised_kbyte_per_s > 0 {
                let doubled = self.drain.average_kbyte_per_s.saturating_mul(2);
                self.drain.average_kbyte_per_s = doubled.min(i32::MAX.unsigned_abs());
                self.drain.bytes = 0;
            }
        }
    }

    /// The XOFF or XON to send now.
    pub const fn poll_signal(&mut self) -> Option<StreamSignal> {
        self.signal.take()
    }

    /// Sends XON with the estimated rate.
    fn report(&mut self) {
        let advised_kbyte_per_s = self.drain.average_kbyte_per_s;
        self.advised_kbyte_per_s = advised_kbyte_per_s;
        self.has_stopped_peer = false;
        self.signal = Some(StreamSignal::Xon(Xon { advised_kbyte_per_s }));
    }

    /// Whether the rate differs from the advised one.
    fn has_rate_changed(&self) -> bool {
        let (advised, percent) = (u64::from(self.advised_kbyte_per_s), self.params.change_percent);
        let percent = u64::from(percent.min(99));
        let average = u64::from(self.drain.average_kbyte_per_s);
        advised > 0
            && (average > (100 + percent) * advised / 100
                || average < (100 - percent) * advised / 100)
    }
}

impl Drain {
    /// Adds an estimate once enough has drained without a pause.
    fn estimate(&mut self, now: Instant, params: XonXoffParams) {
        let Some(began) = self.began else { return };
        let time_us = (now - began).as_micros();
        if self.bytes <= params.xon_rate_bytes() || time_us == 0 {
            return;
        }
        // Bytes per microsecond, times 1,000: kB/s.
        let rate = u128::from(self.bytes) * 1000 / time_us;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX).clamp(1, RATE_MAX_BYTE_PER_S);
        let count = u64::from(params.average_count.max(1));
        let average = match u64::from(self.average_kbyte_per_s) {
            0 => rate,
            before => (2 * rate + (count - 1) * before) / (count + 1),
        };
        self.average_kbyte_per_s = u32::try_from(average).unwrap_or(u32::MAX);
        self.bytes = 0;
        self.began = None;
    }
}
