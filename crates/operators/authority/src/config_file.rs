//! Common parts of the daemons' configuration files.

use cli::Error;
use control::keys::PublicKey;
use documents::policy::SignedPolicy;
use netdoc::RsaId;
use onion::Rate;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Reads a configuration file. Unknown settings are errors.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    parse(path, &read_text(path)?)
}

/// The text of a configuration file.
pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File {
        what: "read the configuration",
        path: path.to_owned(),
        source,
    })
}

/// The settings of a text. Unknown ones are errors.
pub(crate) fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    toml::from_str(text).map_err(|error| Error::Config {
        path: path.to_owned(),
        problem: with_remedy(error.to_string().trim_end()),
    })
}

/// A parser's message on a value, with what to write instead.
#[must_use]
pub fn with_remedy(problem: &str) -> String {
    let remedies = [
        (
            "invalid socket address syntax",
            "write an IP address with a port, such as 192.0.2.7:7100 or [2001:db8::7]:7100; host names are not looked up",
        ),
        (
            "invalid IP address syntax",
            "write an IP address, such as 192.0.2.7; host names are not looked up",
        ),
        ("expected a boolean", "write true or false, without quotes"),
        ("expected a sequence", "write a list in brackets, such as [\"one\", \"two\"]"),
        ("expected path string", "write the value in quotes"),
        ("expected a string", "write the value in quotes"),
    ];
    let numbers = ["f64", "u16", "u32", "u64", "usize", "i64", "a nonzero u32"];
    let is_quoted_number = problem.contains("invalid type: string")
        && numbers.iter().any(|number| problem.ends_with(&format!("expected {number}")));
    let remedy = match is_quoted_number {
        true => Some("write a number, without quotes"),
        false => {
            remedies.iter().find(|(sign, _)| problem.contains(sign)).map(|(_, remedy)| *remedy)
        }
    };
    remedy.map_or_else(|| problem.to_owned(), |remedy| format!("{problem}: {remedy}"))
}

/// A measurement policy in a configuration: the file `policy`, and the authority `policy_authority` that must have signed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFile {
    /// The file.
    pub path: PathBuf,
    /// The identity of the authority.
    pub authority: RsaId,
}

impl PolicyFile {
    /// `None` without the setting `policy`.
    ///
    /// # Errors
    /// One of the two settings is missing, or `authority` is not a fingerprint.
    pub fn new(policy: Option<PathBuf>, authority: Option<String>) -> Result<Option<Self>, String> {
        match (policy, authority) {
            (None, None) => Ok(None),
            (Some(path), Some(authority)) => {
                let problem = format!("`policy_authority`: {authority} is not a fingerprint");
                let authority = authority.parse().map_err(|_| problem)?;
                Ok(Some(Self { path, authority }))
            }
            _ => Err("`policy` and `policy_authority` go together".to_owned()),
        }
    }

    /// Reads the policy and verifies its signature.
    ///
    /// # Errors
    /// It cannot be read, has an error, or is not signed by the authority.
    pub fn read(&self) -> Result<SignedPolicy, Error> {
        Ok(documents::policy::read_signed(&self.path, self.authority)?)
    }
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
