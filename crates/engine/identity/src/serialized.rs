//! Names as strings of their text form. Identities are also read as arrays of bytes: earlier versions wrote them so in the
//! store, in records and in control messages.

use crate::{Ed25519Id, IdError, Nickname, RsaId};
use core::fmt;
use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

impl Serialize for RsaId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RsaId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a relay fingerprint of 40 hex digits";
        deserializer.deserialize_any(IdVisitor { expected, parse: Self::parse, from: Self })
    }
}

impl Serialize for Ed25519Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ed25519Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "an Ed25519 identity of 43 base64 characters";
        deserializer.deserialize_any(IdVisitor { expected, parse: Self::parse, from: Self })
    }
}

struct IdVisitor<Id, const LEN: usize> {
    expected: &'static str,
    parse: fn(&[u8]) -> Result<Id, IdError>,
    from: fn([u8; LEN]) -> Id,
}

impl<'de, Id, const LEN: usize> Visitor<'de> for IdVisitor<Id, LEN> {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Id, E> {
        (self.parse)(text.as_bytes()).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Id, A::Error> {
        let mut bytes = [0; LEN];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let element = elements.next_element()?;
            *byte = element.ok_or_else(|| A::Error::invalid_length(index, &self))?;
        }
        match elements.next_element::<u8>()? {
            None => Ok((self.from)(bytes)),
            Some(_) => Err(A::Error::invalid_value(Unexpected::Seq, &self)),
        }
    }
}

impl Serialize for Nickname {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Nickname {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NicknameVisitor)
    }
}

struct NicknameVisitor;

impl Visitor<'_> for NicknameVisitor {
    type Value = Nickname;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Nickname, E> {
        text.parse().map_err(E::custom)
    }
}
