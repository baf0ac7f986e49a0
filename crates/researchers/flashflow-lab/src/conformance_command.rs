//! `flashflow-lab conformance`: the good and bad cases of the measurement protocol, put before a relay.

use clap::Args;
use cli::Error;
use control::keys::SecretKey;
use lab::conformance::{Case, Judge, Subject, all_cases};
use link::unix_time_s;
use measurer::Consent;
use onion::identity::{Ed25519Id, RelayIds, RsaId};
use onion::measure::load::Target;
use schemars::JsonSchema;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::PathBuf;
use terminal::{Exit, Output};

/// Check whether a relay implements the measurement protocol: its answers to good and bad orders, proofs, cells and silences.
///
/// Each case opens links to the relay as a coordinator and measurers would, and compares the errors that they receive with those of
/// the protocol's specification (docs/protocol.md). The relay must list the coordinator's public key, and permit it 40 to
/// 90 measurements of 10 seconds. The last case uses up this quota, so a second run fails within the relay's period (a day by
/// default). Cases carry hardly any traffic. Only relays on loopback or private addresses are tried.
#[derive(Debug, Args)]
#[command(
    override_usage = "flashflow-lab conformance [OPTIONS] <ADDRESS:PORT>",
    after_help = "Example:
  flashflow keys --out coordinator.key
  flashflow-lab conformance 127.0.0.1:9001 --key coordinator.key \\
    --rsa 1234567890ABCDEF1234567890ABCDEF12345678 --ed25519 GVUhLpc7eA3cb3ojSCaJbYhVSbLWA0BRj3ZTFFu20Sk

Identities are in the relay's files `fingerprint` and `fingerprint-ed25519`. In the relay.toml of a flashflow relay, the key is in
`allowed_coordinators`; in the torrc of a patched tor, in FlashFlowCoordinator.

Exit status: 0 the relay conforms; 1 some case differs, or cannot be played; 2 wrong arguments; 130 interrupted."
)]
pub(crate) struct ConformanceOptions {
    /// The relay's address.
    #[arg(value_name = "ADDRESS:PORT")]
    address: SocketAddr,
    /// File with the coordinator's key, of `flashflow keys`.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The relay's RSA identity: 40 hexadecimal digits.
    #[arg(long, value_name = "FINGERPRINT")]
    rsa: RsaId,
    /// The relay's Ed25519 identity, in Base64.
    #[arg(long, value_name = "IDENTITY")]
    ed25519: Ed25519Id,
}

/// A line of the command.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Line<'a> {
    /// A case.
    Case {
        /// What coordinator and measurers do.
        name: &'a str,
        /// The result that the protocol demands: the error codes that the coordinator and then a measurer receive, `-` for none; or else a word.
        expected: &'a str,
        /// The result with this relay.
        found: &'a str,
        /// Whether both are equal.
        holds: bool,
    },
    /// The number of cases, last.
    Summary {
        /// Cases that were played.
        cases: usize,
        /// Those that hold.
        held: usize,
    },
}

pub(crate) fn run(options: &ConformanceOptions, output: &Output) -> Result<Exit, Error> {
    let ConformanceOptions { address, key, rsa, ed25519 } = options;
    let (rsa, ed25519) = (*rsa, *ed25519);
    let unix_time_s = unix_time_s();
    Consent::local_only().check(rsa, address.ip(), unix_time_s)?;
    let subject = Subject {
        target: Target { address: *address, ids: RelayIds { rsa, ed25519: Some(ed25519) } },
        coordinator: SecretKey::read(key)?.seed(),
        unix_time_s,
    };
    let mut judge = Judge::new(subject)?;
    let (mut cases, mut held) = (0, 0);
    for case in all_cases() {
        let Case { name, expected, .. } = case;
        let found = judge.play(case)?;
        let (found, holds) = (found.as_str(), found == *expected);
        cases += 1;
        held += usize::from(holds);
        let text = match holds {
            true => format!("ok      {name}: {found}"),
            false => format!("differs {name}: {found}, not {expected}"),
        };
        output.result(text, || Line::Case { name, expected, found, holds });
    }
    output.result(format!("{held} of {cases} cases hold"), || Line::Summary { cases, held });
    Ok(if held == cases { Exit::Done } else { Exit::Failed })
}
