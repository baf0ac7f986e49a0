//! The relay and the measurers, which run through all rounds, and the coordinator of each round: each a separate process.

use super::plan::{MEASURERS, Victim};
use super::traces;
use crate::error::{Error, Result};
use crate::process::tcp_sockets;
use control::keys::{PublicKey, SecretKey};
use lab::witness::{Count, Witness};
use lab::{OwnError, OwnProcess, OwnRelay, OwnRelaySpec};
use link::Clock;
use onion::{Duration, Rate};
use std::fmt::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::{env, fs};
use tempfile::TempDir;

/// The timeout of the start of a measurer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Few sockets, so that the set-up takes no longer than the measurement.
const SOCKETS: u32 = 20;

/// The capacity of a measurer, relative to the relay's limit. Both measurers are needed: if one is dead before the round, the result of
/// the other is a lower bound.
const CAPACITY: f64 = 2.0;

/// The guess of the relay's capacity, relative to its limit: enough to make the first round conclusive.
const GUESS: f64 = 1.25;

/// The processes that run through all rounds, and the configuration of coordinators.
pub(super) struct Processes {
    relay: OwnRelay,
    measurers: Vec<MeasurerProcess>,
    limit: Rate,
    key: SecretKey,
    clock: Clock,
    // Dropped last: the processes use its files.
    folder: TempDir,
}

/// A running measurer.
struct MeasurerProcess {
    name: String,
    file: PathBuf,
    key: PublicKey,
    process: OwnProcess,
    address: SocketAddr,
}

impl MeasurerProcess {
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
        let mut processes = Self { relay, measurers: Vec::new(), limit, key, clock, folder };
        for place in 0..MEASURERS {
            processes.add_measurer(&format!("measurer{place}"))?;
        }
        Ok(processes)
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
        let (process, address) =
            MeasurerProcess::start(name, &file, &self.temporary(), self.clock)?;
        let (name, key) = (name.to_owned(), key.public());
        self.measurers.push(MeasurerProcess { name, file, key, process, address });
        Ok(())
    }

    /// The folder of temporary files. There should be none.
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

    /// Starts a coordinator that measures the relay once with all measurers, and exits.
    pub(super) fn coordinator(&self, seconds: u32) -> Result<OwnProcess> {
        let target = &self.relay.target;
        let fingerprint = target.ids.rsa.to_string();
        let file = self.folder.path().join("coordinator.toml");
        // Without a consensus, the relay is identified by its address.
        let mut text = format!(
            "key = \"coordinator.key\"\nout = \"bandwidth\"\nconsensus = \"none\"\n\
             echo = [\"{fingerprint}\"]\necho_rounds = 1\n"
        );
        let capacity = self.limit.scaled(CAPACITY).as_mbit_per_s();
        for MeasurerProcess { address, key, .. } in &self.measurers {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "[[measurers]]\naddress = \"{address}\"\nkey = \"{key}\"\n\
                 capacity_mbit_per_s = {capacity:?}\n"
            );
        }
        write(&file, &text)?;
        let ed25519 = target.ids.ed25519.map(|id| id.to_string());
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

    /// Starts counting what the current measurers receive from the relay.
    pub(super) fn witness(&self) -> Result<Witness> {
        let by = self.measurers.iter().map(|measurer| measurer.process.pid()).collect();
        let counts = vec![Count::Received { by, from: self.relay.process.pid() }];
        Witness::start(counts, self.clock).map_err(Error::witness)
    }

    /// Whether one of these processes has its listening socket and no other TCP socket.
    pub(super) fn is_idle(&self, who: Victim) -> bool {
        self.sockets(who) == (1, 0)
    }

    /// The numbers of a process's listening and other TCP sockets.
    fn sockets(&self, who: Victim) -> (usize, usize) {
        let sockets = self.pid(who).map(tcp_sockets).unwrap_or_default();
        let listening = sockets.iter().filter(|socket| socket.is_listening).count();
        (listening, sockets.len() - listening)
    }

    /// Its listening address; `None` for the coordinator.
    pub(super) fn address(&self, who: Victim) -> Option<SocketAddr> {
        match who {
            Victim::Measurer(place) => self.measurers.get(place).map(|measurer| measurer.address),
            Victim::Target => Some(self.relay.target.address),
            Victim::Coordinator | Victim::Nobody => None,
        }
    }

    fn process(&self, who: Victim) -> Option<&OwnProcess> {
        match who {
            Victim::Measurer(place) => self.measurers.get(place).map(|measurer| &measurer.process),
            Victim::Target => Some(&self.relay.process),
            Victim::Coordinator | Victim::Nobody => None,
        }
    }

    fn pid(&self, who: Victim) -> Option<u32> {
        self.process(who).map(OwnProcess::pid)
    }

    /// Freezes the relay or a measurer.
    pub(super) fn freeze(&self, who: Victim) {
        if let Some(process) = self.process(who) {
            process.freeze();
        }
    }

    /// Kills the relay or a measurer.
    pub(super) fn kill(&mut self, who: Victim) {
        match who {
            Victim::Measurer(place) => self.measurers[place].process.kill(),
            Victim::Target => self.relay.process.kill(),
            Victim::Coordinator | Victim::Nobody => {}
        }
    }

    /// Kills the relay or a measurer if it still runs, and starts it again with the same keys.
    pub(super) fn restart(&mut self, who: Victim) -> Result<()> {
        self.kill(who);
        let temporary = self.temporary();
        match who {
            Victim::Measurer(place) => {
                let measurer = &mut self.measurers[place];
                (measurer.process, measurer.address) =
                    MeasurerProcess::start(&measurer.name, &measurer.file, &temporary, self.clock)?;
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

    /// The processes that run through all rounds.
    pub(super) fn permanent() -> impl Iterator<Item = Victim> {
        (0..MEASURERS).map(Victim::Measurer).chain([Victim::Target])
    }

    /// Processes, sockets and files that should not exist after a round in which `dead` was killed.
    pub(super) fn leftovers(&self, dead: Victim) -> Vec<String> {
        let living = || Self::permanent().filter(|who| *who != dead);
        let known: Vec<u32> = living().filter_map(|who| self.pid(who)).collect();
        let mut leftovers: Vec<String> = traces::processes(self.folder.path())
            .into_iter()
            .filter(|(pid, _)| !known.contains(pid))
            .map(|(pid, line)| format!("process {pid} is left: {line}"))
            .collect();
        for who in living() {
            if !self.is_idle(who) {
                let (listening, connections) = self.sockets(who);
                leftovers.push(format!(
                    "{who} has {listening} listening sockets instead of one, and {connections} connections"
                ));
            }
        }
        if let Some(address) = self.address(dead)
            && TcpStream::connect(address).is_ok()
        {
            leftovers.push(format!("a process still listens at {address}"));
        }
        let files = fs::read_dir(self.temporary()).into_iter().flatten().flatten();
        leftovers.extend(files.map(|file| format!("a file is left: {}", file.path().display())));
        leftovers
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    let failed = |source| Error::File { what: "write", path: path.to_owned(), source };
    fs::write(path, text).map_err(failed)
}
