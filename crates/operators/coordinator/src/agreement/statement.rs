//! Coordinators' statements about a seed, signed so that others can pass them on.

use super::{AuthorityKey, Group};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

/// The prefix of the signed data, so that a signature is invalid elsewhere.
const SIGNED: &[u8] = b"FlashFlow seed 1\0";
const COMMITTED: &[u8] = b"FlashFlow seed commitment 1\0";

const KIND_COMMIT: u8 = 1;
const KIND_REVEAL: u8 = 2;

/// The reason why a statement is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// The bytes cannot be parsed.
    #[error("it cannot be read: do both run the same version of flashflow?")]
    Malformed,
    /// The list of authorities or the times differ.
    #[error(
        "it has other `[[authorities]]`, or another `period_s`, `slot_s`, `schedule` or `agree_round_s` than we: all \
         authorities need the same"
    )]
    OtherGroup,
    /// The statement is about another period.
    #[error("it is about another period: compare the clocks")]
    OtherPeriod,
    /// One signer is not a member of the group.
    #[error("it is signed by {0}, which is not in `[[authorities]]`")]
    Stranger(AuthorityKey),
    /// The author has not signed it.
    #[error("it is attributed to {0}, which has not signed it")]
    NotSigned(AuthorityKey),
    /// A signature is invalid.
    #[error("the signature of {0} is wrong")]
    BadSignature(AuthorityKey),
    /// The revealed contribution does not match the commitment.
    #[error("the contribution of {0} does not match its commitment")]
    DoesNotOpen(AuthorityKey),
    /// At this time it needs more signatures.
    #[error("it arrived too late: compare the clocks")]
    TooLate,
    /// The reveal phase has not started; the statement will be sent again.
    #[error("it arrived too early: compare the clocks")]
    TooEarly,
}

/// An authority's commitment, before any reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commitment {
    /// The hash of its contribution.
    pub(super) hash: [u8; 32],
    pub(super) capacity_bit_per_s: u64,
    pub(super) at_once_max: u32,
    /// The shared random value of the day, from its consensus.
    pub(super) shared_random: Option<[u8; 32]>,
}

/// The content of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Commit(Commitment),
    /// The contribution itself.
    Reveal([u8; 32]),
}

/// One authority's statement, with the signatures of all that have passed it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) group: [u8; 32],
    pub(super) begin_unix_s: u64,
    pub(super) author: AuthorityKey,
    pub(super) content: Content,
    /// By key, so that the encoding is unique.
    pub(super) signatures: BTreeMap<AuthorityKey, [u8; 64]>,
}

/// The hash that commits to a contribution. It includes the author, so no authority can copy another's commitment and
/// have the other's reveal open both.
pub(super) fn commitment_hash(
    group: &[u8; 32],
    begin_unix_s: u64,
    author: AuthorityKey,
    contribution: &[u8; 32],
) -> [u8; 32] {
    let hash = Sha256::new_with_prefix(COMMITTED);
    let hash = hash.chain_update(group).chain_update(begin_unix_s.to_be_bytes());
    hash.chain_update(author.0).chain_update(contribution).finalize().into()
}

impl Statement {
    pub(super) const fn new(
        group: &Group,
        begin_unix_s: u64,
        author: AuthorityKey,
        content: Content,
    ) -> Self {
        Self { group: *group.id(), begin_unix_s, author, content, signatures: BTreeMap::new() }
    }

    pub(super) fn signed_by(mut self, key: &SigningKey) -> Self {
        let signature = key.sign(&self.signed_bytes());
        let signer = AuthorityKey(key.verifying_key().to_bytes());
        self.signatures.insert(signer, signature.to_bytes());
        self
    }

    /// Whether all signers are members, and all signatures are valid.
    pub(super) fn verify(&self, group: &Group) -> Result<(), StatementError> {
        if !self.signatures.contains_key(&self.author) {
            return Err(StatementError::NotSigned(self.author));
        }
        if let Some(stranger) = self.signatures.keys().find(|key| !group.has(**key)) {
            return Err(StatementError::Stranger(*stranger));
        }
        let signed = self.signed_bytes();
        for (signer, signature) in &self.signatures {
            let signature = Signature::from_bytes(signature);
            let key = VerifyingKey::from_bytes(&signer.0);
            // Strict verification: otherwise a key of small order would verify any message.
            let is_right = key.is_ok_and(|key| key.verify_strict(&signed, &signature).is_ok());
            if !is_right {
                return Err(StatementError::BadSignature(*signer));
            }
        }
        Ok(())
    }

