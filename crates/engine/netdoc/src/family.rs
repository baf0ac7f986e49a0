//! Families that operators declare: the line `family` of server descriptors and microdescriptors
//! (dir-spec.txt, sections 2.1.1 and 3.3).

use std::ops::Deref;

use crate::text::words;
use identity::{Nickname, RsaId};

/// The largest number of members that are read. A document of 20,000 bytes, the longest that
/// authorities accept, has room for 476 fingerprints.
const MEMBERS_MAX: usize = 500;

/// A member of a relay's family, as the operator names it.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum FamilyMember {
    /// By identity.
    Fingerprint(RsaId),
    /// By nickname alone, in lower case: tor ignores the case of nicknames. Any relay can take the
    /// nickname, but only relays that name each other are a family.
    Nickname(Nickname),
}

impl FamilyMember {
    /// Reads a member as tor 0.4.9 does (`nodefamily_from_members`): a nickname, or 40 hex digits with
    /// or without `$` before them, and with or without `=` or `~` and a nickname behind. `None` for
    /// anything else.
    #[must_use]
    pub fn parse(word: &[u8]) -> Option<Self> {
        if let Ok(nickname) = Nickname::parse(word) {
            return Some(Self::Nickname(nickname.to_lowercase()));
        }
        let (digits, rest) = word.strip_prefix(b"$").unwrap_or(word).split_at_checked(40)?;
        let is_end = match rest.split_first() {
            None => true,
            Some((b'=' | b'~', nickname)) => Nickname::parse(nickname).is_ok(),
            Some(_) => false,
        };
        RsaId::parse(digits).ok().filter(|_| is_end).map(Self::Fingerprint)
    }
}

/// The family that a relay declares: its members in ascending order, each once. Two relays are a
/// family if each names the other.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Family(Vec<FamilyMember>);

impl Family {
    /// Reads the members after the keyword `family`. Tor's authorities list no relay with a member that
    /// is neither a nickname nor a fingerprint; such members are left out.
    #[must_use]
    pub fn parse(line: &[u8]) -> Self {
        words(line).filter_map(FamilyMember::parse).take(MEMBERS_MAX).collect()
    }

    /// Whether it names this relay, by fingerprint or by nickname.
    #[must_use]
    pub fn names(&self, fingerprint: &RsaId, nickname: &Nickname) -> bool {
        let has = |member| self.0.binary_search(&member).is_ok();
        has(FamilyMember::Fingerprint(*fingerprint))
            || has(FamilyMember::Nickname(nickname.to_lowercase()))
    }
}

impl FromIterator<FamilyMember> for Family {
    fn from_iter<I: IntoIterator<Item = FamilyMember>>(members: I) -> Self {
        let lower = |member| match member {
            FamilyMember::Nickname(nickname) => FamilyMember::Nickname(nickname.to_lowercase()),
            member @ FamilyMember::Fingerprint(_) => member,
        };
        let mut members: Vec<FamilyMember> = members.into_iter().map(lower).collect();
        members.sort_unstable();
        members.dedup();
        Self(members)
    }
}

impl Deref for Family {
    type Target = [FamilyMember];

    fn deref(&self) -> &[FamilyMember] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0BC8BA32CC3CB0F598E0C92778F7C0946DFBCE91";

    /// Tor 0.4.9.11: `nodefamily_from_members`, `is_legal_hexdigest` and `is_legal_nickname`.
    #[test]
    fn members_are_read_as_tor_reads_them() {
        let fingerprint = FamilyMember::Fingerprint(ID.parse().expect("a fingerprint"));
        let nickname = FamilyMember::Nickname("nick".parse().expect("a nickname"));
        let lower = ID.to_lowercase();
        for (word, expected) in [
            (format!("${ID}"), Some(fingerprint)),
            (ID.to_owned(), Some(fingerprint)),
            (lower.clone(), Some(fingerprint)),
            (format!("${lower}"), Some(fingerprint)),
            (format!("${ID}~nick"), Some(fingerprint)),
            (format!("{ID}=nick"), Some(fingerprint)),
            ("nick".to_owned(), Some(nickname)),
            ("NICK".to_owned(), Some(nickname)),
            (format!("${ID}~"), None),
            (format!("${ID}~no-name"), None),
            (format!("${ID}~{}", "a".repeat(20)), None),
            (format!("${ID}0"), None),
            (format!("{ID}0"), None),
            (format!("$${ID}"), None),
            (ID[1..].to_owned(), None),
            ("$short".to_owned(), None),
            ("no-name".to_owned(), None),
            ("a".repeat(20), None),
            (String::new(), None),
        ] {
            assert_eq!(FamilyMember::parse(word.as_bytes()), expected, "{word}");
        }
    }

    #[test]
    fn a_family_names_relays_by_fingerprint_and_by_nickname_in_any_case() {
        let family = Family::parse(format!("b ${ID} {ID}\tB Alice $12").as_bytes());
        assert_eq!(family.len(), 3, "{family:?}");
        let id: RsaId = ID.parse().expect("a fingerprint");
        let other = RsaId([1; 20]);
        let names = |id: &RsaId, name: &str| family.names(id, &name.parse().expect("one"));
        assert!(names(&id, "x") && names(&other, "aLICE") && names(&other, "b"));
        assert!(!names(&other, "x"));
        assert!(Family::parse(b"").is_empty());
    }
}
