//! C tor as a client of a network.

use std::fmt::Write;
use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hex::FromHex;

use crate::children::{self, Children};
use crate::clock::Deadline;
use crate::control::Control;
use crate::error::LabError;
use crate::launch;
use crate::network::Network;
use crate::process::LOG;
use crate::torrc::{CONTROL_PORT, COOKIE, quoted};

/// Maximum wait for an event before the state is polled.
const STEP: Duration = Duration::from_millis(500);

/// The relays that a client may use at each position, by fingerprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins {
    /// `EntryNodes`.
    pub entry: Vec<[u8; 20]>,
    /// `MiddleNodes`.
    pub middle: Vec<[u8; 20]>,
    /// `ExitNodes`.
    pub exit: Vec<[u8; 20]>,
}

/// A C tor client of a [`Network`]. It ends with this value, or with the network.
#[derive(Debug)]
pub struct Client {
    nickname: String,
    dir: PathBuf,
    pid: u32,
    socks: SocketAddr,
    control: Control,
    _process: Children,
}

impl Client {
    /// Starts it and waits until it has a circuit and the descriptors of these relays. `extra` are additional
    /// lines of its configuration.
    ///
    /// # Errors
    /// [`LabError`] if tor ends, does not answer, or is not ready within `patience`.
    pub fn start(
        network: &Network,
        nickname: &str,
        extra: &[String],
        relays: &[[u8; 20]],
        patience: Duration,
    ) -> Result<Self, LabError> {
        let deadline = Deadline::after(patience);
        let dir = network.dir().join(nickname);
        DirBuilder::new().mode(0o700).create(&dir).map_err(LabError::io("create", &dir))?;
        launch::write(&dir.join("torrc"), &torrc(network, &dir, extra)?)?;
        let mut process = Children::default();
        let pid = process.start(network.tor(), &dir)?;
        let control_addr = children::wait_for_control(nickname, pid, &dir, deadline)?;
        let failed = LabError::control(nickname);
        let mut control = Control::connect(control_addr, &dir.join(COOKIE)).map_err(&failed)?;
        control.set_events(&["NEWDESC", "NEWCONSENSUS", "CIRC", "STREAM"]).map_err(&failed)?;
        let listener = control.get_info("net/listeners/socks").map_err(&failed)?;
        let socks = listener.trim_matches('"').parse().map_err(|_| LabError::BadFile {
            path: dir.join("torrc"),
            expected: "a SOCKS port that tor opens",
        })?;
        let nickname = nickname.to_owned();
        let mut client = Self { nickname, dir, pid, socks, control, _process: process };
        client.wait_until_ready(relays, deadline)?;
        Ok(client)
    }

    /// The SOCKS address.
    #[must_use]
    pub const fn socks(&self) -> SocketAddr {
        self.socks
    }

    /// Its process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Its control port, subscribed to `NEWDESC`, `NEWCONSENSUS`, `CIRC` and `STREAM`.
    pub const fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// Restricts new circuits to these relays, and closes all circuits.
    ///
    /// # Errors
    /// [`LabError::Control`] if tor refuses.
    pub fn pin(&mut self, pins: &Pins) -> Result<(), LabError> {
        let list = |relays: &[[u8; 20]]| {
            let all: Vec<_> =
                relays.iter().map(|rsa| format!("${}", hex::encode_upper(rsa))).collect();
            all.join(",")
        };
        let command = format!(
            "SETCONF EntryNodes=\"{}\" MiddleNodes=\"{}\" ExitNodes=\"{}\" StrictNodes=1",
            list(&pins.entry),
            list(&pins.middle),
            list(&pins.exit)
        );
        self.request(&command)?;
        // Otherwise the guard state is full at the 21st entry, and the client may use none of its guards.
        self.request("DROPGUARDS")?;
        // A circuit that is being built now would still be used, with its old path.
        for line in self.get_info("circuit-status")?.lines() {
            let id = line.split(' ').next().unwrap_or_default();
            // It may have ended meanwhile.
            let _ended = self.control.request(&format!("CLOSECIRCUIT {id}"));
        }
        Ok(())
    }

    /// The paths of the circuits that have carried streams since the last call, each as the fingerprints of its
    /// relays.
    ///
    /// # Errors
    /// [`LabError::Control`] if tor does not answer.
    pub fn used_paths(&mut self) -> Result<Vec<Vec<[u8; 20]>>, LabError> {
        let events = self.events()?;
        // "STREAM 12 SUCCEEDED 7 127.0.0.1:80", "CIRC 7 BUILT $FP~name,$FP~name,$FP~name …"
        let mut used: Vec<&str> = events
            .iter()
            .filter_map(|text| text.strip_prefix("STREAM ")?.split_once(" SUCCEEDED "))
            .filter_map(|(_, rest)| rest.split(' ').next())
            .collect();
        used.sort_unstable();
        used.dedup();
        let status = self.get_info("circuit-status")?;
        let closed = events.iter().filter_map(|text| text.strip_prefix("CIRC "));
        let known: Vec<&str> = status.lines().chain(closed).collect();
        let path = |id: &&str| {
            let prefix = format!("{id} ");
            known
                .iter()
                .filter_map(|line| path_of(line.strip_prefix(&prefix)?))
                .max_by_key(Vec::len)
        };
        Ok(used.iter().filter_map(path).collect())
    }

