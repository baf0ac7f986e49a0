use super::exchange::{Exchange, ExchangeConfig, ExchangeError};
use super::keys::Token;
use super::report::{CapacityPeer, CapacityReport};
use super::socket::CapacitySocket;
use crate::Consent;
use link::Clock;
use onion::identity::RsaId;
use onion::{Duration, Rate};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// The maximum delay until a cancellation is noticed.
const LONGEST_WAIT: Duration = Duration::from_millis(50);

/// One measurer's part of a capacity test, over a real socket.
#[derive(Clone, Debug)]
pub struct CapacityTest {
    /// The listen and source address. Peers must know it by an address that leads here.
    pub listen: SocketAddr,
    /// Our index in the team.
    pub index: u16,
    /// All other measurers of the test.
    pub peers: Vec<CapacityPeer>,
    /// The secret of this test, which the coordinator draws for each test.
    pub token: Token,
    /// Length of the flood, 1 to 600 seconds; the paper's is 60 (§4.2).
    pub seconds: u32,
    /// Time until the flood starts, the same for all members, up to a minute. Until then peers prove their presence; a
    /// few round trips and half a second are enough.
    pub start_delay: Duration,
    /// The maximum rate to all peers together: that of its link.
    pub rate: Rate,
    /// Public addresses that may be flooded, since their operators agreed. Loopback and private addresses are always
    /// permitted.
    pub allowed: BTreeSet<IpAddr>,
}

/// The reason why a test has no report. Lost peers are in the report.
#[derive(Debug, thiserror::Error)]
pub enum CapacityError {
    /// The test's parameters are invalid.
    #[error(transparent)]
    Config(#[from] ExchangeError),
    /// The coordinator named a peer without the operator's consent.
    #[error(
        "a capacity test floods its members: {} of member {} is public and not among the allowed \
         addresses. If its operator agrees, allow it", .0.address.ip(), .0.index
    )]
    NotAllowed(CapacityPeer),
    /// Our socket cannot be opened.
    #[error(
        "cannot receive UDP at {address}: {source}; is it an address of this machine, and free?"
    )]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        source: io::Error,
    },
    /// Our socket failed.
    #[error("our UDP socket failed during the capacity test: {0}")]
    Socket(io::Error),
    /// There are no random bytes.
    #[error("the operating system provides no random bytes: {0}")]
    Random(rand::rngs::SysError),
    /// A thread cannot be created.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The caller cancelled it.
    #[error("the capacity test was cancelled")]
    Cancelled,
}

impl CapacityTest {
    /// Opens a socket and takes part, until the end or until `cancel` is set.
    ///
    /// # Errors
    /// [`CapacityError`]: this measurer, or the coordinator that ordered the test, is to blame.
    pub fn run(&self, cancel: &AtomicBool) -> Result<CapacityReport, CapacityError> {
        let bound = CapacitySocket::bind(self.listen);
        let socket =
            bound.map_err(|source| CapacityError::Bind { address: self.listen, source })?;
        self.run_on(&socket, cancel)
    }

