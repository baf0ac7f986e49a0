//! `flashflow policy`: measurement policies of directory authorities.

use clap::{Args, Subcommand};
use cli::Error;
use dirmgr::signing;
use documents::policy;
use link::unix_time_s;
use netdoc::RsaId;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};
use terminal::times::time;
use terminal::{Exit, Output};

/// Sign and check the measurement policy of a directory authority.
///
/// By a measurement policy, a coordinator and its measurers measure relays that have not opted in: those of the consensus that do not
/// decline, in certain hours, and up to certain rates. The authority signs it with its directory signing key. docs/policies.md has the
/// format.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow policy check draft.txt
  flashflow policy sign draft.txt --certificate authority_certificate --key authority_signing_key > policy.txt
  flashflow policy check policy.txt --authority 8EE1049573B16673000000000000000000001267

Exit status: 0 done; 1 it cannot be used, or has expired; 2 wrong arguments.")]
pub(crate) struct PolicyOptions {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Print a policy with the authority's certificate and signature.
    ///
    /// The secret identity key of the authority is not needed. Tor keeps the certificate and the signing key in the folder `keys` of
    /// its data.
    Sign {
        /// Policy without a signature.
        policy: PathBuf,
        /// The authority's certificate, tor's `authority_certificate`.
        #[arg(long, value_name = "FILE")]
        certificate: PathBuf,
        /// The secret signing key, tor's `authority_signing_key`.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
    },
    /// Say in words what a policy permits now.
    Check {
        /// Policy.
        policy: PathBuf,
        /// The identity (`v3ident`) of the authority that must have signed it. By default the signature is not verified.
        #[arg(long, value_name = "FINGERPRINT")]
        authority: Option<RsaId>,
        /// Say what it permits at another time, such as `2027-01-15T03:00:00`.
        #[arg(long, value_name = "TIME", value_parser = time)]
        at: Option<u64>,
    },
}

/// A line with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A policy.
    Policy {
        /// Whether its signature was verified.
        verified: bool,
        /// The start of its validity, in Unix seconds.
        valid_after_unix_s: u64,
        /// The end of its validity, in Unix seconds.
        valid_until_unix_s: u64,
        /// Whether it permits load at this time.
        permits: bool,
        /// The highest rate for all relays at one address.
        relay_mbit_per_s: f64,
        /// The highest rate for all relays of a network.
        network_mbit_per_s: f64,
        /// What it permits, in sentences.
        sentences: &'a [String],
    },
    /// A signed policy.
    Signed {
        /// Its text.
        document: &'a str,
    },
}

pub(crate) fn run(options: &PolicyOptions, output: &Output) -> Result<Exit, Error> {
    match &options.command {
        PolicyCommand::Sign { policy, certificate, key } => sign(policy, certificate, key, output),
        PolicyCommand::Check { policy, authority, at } => check(policy, *authority, *at, output),
    }
}

fn sign(path: &Path, certificate: &Path, key: &Path, output: &Output) -> Result<Exit, Error> {
    let text = read_text(path)?;
    policy::parse(&text).map_err(|problem| Error::Config { path: path.to_owned(), problem })?;
    let certificate = documents::read_raw(certificate, "read the certificate")?;
    let key = documents::read_raw(key, "read the signing key")?;
    let signed = signing::sign(&policy::unsigned(&text), &certificate, &key, unix_time_s())?;
    output.result(signed.trim_end(), || Line::Signed { document: &signed });
    Ok(Exit::Done)
}

fn check(
    path: &Path,
    authority: Option<RsaId>,
    at: Option<u64>,
    output: &Output,
) -> Result<Exit, Error> {
    let now_unix_s = unix_time_s();
    let policy = match authority {
        Some(authority) => policy::read_signed(path, authority)?.policy,
        None => policy::parse(&read_text(path)?)
            .map_err(|problem| Error::Config { path: path.to_owned(), problem })?,
    };
    let at_unix_s = at.unwrap_or(now_unix_s);
    let signature = match authority {
        Some(authority) => format!("{authority} has signed it."),
        None => "Its signature was not verified: give --authority.".to_owned(),
    };
    let mut sentences = policy::describe(&policy, at_unix_s);
    sentences.push(signature);
    let is_valid = (policy.valid_after.unix_s..policy.valid_until.unix_s).contains(&at_unix_s);
    output.result(sentences.join("\n"), || Line::Policy {
        verified: authority.is_some(),
        valid_after_unix_s: policy.valid_after.unix_s,
        valid_until_unix_s: policy.valid_until.unix_s,
        permits: is_valid && policy.hours.contains(at_unix_s),
        relay_mbit_per_s: policy.relay_rate(at_unix_s).as_mbit_per_s(),
        network_mbit_per_s: policy.network_rate.as_mbit_per_s(),
        sentences: &sentences,
    });
    let has_expired = at_unix_s >= policy.valid_until.unix_s;
    Ok(if has_expired { Exit::Failed } else { Exit::Done })
}

fn read_text(path: &Path) -> Result<String, Error> {
    let bytes = documents::read(path, "read the measurement policy")?;
    String::from_utf8(bytes)
        .map_err(|_| Error::Config { path: path.to_owned(), problem: "it is not text".to_owned() })
}
