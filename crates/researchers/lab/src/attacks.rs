//! Attacks on a relay by malicious clients with few resources.
//!
//! Each attack implements `Attack` over real sockets, with the engine's links, handshakes and circuits. Similar attacks share a
//! file. All of them use an `Attacker`: connections to the relay (lines), each from a separate address, and a token bucket that
//! limits their total rate. A [`RunningAttack`] runs an attack on its own thread. A [`Reader`] is an honest client of the relay's
//! directory.
//!
//! **Safety.** These programs disable relays. An [`AttackTarget`] accepts only addresses on loopback, and an `Attacker` connects
//! to no other address, so no attack can reach another host.

mod attacker;
mod bomb;
mod circuits;
mod connections;
mod dials;
mod dir_port;
mod directory;
mod handshakes;
mod idle;
mod line;
mod messages;
mod probing;
mod reader;
mod requests;
mod snipers;
mod streams;
mod target;
mod watchlist;

pub use attacker::{Counts, Spent};
pub use bomb::Interceptor;
pub use reader::{Reader, Reads};
pub use requests::DocumentNames;
pub use target::{ATTACKERS, AttackTarget};
pub use watchlist::{Probe, Watchlist};

use crate::background::Background;
use attacker::{Attacker, LineId};
use circuits::Circuit;
use link::Clock;
use onion::cell::{BODY_LEN, CircId, Command};
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The reason that an attack cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AttackError {
    /// A target is not on loopback.
    #[error("{0} is not on loopback: attacks run only there")]
    NotOnLoopback(SocketAddr),
    /// The relay lacks something that the attack needs.
    #[error("the relay is unsuitable: {0}")]
    Relay(String),
    /// The attack needs a proxy between the relay and its authorities, and there is none.
    #[error("no proxy between the relay and its authorities")]
    NoInterceptor,
    /// The operating system refuses a socket or a thread.
    #[error("machine: {0}")]
    Machine(#[from] io::Error),
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random bytes: {0}")]
    Random(rand::rngs::SysError),
    /// The attacker's certificates cannot be created.
    #[error(transparent)]
    Issue(#[from] link::IssueError),
}

/// A circuit, identified by its line and its circuit ID on that line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CircuitAt {
    line: LineId,
    circ_id: CircId,
}

/// An attack on a relay.
trait Attack: Send {
    /// Does what is possible now: connects, opens circuits, and sends while a line has room. Called repeatedly.
    fn act(&mut self, attacker: &mut Attacker);

    /// Handles a circuit that was [begun](Attacker::begin) and is now open.
    fn handle_built(&mut self, _attacker: &mut Attacker, _circuit: Circuit) {}

    /// Handles a cell on a circuit that is not being built.
    fn handle_cell(
        &mut self,
        _attacker: &mut Attacker,
        _at: CircuitAt,
        _command: Command,
        _body: &[u8; BODY_LEN],
    ) {
    }

    /// Handles a line that the relay has closed, or that could not be opened.
    fn handle_lost(&mut self, _line: LineId) {}
}

/// The kind of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Kind {
    /// A growing number of circuits, each with one or two unread cells.
    SniperWide,
    /// Few circuits, each with the maximum number of unread cells.
    SniperDeep,
    /// CREATE2 with ntor, for the correct onion key.
    Create2Flood,
    /// CREATE2 with ntor-v3, for the correct onion key.
    Create2V3Flood,
    /// CREATE2 with ntor-v3 for the correct onion key, with a wrong MAC.
    Create2WrongFlood,
    /// CREATE_FAST, and DESTROY some time later.
    CreateFastFlood,
    /// EXTEND2 to addresses that never answer.
    DialExhaustion,
    /// Circuits that wait for a link to an address that never answers, and are destroyed meanwhile.
    WaitAndDie,
    /// BEGIN_DIR, and nothing after it.
    BeginDirFlood,
    /// Open links that send nothing.
    ConnectionFlood,
    /// TCP without TLS, and TLS without VERSIONS.
    HalfOpen,
    /// Links that request control cells and read none.
    SlowReaders,
    /// DROP, PADDING and VPADDING.
    PaddingFlood,
    /// Unsolicited SENDMEs.
    SendmeFlood,
    /// Bytes that are not valid TLS, cells or relay messages.
    Garbage,
    /// CREATE_FAST circuits that stay idle, from 40 addresses.
    IdleFast,
    /// CREATE2 circuits that stay idle, from 40 addresses.
    IdleCreate2,
    /// CREATE_FAST circuits that stay idle, from 2,000 addresses.
    IdleThin,
    /// Directory requests over BEGIN_DIR that are expensive to answer.
    DirectoryWork,
    /// Directory requests over the directory port that are expensive to answer.
    DirPortWork,
    /// BEGIN_DIR streams that never end their request, or never acknowledge the answer.
    DirectorySlow,
    /// Connections to the directory port that never end their request, or never read the answer.
    DirPortSlow,
    /// Consensus diffs of millions of empty lines, from an attacker between the relay and its authorities.
    ConsensusDiffBomb,
    // These are last: they keep the relays on their path busy for a long time.
    /// Idle circuits through another relay.
    IdleCircuits,
    /// RESOLVE of names that are all different, over circuits of two hops.
    ResolveFlood,
    /// RESOLVE and BEGIN of the same names repeatedly, to learn whether another client has asked for them.
    DnsProbing,
}

#[cfg(feature = "clap")]
impl Kind {
    /// The name of the attack on the command line and in results.
    pub fn word(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map(|value| value.get_name().to_owned())
            .unwrap_or_default()
    }

    /// A description of the attack for people.
    pub fn help(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        let help = value.and_then(|value| value.get_help().map(ToString::to_string));
        help.unwrap_or_default()
    }
}

