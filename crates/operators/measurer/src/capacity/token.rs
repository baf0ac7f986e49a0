use hmac::{Hmac, Mac};
use onion::link::TlsSession;
use rand::Rng;
use sha2::Sha256;
use std::fmt;
use subtle::ConstantTimeEq;

/// The exporter label (RFC 5705) that binds proofs to their TLS session.
const LABEL: &[u8] = b"EXPORTER FlashFlow capacity test 2";

/// The common secret of the members of one capacity test: the coordinator draws it for each test.
#[derive(Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Token([u8; 32]);

impl Token {
    /// The token with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A new random token.
    pub fn generate(rng: &mut impl Rng) -> Self {
        let mut bytes = [0; 32];
        rng.fill_bytes(&mut bytes);
        Self(bytes)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

/// The side of a connection that gives a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prover {
    Dialler,
    Acceptor,
}

/// Proves that a side of a TLS session knows the token. It is of no use in another session, so nobody can forward it.
pub(super) type Proof = [u8; 32];

/// The keying material of the session for proofs; `None` if the session exports none.
pub(super) fn binding(tls: &dyn TlsSession) -> Option<[u8; 32]> {
    tls.export_keying_material(LABEL, &[])
}

/// The proof of one side of a connection from member `from` to member `to`.
pub(super) fn proof(
    token: &Token,
    prover: Prover,
    from: u16,
    to: u16,
    binding: &[u8; 32],
) -> Proof {
    let prover = [u8::from(prover == Prover::Acceptor)];
    let parts: [&[u8]; 4] = [&prover, &from.to_be_bytes(), &to.to_be_bytes(), binding];
    // HMAC takes keys of any length; the error type exists for other MACs.
    <Hmac<Sha256> as Mac>::new_from_slice(&token.0).map_or([0; 32], |mac| {
        parts.iter().fold(mac, |mac, part| mac.chain_update(part)).finalize().into_bytes().into()
    })
}

/// Compares proofs in constant time.
pub(super) fn is_same(one: &Proof, other: &Proof) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_pair_session_and_test_has_its_own_proof() {
        let (token, other) = (Token([7; 32]), Token([8; 32]));
        let proofs = [
            proof(&token, Prover::Dialler, 0, 1, &[1; 32]),
            proof(&token, Prover::Acceptor, 0, 1, &[1; 32]),
            proof(&token, Prover::Dialler, 1, 0, &[1; 32]),
            proof(&token, Prover::Dialler, 0, 2, &[1; 32]),
            proof(&token, Prover::Dialler, 0, 1, &[2; 32]),
            proof(&other, Prover::Dialler, 0, 1, &[1; 32]),
        ];
        for (place, one) in proofs.iter().enumerate() {
            assert!(proofs[..place].iter().all(|before| !is_same(before, one)), "{place}");
        }
        assert!(is_same(&proofs[0], &proof(&token, Prover::Dialler, 0, 1, &[1; 32])));
    }

    #[test]
    fn a_token_is_not_printed() {
        assert!(!format!("{:?}", Token([7; 32])).contains('7'));
    }
}
