//! The attacks: what an ill-meaning client can do to a relay with little of its own.
//!
//! Each is one `Attack` in a file with its like, on real sockets and with the engine's own links, handshakes and
//! circuits. They share a `Field`: lines to the relay, each from an address of the attacker's, and a token bucket that holds
//! them all to a rate. An [`Assault`] plays one; a [`Reader`] is an honest client of the relay's directory meanwhile.
//!
//! **Safety.** These programs stop relays. A [`Prey`] can only be made of an address on loopback, and the field dials
//! nobody else: there is no way to name another machine.

mod bomb;
mod circuits;
mod connections;
mod dials;
mod dir_port;
mod directory;
mod field;
mod handshakes;
mod idle;
mod line;
mod messages;
mod prey;
mod probing;
mod reader;
mod requests;
mod snipers;
mod streams;
mod watchlist;

pub use bomb::Interceptor;
pub use field::{Counts, Spent};
pub use prey::{ATTACKERS, Prey};
pub use reader::{Reader, Reads};
pub use requests::DocumentNames;
pub use watchlist::{Probe, Watchlist};

use crate::background::Background;
use circuits::Circuit;
use field::{Field, LineId};
use link::Clock;
use onion::cell::{BODY_LEN, CircId, Command};
use onion::{Duration, Rate};
use rand::SeedableRng;
use rand::rngs::{StdRng, SysRng};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// Why an attack cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum AttackError {
    /// A target is elsewhere.
    #[error("{0} is not on loopback: attacks are played there only")]
    NotOnLoopback(SocketAddr),
    /// The relay lacks something that the attack needs.
    #[error("a relay of no use: {0}")]
    Relay(String),
    /// The attack comes by a proxy, and there is none.
    #[error("no proxy before the relay's authorities")]
    NoInterceptor,
    /// The system refuses a socket or a thread.
    #[error("machine: {0}")]
    Machine(#[from] io::Error),
    /// There are no random bytes.
    #[error("the operating system gives no random bytes: {0}")]
    Random(rand::rngs::SysError),
    /// The attacker's certificates cannot be made.
    #[error(transparent)]
    Issue(#[from] link::IssueError),
}

/// A circuit, by its line and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CircuitAt {
    line: LineId,
    circ_id: CircId,
}

/// A way to do harm.
trait Attack: Send {
    /// Does what can be done now: dials, opens circuits, sends while a line has room. Called again and again.
    fn act(&mut self, field: &mut Field);

    /// A circuit that was [begun](Field::begin) stands.
    fn handle_built(&mut self, _field: &mut Field, _circuit: Circuit) {}

    /// A cell has come on a circuit that is not being built.
    fn handle_cell(
        &mut self,
        _field: &mut Field,
        _at: CircuitAt,
        _command: Command,
        _body: &[u8; BODY_LEN],
    ) {
    }

    /// The relay has closed a line, or it could not be made.
    fn handle_lost(&mut self, _line: LineId) {}
}

/// Which attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Kind {
    /// Ever more circuits, each with an unread cell or two.
    SniperWide,
    /// Few circuits, each with as many unread cells as it takes.
    SniperDeep,
    /// CREATE2 with ntor, by the right key.
    Create2Flood,
    /// CREATE2 with ntor of version 3, by the right key.
    Create2V3Flood,
    /// CREATE2 with ntor of version 3 by the right key, whose proof is wrong.
    Create2WrongFlood,
    /// CREATE_FAST, and DESTROY some time later.
    CreateFastFlood,
    /// EXTEND2 to places where nobody answers.
    DialExhaustion,
    /// Circuits that wait for such a place, and are destroyed meanwhile.
    WaitAndDie,
    /// BEGIN_DIR, and nothing after it.
    BeginDirFlood,
    /// Links that stand and say nothing.
    ConnectionFlood,
    /// TCP without TLS, and TLS without VERSIONS.
    HalfOpen,
    /// Links that ask for control cells and read none.
    SlowReaders,
    /// DROP, PADDING and VPADDING.
    PaddingFlood,
    /// SENDMEs that nobody has asked for.
    SendmeFlood,
    /// Bytes that are no TLS, no cells, and no messages.
    Garbage,
    /// CREATE_FAST circuits that stay idle, from 40 addresses.
    IdleFast,
    /// CREATE2 circuits that stay idle, from 40 addresses.
    IdleCreate2,
    /// CREATE_FAST circuits that stay idle, from 2,000 addresses.
    IdleThin,
    /// Directory requests over BEGIN_DIR that take much work.
    DirectoryWork,
    /// Directory requests over the directory port that take much work.
    DirPortWork,
    /// BEGIN_DIR streams that never end their request, or never acknowledge the answer.
    DirectorySlow,
    /// Connections to the directory port that never end their request, or never read the answer.
    DirPortSlow,
    /// Consensus diffs of millions of empty lines, by an attacker between the relay and its authorities.
    ConsensusDiffBomb,
    // The last ones: relays by which they come are busy with them for long.
    /// Idle circuits that come by another relay.
    IdleCircuits,
    /// RESOLVE of ever other names, over circuits of two hops.
    ResolveFlood,
    /// RESOLVE and BEGIN of the same names again and again, to learn whether anybody else has asked for them.
    DnsProbing,
}

#[cfg(feature = "clap")]
impl Kind {
    /// What it is called on the command line and in results.
    pub fn word(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map(|it| it.get_name().to_owned())
            .unwrap_or_default()
    }

