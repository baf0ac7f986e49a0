//! One secret seed for several authorities' coordinators, by commit and reveal (paper §4.3).
//!
//! Before a period each authority sends all others a hash of a random contribution, and only then the contribution. The
//! seed is a hash of all revealed contributions. It is random if one of them was, and no authority can choose its own
//! to fit the others'.
//!
//! **Agreement.** A statement that arrives in round *k* of its phase counts only if it has *k* signatures, including
//! its author's. An authority that accepts a statement signs it and passes it on. The number of rounds is one less than
//! that of authorities. Then all authorities that can reach each other end with the same statements, however many
//! others are unreachable or lie, and whatever those send to whom (Dolev and Strong, "Authenticated algorithms for
//! Byzantine agreement", 1983). A statement accepted before the last round reaches all in the next one. A statement
//! accepted in the last round has enough signatures that one of the connected authorities signed it in an earlier
//! round.
//!
//! Equal statements lead to equal results. An authority that sent nothing, did not reveal or made two commitments is
//! excluded and named, and the seed is derived from the others. If fewer than two remain, each uses a seed of its own.
//!
//! Pure: the caller supplies the time and transports statements. Statements may arrive in any order and any number of
//! times; the caller repeatedly sends all [`statements`](Agreement::statements) to all others.

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
use statement::{Commitment, Content, Statement, commitment_hash};

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

/// The authorities that agree, and the values that must be equal for all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    keys: BTreeSet<AuthorityKey>,
    id: [u8; 32],
}

/// What a plan depends on, equal for all authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Length of a period, in seconds.
    pub period_s: u64,
    /// Length of a slot, in seconds.
    pub slot_s: u64,
    /// Length of a round of the agreement, in seconds.
    pub round_s: u64,
    /// Whether each relay has one slot in a period ([`Timing::PaperSlots`](crate::period::Timing::PaperSlots)).
    pub is_papers: bool,
}

/// The number of members is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} authorities cannot agree: it takes 2 to {max}", max = Group::MAX)]
pub struct GroupError(usize);

impl Group {
    /// There are nine bandwidth authorities; the number of rounds and signatures grows with theirs.
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
        if times.is_papers {
            hash.update(b"paper");
        }
        keys.iter().for_each(|key| hash.update(key.0));
        Ok(Self { keys, id: hash.finalize().into() })
    }

    /// The number of rounds of each phase.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        // Without two connected authorities there is no agreement. So one less than all is one more than the number of
        // bad ones.
        u32::try_from(self.keys.len() - 1).unwrap_or(u32::MAX)
    }

    /// Whether this authority is a member.
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

/// One authority's input to the agreement.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// 32 random bytes, for this period only.
    pub contribution: [u8; 32],
    /// The capacity of its team: each coordinator plans for all teams.
    pub room: TeamRoom,
    /// `shared-rand-current-value` of its consensus.
    pub shared_random: Option<[u8; 32]>,
}

/// The number of different statements of one kind that are kept of an authority: two prove that it lies.
const VERSIONS_MAX: usize = 2;

/// One authority's part in the agreement on the seed of one period.
///
/// - *commands*: [`new`](Self::new), before the first round is over;
/// - *handle*: [`handle_step`](Self::handle_step), [`handle_statement`](Self::handle_statement);
/// - *poll*: [`statements`](Self::statements), the statements to send to all others;
/// - *getters*: [`outcome`](Self::outcome), at the end.
pub struct Agreement {
    group: Group,
    key: SigningKey,
    own: AuthorityKey,
    begin_unix_s: u64,
    contribution: [u8; 32],
    step: u32,
    commitments: BTreeMap<AuthorityKey, Vec<Statement>>,
    reveals: BTreeMap<AuthorityKey, Vec<Statement>>,
    /// The authorities that have shown that they have our commitment, and our reveal.
    received_by: [BTreeSet<AuthorityKey>; 2],
}

impl Agreement {
    /// Commits to a contribution. `key_seed` is that of our Ed25519 key, which is one of the group.
    ///
    /// An authority that missed the first round must not take part, since it does not know the earlier statements.
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
        let statement = Statement::new(&group, begin_unix_s, own, Content::Commit(commitment));
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
            received_by: Default::default(),
        }
    }

    /// Our own key.
    #[must_use]
    pub const fn own(&self) -> AuthorityKey {
        self.own
    }

    /// Advances to this round ([`Timetable::step`]); time never decreases. Returns whether the agreement is over.
    pub fn handle_step(&mut self, step: u32) -> bool {
        self.step = self.step.max(step);
        let rounds = self.group.rounds();
        let may_reveal = (rounds..2 * rounds).contains(&self.step);
        if may_reveal && !self.reveals.contains_key(&self.own) {
            let content = Content::Reveal(self.contribution);
            let statement = Statement::new(&self.group, self.begin_unix_s, self.own, content);
            self.reveals.insert(self.own, alloc::vec![statement.signed_by(&self.key)]);
        }
        self.step >= 2 * rounds
    }

    /// Handles a statement that an authenticated peer, `from`, sent.
    ///
    /// # Errors
    /// [`StatementError`]: the statement is rejected. `from` is not to blame, since it may pass on the statements of
    /// others.
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
        let (phase, first_step) = match statement.content {
            Content::Commit(_) => (0, 0),
            Content::Reveal(_) => (1, rounds),
        };
        let known = match phase {
            0 => self.commitments.get(&author),
            _ => self.reveals.get(&author),
        };
        let known = known.map(Vec::as_slice).unwrap_or_default();
        if known.iter().any(|other| other.content == statement.content) {
            if author == self.own && statement.signatures.contains_key(&from) {
                self.received_by[phase].insert(from);
            }
            return Ok(());
        }
        if known.len() >= VERSIONS_MAX {
            return Ok(());
        }
        let Some(round) = self.step.checked_sub(first_step) else {
            return Err(StatementError::TooEarly);
        };
        // It is excluded whatever it reveals.
        if phase == 1 && self.commitments.get(&author).is_some_and(|all| all.len() > 1) {
            return Ok(());
        }
        // The first round is number 0, and requires one signature.
        if round >= rounds || statement.signatures.len() <= round as usize {
            return Err(StatementError::TooLate);
        }
        statement.verify(&self.group)?;
        if let Content::Reveal(contribution) = &statement.content
            && !self.opens(author, contribution)
        {
            return Err(StatementError::DoesNotOpen(author));
        }
        let countersigned = statement.signed_by(&self.key);
        match phase {
            0 => self.commitments.entry(author).or_default().push(countersigned),
            _ => self.reveals.entry(author).or_default().push(countersigned),
        }
        Ok(())
    }

    fn opens(&self, author: AuthorityKey, contribution: &[u8; 32]) -> bool {
        let hash = commitment_hash(self.group.id(), self.begin_unix_s, author, contribution);
        let is_of = |statement: &Statement| match &statement.content {
            Content::Commit(commitment) => commitment.hash == hash,
            Content::Reveal(_) => false,
        };
        self.commitments.get(&author).is_some_and(|all| all.iter().any(is_of))
    }

    /// The authorities whose commitments have arrived.
    pub fn committed(&self) -> impl Iterator<Item = AuthorityKey> {
        self.commitments.keys().copied()
    }

    /// The statements to send to all others repeatedly, until the agreement is over.
    #[must_use]
    pub fn statements(&self) -> Vec<Vec<u8>> {
        let all = self.commitments.values().chain(self.reveals.values()).flatten();
        all.map(Statement::encode).collect()
    }

    /// The result.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        outcome::of(self)
    }
}
