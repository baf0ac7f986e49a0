//! A member of a team: a measurer that floods relays with echo measurements (paper §4.1), or a coordinator that
//! orders them.
//!
//! Orders, proofs, the ratio for clients and reports are the engine's, with signatures; so are a circuit's
//! window and the token bucket. Omitted: the content of cells and its check, since cells hold none, and several
//! circuits on a socket.

mod pumping;

use super::kernel::{Event, Kernel};
use super::message::{HostId, Purpose};
use super::net::ids;
use super::relay::UNIX_TIME_S;
use super::team::{ReportContent, TeamOrder, TeamReport, exported, fields, key_seed, nonce};
use alloc::collections::{BTreeMap, BinaryHeap, VecDeque};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::cmp::Reverse;
use onion::cell::{CircId, Command};
use onion::cell_model::{Body, Cell, HeaderOnlyBody, HeaderOnlyCell};
use onion::flow::{InFlightWindow, QUEUE_LIMIT_CELLS};
use onion::measure::protocol::{Message, Proof, SignedOrder};
use pumping::Pumping;

/// Maximum number of cells in flight on one circuit: the measurer's value for relays that take part.
const WINDOW_MAX_CELLS: u32 = QUEUE_LIMIT_CELLS - QUEUE_LIMIT_CELLS / 10 - 1;

/// The ID of a measurement's circuit on its link, on the dialler's side.
const CIRCUIT: CircId = CircId::new(0x8000_0001);

#[derive(Debug)]
enum Link {
    /// The coordinator's link: the order to send once it is open.
    Ordering(Option<SignedOrder>),
    /// A measurer's link, until it has authenticated and the circuit is open.
    SettingUp {
        is_held_back: bool,
    },
    /// The circuit is open, and is silent until the middle of the round.
    HeldBack,
    Up(InFlightWindow),
    Over,
}

impl Link {
    fn up() -> Self {
        Self::Up(InFlightWindow::new(WINDOW_MAX_CELLS))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A second of a measurement has ended.
    Second(u32),
    /// Its rate allows more to be sent.
    Rate(u32),
}

#[derive(Debug)]
pub(super) struct Member {
    id: u32,
    /// With the time of each.
    orders: VecDeque<(u64, TeamOrder)>,
    /// By socket: its measurement and state.
    links: Vec<Option<(u32, Link)>>,
    measurements: BTreeMap<u32, Pumping>,
    timers: BinaryHeap<Reverse<(u64, Timer)>>,
    reports: Vec<TeamReport>,
    record: Vec<HeaderOnlyCell>,
}

impl Member {
    pub(super) fn new(id: u32) -> Self {
        Self {
            id,
            orders: VecDeque::new(),
            links: Vec::new(),
            measurements: BTreeMap::new(),
            timers: BinaryHeap::new(),
            reports: Vec::new(),
            record: (0..pumping::RECORD_CELLS).map(|_| HeaderOnlyCell::EMPTY).collect(),
        }
    }

    /// An order arrives, at the end of a window.
    pub(super) fn order(&mut self, now: u64, order: TeamOrder) {
        self.orders.push_back((now, order));
    }

    pub(super) fn take_reports(&mut self) -> Vec<TeamReport> {
        core::mem::take(&mut self.reports)
    }

    pub(super) fn next_at(&self) -> u64 {
        let ordered = self.orders.front().map_or(u64::MAX, |(at, _)| *at);
        ordered.min(self.timers.peek().map_or(u64::MAX, |Reverse((at, _))| *at))
    }

    pub(super) fn handle_time(&mut self, kernel: &mut Kernel) {
        while self.orders.front().is_some_and(|(at, _)| *at <= kernel.now) {
            if let Some((_, order)) = self.orders.pop_front() {
                self.obey(kernel, order);
            }
        }
        while let Some(Reverse((at, timer))) = self.timers.peek().copied() {
            if at > kernel.now {
                break;
            }
            self.timers.pop();
            match timer {
                Timer::Second(measurement) => self.end_second(kernel, measurement),
                Timer::Rate(measurement) => self.handle_rate_timer(kernel, measurement),
            }
        }
    }

    fn obey(&mut self, kernel: &mut Kernel, order: TeamOrder) {
        match order {
            TeamOrder::Ask { measurement, target, measurers, seconds, sockets } => {
                let unix_time_s = UNIX_TIME_S + kernel.now / 1_000_000_000;
                let fields =
                    fields(self.id, measurement, target, &measurers, seconds, sockets, unix_time_s);
                let signed = fields.sign(&key_seed(self.id), &exported(self.id, target.0));
                self.dial(kernel, measurement, target, Link::Ordering(Some(signed)));
            }
            TeamOrder::Prepare { measurement, target, rate, sockets, seconds, held_back_s } => {
                let now = kernel.instant();
                let mut pumping = Pumping::new(now, rate, sockets, seconds, held_back_s);
                for number in 0..sockets {
                    let is_held_back = held_back_s.is_some() && number % 2 == 1;
                    let link = Link::SettingUp { is_held_back };
                    let socket = self.dial(kernel, measurement, target, link);
                    pumping.sockets.push(socket);
                }
                self.measurements.insert(measurement, pumping);
            }
            TeamOrder::Start { measurement } => self.start(kernel, measurement),
            TeamOrder::Stop { measurement } => self.stop(kernel, measurement),
        }
    }

    fn dial(&mut self, kernel: &mut Kernel, measurement: u32, to: HostId, link: Link) -> u32 {
        let socket = kernel.dial(to.0, Purpose::Link, measurement);
        let place = socket as usize;
        if self.links.len() <= place {
            self.links.resize_with(place + 1, || None);
        }
        self.links[place] = Some((measurement, link));
        socket
    }

