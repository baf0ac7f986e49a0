//! Measurements in the simulated network: circuits as [`client::probe`] measures them, and headers of pages.

use super::claims::{FAST_MBIT, SLOW_MBIT};
use super::scene::{HOME, RAMP, SITES, Scene, client};
use crate::common::Session;
use crate::error::Result;
use crate::simulated::Interval;
use client::probe::Probed;
use netdoc::RsaId;
use onion::{Duration, Rate};
use sim::world::{Direct, Ending, Fetch, HostId, Probe, Record, Scan, Size};
use std::sync::Arc;
use tornet::network::{Network, Site};
use tornet::run::{Outcome, Plan};
use tornet::survey::Survey;

/// Circuits that are measured at the same time. The paper measured one at a time among a thousand relays.
const AT_ONCE: u16 = 12;
/// Time for a circuit's round trips, and for its download.
const PATIENCE: Duration = Duration::from_secs(300);
/// The size of a page's header.
const HEADER_BYTES: u32 = 500;
/// Clients that fetch headers, each one after the other at this interval.
const READERS: usize = 20;
const HEADER_EVERY: Duration = Duration::from_secs(5);
/// Time for a header.
const HEADER_PATIENCE: Duration = Duration::from_secs(60);

/// How circuits are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measuring {
    /// Round trips to each hop that is asked.
    pub(super) rounds: usize,
    /// Whether only the last hop is asked.
    pub(super) only_last: bool,
    /// The size of a download; 0 for none.
    pub(super) bytes: u32,
}

impl Measuring {
    fn probe(self, scene: &Scene, path: &[RsaId]) -> Probe {
        let hops = u8::try_from(path.len()).unwrap_or(u8::MAX);
        let first = if self.only_last { hops.saturating_sub(1) } else { 0 };
        let round_trips = (0..self.rounds).flat_map(|_| first..hops).collect();
        let path = path.iter().map(|relay| scene.host(relay)).collect();
        Probe { path, round_trips, bytes: self.bytes, timeout: PATIENCE }
    }
}

/// Measured circuits, in the order of their paths.
pub(super) struct Measured {
    pub(super) circuits: Vec<Probed>,
    pub(super) load: RelayLoad,
}

/// What relays sent while users were active, as shares of what they can send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RelayLoad {
    /// All relays together.
    pub(super) all: f64,
    /// The mean over slow relays.
    pub(super) slow: f64,
    /// The mean over fast relays.
    pub(super) fast: f64,
}

/// Runs of the scene with a seed.
pub(super) struct Runs<'s> {
    pub(super) scene: &'s Scene,
    pub(super) seed: u64,
    pub(super) session: Session<'s>,
}

