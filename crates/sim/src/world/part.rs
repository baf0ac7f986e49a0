use super::config::{HostConfig, Role};
use super::host::{Around, Host, HostFigures};
use super::message::{HostId, Mail};
use super::net::Net;
use super::paths::Paths;
use super::records::Record;
use super::team::{TeamOrder, TeamReport};
use super::unsent::Pool;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Windows for which mail has a place in the calendar; what comes later waits apart.
const CALENDAR_WINDOWS: u64 = 512;

/// Some hosts of a world. See the [module](super) on time.
#[derive(Debug)]
pub struct Part {
    /// In the order of their numbers.
    hosts: Vec<Host>,
    /// The place of each host of the world here, if it is here.
    place_of: Vec<u32>,
    /// When something happens on each of them by itself.
    next_at: Vec<u64>,
    window_ns: u64,
    /// The window that is to be passed next.
    window: u64,
    /// Mail by the window in which it comes, modulo the length.
    calendar: Vec<Vec<Mail>>,
    later: BTreeMap<u64, Vec<Mail>>,
    /// To be sorted: host, time, sender, number; and the place in the window's mail.
    order: Vec<((u32, u64, u32, u32), u32)>,
    today: Vec<Mail>,
    out: Vec<Mail>,
    pool: Pool,
    records: Vec<Record>,
}

impl Part {
    /// The hosts of these numbers. All parts of a world get the same configurations, network, paths and seed.
    #[must_use]
    pub fn new(
        all: &[HostConfig],
        here: &[HostId],
        (net, paths): (&Arc<Net>, &Arc<Paths>),
        seed: u64,
    ) -> Self {
        let number = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let is_server = |it: &HostConfig| matches!(it.role, Role::Server(_));
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
            calendar: (0..CALENDAR_WINDOWS).map(|_| Vec::new()).collect(),
            later: BTreeMap::new(),
            order: Vec::new(),
            today: Vec::new(),
            out: Vec::new(),
            pool: Vec::new(),
            records: Vec::new(),
        }
    }

    /// The end of the last window that was passed, in nanoseconds.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.window * self.window_ns
    }

    /// Takes mail for hosts that are here. It comes in a window that is still to be passed.
    pub fn take(&mut self, mail: Mail) {
        let window = (mail.at / self.window_ns).max(self.window);
        if window < self.window + CALENDAR_WINDOWS {
            let place = usize::try_from(window % CALENDAR_WINDOWS).unwrap_or(0);
            self.calendar[place].push(mail);
        } else {
            self.later.entry(window).or_default().push(mail);
        }
    }

    /// Passes the next window. What is sent to hosts elsewhere is given to `post`.
    pub fn pass_window(&mut self, mut post: impl FnMut(Mail)) {
        let end = (self.window + 1) * self.window_ns;
        let place = usize::try_from(self.window % CALENDAR_WINDOWS).unwrap_or(0);
        core::mem::swap(&mut self.today, &mut self.calendar[place]);
        while let Some(first) = self.later.first_entry().filter(|it| *it.key() <= self.window) {
            self.today.extend(first.remove());
        }
        self.window += 1;
        self.order.clear();
        for (place, mail) in self.today.iter().enumerate() {
            let host = self.place_of[mail.to as usize];
            let key = (host, mail.at, mail.from, mail.number);
            self.order.push((key, u32::try_from(place).unwrap_or(u32::MAX)));
        }
        self.order.sort_unstable();
        let mut next = 0;
        for place in 0..self.hosts.len() {
            let host = &mut self.hosts[place];
            let mut has_mail = false;
            while let Some(((to, ..), at)) = self.order.get(next)
                && *to as usize == place
            {
                host.admit(core::mem::replace(&mut self.today[*at as usize], Mail::NONE));
                has_mail = true;
                next += 1;
            }
            if !has_mail && self.next_at[place] >= end {
                continue;
            }
            core::mem::swap(&mut self.pool, &mut host.kernel.pool);
            host.run(end);
            core::mem::swap(&mut self.pool, &mut host.kernel.pool);
            self.next_at[place] = host.next_at();
            self.out.append(&mut host.kernel.out);
        }
        self.today.clear();
        let mut out = core::mem::take(&mut self.out);
        for mail in out.drain(..) {
            if self.place_of[mail.to as usize] == u32::MAX {
                post(mail);
            } else {
                self.take(mail);
            }
        }
        self.out = out;
    }

    /// Tells a host of a team something, now: between two windows. Nothing happens if it is not here, or of no team.
    pub fn order(&mut self, host: HostId, order: TeamOrder) {
        let now = self.now_ns();
        let place = self.place_of.get(host.0 as usize).map_or(usize::MAX, |it| *it as usize);
        if let Some(it) = self.hosts.get_mut(place) {
            it.order(now, order);
            self.next_at[place] = it.next_at();
        }
    }

    /// What hosts of teams have told since the last time, by host and time.
    pub fn take_reports(&mut self) -> Vec<TeamReport> {
        self.hosts.iter_mut().flat_map(Host::take_reports).collect()
    }

    /// The transfers that have ended since the last time, by client and time.
    pub fn take_records(&mut self) -> Vec<Record> {
        for host in &mut self.hosts {
            self.records.append(&mut host.take_records());
        }
        core::mem::take(&mut self.records)
    }

    /// What each host has done so far.
    pub fn figures(&self) -> impl Iterator<Item = HostFigures> {
        self.hosts.iter().map(Host::figures)
    }
}