    /// In a sentence, for people.
    pub fn help(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        let help = value.and_then(|it| it.get_help().map(ToString::to_string));
        help.unwrap_or_default()
    }
}

impl Kind {
    /// Whether it is played against the relay as an exit.
    pub const fn is_on_exit(self) -> bool {
        matches!(self, Self::ResolveFlood | Self::DnsProbing)
    }

    /// Whether it is about names that the relay looks up as an exit.
    pub const fn is_on_names(self) -> bool {
        matches!(self, Self::DnsProbing)
    }

    /// Whether it comes by another relay, which honest circuits share.
    pub const fn comes_by_another(self) -> bool {
        matches!(self, Self::IdleCircuits)
    }

    /// Whether it is played against the relay's directory port.
    pub const fn is_on_dir_port(self) -> bool {
        matches!(self, Self::DirPortWork | Self::DirPortSlow)
    }

    /// Whether it comes by a proxy on the path between the relay and its directory authorities.
    pub const fn intercepts(self) -> bool {
        matches!(self, Self::ConsensusDiffBomb)
    }

    /// Whether it is made of directory requests, or of answers to them.
    pub const fn has_requests(self) -> bool {
        self.is_on_dir_port()
            || self.intercepts()
            || matches!(self, Self::DirectoryWork | Self::DirectorySlow)
    }

    /// The shortest time in which it can show what it does, in seconds: until the relay is full of idle circuits at this rate, and
    /// some more, or until it has asked for some consensuses.
    pub fn least_s(self, memory_mib: u32, rate: Rate) -> u32 {
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

    /// Whether honest circuits go on to relays to which there is no link yet.
    pub const fn is_on_dials(self) -> bool {
        matches!(self, Self::DialExhaustion | Self::WaitAndDie)
    }

    fn program(self, prey: &Prey) -> Result<Box<dyn Attack>, AttackError> {
        Ok(match self {
            Self::SniperWide => Box::new(snipers::wide()),
            Self::SniperDeep => Box::new(snipers::deep()),
            Self::Create2Flood => Box::new(handshakes::Flood::ntor(prey)),
            Self::Create2V3Flood => Box::new(handshakes::Flood::ntor_v3(prey, true)?),
            Self::Create2WrongFlood => Box::new(handshakes::Flood::ntor_v3(prey, false)?),
            Self::CreateFastFlood => Box::new(handshakes::Flood::fast()),
            Self::DialExhaustion => Box::new(dials::BlackHoles::new(dials::After::Wait)?),
            Self::WaitAndDie => Box::new(dials::BlackHoles::new(dials::After::Destroy)?),
            Self::BeginDirFlood => Box::new(streams::Flood::begin_dir()),
            Self::ResolveFlood => Box::new(streams::Flood::resolve()),
            Self::DnsProbing => Box::new(probing::Prober::new(prey)),
            Self::IdleCircuits => Box::new(circuits::Idle::default()),
            Self::ConnectionFlood => Box::new(connections::Idle::default()),
            Self::HalfOpen => Box::new(connections::HalfOpen::default()),
            Self::SlowReaders => Box::new(connections::SlowReaders::default()),
            Self::PaddingFlood => Box::new(messages::Padding::default()),
            Self::SendmeFlood => Box::new(messages::Sendmes),
            Self::Garbage => Box::new(messages::Garbage::default()),
            Self::IdleFast => Box::new(idle::Idle::fast(prey)),
            Self::IdleCreate2 => Box::new(idle::Idle::create2(prey)),
            Self::IdleThin => Box::new(idle::Idle::thin(prey)),
            Self::DirectoryWork => Box::new(directory::Work::new(prey)),
            Self::DirPortWork => Box::new(dir_port::Work::new(prey)),
            Self::DirectorySlow => Box::new(directory::SlowReaders::default()),
            Self::DirPortSlow => Box::new(dir_port::SlowReaders::default()),
            Self::ConsensusDiffBomb => {
                let none = || AttackError::NoInterceptor;
                Box::new(bomb::Bombs::new(prey.interceptor().ok_or_else(none)?))
            }
        })
    }
}

/// An attack under way, on a thread of its own, until it is dropped.
pub struct Assault {
    counts: Arc<Counts>,
    _thread: Background,
}

impl Assault {
    /// Begins it, at this rate at most.
    pub fn start(kind: Kind, prey: Prey, rate: Rate, clock: Clock) -> Result<Self, AttackError> {
        Self::run(kind.program(&prey)?, prey, rate, clock)
    }

    /// Runs a program, at this rate at most.
    fn run(
        mut attack: Box<dyn Attack>,
        prey: Prey,
        rate: Rate,
        clock: Clock,
    ) -> Result<Self, AttackError> {
        let rng = StdRng::try_from_rng(&mut SysRng).map_err(AttackError::Random)?;
        let counts = Arc::new(Counts::default());
        let mut field = Field::new(prey, rate, clock, rng, Arc::clone(&counts))?;
        let thread = Background::start("attack", move || {
            field.begin_turn();
            attack.act(&mut field);
            if field.turn(&mut *attack) { Duration::ZERO } else { Field::PAUSE }
        })?;
        Ok(Self { counts, _thread: thread })
    }

    /// What it has spent so far.
    pub fn spent(&self) -> Spent {
        self.counts.spent()
    }
}
