//! Some hosts of a world, and their windows of time.

use super::config::{HostConfig, Role};
use super::host::{Around, Host, HostFigures};
use super::host_scratch::HostScratch;
use super::message::{HostId, Mail};
use super::net::Net;
use super::paths::Paths;
use super::records::{CircuitTimes, Record};
use super::team::{TeamOrder, TeamReport};
use super::timing_wheel::{BATCH_MAILS, GROUP_HOSTS, TimingWheel};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// How much mail is read ahead: so little that it is still in the cache when it is handled.
const AHEAD: usize = 32;

/// Some hosts of a world. See the [module](super) on time.
#[derive(Debug)]
pub struct Part {
    /// In the order of their numbers.
    hosts: Vec<Host>,
    /// The index of each host of the world here, if it is here.
    place_of: Vec<u32>,
    /// When the next timer of each of them expires.
    next_at: Vec<u64>,
    window_ns: u64,
    /// The next window.
    window: u64,
    wheel: TimingWheel,
    /// To be sorted: host and time in the window, sender and number, each pair in one number; and the index in
    /// the mail of a group of hosts.
    order: Vec<(u64, u64, u32)>,
    today: Vec<Vec<Mail>>,
    scratch: Box<HostScratch>,
    records: Vec<Record>,
}

impl Part {
    /// The hosts with these numbers. All parts of a world get the same configurations, network, paths and seed.
    #[must_use]
    pub fn new(
        all: &[HostConfig],
        here: &[HostId],
        net: &Arc<Net>,
        paths: &Arc<Paths>,
        seed: u64,
    ) -> Self {
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let is_server = |host: &HostConfig| matches!(host.role, Role::Server(_));
        let servers: Vec<u32> =
            (0..all.len()).filter(|place| is_server(&all[*place])).map(number).collect();
        let servers: Arc<[u32]> = servers.into();
        let mut here = here.to_vec();
        here.sort_unstable();
        let mut place_of: Vec<u32> = all.iter().map(|_| u32::MAX).collect();
        for (place, id) in here.iter().enumerate() {
            place_of[id.0 as usize] = number(place);
        }
        let windows = all.iter().map(HostConfig::has_hop_windows).collect();
        let around = Around { net: net.clone(), paths: paths.clone(), servers, windows };
        let hosts: Vec<Host> =
            here.iter().map(|id| Host::new(*id, &all[id.0 as usize], &around, seed)).collect();
        Self {
            next_at: hosts.iter().map(Host::next_at).collect(),
            hosts,
            place_of,
            window_ns: net.window_ns(),
            window: 0,
            wheel: TimingWheel::new(here.len()),
            order: Vec::new(),
            today: Vec::new(),
            scratch: Box::new(HostScratch::new()),
            records: Vec::new(),
        }
    }

