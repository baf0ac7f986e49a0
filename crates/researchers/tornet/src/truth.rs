//! The TCP model compared with real sockets: scenes for both, and their simulated side.
//!
//! `flashflow-lab sim truth` runs the scenes on real sockets, in network namespaces.

use onion::{Duration, Rate};
pub use sim::world::Control;
use sim::world::{
    Direct, Egress, HostConfig, HostId, Net, Part, Paths, Role, SEGMENT_MEMORY_BYTES,
};
use std::sync::Arc;

/// The queue of the bottleneck.
pub const QUEUE: Duration = Duration::from_millis(100);

/// The rate of everything else.
const FAST: Rate = Rate::from_bit_per_s(1_000_000_000);

/// Simultaneous downloads: one host fetches from a server for each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    /// What it demonstrates.
    pub name: String,
    /// The one-way latency to the server of each download.
    pub round_trips: Vec<Duration>,
    /// The loss rate of packets to the fetching host.
    pub loss: f64,
    /// Its download rate, if it is the bottleneck.
    pub down: Option<Rate>,
    /// The congestion control of all hosts.
    pub control: Control,
    /// The size of each download; `None` for unlimited.
    pub bytes: Option<u32>,
    /// The timeout of downloads.
    pub timeout: Duration,
}

/// The result of a download.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DownloadResult {
    /// The number of bytes.
    pub bytes: u64,
    /// The time, from the first packet of TCP's handshake.
    pub time: Duration,
}

impl DownloadResult {
    /// The rate.
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    #[must_use]
    pub fn mbit_per_s(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.time.as_secs_f64()
    }
}

/// All scenes. Unlimited ones have this duration.
#[must_use]
pub fn scenes(endless: Duration) -> Vec<Scene> {
    let ms = Duration::from_millis;
    let base = Scene {
        name: String::new(),
        round_trips: [ms(50)].into(),
        loss: 0.0,
        down: None,
        control: Control::Cubic,
        bytes: None,
        timeout: endless,
    };
    let narrow = Some(Rate::from_mbit_per_s(20.0));
    let whole = |name: &str, bytes, round_trip, down| Scene {
        name: name.into(),
        round_trips: [round_trip].into(),
        down,
        bytes: Some(bytes),
        timeout: Duration::from_secs(60),
        ..base.clone()
    };
    let losing = |control, round_trip_ms, percent: f64| Scene {
        name: format!("{control:?}, {round_trip_ms} ms, {percent} % lost"),
        round_trips: [ms(round_trip_ms)].into(),
        loss: percent / 100.0,
        control,
        ..base.clone()
    };
    let shared = |control| Scene {
        name: format!("{control:?}, 20 Mbit/s shared over 20 and 160 ms"),
        round_trips: [ms(20), ms(160)].into(),
        down: narrow,
        control,
        ..base.clone()
    };
    vec![
        whole("10 MB over 20 Mbit/s, 50 ms", 10_000_000, ms(50), narrow),
        whole("1 MB, 100 ms: slow start", 1_000_000, ms(100), None),
        losing(Control::Cubic, 50, 0.1),
        losing(Control::Cubic, 50, 1.0),
        losing(Control::Cubic, 200, 0.1),
        losing(Control::Cubic, 200, 1.0),
        losing(Control::Reno, 100, 0.5),
        shared(Control::Cubic),
        shared(Control::Reno),
    ]
}

/// Simulates a scene in virtual time: returns the result of each download.
#[must_use]
pub fn simulate(scene: &Scene, seed: u64) -> Vec<DownloadResult> {
    let flows = u16::try_from(scene.round_trips.len()).unwrap_or(u16::MAX);
    let mut net = Net::new(flows + 1, |from, to| {
        let far = usize::from(from.max(to));
        let round_trip = far.checked_sub(1).map_or(QUEUE, |place| scene.round_trips[place]);
        (round_trip / 2, if to == 0 { scene.loss } else { 0.0 })
    });
    let host = |down, role| HostConfig {
        up: FAST,
        down,
        queue: QUEUE,
        control: scene.control,
        segment_memory_bytes: SEGMENT_MEMORY_BYTES,
        egress: Egress::default(),
        role,
    };
    let plan = |place: u16| Direct {
        server: HostId(u32::from(place) + 1),
        bytes: scene.bytes.unwrap_or(u32::MAX),
        begins: Duration::ZERO,
        timeout: scene.timeout,
    };
    let plans = (0..flows).map(plan).collect();
    let mut hosts = vec![host(scene.down.unwrap_or(FAST), Role::Direct(plans))];
    hosts.extend((0..flows).map(|_| host(FAST, Role::Server(Arc::default()))));
    for place in 0..=flows {
        net.add(place, false);
    }
    let all: Vec<HostId> = (0..=u32::from(flows)).map(HostId).collect();
    let mut part = Part::new(&hosts, &all, &Arc::new(net), &Arc::new(Paths::new(&[])), seed);
    let mut records = Vec::new();
    while records.len() < usize::from(flows) {
        part.pass_window(|_| ());
        records.append(&mut part.take_records());
    }
    records.sort_by_key(|record| record.size);
    let result = |record: &sim::world::Record| DownloadResult {
        bytes: record.bytes,
        time: record.last_byte.unwrap_or(scene.timeout),
    };
    records.iter().map(result).collect()
}
