use super::keys::Token;
use super::report::{CapacityPeer, CapacityReport};
use super::run::{CapacityError, CapacityTest};
use super::socket::CapacitySocket;
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::thread;

/// The parameters of a capacity test between measurers in one process, over loopback.
#[derive(Clone, Copy, Debug)]
pub struct LoopbackTest {
    /// The number of measurers.
    pub measurers: u16,
    /// Length of the flood in seconds.
    pub seconds: u32,
    /// Time until the flood starts.
    pub start_delay: Duration,
    /// The maximum rate of each measurer to all its peers together.
    pub rate: Rate,
}

impl LoopbackTest {
    /// Runs each measurer in a thread, until the end or until `cancel` is set. Returns their reports, by index.
    ///
    /// # Errors
    /// The first error of a measurer.
    pub fn run(self, cancel: &AtomicBool) -> Result<Vec<CapacityReport>, CapacityError> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bind = |_| {
            CapacitySocket::bind(any).map_err(|source| CapacityError::Bind { address: any, source })
        };
        let sockets = (0..self.measurers).map(bind).collect::<Result<Vec<_>, _>>()?;
        let peer = |(index, socket): (u16, &CapacitySocket)| CapacityPeer {
            index,
            address: socket.local_addr(),
        };
        let team: Vec<CapacityPeer> = (0..).zip(&sockets).map(peer).collect();
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(CapacityError::Random)?;
        let token = Token::generate(&mut rng);
        thread::scope(|scope| {
            let start = |(own, socket): (&CapacityPeer, _)| {
                let test = CapacityTest {
                    listen: own.address,
                    index: own.index,
                    peers: team.iter().filter(|it| it.index != own.index).copied().collect(),
                    token,
                    seconds: self.seconds,
                    start_delay: self.start_delay,
                    rate: self.rate,
                    allowed: BTreeSet::new(),
                };
                thread::Builder::new()
                    .name(format!("measurer-{}", own.index))
                    .spawn_scoped(scope, move || test.run_on(socket, cancel))
                    .map_err(CapacityError::Thread)
            };
            let threads: Vec<_> = team.iter().zip(&sockets).map(start).collect();
            let join = |thread: Result<thread::ScopedJoinHandle<'_, _>, CapacityError>| {
                thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        })
    }
}
