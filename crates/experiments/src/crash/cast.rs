//! Who takes part: a relay, measurers, and in each round a coordinator, all processes of their own.

use super::plan::{MEASURERS, Victim};
use super::traces::{self, Sockets};
use crate::error::{Error, Result};
use control::keys::{PublicKey, SecretKey};
use lab::witness::{Count, Witness};
use lab::{OwnError, OwnProcess, OwnRelay, OwnRelaySpec};
use link::Clock;
use netdoc::{Ed25519Identity, Fingerprint};
use onion::{Duration, Rate};
use std::fmt::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::{env, fs};
use tempfile::TempDir;

/// Far more than a measurer needs to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Few, so that a round takes no longer to set up than to measure.
const SOCKETS: u32 = 20;

/// What a measurer has, in relays: so little that each is needed. Of one that is dead before the round, the
/// other's result is a lower bound.
const CAPACITY: f64 = 2.0;

/// What is expected of the relay, in what it has: then the first round is conclusive.
const GUESS: f64 = 1.25;

/// The processes that last from round to round, and what a coordinator needs.
pub(super) struct Processes {
    relay: OwnRelay,
    measurers: Vec<Actor>,
    limit: Rate,
    key: SecretKey,
    clock: Clock,
    /// Last, since its files are theirs.
    folder: TempDir,
}

/// A measurer.
struct Actor {
    name: String,
    file: PathBuf,
    key: PublicKey,
    process: OwnProcess,
    address: SocketAddr,
}

impl Actor {
    fn start(
        name: &str,
        file: &Path,
        temporary: &Path,
        clock: Clock,
    ) -> Result<(OwnProcess, SocketAddr)> {
        let arguments = ["measurer".as_ref(), "--config".as_ref(), file.as_os_str()];
        let process = OwnProcess::start(name, arguments, Some(temporary), clock)?;
        let listening = process.wait_for("listening", PATIENCE)?;
        let address = listening["address"].as_str().and_then(|text| text.parse().ok());
        let address = address.ok_or_else(|| OwnError::no_address(name, &listening))?;
        Ok((process, address))
    }
}

impl Processes {
    pub(super) fn new(limit: Rate, clock: Clock) -> Result<Self> {
        let failed =
            |source| Error::File { what: "make a folder in", path: env::temp_dir(), source };
        let folder =
            tempfile::Builder::new().prefix("flashflow-kill-").tempdir().map_err(failed)?;
        let temporary = Self::temporary_in(folder.path());
        fs::create_dir(&temporary).map_err(failed)?;
        let key = SecretKey::generate()?;
        key.write_new(&folder.path().join("coordinator.key"))?;
        let spec = OwnRelaySpec {
            limit: Some(limit),
            temporary_folder: Some(temporary),
            ..OwnRelaySpec::new("target", key.public())
        };
        let relay = OwnRelay::start(spec, folder.path(), clock)?;
        let mut cast = Self { relay, measurers: Vec::new(), limit, key, clock, folder };
        for place in 0..MEASURERS {
            cast.add_measurer(&format!("measurer{place}"))?;
        }
        Ok(cast)
    }

    fn add_measurer(&mut self, name: &str) -> Result<()> {
        let key = SecretKey::generate()?;
        key.write_new(&self.folder.path().join(format!("{name}.key")))?;
        let file = self.folder.path().join(format!("{name}.toml"));
        let configuration = format!(
            "listen = \"127.0.0.1:0\"\nkey = \"{name}.key\"\ncoordinators = [\"{}\"]\n\
             capacity_mbit_per_s = {:?}\npumps = 1\n",
            self.key.public(),
            self.limit.scaled(CAPACITY).as_mbit_per_s(),
        );
        write(&file, &configuration)?;
        let (process, address) = Actor::start(name, &file, &self.temporary(), self.clock)?;
        let (name, key) = (name.to_owned(), key.public());
        self.measurers.push(Actor { name, file, key, process, address });
        Ok(())
    }

    /// Where temporary files would be, if any were made.
    fn temporary_in(folder: &Path) -> PathBuf {
        folder.join("temporary")
    }

    fn temporary(&self) -> PathBuf {
        Self::temporary_in(self.folder.path())
    }

    /// The target.
    pub(super) const fn relay(&self) -> &OwnRelay {
        &self.relay
    }