    fn signed_bytes(&self) -> Vec<u8> {
        let mut bytes = SIGNED.to_vec();
        self.encode_body(&mut bytes);
        bytes
    }

    fn encode_body(&self, to: &mut Vec<u8>) {
        to.extend(self.group);
        to.extend(self.begin_unix_s.to_be_bytes());
        to.extend(self.author.0);
        match &self.content {
            Content::Commit(commitment) => {
                to.push(KIND_COMMIT);
                to.extend(commitment.hash);
                to.extend(commitment.capacity_bit_per_s.to_be_bytes());
                to.extend(commitment.at_once_max.to_be_bytes());
                to.push(commitment.shared_random.is_some().into());
                to.extend(commitment.shared_random.unwrap_or_default());
            }
            Content::Reveal(contribution) => {
                to.push(KIND_REVEAL);
                to.extend(contribution);
            }
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.encode_body(&mut bytes);
        for (signer, signature) in &self.signatures {
            bytes.extend(signer.0);
            bytes.extend(signature);
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StatementError> {
        let mut rest = bytes;
        let rest = &mut rest;
        let group = take(rest)?;
        let begin_unix_s = u64::from_be_bytes(take(rest)?);
        let author = AuthorityKey(take(rest)?);
        let content = match take(rest)? {
            [KIND_COMMIT] => Content::Commit(Commitment {
                hash: take(rest)?,
                capacity_bit_per_s: u64::from_be_bytes(take(rest)?),
                at_once_max: u32::from_be_bytes(take(rest)?),
                shared_random: match (take(rest)?, take(rest)?) {
                    ([0], value) if value == [0; 32] => None,
                    ([1], value) => Some(value),
                    _ => return Err(StatementError::Malformed),
                },
            }),
            [KIND_REVEAL] => Content::Reveal(take(rest)?),
            _ => return Err(StatementError::Malformed),
        };
        let mut signatures = BTreeMap::new();
        while !rest.is_empty() {
            let signer = AuthorityKey(take(rest)?);
            let is_next = signatures.last_key_value().is_none_or(|(last, _)| *last < signer);
            if !is_next || signatures.len() == Group::MAX {
                return Err(StatementError::Malformed);
            }
            signatures.insert(signer, take(rest)?);
        }
        Ok(Self { group, begin_unix_s, author, content, signatures })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], StatementError> {
    let (head, tail) = rest.split_first_chunk().ok_or(StatementError::Malformed)?;
    *rest = tail;
    Ok(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn statement(seed: [u8; 32], content: Content) -> Statement {
        let key = SigningKey::from_bytes(&seed);
        let author = AuthorityKey(key.verifying_key().to_bytes());
        let signatures = BTreeMap::new();
        Statement { group: [7; 32], begin_unix_s: 9, author, content, signatures }.signed_by(&key)
    }

    fn content() -> impl Strategy<Value = Content> {
        let commitment = (any::<[u8; 32]>(), any::<u64>(), any::<u32>(), any::<Option<[u8; 32]>>());
        let commitment =
            commitment.prop_map(|(hash, capacity_bit_per_s, at_once_max, shared_random)| {
                Content::Commit(Commitment { hash, capacity_bit_per_s, at_once_max, shared_random })
            });
        prop_oneof![commitment, any::<[u8; 32]>().prop_map(Content::Reveal)]
    }

    proptest! {
        #[test]
        fn a_statement_survives_encoding(content in content(), seed: [u8; 32], others in proptest::collection::vec(any::<[u8; 32]>(), 0..4)) {
            let keys = others.iter().map(SigningKey::from_bytes);
            let signed = keys.fold(statement(seed, content), |statement, key| statement.signed_by(&key));
            let bytes = signed.encode();
            prop_assert_eq!(Statement::decode(&bytes), Ok(signed));
            for len in 0..bytes.len() {
                // A statement that is cut between signatures is a valid one with fewer.
                let cut = Statement::decode(&bytes[..len]);
                prop_assert!(cut.is_err() || cut.is_ok_and(|cut| cut.encode() == bytes[..len]));
            }
        }

        #[test]
        fn no_bytes_make_decoding_panic_and_encodings_are_unique(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(statement) = Statement::decode(&bytes) {
                prop_assert_eq!(statement.encode(), bytes);
            }
        }
    }
}
