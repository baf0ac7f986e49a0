//! Bodies of the cells that open links and circuits (tor-spec §4 and §5).
//!
//! Each type borrows from the cell that it was parsed from, and `encode_into` writes it.

mod conflux;
mod feedback;
mod flow;
mod padding;
mod stream;

pub use conflux::{ConfluxLink, ConfluxNonce, ConfluxNote, ConfluxSwitch, DesiredUx};
pub use feedback::FeedbackEntry;
pub use flow::{Sendme, Xoff, Xon};
pub use padding::{CircuitPadding, CircuitPaddingAnswer, LinkPadding};
pub use stream::{Begin, BeginFlags, Connected, End, EndReason, Resolved};

use super::reader::{Malformed, Reader};
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

/// Writes a one-byte length prefix. Never panics: messages of this engine are short.
fn push_len_u8(out: &mut Vec<u8>, len: usize) {
    out.push(u8::try_from(len).unwrap_or(u8::MAX));
}

/// Writes a two-byte length prefix.
fn push_len_u16(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(&u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
}

/// The link versions in a VERSIONS cell (§4.1).
pub fn parse_versions(body: &[u8]) -> Result<impl Iterator<Item = u16> + '_, Malformed> {
    let (pairs, rest) = body.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Malformed { message: "VERSIONS", problem: "odd number of bytes" });
    }
    Ok(pairs.iter().map(|pair| u16::from_be_bytes(*pair)))
}

/// A whole VERSIONS cell. Its circuit ID has two bytes, unlike every later cell's.
#[must_use]
pub fn encode_versions_cell(versions: &[u16]) -> Vec<u8> {
    let mut out = Vec::from([0, 0, super::Command::VERSIONS.get()]);
    push_len_u16(&mut out, versions.len() * 2);
    out.extend(versions.iter().flat_map(|version| version.to_be_bytes()));
    out
}

/// Types of certificate in a CERTS cell (§4.2).
pub mod cert_type {
    /// The RSA identity key, in a self-signed X.509 certificate.
    pub const RSA_IDENTITY: u8 = 2;
    /// Ed25519 signing key, signed with the identity key.
    pub const ED25519_SIGNING: u8 = 4;
    /// The TLS certificate's digest, signed with the signing key.
    pub const ED25519_TLS_LINK: u8 = 5;
    /// Link authentication key, signed with the signing key.
    pub const ED25519_AUTHENTICATE: u8 = 6;
    /// The Ed25519 identity, signed with the RSA identity key.
    pub const RSA_CROSS: u8 = 7;
    /// The Ed25519 identity, signed with the ntor onion key; only in descriptors (dir-spec §2.1.1).
    pub const NTOR_CROSS: u8 = 10;
    /// A relay's Ed25519 identity, signed with a family key; only in descriptors (proposal 321).
    pub const FAMILY: u8 = 12;
}

/// The certificates of a CERTS cell (§4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certs<'a> {
    certs: Vec<(u8, &'a [u8])>,
}

impl<'a> Certs<'a> {
    /// Reads a CERTS body.
    ///
    /// # Errors
    /// If it is truncated, or holds a type twice (§4.2 forbids that).
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("CERTS", body);
        let mut certs = Vec::new();
        for _ in 0..reader.take_u8()? {
            let cert_type = reader.take_u8()?;
            let len = usize::from(reader.take_u16()?);
            if certs.iter().any(|(known, _)| *known == cert_type) {
                return Err(reader.malformed("a certificate type appears twice"));
            }
            certs.push((cert_type, reader.take(len)?));
        }
        Ok(Self { certs })
    }

    /// The certificate of type `cert_type`, if present.
    #[must_use]
    pub fn get(&self, cert_type: u8) -> Option<&'a [u8]> {
        self.certs.iter().find(|(known, _)| *known == cert_type).map(|(_, cert)| *cert)
    }

    /// Appends a CERTS body that holds `certs`.
    pub fn encode_into(certs: &[(u8, &[u8])], out: &mut Vec<u8>) {
        push_len_u8(out, certs.len());
        for (cert_type, cert) in certs {
            out.push(*cert_type);
            push_len_u16(out, cert.len());
            out.extend_from_slice(cert);
        }
    }
}

