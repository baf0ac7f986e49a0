//! Counts forwarded bytes with the kernel's counters of processes' sockets, which neither a relay nor a measurer can
//! falsify.

use crate::{Background, Connection, connections};
use link::Clock;
use onion::{Duration, Instant};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The interval between readings of sockets. Bytes are assumed to arrive evenly between two readings.
const STEP: Duration = Duration::from_millis(20);

/// What is counted: bytes of TCP streams, TLS included.
#[derive(Clone, Debug)]
pub enum Count {
    /// Bytes that these processes receive from another one.
    Received {
        /// The process whose sockets are read.
        by: Vec<u32>,
        /// The process at the other end.
        from: u32,
    },
    /// Bytes that a process writes to sockets, including bytes that have not been sent yet. Sockets that are connected to
    /// one of the excepted processes do not count.
    Written {
        /// The process whose sockets are read.
        by: u32,
        /// The excepted processes.
        except: Vec<u32>,
    },
    /// Bytes that a process sends to any peer, once they are acknowledged.
    Sent {
        /// The process whose sockets are read.
        by: u32,
    },
}

/// A process and one of its sockets, by inode.
type Socket = (u32, u64);

/// The counters of a socket at one reading.
#[derive(Clone, Copy)]
struct SocketCounts {
    /// Bytes that are counted.
    carried: u64,
    /// Bytes in the receive queue.
    unread: u64,
}

impl SocketCounts {
    const fn new(connection: &Connection, carried: u64) -> Self {
        Self { carried, unread: connection.unread }
    }
}

/// Counts on a separate thread until it is dropped.
pub struct Witness {
    tallies: Arc<Mutex<Vec<Tally>>>,
    _thread: Background,
}

/// One count and its results up to now.
struct Tally {
    count: Count,
    /// The bytes of each socket when it was last read.
    known: BTreeMap<Socket, u64>,
    /// Sockets that were connected to one of the named processes at any time. They remain attributed to it when its end is
    /// closed first.
    to_named: BTreeSet<Socket>,
    total: u64,
    readings: Vec<(Instant, u64)>,
    /// Bytes in the receive queues of these sockets at each reading.
    unread: Vec<(Instant, u64)>,
    /// The reason that the kernel's counters cannot be read.
    problem: Option<String>,
}

impl Witness {
    /// Starts counting. Earlier bytes of existing sockets do not count.
    ///
    /// # Errors
    /// The kernel does not permit access to the sockets.
    pub fn start(counts: Vec<Count>, clock: Clock) -> io::Result<Self> {
        let mut tallies: Vec<Tally> = counts.into_iter().map(Tally::new).collect();
        tallies.iter_mut().for_each(|tally| tally.read(clock));
        if let Some(problem) = tallies.iter().find_map(|tally| tally.problem.clone()) {
            return Err(io::Error::other(problem));
        }
        let tallies = Arc::new(Mutex::new(tallies));
        let shared = Arc::clone(&tallies);
        let thread = Background::start("witness", move || {
            lock(&shared).iter_mut().for_each(|tally| tally.read(clock));
            STEP
        })?;
        Ok(Self { tallies, _thread: thread })
    }

    fn tallies(&self) -> MutexGuard<'_, Vec<Tally>> {
        lock(&self.tallies)
    }

    /// The reason that the kernel's counters can no longer be read, if so.
    pub fn problem(&self) -> Option<String> {
        self.tallies().iter().find_map(|tally| tally.problem.clone())
    }

    /// The bytes that the count with this index has counted between two instants.
    pub fn bytes_between(&self, index: usize, from: Instant, to: Instant) -> f64 {
        let tallies = self.tallies();
        let readings = tallies.get(index).map_or(&[][..], |tally| &tally.readings);
        by(readings, to) - by(readings, from)
    }

    /// The share of readings in `time` at which the receive queues of the count with this index held at least `bytes`;
    /// 0 if there was no reading.
    pub fn share_unread(&self, index: usize, bytes: u64, time: Range<Instant>) -> f64 {
        let tallies = self.tallies();
        let unread = tallies.get(index).map_or(&[][..], |tally| &tally.unread);
        share_of_at_least(unread, bytes, &time)
    }

    /// [`Self::bytes_between`] for `count` consecutive seconds, in Mbit/s.
    pub fn seconds_from(&self, index: usize, from: Instant, count: u32) -> Vec<f64> {
        (0..count)
            .map(|number| {
                let begin = from + Duration::from_secs(u64::from(number));
                mbit(self.bytes_between(index, begin, begin + Duration::from_secs(1)))
            })
            .collect()
    }
}

