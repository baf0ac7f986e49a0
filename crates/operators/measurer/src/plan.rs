use coordinator::period::{ProbeAnswer, RTT_TIMEOUT};
use coordinator::{Defences, RESERVED_FOR_OTHERS, RoundMode, RoundOrder, few_sockets, is_local};
use link::Clock;
use onion::cell::CELL_LEN;
use onion::measure::load::Pace;
use onion::{Duration, Instant, Rate};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;

/// The length of the queue at the relay that the windows must sustain at the assigned rate, which is more than twice the
/// relay's rate. A relay that limits its rate refills its buckets every tenth of a second by default, and its queue must
/// not be empty then.
const STANDING_QUEUE: Duration = Duration::from_millis(120);

/// The maximum number of circuits for that queue, whatever the rate. A relay that is limited by its processor needs no
/// queue, and each circuit slows it down.
const CIRCUITS_FOR_QUEUE_MAX: u32 = 24;

/// The number of circuits, over all measurers of an address, that give a measurement its share of a relay that others use.
///
/// Tor's scheduler serves the circuit next that has sent least (EWMA), over all links with KIST, if the relay's processor
/// or its own link limits it: *K* circuits that always have cells get *K*/(*K*+*N*) of what *N* other such circuits leave
/// the relay. (A rate limit is divided among links: [`few_sockets`].) 128 get 0.9 against 14, a half against
/// 128, and a tenth against 1,152. They are also new: with a half-life of 30 s, the counts of *N* circuits that have
/// downloaded all day are reached only after *t*, where *t*·e^(*t*/43 s) = *K*/*N*·43 s. So against 64 of them the
/// measurement gets all of the relay for 35 s, and against 400 for 11 s.
const CIRCUITS_FOR_SHARE: u32 = 128;

/// The queue of a slow relay that the smallest windows of all circuits may make up.
const SMALLEST_QUEUE: Duration = Duration::from_millis(500);

/// The smallest window of a circuit, in cells.
const SMALLEST_WINDOW_CELLS: u64 = 16;

/// Few circuits carry the load of a relay that is as fast as expected. The assigned rate is about three times that.
const EXPECTED_SHARE: f64 = 1.0 / 3.0;

/// Maximum number of circuits on one socket.
const CIRCUITS_PER_SOCKET_MAX: u32 = 16;

/// Maximum number of sockets to a target on a public address, whatever the order: that of the paper's measurers. The
/// opt-in list names relays by identity, which a target proves only over a connection. Until then it may be a third party
/// that a coordinator has named.
const PUBLIC_SOCKETS_MAX: u32 = 160;

/// The maximum rate at which these are opened, which tor's defences permit by default.
const PUBLIC_PACE: Pace = Pace { burst: 20, per_s: NonZeroU32::new(15).unwrap() };

/// The number of circuits whose windows together hold the cells of `time` at `rate`.
fn circuits_holding(defences: &Defences, rate: Rate, time: Duration) -> u32 {
    let window_bytes = u64::from(defences.window_cap_cells()) * CELL_LEN as u64;
    u32::try_from(rate.bytes_in(time).div_ceil(window_bytes)).unwrap_or(u32::MAX)
}

/// The number of circuits for the cells in flight and for the queue.
fn circuits_for(defences: &Defences, rate: Rate, cell_delay: Duration) -> u32 {
    let queue = circuits_holding(defences, rate, STANDING_QUEUE).min(CIRCUITS_FOR_QUEUE_MAX);
    circuits_holding(defences, rate, cell_delay).max(queue)
}

/// The number of circuits for a share of a relay that others use: no more than a slow relay can serve, and than leave a
/// quarter of what the relay's defence permits a client, for circuits that are retried.
fn circuits_for_share(order: &RoundOrder, most: Option<u32>) -> u32 {
    let cells = order.rate.bytes_in(SMALLEST_QUEUE) / CELL_LEN as u64;
    let slow = u32::try_from(cells / SMALLEST_WINDOW_CELLS).unwrap_or(u32::MAX);
    let most = most.map_or(u32::MAX, |most| most - most / 4);
    (CIRCUITS_FOR_SHARE.min(most) / order.sharing.max(1)).min(slow)
}

/// One measurer's sockets, and the circuits on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Sockets.
    pub sockets: u32,
    /// Circuits on each.
    pub circuits_per_socket: u32,
    /// On [few sockets](few_sockets), the circuits that carry the load of a relay that nobody else uses. The
    /// other circuits and sockets only give the measurement its share.
    pub few_per_socket: u32,
    /// Whether its links must authenticate as a relay's, so that the limit on clients' circuits does not apply.
    pub must_authenticate: bool,
    /// The number of circuits that it may retry: on links that do not authenticate, the relay's defence counts them, too.
    pub second_tries: u32,
    /// The rate at which it may open its sockets.
    pub pace: Pace,
    /// The number of sockets of the measurer's other pumps that come before its own.
    pub sockets_before: u32,
}

