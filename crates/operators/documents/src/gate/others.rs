//! What other bandwidth authorities say about relays.

use crate::error::Error;
use crate::files::read;
use netdoc::consensus::{Consensus, Router};
use netdoc::{RsaId, pieces};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// The measurements of other bandwidth authorities: of their votes, or those that a consensus is based on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// A description, such as `the votes of moria1, tor26`.
    pub source: String,
    /// The median bandwidth of each relay that more than half of them have measured, in KB/s: with an even number of votes the lower
    /// of the two, as in a consensus.
    pub medians_kb_s: BTreeMap<RsaId, u32>,
    /// The number of relays that each of them has measured.
    pub measured: Vec<u64>,
    /// Relays that could be measured: they are running, and no authorities.
    pub measurable: BTreeMap<RsaId, Ipv4Addr>,
}

impl Others {
    /// Of these votes. Votes without a measurement, and that of the authority `own` (nickname or v3 identity), do not count. `None` if
    /// no vote is left.
    #[must_use]
    pub fn from_votes(votes: &[Consensus], own: Option<&str>) -> Option<Self> {
        let mut others = Self::default();
        let mut names = BTreeSet::new();
        let mut bandwidths: BTreeMap<RsaId, Vec<u32>> = BTreeMap::new();
        for vote in votes {
            let Some(authority) = vote.authorities.first() else { continue };
            let is_own = own.is_some_and(|own| {
                authority.nickname.eq_ignore_ascii_case(own)
                    || own.parse().is_ok_and(|own: RsaId| own == authority.fingerprint)
            });
            others.measurable.extend(measurable(vote));
            let found = vote.routers().iter().filter(|router| router.is_measurable());
            let found: Vec<(RsaId, u32)> = found
                .filter_map(|router| Some((router.fingerprint, router.measured_kb_s?)))
                .collect();
            // An authority may be there twice, in two files.
            if is_own || found.is_empty() || !names.insert(authority.nickname.clone()) {
                continue;
            }
            others.measured.push(found.len() as u64);
            for (relay, kb_s) in found {
                bandwidths.entry(relay).or_default().push(kb_s);
            }
        }
        let names: Vec<String> = names.into_iter().collect();
        others.source = format!("the votes of {}", names.join(", "));
        let by_most = bandwidths.into_iter().filter(|(_, kb_s)| kb_s.len() * 2 > names.len());
        others.medians_kb_s = by_most
            .filter_map(|(relay, mut kb_s)| {
                kb_s.sort_unstable();
                Some((relay, kb_s.get((kb_s.len() - 1) / 2).copied()?))
            })
            .collect();
        (!names.is_empty()).then_some(others)
    }

    /// Of a consensus: the weights of the relays that at least three authorities have measured, which are medians of votes. Our own vote is
    /// among them. `None` if there is no such relay.
    #[must_use]
    pub fn from_consensus(consensus: &Consensus) -> Option<Self> {
        let found = consensus.routers().iter().filter(|router| router.is_measurable());
        let found = found.filter(|router| !router.unmeasured);
        let medians_kb_s: BTreeMap<_, _> =
            found.filter_map(|router| Some((router.fingerprint, router.bandwidth_kb_s?))).collect();
        let measured = vec![medians_kb_s.len() as u64];
        let source = "the consensus".to_owned();
        let measurable = measurable(consensus).collect();
        (!medians_kb_s.is_empty()).then_some(Self { source, medians_kb_s, measured, measurable })
    }
}

fn measurable(document: &Consensus) -> impl Iterator<Item = (RsaId, Ipv4Addr)> {
    let running = document.routers().iter().filter(|router: &&Router| router.is_measurable());
    running.map(|router| (router.fingerprint, router.address))
}

/// The votes in a file, or in all files of a folder. A file may contain several, as tor's `v3-status-votes` and archives do.
///
/// # Errors
/// A file cannot be read, or contains something other than votes.
pub fn read_votes(path: &Path) -> Result<Vec<Consensus>, Error> {
    const WHAT: &str = "read the votes";
    let failed = |source| Error::File { what: WHAT, path: path.to_owned(), source };
    let files: Vec<PathBuf> = if path.is_dir() {
        let entries = fs::read_dir(path).map_err(failed)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path()));
        let mut paths = paths.collect::<Result<Vec<_>, _>>().map_err(failed)?;
        paths.retain(|path| path.is_file());
        paths.sort_unstable();
        paths
    } else {
        vec![path.to_owned()]
    };
    let mut votes = Vec::new();
    for file in files {
        let text = read(&file, WHAT)?;
        let invalid = |problem: String| Error::Invalid { path: file.clone(), problem };
        let before = votes.len();
        for piece in pieces::network_statuses(&text) {
            let vote = Consensus::parse_vote(piece.text);
            votes.push(vote.map_err(|error| invalid(error.to_string()))?);
        }
        if votes.len() == before {
            return Err(invalid("there is no vote in it; get votes from an authority's DirPort, at /tor/status-vote/current/V3IDENT".to_owned()));
        }
    }
    Ok(votes)
}
