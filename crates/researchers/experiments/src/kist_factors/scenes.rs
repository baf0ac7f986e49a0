//! The settings of the busy network: those of 2014 and of today, and what is changed in them.

use super::Study;
use crate::error::{Error, Result};
use onion::Duration;
use onion::router::schedule::SchedulerConfig;
use sim::world::{Control, Egress, SEGMENT_MEMORY_BYTES};
use std::fmt;
use std::path::Path;
use tornet::network::{Client, Network};

const NETWORK: &str = include_str!("../../../../../docs/scenarios/busy.toml");

/// The interval of KIST and KISTLite: C tor's.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);

/// The queue of a device in 2014: Linux' default of 1,000 packets.
const DEVICE_QUEUE_BYTES: u32 = 1000 * 1514;

/// The loss of packets in 2014 on a path of 300 ms, in thousandths.
const LOSS_2014: u32 = 5;

/// Clients of today's network, in percent: Tor's relays are about half busy.
const LOAD_TODAY: u32 = 50;

/// Larger send buffers have this many times the usual size.
const LARGER_BUFFERS: u32 = 8;

/// When links write to their sockets, and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LinkScheduler {
    Vanilla,
    KistLite,
    Kist,
    /// Vanilla with `TCP_NOTSENT_LOWAT`, as in Arti's relay.
    NotsentLowat,
}

impl LinkScheduler {
    pub(super) const ALL: [Self; 4] =
        [Self::Vanilla, Self::KistLite, Self::Kist, Self::NotsentLowat];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::KistLite => "kist-lite",
            Self::Kist => "kist",
            Self::NotsentLowat => "notsent-lowat",
        }
    }

    pub(super) const fn config(self) -> SchedulerConfig {
        match self {
            Self::Vanilla | Self::NotsentLowat => SchedulerConfig::vanilla(),
            Self::KistLite => SchedulerConfig::kist_lite(INTERVAL),
            Self::Kist => SchedulerConfig::kist(INTERVAL),
        }
    }

    pub(super) const fn has_notsent_lowat(self) -> bool {
        matches!(self, Self::NotsentLowat)
    }
}

/// Whose settings the network has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Era {
    /// When KIST was published: fixed windows, Reno, long queues in devices, losses, relays that are always busy.
    Old,
    /// Congestion control, Cubic, fair queueing, no random losses, relays that are half busy.
    Today,
}

/// The one setting that differs from those of the era.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    None,
    /// That of the other era: end-to-end windows.
    Windows,
    /// The queue of devices.
    DeviceQueue,
    /// Random loss.
    Loss,
    /// TCP's congestion control.
    Tcp,
    /// The number of clients.
    Load,
    /// Larger send buffers.
    Buffers,
    /// This share of relays with KIST, in percent.
    SharePercent(u32),
    /// This number of clients, in percent.
    LoadPercent(u32),
    /// This loss on a path of 300 ms, in thousandths.
    LossPermille(u32),
}

/// The settings of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scene {
    pub(super) era: Era,
    pub(super) change: Change,
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_old = self.era == Era::Old;
        f.write_str(if is_old { "2014" } else { "today" })?;
        let change = match self.change {
            Change::None => return Ok(()),
            Change::Windows if is_old => "congestion control",
            Change::Windows => "fixed windows",
            Change::DeviceQueue if is_old => "fair queueing",
            Change::DeviceQueue => "queues in devices",
            Change::Loss if is_old => "no loss",
            Change::Loss => "loss",
            Change::Tcp if is_old => "Cubic",
            Change::Tcp => "Reno",
            Change::Load if is_old => "half the clients",
            Change::Load => "all clients",
            Change::Buffers => "larger buffers",
            Change::SharePercent(percent) => return write!(f, ", {percent} % with KIST"),
            Change::LoadPercent(percent) => return write!(f, ", load {percent} %"),
            Change::LossPermille(permille) => {
                return write!(f, ", loss {:.1} %", f64::from(permille) / 10.0);
            }
        };
        write!(f, " with {change}")
    }
}

impl Scene {
    pub(super) const OLD: Self = Self { era: Era::Old, change: Change::None };
    pub(super) const TODAY: Self = Self { era: Era::Today, change: Change::None };

    /// The settings with which it is compared when all relays have Vanilla.
    pub(super) const fn baseline(self) -> Self {
        match self.change {
            Change::SharePercent(_) => Self { change: Change::None, ..self },
            _ => self,
        }
    }

    /// Whether a setting is that of 2014.
    fn is_old(self, setting: Change) -> bool {
        (self.era == Era::Old) != (self.change == setting)
    }

