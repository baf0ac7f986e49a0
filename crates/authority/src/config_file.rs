//! Common parts of the daemons' configuration files.

use cli::Error;
use control::keys::PublicKey;
use onion::Rate;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Reads a configuration file. Unknown settings are errors.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::File {
        what: "read the configuration",
        path: path.to_owned(),
        source,
    })?;
    toml::from_str(&text).map_err(|error| Error::Config {
        path: path.to_owned(),
        problem: error.to_string().trim_end().to_owned(),
    })
}

/// The path of a file in a configuration, which is relative to the folder of the configuration.
pub fn resolve(config: &Path, file: &Path) -> PathBuf {
    config.parent().unwrap_or(Path::new("")).join(file)
}

/// Whether a daemon can listen at this address. The port is not tried: the daemon itself may be using it.
pub fn check_listen(address: SocketAddr) -> Result<(), Error> {
    TcpListener::bind((address.ip(), 0)).map(drop).map_err(|error| {
        Error::Failed(format!(
            "cannot listen on {}: {error}; is it an address of this machine?",
            address.ip()
        ))
    })
}

/// A public key in the format of `flashflow keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub PublicKey);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Self).map_err(D::Error::custom)
    }
}

/// A rate in Mbit/s, above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mbit(pub Rate);

impl<'de> Deserialize<'de> for Mbit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mbit = f64::deserialize(from)?;
        if mbit.is_finite() && mbit > 0.0 {
            return Ok(Self(Rate::from_mbit_per_s(mbit)));
        }
        Err(D::Error::custom(format!("{mbit} is not a rate in Mbit/s above zero")))
    }
}
