//! Signed opt-in lists. A key that is kept offline signs the list, and measurers verify it, so that a thief of a
//! coordinator's key cannot add relays.
//!
//! The signature is a comment of the list, so that programs that do not verify it read the same relays:
//! `# signed until 2027-01-15 by KEY: SIGNATURE`. It covers the last day of its validity, and the relays with their
//! addresses in a canonical order; comments and white space may change. Without an expiry date, the thief could hand over
//! an old list with relays whose operators have withdrawn their consent.

use crate::keys::{PublicKey, SecretKey};
use coordinator::Consent;
use jiff::Timestamp;
use std::fmt::Write as _;

/// Domain separation: signed text begins with this, so that no other signature of the key is valid for a list.
const CONTEXT: &str = "FlashFlow opt-in list 1\n";

/// The reason why a measurer rejects a list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// The list has no signature.
    #[error("it is not signed; sign it with: flashflow opt-in sign LIST --key FILE")]
    Missing,
    /// Another key has signed the list, or the line is damaged.
    #[error("its signature is not one by {0}, the key in `opt_in_key`")]
    OtherKey(PublicKey),
    /// The list was changed after it was signed.
    #[error("it was changed after it was signed; sign it again")]
    Changed,
    /// The signature has expired.
    #[error("its signature was valid until {0}; sign it again")]
    Expired(String),
}

/// The day in UTC, such as `2027-01-15`.
#[must_use]
pub fn today() -> String {
    day_after(0)
}

/// The day that is `days` after today.
#[must_use]
pub fn day_after(days: u32) -> String {
    let seconds = link::unix_time_s() + u64::from(days) * 24 * 3600;
    let time = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%d").to_string()
}

/// The relays of a list in a canonical order, a line for each address.
pub fn lines(consent: &Consent) -> impl Iterator<Item = String> {
    consent.entries().flat_map(|(relay, addresses)| {
        let any = addresses.is_empty().then(|| relay.to_string());
        any.into_iter().chain(addresses.iter().map(move |address| format!("{relay} {address}")))
    })
}

/// The comment line with a signature of a list, which is valid until the end of a day in UTC, such as `2027-01-15`.
#[must_use]
pub fn sign(consent: &Consent, until: &str, key: &SecretKey) -> String {
    let signature = key.sign(&signed(consent, until));
    format!("# signed until {until} by {}: {}", key.public(), hex::encode(signature))
}

/// Verifies the signature of a list. Days have the form `2027-01-15`, and are compared as text.
///
/// # Errors
/// [`SignatureError`].
pub fn verify(consent: &Consent, key: PublicKey, today: &str) -> Result<(), SignatureError> {
    let line = consent.signature().ok_or(SignatureError::Missing)?;
    let other = SignatureError::OtherKey(key);
    let parsed = || {
        let (until, rest) = line.strip_prefix("signed until ")?.split_once(" by ")?;
        let (by, signature) = rest.split_once(": ")?;
        let mut bytes = [0; 64];
        hex::decode_to_slice(signature.trim(), &mut bytes).ok()?;
        (by.parse() == Ok(key)).then_some((until, bytes))
    };
    let (until, signature) = parsed().ok_or(other)?;
    if !key.has_signed(&signed(consent, until), &signature) {
        return Err(SignatureError::Changed);
    }
    if until < today { Err(SignatureError::Expired(until.to_owned())) } else { Ok(()) }
}

fn signed(consent: &Consent, until: &str) -> Vec<u8> {
    let mut text = CONTEXT.to_owned();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "until {until}");
    for line in lines(consent) {
        let _ = writeln!(text, "{line}");
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_valid_for_its_relays_its_key_and_its_time() {
        let [key, other] = [[1; 32], [2; 32]].map(SecretKey::from_seed);
        let list = |text: &str| Consent::local_only().with_list(text).expect("a list");
        let (first, second) = ("01".repeat(20), "02".repeat(20));
        let relays = format!("{first} 192.0.2.1\n{second}\n");
        let line = sign(&list(&relays), "2027-01-15", &key);
        let check = |relays: &str, day: &str| {
            verify(&list(&format!("{relays}{line}\n")), key.public(), day)
        };
        assert_eq!(check(&relays, "2027-01-15"), Ok(()));
        let same = format!("# ours\n\n{second}   # agreed\n{first}  192.0.2.1\n");
        assert_eq!(check(&same, "2026-12-01"), Ok(()), "comments and order may change");
        let note = list(&format!("{relays}{line}\n# signed up by mail\n"));
        assert_eq!(verify(&note, key.public(), "2026-12-01"), Ok(()), "no second signature");
        let expired = SignatureError::Expired("2027-01-15".to_owned());
        assert_eq!(check(&relays, "2027-01-16"), Err(expired));
        let later = format!("{relays}{}", line.replace("2027-01-15", "2029-01-15"));
        let moved = verify(&list(&later), key.public(), "2027-01-01");
        assert_eq!(moved, Err(SignatureError::Changed));
        for changed in [format!("{first} 192.0.2.2\n{second}\n"), second + "\n", String::new()] {
            assert_eq!(check(&changed, "2027-01-01"), Err(SignatureError::Changed), "{changed}");
        }
        let unsigned = verify(&list(&relays), key.public(), "2027-01-01");
        assert_eq!(unsigned, Err(SignatureError::Missing));
        let by_other = format!("{relays}{}", sign(&list(&relays), "2027-01-15", &other));
        let wrong = Err(SignatureError::OtherKey(key.public()));
        assert_eq!(verify(&list(&by_other), key.public(), "2027-01-01"), wrong);
        let damaged = list(&format!("{relays}# signed until x"));
        assert_eq!(verify(&damaged, key.public(), "2027-01-01"), wrong);
    }
}