/// Link authentication by Ed25519 key and RFC 5705 exporter (§4.4.2).
pub const AUTH_ED25519_SHA256_RFC5705: u16 = 3;

/// A responder's request for an initiator's authentication (§4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthChallenge {
    /// Random bytes that make the responder's half of the handshake unique.
    pub challenge: [u8; 32],
    /// Authentication methods the responder understands.
    pub methods: Vec<u16>,
}

impl AuthChallenge {
    /// Reads an AUTH_CHALLENGE body.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("AUTH_CHALLENGE", body);
        let challenge = reader.take_array()?;
        let count = reader.take_u16()?;
        let methods = (0..count).map(|_| reader.take_u16()).collect::<Result<_, _>>()?;
        Ok(Self { challenge, methods })
    }

    /// Appends the body.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.challenge);
        push_len_u16(out, self.methods.len());
        out.extend(self.methods.iter().flat_map(|method| method.to_be_bytes()));
    }
}

/// The time and addresses of each side (§4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetInfo {
    /// Unix time in seconds; zero if the sender does not reveal it.
    pub timestamp: u32,
    /// The address under which the sender sees the receiver.
    pub other: Option<IpAddr>,
    /// The sender's own addresses.
    pub mine: Vec<IpAddr>,
}

impl NetInfo {
    /// Reads a NETINFO body as C tor does: own addresses of unknown types are skipped.
    ///
    /// # Errors
    /// If it is truncated, if an address has the wrong length for its type, or if the receiver's address has an
    /// unknown type.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("NETINFO", body);
        let timestamp = reader.take_u32()?;
        let other = take_address(&mut reader)?;
        if other.is_none() {
            return Err(reader.malformed("our address has an unknown type"));
        }
        let count = reader.take_u8()?;
        let mut mine = Vec::new();
        for _ in 0..count {
            mine.extend(take_address(&mut reader)?);
        }
        Ok(Self { timestamp, other, mine })
    }

    /// Appends the body.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        let unspecified = IpAddr::from([0, 0, 0, 0]);
        push_address(out, self.other.unwrap_or(unspecified));
        push_len_u8(out, self.mine.len());
        for address in &self.mine {
            push_address(out, *address);
        }
    }
}

fn take_address(reader: &mut Reader<'_>) -> Result<Option<IpAddr>, Malformed> {
    let address_type = reader.take_u8()?;
    let len = usize::from(reader.take_u8()?);
    let bytes = reader.take(len)?;
    let odd = |_| reader.malformed("an address does not have the length of its type");
    Ok(match address_type {
        4 => Some(<[u8; 4]>::try_from(bytes).map_err(odd)?.into()),
        6 => Some(<[u8; 16]>::try_from(bytes).map_err(odd)?.into()),
        _ => None,
    })
}

fn push_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            out.extend_from_slice(&[4, 4]);
            out.extend_from_slice(&v4.octets());
        }
        IpAddr::V6(v6) => {
            out.extend_from_slice(&[6, 16]);
            out.extend_from_slice(&v6.octets());
        }
    }
}

/// Handshake type of ntor in CREATE2 and EXTEND2 (§5.1).
pub const HANDSHAKE_NTOR: u16 = 2;

/// Handshake type of ntor of version 3, see [`ntor_v3`](crate::crypto::ntor_v3).
pub const HANDSHAKE_NTOR_V3: u16 = 3;

/// A CREATE2 body: type and data of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Create2<'a> {
    /// The handshake type, see [`HANDSHAKE_NTOR`].
    pub handshake_type: u16,
    /// The initiator's message.
    pub data: &'a [u8],
}

impl<'a> Create2<'a> {
    /// Reads a CREATE2 body.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        Self::take(&mut Reader::new("CREATE2", body))
    }

    fn take(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let handshake_type = reader.take_u16()?;
        let len = usize::from(reader.take_u16()?);
        Ok(Self { handshake_type, data: reader.take(len)? })
    }

    /// Appends the body.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handshake_type.to_be_bytes());
        push_len_u16(out, self.data.len());
        out.extend_from_slice(self.data);
    }
}

/// The responder's message in a CREATED2 or EXTENDED2 body (§5.1, §5.1.2).
///
/// # Errors
/// If it is truncated.
pub fn parse_created2(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut reader = Reader::new("CREATED2", body);
    let len = usize::from(reader.take_u16()?);
    reader.take(len)
}