    /// The text of the status events of its streams and circuits since the last call of this method or of
    /// [`used_paths`](Self::used_paths).
    ///
    /// # Errors
    /// [`LabError::Control`] if tor does not answer.
    pub fn events(&mut self) -> Result<Vec<String>, LabError> {
        // The reply to a request follows all earlier events.
        self.request("GETINFO version")?;
        let events = self.control.events().try_iter();
        Ok(events.map(|event| event.message.text().to_owned()).collect())
    }

    fn request(&mut self, command: &str) -> Result<(), LabError> {
        self.control.request(command).map(drop).map_err(LabError::control(&self.nickname))
    }

    fn get_info(&mut self, key: &str) -> Result<String, LabError> {
        self.control.get_info(key).map_err(LabError::control(&self.nickname))
    }

    pub(crate) fn wait_until_ready(
        &mut self,
        relays: &[[u8; 20]],
        deadline: Deadline,
    ) -> Result<(), LabError> {
        loop {
            let phase = self.get_info("status/bootstrap-phase")?;
            let mut is_ready = phase.contains("PROGRESS=100");
            for rsa in relays {
                let key = format!("md/id/{}", hex::encode_upper(rsa));
                is_ready &= self.control.get_info(&key).is_ok_and(|text| !text.is_empty());
            }
            if is_ready {
                return Ok(());
            }
            if deadline.passed() {
                let what = format!("the client `{}` to be ready: {phase}", self.nickname);
                let log = crate::process::log_tail(&self.dir);
                return Err(LabError::Timeout { what, after: deadline.elapsed(), log });
            }
            let _nothing_new = self.control.events().recv_timeout(deadline.step(STEP));
            if !crate::process::is_ours(self.pid, self.dir.parent().unwrap_or(&self.dir)) {
                return Err(children::died(&self.nickname, self.pid, &self.dir));
            }
        }
    }
}

/// The path in a circuit's status, after its ID: `BUILT $FP~name,$FP~name BUILD_FLAGS=…`.
fn path_of(status: &str) -> Option<Vec<[u8; 20]>> {
    let hops = status.split(' ').nth(1)?.split(',');
    hops.map(|hop| <[u8; 20]>::from_hex(hop.strip_prefix('$')?.get(..40)?).ok()).collect()
}

fn torrc(network: &Network, dir: &Path, extra: &[String]) -> Result<String, LabError> {
    let authority = network.authorities().first().map(|node| node.dir().join("torrc"));
    let authority = authority.unwrap_or_default();
    let text = std::fs::read_to_string(&authority).map_err(LabError::io("read", &authority))?;
    let shared = ["DirAuthority ", "GeoIPFile ", "GeoIPv6File ", "TestingTorNetwork "];
    let shared = text.lines().filter(|line| shared.iter().any(|key| line.starts_with(key)));
    let mut text = shared.fold(String::new(), |text, line| text + line + "\n");
    let _cannot_fail = write!(
        text,
        "DataDirectory {}\nLog {}\nRunAsDaemon 0\nShutdownWaitLength 0\n\
         DisableDebuggerAttachment 0\n\
         ClientOnly 1\nSocksPort 127.0.0.1:auto\nControlPort 127.0.0.1:auto\n\
         ControlPortWriteToFile {}\nCookieAuthentication 1\nClientRejectInternalAddresses 0\n\
         __OwningControllerProcess {}\n",
        quoted("", dir),
        quoted("notice file ", &dir.join(LOG)),
        quoted("", &dir.join(CONTROL_PORT)),
        std::process::id(),
    );
    Ok(extra.iter().fold(text, |text, line| text + line + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_read_from_a_circuits_status() {
        let (a, b) = ("0A".repeat(20), "FF".repeat(20));
        let status = format!("BUILT ${a}~one,${b}~two BUILD_FLAGS=NEED_CAPACITY PURPOSE=GENERAL");
        assert_eq!(path_of(&status), Some(vec![[10; 20], [255; 20]]));
        for none in ["LAUNCHED BUILD_FLAGS=X", "BUILT", "BUILT $0A~short"] {
            assert_eq!(path_of(none), None, "{none}");
        }
    }
}