impl Kind {
    /// Whether the attack targets the relay as an exit.
    pub const fn targets_exit(self) -> bool {
        matches!(self, Self::ResolveFlood | Self::DnsProbing)
    }

    /// Whether the attack targets names that the relay resolves as an exit.
    pub const fn targets_names(self) -> bool {
        matches!(self, Self::DnsProbing)
    }

    /// Whether the attack goes through another relay, which honest circuits share.
    pub const fn uses_another_relay(self) -> bool {
        matches!(self, Self::IdleCircuits)
    }

    /// Whether the attack targets the relay's directory port.
    pub const fn targets_dir_port(self) -> bool {
        matches!(self, Self::DirPortWork | Self::DirPortSlow)
    }

    /// Whether the attack uses a proxy on the path between the relay and its directory authorities.
    pub const fn intercepts(self) -> bool {
        matches!(self, Self::ConsensusDiffBomb)
    }

    /// Whether the attack consists of directory requests, or of answers to them.
    pub const fn uses_requests(self) -> bool {
        self.targets_dir_port()
            || self.intercepts()
            || matches!(self, Self::DirectoryWork | Self::DirectorySlow)
    }

    /// The minimum duration of the attack in seconds: until idle circuits have filled the relay at this rate, with a margin, or
    /// until the relay has requested several consensuses.
    pub fn min_duration_s(self, memory_mib: u32, rate: Rate) -> u32 {
        match self {
            Self::IdleFast | Self::IdleCreate2 | Self::IdleThin => {
                let fill_s = idle::bytes_for(memory_mib) / rate.as_byte_per_s().max(1);
                // Some handshakes are refused while others wait for a processor.
                let tries = if self == Self::IdleCreate2 { 2 } else { 1 };
                u32::try_from(tries * fill_s + 6).unwrap_or(u32::MAX).min(600)
            }
            Self::ConsensusDiffBomb => 20,
            _ => 0,
        }
    }

    /// Whether the attack delays new links of the relay. Honest circuits then extend to relays to which it has no link yet.
    pub const fn targets_dials(self) -> bool {
        matches!(self, Self::DialExhaustion | Self::WaitAndDie)
    }

    fn program(self, target: &AttackTarget) -> Result<Box<dyn Attack>, AttackError> {
        Ok(match self {
            Self::SniperWide => Box::new(snipers::wide()),
            Self::SniperDeep => Box::new(snipers::deep()),
            Self::Create2Flood => Box::new(handshakes::Flood::ntor(target)),
            Self::Create2V3Flood => Box::new(handshakes::Flood::ntor_v3(target, true)?),
            Self::Create2WrongFlood => Box::new(handshakes::Flood::ntor_v3(target, false)?),
            Self::CreateFastFlood => Box::new(handshakes::Flood::fast()),
            Self::DialExhaustion => Box::new(dials::BlackHoles::new(dials::After::Wait)?),
            Self::WaitAndDie => Box::new(dials::BlackHoles::new(dials::After::Destroy)?),
            Self::BeginDirFlood => Box::new(streams::Flood::begin_dir()),
            Self::ResolveFlood => Box::new(streams::Flood::resolve()),
            Self::DnsProbing => Box::new(probing::Prober::new(target)),
            Self::IdleCircuits => Box::new(circuits::Idle::default()),
            Self::ConnectionFlood => Box::new(connections::Idle::default()),
            Self::HalfOpen => Box::new(connections::HalfOpen::default()),
            Self::SlowReaders => Box::new(connections::SlowReaders::default()),
            Self::PaddingFlood => Box::new(messages::Padding::default()),
            Self::SendmeFlood => Box::new(messages::Sendmes),
            Self::Garbage => Box::new(messages::Garbage::default()),
            Self::IdleFast => Box::new(idle::Idle::fast(target)),
            Self::IdleCreate2 => Box::new(idle::Idle::create2(target)),
            Self::IdleThin => Box::new(idle::Idle::thin(target)),
            Self::DirectoryWork => Box::new(directory::Work::new(target)),
            Self::DirPortWork => Box::new(dir_port::Work::new(target)),
            Self::DirectorySlow => Box::new(directory::SlowReaders::default()),
            Self::DirPortSlow => Box::new(dir_port::SlowReaders::default()),
            Self::ConsensusDiffBomb => {
                let none = || AttackError::NoInterceptor;
                Box::new(bomb::Bombs::new(target.interceptor().ok_or_else(none)?))
            }
        })
    }
}

/// A running attack on a separate thread. Dropping it ends the attack.
pub struct RunningAttack {
    counts: Arc<Counts>,
    _thread: Background,
}

impl RunningAttack {
    /// Starts the attack at this rate at most.
    pub fn start(
        kind: Kind,
        target: AttackTarget,
        rate: Rate,
        clock: Clock,
    ) -> Result<Self, AttackError> {
        Self::run(kind.program(&target)?, target, rate, clock)
    }

    /// Runs an [`Attack`] at this rate at most.
    fn run(
        mut attack: Box<dyn Attack>,
        target: AttackTarget,
        rate: Rate,
        clock: Clock,
    ) -> Result<Self, AttackError> {
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(AttackError::Random)?;
        let counts = Arc::new(Counts::default());
        let mut attacker = Attacker::new(target, rate, clock, rng, Arc::clone(&counts))?;
        let thread = Background::start("attack", move || {
            attacker.begin_turn();
            attack.act(&mut attacker);
            if attacker.turn(&mut *attack) { Duration::ZERO } else { Attacker::PAUSE }
        })?;
        Ok(Self { counts, _thread: thread })
    }

    /// What the attack has spent up to now.
    pub fn spent(&self) -> Spent {
        self.counts.spent()
    }
}