impl Load {
    /// Plans the load for an order, given the round trip to the target. Public addresses get no flood of connections,
    /// whatever the order.
    #[must_use]
    pub fn plan(order: &RoundOrder, rtt: Duration) -> Self {
        let defences = &order.defences;
        let is_public = !is_local(order.target.address.ip());
        let most = if is_public { PUBLIC_SOCKETS_MAX } else { u32::MAX };
        let sockets = order.sockets.clamp(1, most);
        let share = order.sharing.max(1);
        let per_socket =
            |circuits: u32| circuits.max(sockets).div_ceil(sockets).min(CIRCUITS_PER_SOCKET_MAX);
        let circuits_at = |rate| circuits_for(defences, rate, order.mode.cell_delay(rtt));
        let for_load = per_socket(circuits_at(order.rate));
        let few = circuits_at(order.rate.scaled(EXPECTED_SHARE)).max(few_sockets(sockets));
        let few_per_socket = few.div_ceil(few_sockets(sockets)).min(CIRCUITS_PER_SOCKET_MAX);
        let circuits_per_socket = match order.mode {
            RoundMode::Transit { always_authenticate } => {
                let allowed = defences
                    .max_client_circuits
                    .map(|circuits| circuits.saturating_sub(RESERVED_FOR_OTHERS));
                // A link that authenticates as a relay's is not limited.
                let of_load = sockets.saturating_mul(for_load).saturating_mul(share);
                let is_client =
                    !always_authenticate && allowed.is_none_or(|allowed| of_load <= allowed);
                let for_share = circuits_for_share(order, allowed.filter(|_| is_client));
                // Rounded down, so that the limit holds.
                for_load.max((for_share / sockets).min(CIRCUITS_PER_SOCKET_MAX))
            }
            // A participating relay serves the links of measurers in turn, whatever the number of their circuits.
            RoundMode::Echo { .. } => for_load,
        };
        let few_per_socket = few_per_socket.min(circuits_per_socket);
        let own_circuits = sockets.saturating_mul(circuits_per_socket);
        let (must_authenticate, second_tries, pace) = match order.mode {
            RoundMode::Transit { always_authenticate } => {
                let all_circuits = own_circuits.saturating_mul(share);
                let allowed = defences.max_client_circuits.map(|max_client_circuit| {
                    max_client_circuit.saturating_sub(RESERVED_FOR_OTHERS)
                });
                let is_too_many = allowed.is_some_and(|allowed| all_circuits > allowed);
                let must_authenticate = always_authenticate || is_too_many;
                let second_tries = match allowed {
                    Some(allowed) if !must_authenticate => {
                        own_circuits.min((allowed - all_circuits) / share)
                    }
                    _ => own_circuits,
                };
                (must_authenticate, second_tries, divided(defences.connect, share))
            }
            // The relay has agreed to this number of sockets.
            RoundMode::Echo { .. } => {
                let per_s = NonZeroU32::new(sockets).unwrap_or(NonZeroU32::MIN);
                (false, own_circuits, Pace { burst: sockets, per_s })
            }
        };
        let pace = if is_public { slower(pace, PUBLIC_PACE) } else { pace };
        Self {
            sockets,
            circuits_per_socket,
            few_per_socket,
            must_authenticate,
            second_tries,
            pace,
            sockets_before: 0,
        }
    }

    /// The number of pumps. Each opens at least one socket, and at least one per second, so more pumps would exceed the
    /// pace towards a public address.
    pub(crate) fn pumps(&self, wanted: u32, target: SocketAddr) -> u32 {
        let most = if is_local(target.ip()) {
            self.sockets
        } else {
            self.sockets.min(self.pace.per_s.get()).min(self.pace.burst)
        };
        wanted.clamp(1, most.max(1))
    }

    /// An even share for each of `pumps` pumps. There is at least one socket for each.
    pub(crate) fn split(&self, pumps: u32) -> impl Iterator<Item = Self> + use<> {
        let whole = *self;
        let pumps = pumps.clamp(1, whole.sockets.max(1));
        let (even, remainder) = (whole.sockets / pumps, whole.sockets % pumps);
        let (even_tries, more_tries) = (whole.second_tries / pumps, whole.second_tries % pumps);
        (0..pumps).map(move |number| Self {
            sockets: even + u32::from(number < remainder),
            second_tries: even_tries + u32::from(number < more_tries),
            sockets_before: number * even + number.min(remainder),
            pace: divided(whole.pace, pumps),
            ..whole
        })
    }
}

/// The share of each of `by` pumps in a pace.
fn divided(pace: Pace, by: u32) -> Pace {
    Pace {
        burst: (pace.burst / by).max(1),
        per_s: NonZeroU32::new(pace.per_s.get() / by).unwrap_or(NonZeroU32::MIN),
    }
}

/// The slower of two paces.
fn slower(one: Pace, other: Pace) -> Pace {
    Pace { burst: one.burst.min(other.burst), per_s: one.per_s.min(other.per_s) }
}

/// Opens a connection to an address and closes it. The first packet may get lost.
#[must_use]
pub fn probe(address: SocketAddr, timeout: Duration) -> ProbeAnswer {
    let clock = Clock::start();
    match TcpStream::connect_timeout(&address, timeout) {
        Ok(_) => ProbeAnswer::Connected(clock.now() - Instant::ORIGIN),
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => ProbeAnswer::Refused,
            _ => ProbeAnswer::Silent,
        },
    }
}

/// The round trip to a relay, timed by opening a connection.
pub(crate) fn round_trip(target: SocketAddr) -> Duration {
    probe(target, RTT_TIMEOUT).round_trip()
}

#[cfg(test)]
mod tests;
