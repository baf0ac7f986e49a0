//! What the kernels say of a measurer's sockets, on its way.

use super::{MessageError, nanos, time, within};
use crate::messages;
use coordinator::Account;
use onion::Duration;

const SOCKETS_MAX: u32 = 100_000;
/// The longest time of a single socket or pump, and the longest round trip.
const LONGEST: Duration = Duration::from_secs(3600);

impl From<&Account> for messages::Account {
    fn from(account: &Account) -> Self {
        Self {
            elapsed_ns: nanos(account.elapsed),
            pump_time_ns: nanos(account.pump_time),
            socket_time_ns: nanos(account.socket_time),
            sockets: account.sockets,
            busy_ns: nanos(account.busy),
            peer_window_ns: nanos(account.peer_window),
            send_buffer_ns: nanos(account.send_buffer),
            app_limited_ns: nanos(account.app_limited),
            sent_bytes: account.sent_bytes,
            retransmitted_bytes: account.retransmitted_bytes,
            unsent_bytes: account.unsent_bytes,
            unacked_bytes: account.unacked_bytes,
            outstanding_bytes: account.outstanding_bytes,
            least_rtt_ns: account.least_rtt.map(nanos),
            mean_rtt_ns: account.mean_rtt.map(nanos),
            received_segments: account.received_segments,
            out_of_order_packets: account.out_of_order_packets,
            throttled_ns: nanos(account.throttled),
            busiest_ns: nanos(account.busiest),
            silent_ns: nanos(account.silent),
            answered_after_ns: account.answered_after.map(nanos),
        }
    }
}

impl TryFrom<messages::Account> for Account {
    type Error = MessageError;

    fn try_from(message: messages::Account) -> Result<Self, MessageError> {
        let single = |field, nanos| time(field, nanos, Duration::ZERO..=LONGEST);
        let summed = |field, nanos| time(field, nanos, Duration::ZERO..=LONGEST * SOCKETS_MAX);
        let optional =
            |field, nanos: Option<u64>| nanos.map(|nanos| single(field, nanos)).transpose();
        Ok(Self {
            elapsed: single("elapsed time", message.elapsed_ns)?,
            pump_time: summed("pumps' time", message.pump_time_ns)?,
            socket_time: summed("sockets' time", message.socket_time_ns)?,
            sockets: within("sockets", message.sockets, 0..=SOCKETS_MAX)?,
            busy: summed("busy time", message.busy_ns)?,
            peer_window: summed("time without a window", message.peer_window_ns)?,
            send_buffer: summed("time without a buffer", message.send_buffer_ns)?,
            app_limited: summed("time with little to send", message.app_limited_ns)?,
            sent_bytes: message.sent_bytes,
            retransmitted_bytes: message.retransmitted_bytes,
            unsent_bytes: message.unsent_bytes,
            unacked_bytes: message.unacked_bytes,
            outstanding_bytes: message.outstanding_bytes,
            least_rtt: optional("least round trip", message.least_rtt_ns)?,
            mean_rtt: optional("mean round trip", message.mean_rtt_ns)?,
            received_segments: message.received_segments,
            out_of_order_packets: message.out_of_order_packets,
            throttled: summed("throttled time", message.throttled_ns)?,
            busiest: single("time of the busiest thread", message.busiest_ns)?,
            silent: single("silence", message.silent_ns)?,
            answered_after: optional("time until an answer", message.answered_after_ns)?,
        })
    }
}