/// Appends a CREATED2 or EXTENDED2 body.
pub fn encode_created2_into(data: &[u8], out: &mut Vec<u8>) {
    push_len_u16(out, data.len());
    out.extend_from_slice(data);
}

/// The answer to CREATE_FAST (§5.1.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreatedFast {
    /// The responder's key material.
    pub y: [u8; 20],
    /// The proof that the responder knows both halves.
    pub key_hash: [u8; 20],
}

impl CreatedFast {
    /// Reads a CREATED_FAST body.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("CREATED_FAST", body);
        Ok(Self { y: reader.take_array()?, key_hash: reader.take_array()? })
    }

    /// Appends the body.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.y);
        out.extend_from_slice(&self.key_hash);
    }
}

/// The data of EXTEND2: address and identities of the next relay (§5.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extend2<'a> {
    /// Link specifiers: type and content. Types: 0 IPv4 and port, 1 IPv6 and port, 2 RSA identity,
    /// 3 Ed25519 identity.
    pub link_specifiers: Vec<(u8, &'a [u8])>,
    /// The content of the CREATE2 for the next relay.
    pub create: Create2<'a>,
}

/// Types of link specifier (§5.1.2).
pub mod link_specifier {
    /// IPv4 address and port, six bytes.
    pub const IPV4: u8 = 0;
    /// IPv6 address and port, eighteen bytes.
    pub const IPV6: u8 = 1;
    /// SHA-1 of the RSA identity key.
    pub const RSA_IDENTITY: u8 = 2;
    /// The Ed25519 identity key.
    pub const ED25519_IDENTITY: u8 = 3;
}

impl<'a> Extend2<'a> {
    /// Reads the data of an EXTEND2 relay message.
    ///
    /// # Errors
    /// If it is truncated.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new("EXTEND2", data);
        let mut link_specifiers = Vec::new();
        for _ in 0..reader.take_u8()? {
            let specifier_type = reader.take_u8()?;
            let len = usize::from(reader.take_u8()?);
            link_specifiers.push((specifier_type, reader.take(len)?));
        }
        Ok(Self { link_specifiers, create: Create2::take(&mut reader)? })
    }

    /// Appends the data of the relay message.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        push_len_u8(out, self.link_specifiers.len());
        for (specifier_type, content) in &self.link_specifiers {
            out.push(*specifier_type);
            push_len_u8(out, content.len());
            out.extend_from_slice(content);
        }
        self.create.encode_into(out);
    }
}

/// Why a circuit was destroyed (§5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DestroyReason(u8);

#[allow(missing_docs, reason = "each is the reason of that name in tor-spec §5.4")]
impl DestroyReason {
    pub const NONE: Self = Self(0);
    pub const PROTOCOL: Self = Self(1);
    pub const REQUESTED: Self = Self(3);
    pub const HIBERNATING: Self = Self(4);
    pub const RESOURCE_LIMIT: Self = Self(5);
    pub const CONNECT_FAILED: Self = Self(6);
    pub const OR_IDENTITY: Self = Self(7);
    pub const CHANNEL_CLOSED: Self = Self(8);
    pub const FINISHED: Self = Self(9);
    pub const DESTROYED: Self = Self(11);

    /// The reason with this number on the wire, known or not.
    #[must_use]
    pub const fn new(number: u8) -> Self {
        Self(number)
    }

    /// The reason in the body of a DESTROY cell.
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        body.first().map_or(Self::NONE, |number| Self(*number))
    }

    /// The number on the wire.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for DestroyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "no reason given",
            1 => "protocol violation",
            2 => "internal error",
            3 => "requested",
            4 => "hibernating",
            5 => "resource limit: a queue grew past the relay's bound, or it sheds load",
            6 => "connecting to the next relay failed",
            7 => "the next relay's identity was not the expected one",
            8 => "the connection to the next relay closed",
            9 => "finished",
            10 => "timeout",
            11 => "destroyed",
            12 => "no such service",
            _ => return write!(f, "reason {}", self.0),
        };
        write!(f, "{name} (reason {})", self.0)
    }
}

#[cfg(test)]
mod tests;
