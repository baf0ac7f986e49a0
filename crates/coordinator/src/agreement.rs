//! One secret seed for several authorities' coordinators, by commit and reveal (paper §4.3).
//!
//! Before a period each tells all others a hash of a random contribution, and only then the contribution itself. The seed is a hash of all
//! contributions that were revealed, so it is random if one of them was, and nobody can choose his own by the others'.
//!
//! **Who ends with what.** What an authority says counts only if it is signed by as many of us as it is late: a statement that comes in
//! round *k* of its phase must have *k* signatures, its author's among them; whoever takes it up signs it and passes it on. With one round
//! less than there are authorities, all who hear each other end with the same statements, however many others are lost or lie, and
//! whatever those tell to whom (Dolev and Strong, "Authenticated algorithms for Byzantine agreement", 1983): who takes a statement up before the
//! last round has it taken up by all in the next; one of the last round has so many signatures that one of those who hear each other
//! gave his in an earlier one.
//!
//! From equal statements equal conclusions follow: who said nothing, who did not reveal, who made two commitments is left out and named,
//! and the seed is of the others. If there are not two, each has a seed of its own.
//!
//! Pure: what the time is, and how statements travel, the caller says. Statements may come in any order and any number of times; the
//! caller tells all [`statements`](Agreement::statements) to all others again and again.

mod outcome;
mod statement;
#[cfg(test)]
mod tests;
mod timetable;

pub use outcome::{Agreed, Outcome, Part};
pub use statement::StatementError;
pub use timetable::Timetable;

use crate::plan::TeamRoom;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use ed25519_dalek::SigningKey;
use sha2::{Digest, Sha256};
use statement::{Commitment, Statement, Word, commitment_hash};

/// An authority's coordinator, by its public Ed25519 key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuthorityKey(pub [u8; 32]);

impl fmt::Display for AuthorityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for AuthorityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Those who agree, and on what all of them must be of one mind beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    keys: BTreeSet<AuthorityKey>,
    id: [u8; 32],
}

/// The times that a plan depends on, the same with all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Length of a period, in seconds.
    pub period_s: u64,
    /// Length of a slot, in seconds.
    pub slot_s: u64,
    /// Length of a round of the agreement, in seconds.
    pub round_s: u64,
}

/// No group has one member, or very many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} authorities cannot agree: it takes 2 to {max}", max = Group::MAX)]
pub struct GroupError(usize);

impl Group {
    /// There are nine bandwidth authorities; rounds and signatures grow with their number.
    pub const MAX: usize = 16;

    /// These authorities.
    ///
    /// # Errors
    /// [`GroupError`]: too few or too many.
    pub fn new(
        keys: impl IntoIterator<Item = AuthorityKey>,
        times: Times,
    ) -> Result<Self, GroupError> {
        let keys: BTreeSet<AuthorityKey> = keys.into_iter().collect();
        if !(2..=Self::MAX).contains(&keys.len()) {
            return Err(GroupError(keys.len()));
        }
        let mut hash = Sha256::new_with_prefix(b"FlashFlow authorities 1\0");
        for time in [times.period_s, times.slot_s, times.round_s] {
            hash.update(time.to_be_bytes());
        }
        keys.iter().for_each(|key| hash.update(key.0));
        Ok(Self { keys, id: hash.finalize().into() })
    }

    /// Rounds that either phase takes.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        // At least two hear each other, or there is nothing to agree on. So one less than all is one more than can be bad.
        u32::try_from(self.keys.len() - 1).unwrap_or(u32::MAX)
    }

    /// Whether it has a say.
    #[must_use]
    pub fn has(&self, key: AuthorityKey) -> bool {
        self.keys.contains(&key)
    }

    /// All of them, in the order of their keys.
    pub fn keys(&self) -> impl Iterator<Item = AuthorityKey> {
        self.keys.iter().copied()
    }

    const fn id(&self) -> &[u8; 32] {
        &self.id
    }
}

/// What one brings to the agreement.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// 32 random bytes, for this period alone.
    pub contribution: [u8; 32],
    /// What its team can load at once: each plans for all teams.
    pub room: TeamRoom,
    /// `shared-rand-current-value` of the consensus that it has.
    pub shared_random: Option<[u8; 32]>,
}

/// An authority has made more than so many different statements of one kind: that it lies is known by two.
const VERSIONS_MAX: usize = 2;

/// One authority's part in the agreement on the seed of one period.
///
/// - *commands*: [`new`](Self::new), before the first round is over;
/// - *handle*: [`handle_step`](Self::handle_step), [`handle_statement`](Self::handle_statement);
/// - *poll*: [`statements`](Self::statements), all that is to be told to all others;
/// - *getters*: [`outcome`](Self::outcome), when it is over.
pub struct Agreement {
    group: Group,
    key: SigningKey,
    own: AuthorityKey,
    begin_unix_s: u64,
    contribution: [u8; 32],
    step: u32,
    commitments: BTreeMap<AuthorityKey, Vec<Statement>>,
    reveals: BTreeMap<AuthorityKey, Vec<Statement>>,
    /// Who has shown that it has our commitment, and our reveal.
    heard_by: [BTreeSet<AuthorityKey>; 2],
}