    pub(super) fn handle(&mut self, event: Event, kernel: &mut Kernel) {
        match event {
            Event::Opened(socket) => self.handle_open(kernel, socket),
            Event::Cells(socket, cells) => {
                self.handle_cells(kernel, socket, &cells);
                kernel.recycle(cells);
            }
            Event::Room(socket) => self.flood(kernel, socket),
            Event::Closed(socket) => {
                self.lose(kernel, socket, "the relay has closed the link");
                kernel.forget(socket);
            }
            Event::Accepted(socket) => kernel.close(socket),
            Event::Bytes(_) | Event::Feedback(..) => {}
        }
    }

    fn handle_open(&mut self, kernel: &mut Kernel, socket: u32) {
        let to = kernel.socket(socket).peer_host;
        let Some(Some((measurement, link))) = self.links.get_mut(socket as usize) else { return };
        let message = match link {
            Link::Ordering(order) => order.take().map(Message::Order),
            Link::SettingUp { .. } => {
                let (nonce, session) = (nonce(*measurement), exported(self.id, to));
                Some(Message::Proof(Proof::sign(&key_seed(self.id), nonce, &ids(to), &session)))
            }
            Link::HeldBack | Link::Up(_) | Link::Over => None,
        };
        if let Some(message) = message {
            send(kernel, socket, CircId::LINK, Command::MEASURE, &message.encode());
        }
    }

    fn handle_cells(&mut self, kernel: &mut Kernel, socket: u32, cells: &[HeaderOnlyCell]) {
        let now = kernel.instant();
        for cell in cells {
            let Some(Some((measurement, link))) = self.links.get_mut(socket as usize) else {
                return;
            };
            match (cell.command(), &mut *link) {
                // Unsent data cannot return.
                (Command::RELAY, Link::Up(window))
                    if window.delivered_cells() < window.sent_cells() =>
                {
                    window.handle_delivered(now);
                    if let Some(measurement) = self.measurements.get_mut(measurement) {
                        measurement.count(now);
                    }
                }
                (Command::CREATED_FAST, Link::SettingUp { is_held_back }) => {
                    *link = if *is_held_back { Link::HeldBack } else { Link::up() };
                    let measurement = *measurement;
                    self.settle(kernel, measurement);
                }
                (Command::DESTROY, Link::Up(_) | Link::HeldBack | Link::SettingUp { .. }) => {
                    self.lose(kernel, socket, "the relay has destroyed the circuit");
                    kernel.close(socket);
                }
                (Command::MEASURE, _) => self.handle_message(kernel, socket, cell.body().bytes()),
                _ => {}
            }
        }
        self.flood(kernel, socket);
    }

    fn handle_message(&mut self, kernel: &mut Kernel, socket: u32, bytes: &[u8]) {
        let Some(Some((measurement, link))) = self.links.get(socket as usize) else { return };
        let measurement = *measurement;
        match (Message::parse(bytes), link) {
            (Ok(Message::Accepted { .. }), Link::Ordering(_)) => {
                self.notify(kernel, measurement, ReportContent::Accepted);
            }
            (Ok(Message::ClientSecond(second, sent_back)), Link::Ordering(_)) => {
                let sent_back_bytes = sent_back.iter().map(|entry| entry.bytes).collect();
                let (second, sent_bytes) = (second.second.into(), second.sent_bytes);
                let content = ReportContent::Client { second, sent_bytes, sent_back_bytes };
                self.notify(kernel, measurement, content);
            }
            (Ok(Message::Proven), Link::SettingUp { .. }) => {
                send(kernel, socket, CIRCUIT, Command::CREATE_FAST, &[0x66; 20]);
            }
            (Ok(Message::Error { code, text }), _) => {
                self.lose(kernel, socket, &format!("{code} {text}"));
                kernel.close(socket);
            }
            (Err(error), _) => {
                self.lose(kernel, socket, &error.to_string());
                kernel.close(socket);
            }
            _ => {}
        }
    }

    /// A link is unusable.
    fn lose(&mut self, kernel: &Kernel, socket: u32, why: &str) {
        let Some(Some((measurement, link))) = self.links.get_mut(socket as usize) else { return };
        let measurement = *measurement;
        let was = core::mem::replace(link, Link::Over);
        match was {
            Link::Ordering(_) => {
                self.notify(kernel, measurement, ReportContent::Refused(why.into()));
            }
            Link::SettingUp { .. } | Link::HeldBack | Link::Up(_) => {
                self.settle(kernel, measurement);
            }
            Link::Over => {}
        }
    }

    fn notify(&mut self, kernel: &Kernel, measurement: u32, content: ReportContent) {
        let from = HostId(self.id);
        self.reports.push(TeamReport { from, measurement, at_ns: kernel.now, content });
    }

    /// Closes all links of a measurement. Cells in flight are not waited for.
    fn stop(&mut self, kernel: &mut Kernel, measurement: u32) {
        self.measurements.remove(&measurement);
        for (socket, link) in (0..).zip(&mut self.links) {
            if let Some((of, link)) = link
                && *of == measurement
                && !matches!(link, Link::Over)
            {
                *link = Link::Over;
                kernel.close(socket);
            }
        }
    }
}

/// Sends one cell immediately.
fn send(kernel: &mut Kernel, socket: u32, circ_id: CircId, command: Command, bytes: &[u8]) {
    let mut cell = HeaderOnlyCell::EMPTY;
    *cell.begin(circ_id, command) = HeaderOnlyBody::from_bytes(bytes);
    kernel.write_cells(socket, core::slice::from_mut(&mut cell));
    kernel.send(socket);
}
