//! What was seen of a relay with clients: by those who measured it, by itself, and by the kernel.

use coordinator::Estimate;
use lab::OwnRelay;
use lab::witness::{Witness, mbit};
use link::Clock;
use onion::{Duration, Instant, Rate};

/// The witness's counts, by their places: what measurers and what clients received from the relay, and what
/// it gave its kernel for clients.
pub(super) const MEASURERS: usize = 0;
pub(super) const CLIENTS: usize = 1;
pub(super) const HANDED: usize = 2;

/// Left out after all clients' traffic has begun to flow: queues fill.
const SETTLING: Duration = Duration::from_secs(1);

/// When the last measurement of a relay began, by what it has told of its seconds until now. On a busy
/// machine the report is late, but it contains when the second was over.
pub(super) fn beginning(relay: &OwnRelay, clock: Clock, seconds: u32) -> Option<Instant> {
    let now = clock.now();
    let mut ends: Vec<Instant> = Vec::new();
    while let Some((_, value)) = relay.process.next_output(now) {
        match value["type"].as_str() {
            Some("accepted") => ends.clear(),
            Some("second") => ends.push(clock.at_unix_us(value["ended_unix_us"].as_u64()?)),
            _ => {}
        }
    }
    let is_whole = ends.len() == seconds as usize;
    let length = Duration::from_secs(u64::from(seconds));
    let last = ends.last().filter(|_| is_whole)?;
    Some(Instant::ORIGIN + (*last - Instant::ORIGIN).saturating_sub(length))
}

/// A measurement that is over, and clients that go on.
pub(super) struct Observation<'w> {
    pub(super) witness: &'w Witness,
    /// When all clients had traffic.
    pub(super) flowing: Instant,
    /// When it was asked for.
    pub(super) ordered: Instant,
    /// When its first second began.
    pub(super) began: Instant,
    /// Seconds before and after.
    pub(super) around: u32,
    /// What the relay's process used meanwhile, of one core.
    pub(super) cpu_share: Option<f64>,
    /// Completed downloads of the C tor client.
    pub(super) downloads: u64,
}

/// One second of a measurement, in Mbit/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredSecond {
    /// What measurers say that they got back: *x*.
    pub(super) measured: f64,
    /// What the relay says that it forwarded for its clients: *y*.
    pub(super) reported: f64,
    /// What measurers' sockets received, by the kernel.
    pub(super) came_back: f64,
    /// What the sockets of its clients, and of the relays behind it, received.
    pub(super) received: f64,
    /// What its own sockets took for them: not the same, since a client that is slow to read leaves much of it
    /// with the relay's kernel.
    pub(super) handed: f64,
}

/// What was seen second by second, in Mbit/s.
pub(super) struct Window {
    /// *r*.
    pub(super) ratio: f64,
    pub(super) limit: f64,
    pub(super) estimate: f64,
    /// What clients received in the seconds before the measurement was asked for.
    pub(super) alone: Vec<f64>,
    /// And in those up to its beginning, the last one last.
    pub(super) before: Vec<f64>,
    pub(super) during: Vec<MeasuredSecond>,
    pub(super) after: Vec<f64>,
    /// What the relay's process used meanwhile, of one core, if that is known.
    pub(super) cpu_share: Option<f64>,
    pub(super) downloads: u64,
    /// When clients first had a second at their level again, counted to its end; `None` if never.
    pub(super) back_after_s: Option<f64>,
}

/// Of their level, when clients are held to have it back.
pub(super) const BACK: f64 = 0.9;

impl Observation<'_> {
    /// All of it.
    pub(super) fn window(&self, ratio: f64, limit: Rate, estimate: &Estimate) -> Window {
        let first = self.flowing + SETTLING;
        let whole = |from: Instant, to: Instant| {
            u32::try_from(to.saturating_since(from).as_secs()).unwrap_or(u32::MAX)
        };
        let alone = whole(first, self.ordered);
        let before = whole(first, self.began);
        let begin = self.began - Instant::ORIGIN - Duration::from_secs(u64::from(before));
        let length = u32::try_from(estimate.seconds.len()).unwrap_or(u32::MAX);
        let end = self.began + Duration::from_secs(u64::from(length));
        let clients = |from: Instant, count: u32| self.witness.seconds_from(CLIENTS, from, count);
        let received = clients(self.began, length);
        let handed = self.witness.seconds_from(HANDED, self.began, length);
        let came_back = self.witness.seconds_from(MEASURERS, self.began, length);
        #[expect(clippy::cast_precision_loss, reason = "nothing here moves 2^53 bytes in a second")]
        let rate = |bytes: u64| mbit(bytes as f64);
        let counted = came_back.into_iter().zip(received).zip(handed);
        let during = estimate.seconds.iter().zip(counted).map(
            |(second, ((came_back, received), handed))| MeasuredSecond {
                measured: rate(second.measured),
                reported: rate(second.client_reported.unwrap_or_default()),
                came_back,
                received,
                handed,
            },
        );
        let mut window = Window {
            ratio,
            limit: limit.as_mbit_per_s(),
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

    /// How long after `end` the first second ends in which clients received as much as `least`.
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
