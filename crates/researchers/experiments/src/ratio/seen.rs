//! Observations of a measured relay with clients: by the measurers, by the relay, and by the kernel.

use coordinator::Estimate;
use lab::witness::{Witness, mbit};
use onion::{Duration, Instant, Rate};

/// The places of the witness's counts: what measurers and clients received from the relay, and what the relay wrote to its sockets
/// for clients.
pub(super) const MEASURERS: usize = 0;
pub(super) const CLIENTS: usize = 1;
pub(super) const HANDED: usize = 2;

/// Time after the start of all clients' traffic that does not count, while queues fill.
const SETTLING: Duration = Duration::from_secs(1);

/// When the load of a measurement that was started at `started` reached the measurers again: the first of these steps in which
/// they received a twentieth of `limit`.
pub(super) fn beginning(witness: &Witness, started: Instant, limit: Rate) -> Option<Instant> {
    const STEP: Duration = Duration::from_millis(20);
    let least = limit.scaled(0.05).as_mbit_per_s() * STEP.as_secs_f64();
    let mut steps = (0..500).map(|step| started + STEP * step);
    steps.find(|begin| mbit(witness.bytes_between(MEASURERS, *begin, *begin + STEP)) >= least)
}

/// A finished measurement, and clients that continue.
pub(super) struct Observation<'w> {
    pub(super) witness: &'w Witness,
    /// When all clients had traffic.
    pub(super) flowing: Instant,
    /// When the measurement was requested.
    pub(super) ordered: Instant,
    /// When its first second began.
    pub(super) began: Instant,
    /// Seconds with clients only, before and after.
    pub(super) around: u32,
    /// The relay's processor time during the measurement, as a share of one core.
    pub(super) cpu_share: Option<f64>,
    /// Completed downloads of the C tor client.
    pub(super) downloads: u64,
    /// As [`Window::keeps_to_limit`].
    pub(super) keeps_to_limit: bool,
}

/// One second of a measurement, in Mbit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredSecond {
    /// What the measurers reported to have received back: *x*.
    pub(super) measured: f64,
    /// What the relay reported to have forwarded for clients: *y*.
    pub(super) reported: f64,
    /// What the measurers' sockets received according to the kernel.
    pub(super) returned: f64,
    /// What the sockets of clients and next relays received.
    pub(super) received: f64,
    /// What the relay wrote to its sockets for them. The relay's kernel may hold much of it for a client that reads slowly.
    pub(super) handed: f64,
}

/// The observations second by second, in Mbit/s.
pub(super) struct Window {
    /// *r*.
    pub(super) ratio: f64,
    pub(super) limit: f64,
    /// Whether the relay forwards what its limit permits. C tor forwards up to a sixth less.
    pub(super) keeps_to_limit: bool,
    pub(super) estimate: f64,
    /// What clients received in the seconds before the measurement was requested.
    pub(super) alone: Vec<f64>,
    /// What clients received in the seconds up to its beginning.
    pub(super) before: Vec<f64>,
    pub(super) during: Vec<MeasuredSecond>,
    pub(super) after: Vec<f64>,
    /// The relay's processor time during the measurement as a share of one core, if known.
    pub(super) cpu_share: Option<f64>,
    pub(super) downloads: u64,
    /// The time from the end of the measurement to the end of the first second in which clients were back at their level; `None` if
    /// they never were.
    pub(super) back_after_s: Option<f64>,
}

/// The share of their level at which clients count as recovered.
pub(super) const BACK: f64 = 0.9;

impl Observation<'_> {
    /// The observations second by second.
    pub(super) fn window(&self, ratio: f64, limit: Rate, estimate: &Estimate) -> Window {
        let first = self.flowing + SETTLING;
        let whole_seconds = |from: Instant, to: Instant| {
            u32::try_from(to.saturating_since(from).as_secs()).unwrap_or(u32::MAX)
        };
        let alone = whole_seconds(first, self.ordered);
        let before = whole_seconds(first, self.began);
        let begin = self.began - Instant::ORIGIN - Duration::from_secs(u64::from(before));
        let length = u32::try_from(estimate.seconds.len()).unwrap_or(u32::MAX);
        let end = self.began + Duration::from_secs(u64::from(length));
        let clients = |from: Instant, count: u32| self.witness.seconds_from(CLIENTS, from, count);
        let received = clients(self.began, length);
        let handed = self.witness.seconds_from(HANDED, self.began, length);
        let returned = self.witness.seconds_from(MEASURERS, self.began, length);
        #[expect(clippy::cast_precision_loss, reason = "nothing here moves 2^53 bytes in a second")]
        let rate = |bytes: u64| mbit(bytes as f64);
        let counted = returned.into_iter().zip(received).zip(handed);
        let during =
            estimate.seconds.iter().zip(counted).map(|(second, ((returned, received), handed))| {
                MeasuredSecond {
                    measured: rate(second.measured),
                    reported: rate(second.client_reported.unwrap_or_default()),
                    returned,
                    received,
                    handed,
                }
            });
        let mut window = Window {
            ratio,
            limit: limit.as_mbit_per_s(),
            keeps_to_limit: self.keeps_to_limit,
            estimate: estimate.capacity.as_mbit_per_s(),
            alone: clients(first, alone),
            before: clients(Instant::ORIGIN + begin, before),
            during: during.collect(),
            after: clients(end, self.around),
            cpu_share: self.cpu_share,
            downloads: self.downloads,
            back_after_s: None,
        };
        window.back_after_s = self.back_after(end, BACK * window.level());
        window
    }

    /// The time from `end` to the end of the first second in which clients received at least `least`.
    fn back_after(&self, end: Instant, least: f64) -> Option<f64> {
        const STEP: Duration = Duration::from_millis(50);
        let steps = (self.around - 1) * 20;
        (0..=steps).find_map(|step| {
            let begin = end + STEP * step;
            let second = Duration::from_secs(1);
            let received = mbit(self.witness.bytes_between(CLIENTS, begin, begin + second));
            (received >= least).then(|| (begin + second - end).as_secs_f64())
        })
    }
}