impl Agreement {
    /// Commits to a contribution. `key_seed` is that of our Ed25519 key, which is one of the group.
    ///
    /// Who was not there in the first round must not take part, for it cannot know what was said.
    #[must_use]
    pub fn new(group: Group, key_seed: &[u8; 32], begin_unix_s: u64, offer: Offer) -> Self {
        let key = SigningKey::from_bytes(key_seed);
        let own = AuthorityKey(key.verifying_key().to_bytes());
        let commitment = Commitment {
            hash: commitment_hash(group.id(), begin_unix_s, own, &offer.contribution),
            capacity_bit_per_s: offer.room.capacity.as_bit_per_s(),
            at_once_max: offer.room.at_once_max,
            shared_random: offer.shared_random,
        };
        let statement = Statement::new(&group, begin_unix_s, own, Word::Commit(commitment));
        let commitments = BTreeMap::from([(own, alloc::vec![statement.signed_by(&key)])]);
        Self {
            group,
            key,
            own,
            begin_unix_s,
            contribution: offer.contribution,
            step: 0,
            commitments,
            reveals: BTreeMap::new(),
            heard_by: Default::default(),
        }
    }

    /// Our own key.
    #[must_use]
    pub const fn own(&self) -> AuthorityKey {
        self.own
    }

    /// It is this round ([`Timetable::step`]); time does not go back. Says whether it is over.
    pub fn handle_step(&mut self, step: u32) -> bool {
        self.step = self.step.max(step);
        let rounds = self.group.rounds();
        let may_reveal = (rounds..2 * rounds).contains(&self.step);
        if may_reveal && !self.reveals.contains_key(&self.own) {
            let word = Word::Reveal(self.contribution);
            let statement = Statement::new(&self.group, self.begin_unix_s, self.own, word);
            self.reveals.insert(self.own, alloc::vec![statement.signed_by(&self.key)]);
        }
        self.step >= 2 * rounds
    }

    /// Somebody says this, who has proved to be `from`.
    ///
    /// # Errors
    /// [`StatementError`]: it is not taken up. That is no reason to believe ill of `from`: it may pass on what others lie.
    pub fn handle_statement(
        &mut self,
        from: AuthorityKey,
        bytes: &[u8],
    ) -> Result<(), StatementError> {
        let statement = Statement::decode(bytes)?;
        if statement.group != *self.group.id() {
            return Err(StatementError::OtherGroup);
        }
        if statement.begin_unix_s != self.begin_unix_s {
            return Err(StatementError::OtherPeriod);
        }
        let (author, rounds) = (statement.author, self.group.rounds());
        let (phase, first_step) = match statement.word {
            Word::Commit(_) => (0, 0),
            Word::Reveal(_) => (1, rounds),
        };
        let known = match phase {
            0 => self.commitments.get(&author),
            _ => self.reveals.get(&author),
        };
        let known = known.map(Vec::as_slice).unwrap_or_default();
        if known.iter().any(|it| it.word == statement.word) {
            if author == self.own && statement.signatures.contains_key(&from) {
                self.heard_by[phase].insert(from);
            }
            return Ok(());
        }
        if known.len() >= VERSIONS_MAX {
            return Ok(());
        }
        let Some(round) = self.step.checked_sub(first_step) else {
            return Err(StatementError::TooEarly);
        };
        // It is left out whatever it reveals.
        if phase == 1 && self.commitments.get(&author).is_some_and(|all| all.len() > 1) {
            return Ok(());
        }
        // The first round is number 0, and asks for one signature.
        if round >= rounds || statement.signatures.len() <= round as usize {
            return Err(StatementError::TooLate);
        }
        statement.verify(&self.group)?;
        if let Word::Reveal(contribution) = &statement.word
            && !self.opens(author, contribution)
        {
            return Err(StatementError::DoesNotOpen(author));
        }
        let taken_up = statement.signed_by(&self.key);
        match phase {
            0 => self.commitments.entry(author).or_default().push(taken_up),
            _ => self.reveals.entry(author).or_default().push(taken_up),
        }
        Ok(())
    }

    fn opens(&self, author: AuthorityKey, contribution: &[u8; 32]) -> bool {
        let hash = commitment_hash(self.group.id(), self.begin_unix_s, author, contribution);
        let is_of = |it: &Statement| matches!(&it.word, Word::Commit(it) if it.hash == hash);
        self.commitments.get(&author).is_some_and(|all| all.iter().any(is_of))
    }

    /// Who has committed to something, as far as we have heard.
    pub fn committed(&self) -> impl Iterator<Item = AuthorityKey> {
        self.commitments.keys().copied()
    }

    /// What all others are to be told, again and again until it is over.
    #[must_use]
    pub fn statements(&self) -> Vec<Vec<u8>> {
        let all = self.commitments.values().chain(self.reveals.values()).flatten();
        all.map(Statement::encode).collect()
    }

    /// What has come of it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        outcome::of(self)
    }
}
