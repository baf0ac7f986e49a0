use super::report::{CapacityPeer, CapacityReport};
use super::run::{CapacityError, CapacityTest, ports};
use super::token::Token;
use crate::Site;
use crate::member::MemberError;
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::thread;

/// The number of connections between two measurers in each direction: over loopback none needs many.
const SOCKETS: u16 = 4;

/// The parameters of a capacity test between measurers in one process, over loopback.
#[derive(Clone, Copy, Debug)]
pub struct LoopbackTest {
    /// The number of measurers.
    pub measurers: u16,
    /// Length of the load in seconds.
    pub seconds: u32,
    /// Time until the load starts.
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
        let site = Site::new().map_err(|error| MemberError::from_error(&error))?;
        let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
        let listeners = (0..self.measurers).map(|_| site.listen(loopback, 1));
        let listeners = listeners.collect::<Result<Vec<Vec<TcpListener>>, _>>()?;
        let all_ports: Vec<Vec<u16>> = listeners.iter().map(|own| ports(own)).collect();
        let peer = |(index, ports): (u16, &Vec<u16>)| CapacityPeer {
            index,
            address: SocketAddr::new(loopback, ports.first().copied().unwrap_or(0)),
        };
        let team: Vec<CapacityPeer> = (0..).zip(&all_ports).map(peer).collect();
        let mut rng = StdRng::try_from_rng(&mut SysRng).map_err(CapacityError::Random)?;
        let token = Token::generate(&mut rng);
        thread::scope(|scope| {
            let start = |(own, listeners): (&CapacityPeer, Vec<TcpListener>)| {
                let is_other = |peer: &CapacityPeer| peer.index != own.index;
                let test = CapacityTest {
                    index: own.index,
                    peers: team.iter().filter(|peer| is_other(peer)).copied().collect(),
                    token,
                    sockets: SOCKETS,
                    seconds: self.seconds,
                    rate: self.rate,
                };
                let pairs = team.iter().zip(&all_ports).filter(|(peer, _)| is_other(peer));
                let ports: Vec<Vec<u16>> = pairs.map(|(_, ports)| ports.clone()).collect();
                let site = &site;
                let run = move || test.run(site, listeners, &ports, self.start_delay, cancel);
                scope.spawn(run)
            };
            let threads: Vec<_> = team.iter().zip(listeners).map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(join).collect()
        })
    }
}