    /// A coordinator that measures the relay once with all measurers, and ends.
    pub(super) fn coordinator(&self, seconds: u32) -> Result<OwnProcess> {
        let target = &self.relay.target;
        let fingerprint = Fingerprint::from_bytes(target.ids.rsa.0).to_string();
        let file = self.folder.path().join("coordinator.toml");
        // There is no consensus: the relay is named by its address.
        let mut text = format!(
            "key = \"coordinator.key\"\nout = \"bandwidth\"\nconsensus = \"none\"\n\
             echo = [\"{fingerprint}\"]\necho_rounds = 1\n"
        );
        let capacity = self.limit.scaled(CAPACITY).as_mbit_per_s();
        for Actor { address, key, .. } in &self.measurers {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "[[measurers]]\naddress = \"{address}\"\nkey = \"{key}\"\n\
                 capacity_mbit_per_s = {capacity:?}\n"
            );
        }
        write(&file, &text)?;
        let ed25519 = target.ids.ed25519.map(|id| Ed25519Identity::from_bytes(id.0).to_string());
        let guess = self.limit.scaled(GUESS).as_mbit_per_s();
        let arguments = [
            "measure".to_owned(),
            fingerprint,
            format!("--address={}", target.address),
            format!("--ed25519={}", ed25519.unwrap_or_default()),
            format!("--team={}", file.display()),
            format!("--seconds={seconds}"),
            format!("--guess={guess}"),
            format!("--sockets={SOCKETS}"),
        ];
        let temporary = self.temporary();
        Ok(OwnProcess::start("coordinator", arguments, Some(&temporary), self.clock)?)
    }

    /// What counts what the measurers receive from the relay, as they are now.
    pub(super) fn witness(&self) -> Result<Witness> {
        let by = self.measurers.iter().map(|actor| actor.process.pid()).collect();
        let counts = vec![Count::Received { by, from: self.relay.process.pid() }];
        Witness::start(counts, self.clock).map_err(Error::witness)
    }

    /// What this one's sockets are now; none if it is not of the lasting ones.
    pub(super) fn sockets(&self, who: Victim) -> Sockets {
        self.pid(who).map(traces::sockets).unwrap_or_default()
    }

    /// Where it listens.
    pub(super) fn address(&self, who: Victim) -> Option<SocketAddr> {
        match who {
            Victim::Measurer(place) => self.measurers.get(place).map(|actor| actor.address),
            Victim::Target => Some(self.relay.target.address),
            Victim::Coordinator | Victim::Nobody => None,
        }
    }

    fn pid(&self, who: Victim) -> Option<u32> {
        match who {
            Victim::Measurer(place) => self.measurers.get(place).map(|actor| actor.process.pid()),
            Victim::Target => Some(self.relay.process.pid()),
            Victim::Coordinator | Victim::Nobody => None,
        }
    }

    /// Freezes one of the lasting ones.
    pub(super) fn freeze(&self, who: Victim) {
        match who {
            Victim::Measurer(place) => {
                if let Some(actor) = self.measurers.get(place) {
                    actor.process.freeze();
                }
            }
            Victim::Target => self.relay.process.freeze(),
            Victim::Coordinator | Victim::Nobody => {}
        }
    }

    /// Kills one of the lasting ones.
    pub(super) fn kill(&mut self, who: Victim) {
        match who {
            Victim::Measurer(place) => {
                if let Some(actor) = self.measurers.get_mut(place) {
                    actor.process.kill();
                }
            }
            Victim::Target => self.relay.process.kill(),
            Victim::Coordinator | Victim::Nobody => {}
        }
    }

    /// Starts one anew, with its keys; what may be left of the old one is killed.
    pub(super) fn restart(&mut self, who: Victim) -> Result<()> {
        self.kill(who);
        let temporary = self.temporary();
        match who {
            Victim::Measurer(place) => {
                if let Some(actor) = self.measurers.get_mut(place) {
                    let again = Actor::start(&actor.name, &actor.file, &temporary, self.clock)?;
                    (actor.process, actor.address) = again;
                }
            }
            Victim::Target => {
                let spec = self.relay.spec.clone();
                let folder = self.folder.path();
                self.relay = OwnRelay::start(spec, folder, self.clock)?;
            }
            Victim::Coordinator | Victim::Nobody => {}
        }
        Ok(())
    }

    /// Those that last from round to round.
    pub(super) fn lasting() -> impl Iterator<Item = Victim> {
        (0..MEASURERS).map(Victim::Measurer).chain([Victim::Target])
    }

    /// What is there that should not be, once a round is over in which `dead` was killed.
    pub(super) fn remains(&self, dead: Victim) -> Vec<String> {
        let living = || Self::lasting().filter(|who| *who != dead);
        let known: Vec<u32> = living().filter_map(|who| self.pid(who)).collect();
        let mut remains: Vec<String> = traces::processes(self.folder.path())
            .into_iter()
            .filter(|(pid, _)| !known.contains(pid))
            .map(|(pid, line)| format!("process {pid} is left: {line}"))
            .collect();
        for who in living() {
            let Sockets { listening, connections } = self.sockets(who);
            if (listening, connections) != (1, 0) {
                remains.push(format!(
                    "{who} has {listening} ports open, not one, and {connections} connections"
                ));
            }
        }
        if let Some(address) = self.address(dead)
            && TcpStream::connect(address).is_ok()
        {
            remains.push(format!("somebody still listens at {address}"));
        }
        let files = fs::read_dir(self.temporary()).into_iter().flatten().flatten();
        remains.extend(files.map(|file| format!("a file is left: {}", file.path().display())));
        remains
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |source| Error::File { what: "write", path: path.to_owned(), source };
    fs::write(path, text).map_err(failed)
}
