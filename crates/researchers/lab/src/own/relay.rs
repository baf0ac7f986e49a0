//! Relays of this project as processes: the targets of echo measurements in private networks and experiments.

use super::error::OwnError;
use super::process::OwnProcess;
use hex::FromHex;
use link::Clock;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::load::Target;
use onion::{Duration, Rate};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Far more than a relay needs to create its keys, on a busy machine as well.
const PATIENCE: Duration = Duration::from_secs(300);

/// An address without a listener.
const NO_NAME_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 53);

/// The configuration of a relay.
#[derive(Clone, Debug)]
pub struct OwnRelaySpec {
    /// Its nickname; its files are in a folder of that name.
    pub nickname: String,
    /// Its rate limit; `None` for none.
    pub limit: Option<Rate>,
    /// The public key of the coordinator that may measure it, in hexadecimal.
    pub coordinator: String,
    /// Directory addresses of the authorities to publish to.
    pub authorities: Vec<SocketAddr>,
    /// `FFBackgroundTrafficPercent`, if not the default.
    pub client_percent: Option<u32>,
    /// Whether it is an exit without restrictions, including addresses of this machine.
    pub is_open_exit: bool,
    /// The name server of an exit; if `None`, an address without a listener, since queries must not leave the
    /// machine.
    pub name_server: Option<SocketAddr>,
    /// Whether an exit links circuits (proposal 329).
    pub links_circuits: bool,
    /// The address to listen on: loopback, or a [host](crate::wan::Host) in which it is started.
    pub address: Ipv4Addr,
    /// Additional arguments of `flashflow relay`.
    pub arguments: Vec<String>,
    /// The folder for temporary files, if not the default.
    pub temporary_folder: Option<PathBuf>,
}

impl OwnRelaySpec {
    /// A relay on loopback in no network: without a limit, and no exit.
    #[must_use]
    pub fn new(nickname: impl Into<String>, coordinator: impl ToString) -> Self {
        Self {
            nickname: nickname.into(),
            limit: None,
            coordinator: coordinator.to_string(),
            authorities: Vec::new(),
            client_percent: None,
            is_open_exit: false,
            name_server: None,
            links_circuits: false,
            address: Ipv4Addr::LOCALHOST,
            arguments: Vec::new(),
            temporary_folder: None,
        }
    }
}

/// A running `flashflow relay`.
pub struct OwnRelay {
    /// Its configuration.
    pub spec: OwnRelaySpec,
    /// Its listening address and its identities.
    pub target: Target,
    /// Its folder of keys.
    pub keys: PathBuf,
    /// It ends with this value.
    pub process: OwnProcess,
}

impl OwnRelay {
    /// The number of measurements that it permits per period: experiments repeat them.
    const MEASUREMENTS: u32 = 100_000;

    /// The maximum length of a measurement.
    pub const MEASUREMENT_MAX: Duration = Duration::from_secs(120);

    /// Starts it, with its keys and configuration under `folder`, and waits until it listens.
    ///
    /// # Errors
    /// [`OwnError`] if it cannot be started, or does not report its address in time.
    pub fn start(spec: OwnRelaySpec, folder: &Path, clock: Clock) -> Result<Self, OwnError> {
        let folder = folder.join(&spec.nickname);
        let file = folder.join("relay.toml");
        let failed = |source| OwnError::File { path: file.clone(), source };
        fs::create_dir_all(&folder).map_err(failed)?;
        fs::write(&file, Self::configuration(&spec)).map_err(failed)?;
        let arguments = ["relay".as_ref(), "--config".as_ref(), file.as_os_str()];
        let arguments = arguments.into_iter().chain(spec.arguments.iter().map(AsRef::as_ref));
        let temporary = spec.temporary_folder.as_deref();
        let process = OwnProcess::start(&spec.nickname, arguments, temporary, clock)?;
        let listening = process.wait_for("listening", PATIENCE)?;
        let target = Self::target_of(&listening)
            .ok_or_else(|| OwnError::no_address(&spec.nickname, &listening))?;
        Ok(Self { spec, target, keys: folder.join("keys"), process })
    }

    fn configuration(spec: &OwnRelaySpec) -> String {
        let mut text = format!(
            "nickname = {:?}\naddress = \"{}\"\nkeys = \"keys\"\nauthorities = {:?}\n",
            spec.nickname,
            spec.address,
            spec.authorities.iter().map(ToString::to_string).collect::<Vec<_>>(),
        );
        // Writing to a string cannot fail.
        if let Some(limit) = spec.limit {
            let _ = writeln!(text, "rate_mbit_per_s = {:?}", limit.as_mbit_per_s());
        }
        let _ = write!(
            text,
            "[flashflow]\nmeasurements_allowed = true\nallowed_coordinators = [{:?}]\n\
             measurements_per_period = {}\nmax_measurement_duration_s = {}\n",
            spec.coordinator,
            Self::MEASUREMENTS,
            Self::MEASUREMENT_MAX.as_secs(),
        );
        if let Some(percent) = spec.client_percent {
            let _ = writeln!(text, "background_traffic_percent = {percent}");
        }
        if spec.is_open_exit {
            text.push_str("[exit]\npolicy = [\"accept *:*\"]\nreject_private = false\n");
            let name_server = spec.name_server.unwrap_or(NO_NAME_SERVER);
            let _ = writeln!(text, "name_servers = [\"{name_server}\"]");
            let _ = writeln!(text, "conflux = {}", spec.links_circuits);
        }
        text
    }

    /// Its fingerprint.
    #[must_use]
    pub const fn rsa(&self) -> [u8; 20] {
        self.target.ids.rsa.0
    }

    /// Waits until it uses the consensus with this `valid-after` (see
    /// [`Network::wait_until_known`](crate::Network::wait_until_known)) or a later one. Until then an exit refuses
    /// streams of circuits from an unknown relay. Other output of the relay is skipped.
    ///
    /// # Errors
    /// [`OwnError::Output`] if it ends, or has none within `patience`.
    pub fn wait_until_it_uses(
        &self,
        valid_after_unix_s: u64,
        patience: Duration,
    ) -> Result<(), OwnError> {
        let is_recent = |consensus: &Value| {
            consensus["valid_after_unix_s"].as_u64() >= Some(valid_after_unix_s)
        };
        self.process.wait_for_one("consensus", is_recent, patience).map(drop)
    }

    /// The listening address and identities in a relay's first output.
    #[must_use]
    pub fn target_of(listening: &Value) -> Option<Target> {
        let rsa = FromHex::from_hex(listening["fingerprint"].as_str()?).ok()?;
        let ed25519 = FromHex::from_hex(listening["ed25519"].as_str()?).ok()?;
        let ids = RelayIds { rsa: RsaId(rsa), ed25519: Some(Ed25519Id(ed25519)) };
        Some(Target { address: listening["address"].as_str()?.parse().ok()?, ids })
    }
}