fn lock(tallies: &Mutex<Vec<Tally>>) -> MutexGuard<'_, Vec<Tally>> {
    tallies.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    fn new(count: Count) -> Self {
        Self {
            count,
            known: BTreeMap::new(),
            to_named: BTreeSet::new(),
            total: 0,
            readings: Vec::new(),
            unread: Vec::new(),
            problem: None,
        }
    }

    fn read(&mut self, clock: Clock) {
        let begin = clock.now();
        match self.count.read(&mut self.to_named) {
            // A reading takes time, above all on a busy machine.
            Ok(seen) => {
                let now = begin + (clock.now() - begin) / 2;
                self.unread.push((now, seen.values().map(|counts| counts.unread).sum()));
                self.take(
                    now,
                    seen.into_iter().map(|(socket, counts)| (socket, counts.carried)).collect(),
                );
            }
            Err(problem) => drop(self.problem.get_or_insert(problem.to_string())),
        }
    }

    /// Adds the bytes of each socket since the last reading.
    fn take(&mut self, now: Instant, seen: BTreeMap<Socket, u64>) {
        if !self.readings.is_empty() {
            let more = seen.iter().map(|(socket, bytes)| {
                // All bytes of a new socket count.
                bytes.saturating_sub(self.known.get(socket).copied().unwrap_or_default())
            });
            self.total += more.sum::<u64>();
        }
        // A socket that is missing from one reading is not new when it reappears.
        self.known.extend(seen);
        self.readings.push((now, self.total));
    }
}

impl Count {
    /// Reads the bytes of each socket that counts. `to_named` are the sockets known to be connected to the named processes.
    fn read(&self, to_named: &mut BTreeSet<Socket>) -> io::Result<BTreeMap<Socket, SocketCounts>> {
        match self {
            Self::Sent { by } => {
                let all = of_living(*by)?.into_iter();
                Ok(all
                    .map(|connection| {
                        (
                            (*by, connection.inode),
                            SocketCounts::new(&connection, connection.bytes.sent),
                        )
                    })
                    .collect())
            }
            Self::Written { by, except } => {
                // In this order, so that the other ends of these connections exist when they are read.
                let all = of_living(*by)?;
                let named = local_addresses(except)?;
                to_named.extend(
                    all.iter()
                        .filter(|connection| named.contains(&connection.peer))
                        .map(|connection| (*by, connection.inode)),
                );
                let all = all.into_iter().map(|connection| {
                    (
                        (*by, connection.inode),
                        SocketCounts::new(&connection, connection.bytes.written),
                    )
                });
                Ok(all.filter(|(socket, _)| !to_named.contains(socket)).collect())
            }
            Self::Received { by, from } => {
                let named = local_addresses(&[*from])?;
                let mut seen = BTreeMap::new();
                for pid in by {
                    for connection in of_living(*pid)? {
                        if named.contains(&connection.peer) {
                            to_named.insert((*pid, connection.inode));
                        }
                        seen.insert(
                            (*pid, connection.inode),
                            SocketCounts::new(&connection, connection.bytes.received),
                        );
                    }
                }
                seen.retain(|socket, _| to_named.contains(socket));
                Ok(seen)
            }
        }
    }
}

/// The share of readings in `time` with at least `bytes`.
fn share_of_at_least(readings: &[(Instant, u64)], bytes: u64, time: &Range<Instant>) -> f64 {
    let within = readings.iter().filter(|(at, _)| time.contains(at));
    let (mut all, mut much) = (0_u32, 0_u32);
    for (_, seen) in within {
        all += 1;
        much += u32::from(*seen >= bytes);
    }
    f64::from(much) / f64::from(all.max(1))
}

/// The local addresses of these processes' connections.
fn local_addresses(pids: &[u32]) -> io::Result<BTreeSet<SocketAddr>> {
    let mut found = BTreeSet::new();
    for pid in pids {
        found.extend(of_living(*pid)?.into_iter().map(|connection| connection.local));
    }
    Ok(found)
}

/// The connections of a process; none if it has ended.
fn of_living(pid: u32) -> io::Result<Vec<Connection>> {
    match connections(pid) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        result => result,
    }
}

/// Converts bytes to Mbit.
pub fn mbit(bytes: f64) -> f64 {
    bytes * 8e-6
}

