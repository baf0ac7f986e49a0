//! The result that follows from the statements.

use super::statement::{Commitment, Content, Statement};
use super::{Agreement, AuthorityKey};
use crate::plan::{Seed, TeamRoom};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use onion::Rate;
use sha2::{Digest, Sha256};

/// An authority's part in the agreement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The seed includes its contribution.
    Took,
    /// Its statements did not arrive, or arrived too late.
    Silent,
    /// It committed to a contribution and did not reveal it in time: it failed, or withheld it to change the
    /// result.
    Withheld,
    /// It made two commitments. This never happens by mistake: it, or an adversary with its key, lies.
    Lied,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Took => "took part",
            Self::Silent => "sent nothing in time",
            Self::Withheld => "committed to a contribution and did not reveal it in time",
            Self::Lied => "made two different commitments: it lies, or its key is in use twice",
        })
    }
}

/// A common seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The seed of the period.
    pub seed: Seed,
    /// The authorities that plan by it, in the order of their keys, and the capacity of each team.
    pub teams: Vec<(AuthorityKey, TeamRoom)>,
    /// The index of our own team.
    pub own: usize,
    /// The public random value that the seed includes.
    pub shared_random: Option<[u8; 32]>,
}

/// The result of an agreement for one participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The common seed; without one, each authority has its own.
    pub agreed: Option<Agreed>,
    /// The part of each member of the group.
    pub parts: BTreeMap<AuthorityKey, Part>,
    /// Members of the common seed that have not shown that they received our statements: they may have another seed.
    pub unconfirmed: Vec<AuthorityKey>,
}

pub(super) fn of(agreement: &Agreement) -> Outcome {
    let parts: BTreeMap<AuthorityKey, Part> =
        agreement.group.keys().map(|key| (key, part(agreement, key))).collect();
    let members: Vec<Member<'_>> = parts.keys().filter_map(|key| member(agreement, *key)).collect();
    let own = members.iter().position(|member| member.key == agreement.own);
    let agreed = own.filter(|_| members.len() > 1).map(|own| {
        let shared_random =
            most_frequent(members.iter().filter_map(|member| member.commitment.shared_random));
        let room = |commitment: &Commitment| TeamRoom {
            capacity: Rate::from_bit_per_s(commitment.capacity_bit_per_s),
            at_once_max: commitment.at_once_max,
        };
        Agreed {
            seed: seed(agreement, shared_random, &members),
            teams: members.iter().map(|member| (member.key, room(member.commitment))).collect(),
            own,
            shared_random,
        }
    });
    let has_received =
        |key: &AuthorityKey| agreement.received_by.iter().all(|received| received.contains(key));
    let others = agreed.iter().flat_map(|agreed| &agreed.teams).map(|(key, _)| *key);
    let unconfirmed = others.filter(|key| *key != agreement.own && !has_received(key)).collect();
    Outcome { agreed, parts, unconfirmed }
}

fn part(agreement: &Agreement, key: AuthorityKey) -> Part {
    match agreement.commitments.get(&key).map(Vec::as_slice) {
        None | Some([]) => Part::Silent,
        Some([_]) if agreement.reveals.contains_key(&key) => Part::Took,
        Some([_]) => Part::Withheld,
        Some(_) => Part::Lied,
    }
}

/// An authority whose contribution is part of the seed.
struct Member<'a> {
    key: AuthorityKey,
    commitment: &'a Commitment,
    contribution: &'a [u8; 32],
}

fn member(agreement: &Agreement, key: AuthorityKey) -> Option<Member<'_>> {
    let [Statement { content: Content::Commit(commitment), .. }] =
        agreement.commitments.get(&key)?.as_slice()
    else {
        return None;
    };
    let [Statement { content: Content::Reveal(contribution), .. }] =
        agreement.reveals.get(&key)?.as_slice()
    else {
        return None;
    };
    Some(Member { key, commitment, contribution })
}

/// The most frequent value; of equals the smallest.
fn most_frequent(values: impl Iterator<Item = [u8; 32]>) -> Option<[u8; 32]> {
    let mut counts: BTreeMap<[u8; 32], usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    // `max_by_key` returns the last of equals, so iterate in reverse.
    counts.into_iter().rev().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

fn seed(agreement: &Agreement, shared_random: Option<[u8; 32]>, members: &[Member<'_>]) -> Seed {
    let mut hash = Sha256::new_with_prefix(b"FlashFlow agreed seed 1\0");
    hash.update(agreement.group.id());
    hash.update(agreement.begin_unix_s.to_be_bytes());
    hash.update([u8::from(shared_random.is_some())]);
    hash.update(shared_random.unwrap_or_default());
    for member in members {
        hash.update(member.key.0);
        hash.update(member.contribution);
    }
    Seed::from_bytes(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_shared_random_value_counts() {
        let of = |values: &[u8]| {
            most_frequent(values.iter().map(|value| [*value; 32])).map(|value| value[0])
        };
        assert_eq!(of(&[]), None, "no value");
        assert_eq!(of(&[7, 9, 9]), Some(9));
        assert_eq!(
            of(&[9, 7, 9, 7]),
            Some(7),
            "the smaller of equally frequent ones, in any order"
        );
        assert_eq!(of(&[9, 7, 8]), Some(7));
    }
}