    /// The end of the last window that was run, in nanoseconds.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.window * self.window_ns
    }

    /// Takes mail for hosts in this part, for a window that has not been run.
    pub fn take(&mut self, mail: Mail) {
        let window = (mail.at / self.window_ns).max(self.window);
        let place = self.place_of[mail.to as usize] as usize;
        self.wheel.put(self.window, window, place, mail);
    }

    /// Runs the next window. Mail to hosts elsewhere is passed to `post`.
    pub fn pass_window(&mut self, mut post: impl FnMut(Mail)) {
        let window = self.window;
        self.wheel.begin(window);
        self.window += 1;
        for group in 0..self.wheel.groups() {
            self.wheel.take(window, group, &mut self.today);
            self.sort(window * self.window_ns);
            self.live(group);
            self.wheel.give_back(&mut self.today);
            let mut out = core::mem::take(&mut self.scratch.out);
            for mail in out.drain(..) {
                if self.place_of[mail.to as usize] == u32::MAX {
                    post(mail);
                } else {
                    self.take(mail);
                }
            }
            self.scratch.out = out;
        }
    }

    /// The order and the recipients of the mail of the window that begins at `start`. Times in a window have 32 bits, as latencies do.
    fn sort(&mut self, start: u64) {
        self.order.clear();
        for (batch, mails) in (0..).zip(&self.today) {
            for (place, mail) in (batch * BATCH_MAILS..).zip(mails) {
                let host = u64::from(self.place_of[mail.to as usize]);
                let recipient = host << 32 | mail.at.saturating_sub(start);
                let sender = u64::from(mail.from) << 32 | u64::from(mail.number);
                self.order.push((recipient, sender, u32::try_from(place).unwrap_or(u32::MAX)));
            }
        }
        self.order.sort_unstable();
    }

    /// The hosts of a group run the window with its mail.
    fn live(&mut self, group: usize) {
        let end = self.window * self.window_ns;
        let first = group * GROUP_HOSTS;
        let (mut done, mut read) = (0, 0);
        for place in first..self.hosts.len().min(first + GROUP_HOSTS) {
            let is_his = |entry: &&(u64, u64, u32)| entry.0 >> 32 == place as u64;
            let until = done + self.order[done..].iter().take_while(is_his).count();
            if self.next_at[place] >= end && until == done {
                continue;
            }
            if until > read {
                let ahead = self.order.len().min(until + AHEAD);
                self.read_ahead(&self.order[read..ahead]);
                read = ahead;
            }
            let host = &mut self.hosts[place];
            host.kernel.take_scratch(&mut self.scratch);
            for (.., at) in &self.order[done..until] {
                let (batch, at) = (*at as usize / BATCH_MAILS, *at as usize % BATCH_MAILS);
                host.admit(core::mem::replace(&mut self.today[batch][at], Mail::NONE));
            }
            done = until;
            host.run(end);
            // The host's own state is not in the cache: it is accessed after the scratch buffers.
            self.next_at[place] = host.next_at();
            host.kernel.give_scratch_back(&mut self.scratch);
        }
    }

    /// Reads what hosts will need for their next mail. Most of it is not in the cache, and the processor waits
    /// for many independent reads at once, but for those of a handler one after the other.
    fn read_ahead(&self, next: &[(u64, u64, u32)]) {
        let mut sum = 0;
        for (recipient, _, at) in next {
            let mail = &self.today[*at as usize / BATCH_MAILS][*at as usize % BATCH_MAILS];
            let place = usize::try_from(recipient >> 32).unwrap_or(usize::MAX);
            sum ^= self.hosts[place].read_ahead(mail);
        }
        core::hint::black_box(sum);
    }

    /// Gives an order to a team's host between two windows. Does nothing if it is not here or not of a team.
    pub fn order(&mut self, host: HostId, order: TeamOrder) {
        let now = self.now_ns();
        let place = self.place_of.get(host.0 as usize).map_or(usize::MAX, |place| *place as usize);
        if let Some(host) = self.hosts.get_mut(place) {
            host.order(now, order);
            self.next_at[place] = host.next_at();
        }
    }

    /// The reports of teams' hosts since the last call, by host and time.
    pub fn take_reports(&mut self) -> Vec<TeamReport> {
        self.hosts.iter_mut().flat_map(Host::take_reports).collect()
    }

    /// The transfers that have ended since the last call, by client and time.
    pub fn take_records(&mut self) -> Vec<Record> {
        for host in &mut self.hosts {
            self.records.append(&mut host.take_records());
        }
        core::mem::take(&mut self.records)
    }

    /// The circuits that scanners have measured since the last call, by scanner and time.
    pub fn take_circuit_times(&mut self) -> Vec<CircuitTimes> {
        self.hosts.iter_mut().flat_map(Host::take_circuit_times).collect()
    }

    /// The running transfers, by client: their result is unknown when the run ends.
    pub fn under_way(&self) -> impl Iterator<Item = Record> {
        self.hosts.iter().flat_map(Host::under_way)
    }

    /// The statistics of each host.
    pub fn figures(&self) -> impl Iterator<Item = HostFigures> {
        self.hosts.iter().map(Host::figures)
    }
}
