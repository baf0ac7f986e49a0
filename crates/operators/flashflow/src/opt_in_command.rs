//! `flashflow opt-in`: lists of relays whose operators agreed to be measured.

use clap::{Args, Subcommand};
use cli::Error;
use control::keys::{PublicKey, SecretKey};
use control::opt_in;
use coordinator::Consent;
use link::unix_time_s;
use onion::identity::RsaId;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use terminal::{Exit, Output};

/// Check, merge and sign opt-in lists.
///
/// An opt-in list names relays whose operators agreed to be measured. Each line has a fingerprint, preferably followed by the relay's
/// address. The coordinator and each measurer have their own lists. A relay is measured only if it is on all of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  flashflow opt-in check coordinator.txt measurer1.txt measurer2.txt
  flashflow opt-in check opt-in.txt --consensus cached-consensus
  flashflow opt-in check signed.txt --key 0f1e… (the public key, 64 digits)
  flashflow opt-in merge opt-in.txt new-relays.txt > merged.txt
  flashflow opt-in sign merged.txt --key offline.key > signed.txt

Exit status: 0 done, and with `check` all lists agree; 1 lists differ, or one cannot be used; 2 wrong arguments.")]
pub(crate) struct OptInOptions {
    #[command(subcommand)]
    command: OptInCommand,
}

#[derive(Debug, Subcommand)]
enum OptInCommand {
    /// Compare lists with each other, and with a consensus.
    Check {
        /// Opt-in lists.
        #[arg(required = true, value_name = "LIST")]
        lists: Vec<PathBuf>,
        /// A consensus: prints the relays that are not in it, or at another address.
        #[arg(long, value_name = "FILE")]
        consensus: Option<PathBuf>,
        /// A public key that must have signed each list.
        #[arg(long, value_name = "KEY")]
        key: Option<PublicKey>,
    },
    /// Print one list with all relays of several.
    Merge {
        /// Opt-in lists.
        #[arg(required = true, value_name = "LIST")]
        lists: Vec<PathBuf>,
    },
    /// Print a list with a signature, for measurers with `opt_in_key`.
    ///
    /// Keep the key offline. An attacker who steals the coordinator's key can then neither change the list, nor replay an old list
    /// after its signature expires.
    Sign {
        /// Opt-in list.
        list: PathBuf,
        /// File with the secret key, from `flashflow keys`.
        #[arg(long, value_name = "FILE")]
        key: PathBuf,
        /// Days until the signature expires, 1 to 400.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=400))]
        days: u32,
    },
}

/// A line of `check` with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum CheckLine<'a> {
    /// Two lists, or a list and the consensus, differ.
    Difference {
        /// The relay.
        fingerprint: String,
        /// The difference, in words.
        problem: &'a str,
        /// The list that differs from another one; `null` for the consensus.
        list: Option<&'a Path>,
    },
    /// All lists were compared.
    Summary {
        /// The number of relays on all lists.
        relays: usize,
        /// The number of lists.
        lists: usize,
        /// The number of differences.
        differences: u64,
    },
}

/// A line of `merge` and `sign` with `--json`.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum MergeLine<'a> {
    /// A relay of the list.
    Relay {
        /// The relay.
        fingerprint: String,
        /// The addresses at which it may be measured; any if there are none.
        addresses: &'a BTreeSet<IpAddr>,
    },
    /// The signature of the list.
    Signature {
        /// The comment with the signature.
        line: &'a str,
    },
}

pub(crate) fn run(options: &OptInOptions, output: &Output) -> Result<Exit, Error> {
    match &options.command {
        OptInCommand::Check { lists, consensus, key } => {
            check(lists, consensus.as_deref(), *key, output)
        }
        OptInCommand::Merge { lists } => merge(lists, output).map(|_| Exit::Done),
        OptInCommand::Sign { list, key, days } => {
            let key = SecretKey::read(key)?;
            let all = merge(std::slice::from_ref(list), output)?;
            let line = opt_in::sign(&all, &opt_in::day_after(*days), &key);
            output.result(&line, || MergeLine::Signature { line: &line });
            Ok(Exit::Done)
        }
    }
}

fn check(
    lists: &[PathBuf],
    consensus: Option<&Path>,
    key: Option<PublicKey>,
    output: &Output,
) -> Result<Exit, Error> {
    let read = |list: &PathBuf| measurer::read_opt_in(Consent::local_only(), list);
    let read = lists.iter().map(read).collect::<Result<Vec<Consent>, _>>()?;
    for (list, path) in read.iter().zip(lists) {
        let verified = key.map(|key| opt_in::verify(list, key, &opt_in::today()));
        if let Some(Err(error)) = verified {
            return Err(Error::Failed(format!("the opt-in list {}: {error}", path.display())));
        }
    }
    let relays: BTreeSet<RsaId> =
        read.iter().flat_map(Consent::entries).map(|(relay, _)| relay).collect();
    let mut problems = 0;
    let mut show = |relay: RsaId, problem: String, list: Option<&PathBuf>| {
        problems += 1;
        output.result(format!("{relay}: {problem}"), || CheckLine::Difference {
            fingerprint: relay.to_string(),
            problem: &problem,
            list: list.map(PathBuf::as_path),
        });
    };
    let maps: Vec<BTreeMap<RsaId, &BTreeSet<IpAddr>>> =
        read.iter().map(|consent| consent.entries().collect()).collect();
    for relay in &relays {
        let named = maps.iter().find_map(|map| map.get(relay).copied());
        for (list, map) in lists.iter().zip(&maps) {
            match map.get(relay) {
                None => show(*relay, format!("not on {}", list.display()), Some(list)),
                Some(here) if Some(*here) != named => {
                    show(*relay, format!("other addresses on {}", list.display()), Some(list));
                }
                Some(_) => {}
            }
        }
    }
    if let Some(path) = consensus {
        let consensus = documents::consensus(path, unix_time_s())?;
        let routers = consensus.routers().iter();
        let routers: BTreeMap<RsaId, IpAddr> =
            routers.map(|router| (router.fingerprint, router.address.into())).collect();
        for (relay, addresses) in read.iter().flat_map(Consent::entries) {
            match routers.get(&relay) {
                None => show(relay, "not in the consensus".to_owned(), None),
                Some(at) if !addresses.is_empty() && !addresses.contains(at) => {
                    show(relay, format!("the consensus has it at {at}"), None);
                }
                Some(_) => {}
            }
        }
    }
    let count = report::plural(relays.len() as u64, "relay");
    let of = report::plural(lists.len() as u64, "list");
    let differences = report::plural(problems, "difference");
    output.result(format!("{count} on {of}, {differences}"), || CheckLine::Summary {
        relays: relays.len(),
        lists: lists.len(),
        differences: problems,
    });
    Ok(if problems == 0 { Exit::Done } else { Exit::Failed })
}

fn merge(lists: &[PathBuf], output: &Output) -> Result<Consent, Error> {
    let mut all = Consent::local_only();
    for list in lists {
        all = measurer::read_opt_in(all, list)?;
    }
    for (relay, addresses) in all.entries() {
        output.record(|| MergeLine::Relay { fingerprint: relay.to_string(), addresses });
    }
    opt_in::lines(&all).for_each(|line| output.text(line));
    Ok(all)
}