/// The bytes counted up to an instant, interpolated between two readings.
#[expect(clippy::cast_precision_loss, reason = "no experiment moves 2^53 bytes")]
fn by(readings: &[(Instant, u64)], at: Instant) -> f64 {
    let next = readings.partition_point(|(reading, _)| *reading <= at);
    let Some((before, bytes)) = next.checked_sub(1).map(|place| readings[place]) else {
        return 0.0;
    };
    let Some((after, more)) = readings.get(next) else { return bytes as f64 };
    let share = (at - before).as_secs_f64() / (*after - before).as_secs_f64();
    bytes as f64 + share * (more - bytes) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::process::Command;
    use std::thread;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn bytes_between_two_readings_are_interpolated() {
        let readings = [(at(1000), 0), (at(2000), 500), (at(4000), 700)];
        for (ms, bytes) in
            [(0, 0.0), (1000, 0.0), (1500, 250.0), (2000, 500.0), (3000, 600.0), (9000, 700.0)]
        {
            assert!((by(&readings, at(ms)) - bytes).abs() < 1e-9, "{ms}");
        }
        assert!(by(&[], at(5)).abs() < 1e-9);
    }

    #[test]
    fn a_share_is_of_the_readings_within_the_time() {
        let readings = [(at(10), 900), (at(20), 99), (at(30), 100), (at(40), 500), (at(50), 0)];
        let share = |from, to| share_of_at_least(&readings, 100, &(at(from)..at(to)));
        assert!((share(20, 50) - 2.0 / 3.0).abs() < 1e-9);
        assert!((share(30, 50) - 1.0).abs() < 1e-9);
        assert!(share(60, 90).abs() < 1e-9, "no reading");
    }

    #[test]
    fn bytes_of_all_sockets_count_from_the_first_reading() {
        let mut tally = Tally::new(Count::Sent { by: 1 });
        let readings: [&[((u32, u64), u64)]; 4] =
            [&[((1, 7), 100)], &[((1, 7), 150), ((1, 8), 20)], &[((1, 8), 25)], &[]];
        for (ms, reading) in (0..).zip(readings) {
            tally.take(at(ms), reading.iter().copied().collect());
        }
        assert_eq!(tally.readings, [(at(0), 0), (at(1), 70), (at(2), 75), (at(3), 75)]);
    }

    #[test]
    fn a_socket_that_is_missing_from_one_reading_is_not_counted_twice() {
        let mut tally = Tally::new(Count::Sent { by: 1 });
        let readings: [&[((u32, u64), u64)]; 4] =
            [&[((1, 7), 100)], &[((1, 7), 900)], &[], &[((1, 7), 1000)]];
        for (ms, reading) in (0..).zip(readings) {
            tally.take(at(ms), reading.iter().copied().collect());
        }
        assert_eq!(tally.readings, [(at(0), 0), (at(1), 800), (at(2), 800), (at(3), 900)]);
    }

    #[test]
    fn bytes_of_a_connection_are_counted_by_the_kernel() {
        let us = std::process::id();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let mut stream =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("listens");
        let (mut peer, _) = listener.accept().expect("a connection");
        let clock = Clock::start();
        let counts = vec![
            Count::Received { by: vec![us], from: us },
            Count::Sent { by: us },
            Count::Written { by: us, except: Vec::new() },
        ];
        let witness = Witness::start(counts, clock).expect("this very process");
        stream.write_all(&[1; 300_000]).expect("somebody reads");
        peer.read_exact(&mut [0; 300_000]).expect("received");
        let seen =
            || [0, 1, 2].map(|place| witness.bytes_between(place, Instant::ORIGIN, clock.now()));
        while seen().iter().any(|bytes| *bytes < 300_000.0) {
            assert!(clock.now() < at(60_000) && witness.problem().is_none(), "{:?}", seen());
            thread::park_timeout(STEP);
        }
    }

    #[test]
    fn unread_bytes_count_as_written_unless_the_reader_is_excepted() {
        let us = std::process::id();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let peer = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(peer).expect("listens");
        let (_nobody_reads, _) = listener.accept().expect("a connection");
        stream.set_nonblocking(true).expect("a socket");
        let mut written = 0;
        while let Ok(more) = stream.write(&[1; 10_000]) {
            written += more as u64;
        }
        assert!(written > 100_000);
        // Other tests of this process have connections, too.
        let connection = connections(us).expect("this process").into_iter();
        let ours = connection
            .filter(|connection| connection.peer == peer)
            .map(|connection| (us, connection.inode))
            .next();
        let ours = ours.expect("still open");
        let seen = |except: Vec<u32>| {
            let count = Count::Written { by: us, except };
            count.read(&mut BTreeSet::new()).expect("this process")
        };
        assert_eq!(seen(Vec::new()).get(&ours).map(|counts| counts.carried), Some(written));
        assert!(!seen(vec![us]).contains_key(&ours));
    }

    #[test]
    fn sockets_to_an_excepted_process_stay_excepted_when_it_closes_first() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let reads = format!("exec head -c 300000 </dev/tcp/127.0.0.1/{port} >/dev/null");
        let mut reader =
            Command::new("bash").args(["-c", &reads]).spawn().expect("bash is installed");
        let (mut stream, peer) = listener.accept().expect("a connection");
        let us = std::process::id();
        let its_socket = || {
            let ours = connections(us).expect("this process").into_iter();
            ours.filter(|connection| connection.peer == peer)
                .map(|connection| (us, connection.inode))
                .next()
                .expect("still open")
        };
        let mut tally = Tally::new(Count::Written { by: us, except: vec![reader.id()] });
        let clock = Clock::start();
        tally.read(clock);
        assert!(!tally.known.contains_key(&its_socket()));
        stream.write_all(&[1; 300_000]).expect("somebody reads");
        reader.wait().expect("it reads all and ends");
        tally.read(clock);
        assert!(!tally.known.contains_key(&its_socket()));
    }
}