    /// The network with these settings.
    pub(super) fn network(self, scheduler: LinkScheduler) -> Result<Network> {
        let name = Path::new("busy.toml");
        let mut network = Network::parse(NETWORK, name).map_err(Error::from)?;
        let choices = &mut network.choices;
        choices.scheduler = scheduler.config();
        choices.has_congestion_control = !self.is_old(Change::Windows);
        choices.egress = Egress {
            has_notsent_lowat: scheduler.has_notsent_lowat(),
            device_queue_bytes: if self.is_old(Change::DeviceQueue) {
                DEVICE_QUEUE_BYTES
            } else {
                0
            },
        };
        let is_reno = self.is_old(Change::Tcp);
        choices.control = if is_reno { Control::Reno } else { Control::Cubic };
        if self.change == Change::Buffers {
            choices.segment_memory_bytes = SEGMENT_MEMORY_BYTES * LARGER_BUFFERS;
        }
        if let Change::SharePercent(percent) = self.change {
            choices.vanilla_share = 1.0 - f64::from(percent) / 100.0;
        }
        let usual = if self.is_old(Change::Loss) { LOSS_2014 } else { 0 };
        let permille =
            if let Change::LossPermille(permille) = self.change { permille } else { usual };
        choices.loss_at_300_ms = f64::from(permille) / 1000.0;
        let usual = if self.is_old(Change::Load) { 100 } else { LOAD_TODAY };
        let percent = if let Change::LoadPercent(percent) = self.change { percent } else { usual };
        network.clients = loaded(&network.clients, percent as usize);
        Ok(network)
    }
}

/// This percentage of the clients of each kind, which are adjacent.
fn loaded(clients: &[Client], percent: usize) -> Vec<Client> {
    let copies = |place: usize| (place + 1) * percent / 100 - place * percent / 100;
    let copied = |(place, client): (usize, &Client)| vec![client.clone(); copies(place)];
    clients.iter().enumerate().flat_map(copied).collect()
}

/// The runs of a study, without attacks.
pub(super) fn runs_of_study(study: Study) -> Vec<(Scene, LinkScheduler)> {
    let old = |change| Scene { era: Era::Old, change };
    let (vanilla, kist) = (LinkScheduler::Vanilla, LinkScheduler::Kist);
    let both = |scene: Scene| [(scene, vanilla), (scene, kist)];
    match study {
        Study::Schedulers => {
            let all = |scene| LinkScheduler::ALL.map(|scheduler| (scene, scheduler));
            [Scene::OLD, Scene::TODAY].into_iter().flat_map(all).collect()
        }
        Study::Factors => {
            let changes = [
                Change::None,
                Change::Windows,
                Change::DeviceQueue,
                Change::Loss,
                Change::Tcp,
                Change::Load,
                Change::Buffers,
            ];
            let of = |era| changes.map(|change| Scene { era, change });
            [Era::Old, Era::Today].into_iter().flat_map(of).flat_map(both).collect()
        }
        Study::Shares => {
            let some = [25, 50, 75].map(|percent| (old(Change::SharePercent(percent)), kist));
            both(Scene::OLD).into_iter().chain(some).collect()
        }
        Study::Loads => {
            [Change::Load, Change::LoadPercent(75), Change::None, Change::LoadPercent(125)]
                .map(|change| both(old(change)))
                .concat()
        }
        Study::Losses => {
            [Change::Loss, Change::None, Change::LossPermille(10), Change::LossPermille(15)]
                .map(|change| both(old(change)))
                .concat()
        }
        Study::Attacks => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(era: Era, change: Change) -> tornet::network::Choices {
        let scene = Scene { era, change };
        scene.network(LinkScheduler::Kist).expect("a network").choices
    }

    #[test]
    fn one_setting_is_changed_at_a_time() {
        let windows = |era, change| choices(era, change).has_congestion_control;
        assert!(!windows(Era::Old, Change::None) && windows(Era::Old, Change::Windows));
        assert!(windows(Era::Today, Change::None) && !windows(Era::Today, Change::Windows));
        let queue = |era, change| choices(era, change).egress.device_queue_bytes;
        assert_eq!(queue(Era::Old, Change::Windows), DEVICE_QUEUE_BYTES);
        assert_eq!(queue(Era::Old, Change::DeviceQueue), 0);
        let loss = |change| choices(Era::Old, change).loss_at_300_ms;
        let all = [Change::None, Change::Loss, Change::LossPermille(15)].map(loss);
        assert_eq!(all, [0.005, 0.0, 0.015]);
        assert_eq!(choices(Era::Old, Change::SharePercent(25)).vanilla_share, 0.75);
    }

    #[test]
    fn load_is_the_number_of_clients_of_each_kind() {
        let clients = |era, change| {
            let network = Scene { era, change }.network(LinkScheduler::Vanilla).expect("a network");
            let bulk = network.clients.iter().filter(|client| client.site.name.starts_with("bulk"));
            (bulk.count(), network.clients.len())
        };
        assert_eq!(clients(Era::Old, Change::None), (12, 92));
        assert_eq!(clients(Era::Today, Change::None), (6, 46));
        assert_eq!(clients(Era::Old, Change::LoadPercent(125)), (15, 115));
    }
}