    /// Takes part over `socket`, whatever `listen` says.
    ///
    /// # Errors
    /// [`CapacityError`]: this measurer, or the coordinator that ordered the test, is to blame.
    pub fn run_on(
        &self,
        socket: &CapacitySocket,
        cancel: &AtomicBool,
    ) -> Result<CapacityReport, CapacityError> {
        self.check_consent()?;
        let clock = Clock::start();
        let now = clock.now();
        let config = ExchangeConfig {
            token: self.token,
            index: self.index,
            peers: self.peers.clone(),
            start: now + self.start_delay,
            seconds: self.seconds,
            rate: self.rate,
        };
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(CapacityError::Random)?;
        let exchange = Exchange::new(&config, &mut rng, now)?;
        let shared = SharedExchange {
            socket,
            clock,
            exchange: Mutex::new(exchange),
            nearer: Condvar::new(),
            is_over: AtomicBool::new(false),
        };
        thread::scope(|scope| {
            let receiver = thread::Builder::new().name(format!("capacity-{}", self.index));
            let receiver = receiver
                .spawn_scoped(scope, || shared.receive_until_over())
                .map_err(CapacityError::Thread)?;
            let sent = shared.send_until_over(&mut rng, cancel);
            shared.is_over.store(true, Ordering::Relaxed);
            let received = match receiver.join() {
                Ok(received) => received,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            sent.and(received).map_err(CapacityError::Socket)
        })?;
        if cancel.load(Ordering::Relaxed) {
            return Err(CapacityError::Cancelled);
        }
        let report = shared.lock().report();
        Ok(report)
    }

    /// The rule of [`Consent`], for measurers: they are on no list of relays, so addresses count.
    fn check_consent(&self) -> Result<(), CapacityError> {
        let local = Consent::local_only();
        for peer in &self.peers {
            let ip = peer.address.ip().to_canonical();
            let is_local = local.check(RsaId([0; 20]), ip).is_ok();
            if !is_local && !self.allowed.contains(&ip) {
                return Err(CapacityError::NotAllowed(*peer));
            }
        }
        Ok(())
    }
}

/// The state that a measurer's two threads share: one sends, one receives.
struct SharedExchange<'a> {
    socket: &'a CapacitySocket,
    clock: Clock,
    exchange: Mutex<Exchange>,
    /// A packet arrived, so that the next deadline may be earlier.
    nearer: Condvar,
    is_over: AtomicBool,
}

impl SharedExchange<'_> {
    fn lock(&self) -> MutexGuard<'_, Exchange> {
        // A panic of the other thread is passed on when it is joined.
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn send_until_over(&self, rng: &mut StdRng, cancel: &AtomicBool) -> io::Result<()> {
        let mut buffer = vec![0; usize::from(u16::MAX)];
        rng.fill_bytes(&mut buffer);
        loop {
            let mut exchange = self.lock();
            if cancel.load(Ordering::Relaxed) {
                exchange.cancel();
            }
            let now = self.clock.now();
            exchange.handle_timeout(now);
            if exchange.is_over() || self.is_over() {
                return Ok(());
            }
            let batch_len = self.socket.batch_len();
            let Some(transmit) = exchange.poll_transmit(now, batch_len, &mut buffer) else {
                let timeout = exchange.poll_timeout(now).unwrap_or(now);
                let wait = (timeout - now).min(LONGEST_WAIT);
                // A timeout makes no difference.
                drop(self.nearer.wait_timeout(exchange, wait));
                continue;
            };
            drop(exchange);
            while let Err(error) = self.socket.send(&transmit, &buffer) {
                if error.kind() != ErrorKind::WouldBlock {
                    self.lock().handle_unsent(&transmit, error.to_string());
                    break;
                }
                if cancel.load(Ordering::Relaxed) || self.is_over() {
                    self.lock().handle_unsent(&transmit, error.to_string());
                    break;
                }
                self.socket.wait_writable(LONGEST_WAIT)?;
            }
        }
    }

    fn receive_until_over(&self) -> io::Result<()> {
        let result = self.receive();
        // The sender must not wait once the receiver has ended.
        self.is_over.store(true, Ordering::Relaxed);
        result
    }

    fn receive(&self) -> io::Result<()> {
        let mut buffers = self.socket.receive_buffers();
        while !self.is_over() {
            let mut batch = None;
            let received = self.socket.receive(&mut buffers, |from, datagram| {
                let (exchange, now, _) = batch.get_or_insert_with(|| {
                    let (exchange, now) = (self.lock(), self.clock.now());
                    let timeout = exchange.poll_timeout(now);
                    (exchange, now, timeout)
                });
                exchange.handle_datagram(*now, from, datagram);
            });
            if let Some((exchange, now, timeout)) = batch
                && exchange.poll_timeout(now) < timeout
            {
                self.nearer.notify_one();
            }
            match received {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.socket.wait_readable(LONGEST_WAIT)?;
                }
                // The error of an earlier datagram that was not delivered.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