impl Runs<'_> {
    fn run(
        &self,
        what: &str,
        network: &Network,
        seconds: u32,
        survey: Survey,
    ) -> Result<Option<Outcome>> {
        let Session { output, interrupt, .. } = self.session;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let threads = u16::try_from(threads).unwrap_or(1);
        let plan = Plan { seconds, warm_up_s: 0, threads, seed: self.seed };
        let progress = |second: u32, _| output.doing(format!("{what}: simulated second {second}"));
        let outcome = survey.run(network, &plan, interrupt.requested(), &progress)?;
        Ok((!interrupt.is_requested()).then_some(outcome))
    }

    /// Measures circuits over these paths, [`AT_ONCE`] at a time, in their order. `None` if the user has interrupted.
    pub(super) fn measure(
        &self,
        what: &str,
        paths: &[Vec<RsaId>],
        how: Measuring,
    ) -> Result<Option<Measured>> {
        let probes = paths.iter().map(|path| how.probe(self.scene, path)).collect();
        let scan = Arc::new(Scan { probes, at_once: AT_ONCE });
        let site = Site::new("prober", HOME, Rate::from_mbit_per_s(100.0));
        let survey = Survey { scanners: vec![(site, scan)], direct: Vec::new() };
        let outcome = self.run(what, &self.scene.network, 100_000, survey)?;
        Ok(outcome.map(|outcome| Measured {
            circuits: probed(paths, how, &outcome),
            load: RelayLoad::new(&self.scene.network, &outcome),
        }))
    }

    /// The time of each header in seconds: by Tor, and without. `None` if the user has interrupted.
    pub(super) fn headers(&self, headers: u32) -> Result<Option<[Vec<Option<f64>>; 2]>> {
        let each = headers.div_ceil(u32::try_from(READERS).unwrap_or(1));
        let mut network = self.scene.network.clone();
        let first = network.relays.len() + network.servers.len() + network.clients.len();
        let size = Size {
            weight: 1.0,
            bytes: HEADER_BYTES,
            timeout: Some(HEADER_PATIENCE),
            stallout: None,
        };
        let fetch = Fetch { pauses: vec![HEADER_EVERY], count: Some(each), sizes: vec![size] };
        let reader = |number| client(format!("reader{number}"), HOME, fetch.clone());
        network.clients.extend((0..READERS).map(reader));
        let direct = |reader: usize| {
            let download = |number: u32| Direct {
                server: HostId(
                    u32::try_from(
                        network.relays.len() + (reader * each as usize + number as usize) % SITES,
                    )
                    .unwrap_or_default(),
                ),
                bytes: HEADER_BYTES,
                begins: RAMP + HEADER_EVERY * number,
                timeout: HEADER_PATIENCE,
            };
            let site = client(format!("direct{reader}"), HOME, fetch.clone()).site;
            (site, (0..each).map(download).collect())
        };
        let direct: Vec<(Site, Vec<Direct>)> = (0..READERS).map(direct).collect();
        let survey = Survey { scanners: Vec::new(), direct };
        let seconds = (RAMP * 2 + HEADER_EVERY * each + HEADER_PATIENCE).as_secs();
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        let Some(outcome) = self.run("pages", &network, seconds, survey)? else { return Ok(None) };
        let times = |hosts: std::ops::Range<usize>| {
            let is_theirs = |record: &&Record| hosts.contains(&(record.client.0 as usize));
            let time = |record: &Record| {
                let is_whole = record.ending == Ending::Complete;
                record.first_byte.filter(|_| is_whole).map(|time| time.as_secs_f64())
            };
            outcome.records.iter().filter(is_theirs).map(time).collect()
        };
        let direct = first + READERS;
        Ok(Some([times(first..direct), times(direct..direct + READERS)]))
    }
}

impl RelayLoad {
    /// The load after the ramp.
    fn new(network: &Network, outcome: &Outcome) -> Self {
        let ramp_s = usize::try_from(RAMP.as_secs()).unwrap_or_default();
        let seconds = outcome.simulated_s - RAMP.as_secs_f64();
        let loads = network.relays.iter().zip(&outcome.figures).map(|(relay, figures)| {
            let sent = figures.sent_bytes.get(ramp_s..).unwrap_or_default().iter().sum::<u64>();
            (relay.capacity(), sent as f64 * 8.0 / seconds)
        });
        let loads: Vec<(Rate, f64)> = loads.collect();
        let bits = |capacity: &Rate| capacity.as_bit_per_s() as f64;
        let mean = |is_of_kind: fn(f64) -> bool| {
            let of_kind = loads.iter().filter(|(rate, _)| is_of_kind(rate.as_mbit_per_s()));
            Interval::of(of_kind.map(|(capacity, sent)| sent / bits(capacity))).mean
        };
        let capacity: f64 = loads.iter().map(|(capacity, _)| bits(capacity)).sum();
        Self {
            all: loads.iter().map(|(_, sent)| sent).sum::<f64>() / capacity,
            slow: mean(|mbit| mbit <= SLOW_MBIT),
            fast: mean(|mbit| mbit >= FAST_MBIT),
        }
    }
}

/// The results of all paths, in their order.
fn probed(paths: &[Vec<RsaId>], how: Measuring, outcome: &Outcome) -> Vec<Probed> {
    let result = |path: &Vec<RsaId>| Probed {
        path: path.clone(),
        rtts: vec![Vec::new(); path.len()],
        failure: Some("not built in time".to_owned()),
        ..Probed::default()
    };
    let mut all: Vec<Probed> = paths.iter().map(result).collect();
    for circuit in &outcome.probed {
        let probed = &mut all[circuit.probe as usize];
        let hops = probed.path.len();
        let first = if how.only_last { hops - 1 } else { 0 };
        for (number, rtt) in circuit.round_trips.iter().enumerate() {
            probed.rtts[first + number % (hops - first)].push(*rtt);
        }
        // The paper's client opened a link for almost each circuit.
        let from_start = |time: &Duration| circuit.link_time + *time;
        probed.hop_times = circuit.hop_times.iter().map(from_start).collect();
        probed.failure = None;
    }
    for record in &outcome.records {
        let Some(probed) = record.probe.map(|number| &mut all[number as usize]) else { continue };
        match (record.ending, record.last_byte) {
            (Ending::Complete, Some(time)) => {
                let kb = record.bytes as f64 / 1e3;
                probed.throughput_kb_s = Some(kb / time.as_secs_f64().max(1e-9));
            }
            (Ending::Complete, None) => {}
            _ if probed.failure.is_none() => probed.failure = Some("not whole in time".to_owned()),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::scene::USERS_DEFAULT;
    use tornet::run::Outcome;

    fn outcome(scene: &Scene, paths: &[Vec<RsaId>], how: Measuring) -> Outcome {
        let probes = paths.iter().map(|path| how.probe(scene, path)).collect();
        let site = Site::new("prober", HOME, Rate::from_mbit_per_s(100.0));
        let scan = Arc::new(Scan { probes, at_once: 2 });
        let survey = Survey { scanners: vec![(site, scan)], direct: Vec::new() };
        let plan = Plan { seconds: 200, warm_up_s: 0, threads: 1, seed: 1 };
        let stop = std::sync::atomic::AtomicBool::new(false);
        survey.run(&scene.network, &plan, &stop, &|_, _| ()).expect("a run")
    }

    #[test]
    fn circuits_are_measured_hop_by_hop_and_users_slow_them_down() {
        let how = Measuring { rounds: 2, only_last: false, bytes: 20_000 };
        let measure = |users| {
            let scene = Scene::new(users).expect("a scene");
            let relays = scene.view.relays();
            let exit = relays.iter().position(client::RelayInfo::is_exit).expect("an exit");
            let path = [10, 20, exit].map(|place| relays[place].fingerprint).to_vec();
            let paths = [path.clone(), path];
            probed(&paths, how, &outcome(&scene, &paths, how))
        };
        let (idle, busy) = (measure(0), measure(USERS_DEFAULT));
        for all in [&idle, &busy] {
            assert!(all.iter().all(|probed| probed.failure.is_none()), "{all:?}");
            assert!(all.iter().all(|probed| probed.hop_times.len() == 3), "{all:?}");
            let counts = |probed: &Probed| probed.rtts.iter().map(Vec::len).collect::<Vec<_>>();
            assert!(all.iter().all(|probed| counts(probed) == [2, 2, 2]), "{all:?}");
        }
        // Nothing waits in the idle network, so each hop adds its link.
        let least = idle[0].least_rtts();
        assert!(least.is_sorted(), "{least:?}");
        assert!(busy[0].mean_rtt() > idle[0].mean_rtt(), "{busy:?}");
        assert!(busy[0].throughput_kb_s < idle[0].throughput_kb_s, "{busy:?}");
        assert_eq!(busy, measure(USERS_DEFAULT), "a run repeats");
    }
}
