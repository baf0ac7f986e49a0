use super::fields::{each, push};
use crate::cell::{Malformed, Reader};
use crate::identity::{Ed25519Id, RelayIds, RsaId};
use alloc::vec::Vec;
use core::fmt;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

/// Measurers that one order can name.
pub const MEASURERS_MAX: usize = 32;

/// What a coordinator's signature covers, before the TLS session's keying material and the order.
const ORDER_PREFIX: &[u8] = b"FlashFlow order 1\0";
/// What a measurer's signature covers, before keying material, target and nonce.
const PROOF_PREFIX: &[u8] = b"FlashFlow proof 1\0";

macro_rules! key {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// The public key of a secret seed.
            #[must_use]
            pub fn of_seed(seed: &[u8; 32]) -> Self {
                Self(SigningKey::from_bytes(seed).verifying_key().to_bytes())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

key! {
    /// A coordinator's public Ed25519 key: what relays list in `FFAllowedCoordinators`.
    CoordinatorKey
}
key! {
    /// A measurer's public Ed25519 key: what an order names.
    MeasurerKey
}
key! {
    /// What names one measurement: 32 random bytes of the coordinator's.
    Nonce
}

/// Largest share of all traffic that a relay's clients may have while it is measured: *r*, in
/// thousandths, under 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientShare(u16);

impl ClientShare {
    /// *r* = 0.25, the default of proposal 316: a relay that lies about its clients gains a third.
    pub const DEFAULT: Self = Self(250);

    /// So many thousandths; `None` from 1000 on, where nothing would be left for the measurement.
    #[must_use]
    pub const fn from_permille(permille: u16) -> Option<Self> {
        if permille < 1000 { Some(Self(permille)) } else { None }
    }

    /// Thousandths.
    #[must_use]
    pub const fn as_permille(self) -> u16 {
        self.0
    }

    /// *y* ≤ *x*·*r*/(1−*r*): what clients may have beside `measured_bytes` (§4.1).
    #[must_use]
    pub fn beside(self, measured_bytes: u64) -> u64 {
        let share = u128::from(self.0);
        let bytes = u128::from(measured_bytes) * share / (1000 - share);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// A coordinator's order to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Who orders it.
    pub coordinator: CoordinatorKey,
    /// Who is to be measured: both identities.
    pub target: RelayIds,
    /// Who will measure.
    pub measurers: Vec<MeasurerKey>,
    /// *t*: length of the measurement, in seconds.
    pub seconds: u16,
    /// *r*: largest share of client traffic. The relay may apply a smaller one of its own.
    pub client_share: ClientShare,
    /// *s*: links of all measurers together.
    pub sockets: u16,
    /// When the order may not be accepted any more, in seconds since 1970.
    pub expires_unix_s: u64,
    /// Names the measurement.
    pub nonce: Nonce,
}

mod field {
    pub(super) const COORDINATOR: u16 = 1;
    pub(super) const TARGET_RSA: u16 = 2;
    pub(super) const TARGET_ED25519: u16 = 3;
    pub(super) const MEASURER: u16 = 4;
    pub(super) const SECONDS: u16 = 5;
    pub(super) const CLIENT_SHARE: u16 = 6;
    pub(super) const SOCKETS: u16 = 7;
    pub(super) const EXPIRES: u16 = 8;
    pub(super) const NONCE: u16 = 9;
}

impl Order {
    /// The bytes that get signed.
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, field::COORDINATOR, &self.coordinator.0);
        push(&mut out, field::TARGET_RSA, &self.target.rsa.0);
        if let Some(ed25519) = self.target.ed25519 {
            push(&mut out, field::TARGET_ED25519, &ed25519.0);
        }
        for measurer in &self.measurers {
            push(&mut out, field::MEASURER, &measurer.0);
        }
        push(&mut out, field::SECONDS, &self.seconds.to_be_bytes());
        push(&mut out, field::CLIENT_SHARE, &self.client_share.0.to_be_bytes());
        push(&mut out, field::SOCKETS, &self.sockets.to_be_bytes());
        push(&mut out, field::EXPIRES, &self.expires_unix_s.to_be_bytes());
        push(&mut out, field::NONCE, &self.nonce.0);
        out
    }

    fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let reader = Reader::new("ORDER", bytes);
        let incomplete = reader.malformed("a field is missing");
        let bad_share = reader.malformed("a client share of one or more");
        let too_many = reader.malformed("too many measurers");
        let (mut coordinator, mut rsa, mut ed25519, mut nonce) = (None, None, None, None);
        let (mut seconds, mut share, mut sockets, mut expires) = (None, None, None, None);
        let mut measurers = Vec::new();
        each(reader, |field_type, value| match field_type {
            field::COORDINATOR => value.set(&mut coordinator, CoordinatorKey),
            field::TARGET_RSA => value.set(&mut rsa, RsaId),
            field::TARGET_ED25519 => value.set(&mut ed25519, Ed25519Id),
            field::MEASURER if measurers.len() == MEASURERS_MAX => Err(too_many),
            field::MEASURER => {
                let mut measurer = None;
                value.set(&mut measurer, MeasurerKey)?;
                measurers.extend(measurer);
                Ok(())
            }
            field::SECONDS => value.set(&mut seconds, u16::from_be_bytes),
            field::CLIENT_SHARE => value.set(&mut share, u16::from_be_bytes),
            field::SOCKETS => value.set(&mut sockets, u16::from_be_bytes),
            field::EXPIRES => value.set(&mut expires, u64::from_be_bytes),
            field::NONCE => value.set(&mut nonce, Nonce),
            _ => Ok(()),
        })?;
        let client_share = share.map_or(Ok(ClientShare::DEFAULT), |permille| {
            ClientShare::from_permille(permille).ok_or(bad_share)
        })?;
        Ok(Self {
            coordinator: coordinator.ok_or(incomplete)?,
            target: RelayIds { rsa: rsa.ok_or(incomplete)?, ed25519 },
            measurers,
            seconds: seconds.ok_or(incomplete)?,
            client_share,
            sockets: sockets.ok_or(incomplete)?,
            expires_unix_s: expires.ok_or(incomplete)?,
            nonce: nonce.ok_or(incomplete)?,
        })
    }

    /// Signs it for one TLS session, whose keying material (see
    /// [`EXPORTER_LABEL`](super::EXPORTER_LABEL)) is `exported`.
    ///
    /// The coordinator that it names becomes the one whose `seed` signs.
    #[must_use]
    pub fn sign(&self, seed: &[u8; 32], exported: &[u8; 32]) -> SignedOrder {
        let coordinator = CoordinatorKey::of_seed(seed);
        let body = Self { coordinator, ..self.clone() }.encode();
        let signed = [ORDER_PREFIX, exported, &body].concat();
        let signature = SigningKey::from_bytes(seed).sign(&signed).to_bytes();
        SignedOrder { body, signature }
    }
}

/// A signature that proves nothing: made by another key, for other contents or for another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureInvalid;

impl fmt::Display for SignatureInvalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the signature is not valid for these contents on this connection")
    }
}

impl core::error::Error for SignatureInvalid {}

fn verify(key: &[u8; 32], signed: &[&[u8]], signature: &[u8; 64]) -> Result<(), SignatureInvalid> {
    let key = VerifyingKey::from_bytes(key).map_err(|_| SignatureInvalid)?;
    // Strictly: weak keys, under which one signature fits many messages, are refused.
    key.verify_strict(&signed.concat(), &Signature::from_bytes(signature))
        .map_err(|_| SignatureInvalid)
}

/// An order with its signature.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedOrder {
    pub(super) body: Vec<u8>,
    pub(super) signature: [u8; 64],
}

impl SignedOrder {
    /// What it says, before its signature is looked at: to see by whom it claims to be.
    ///
    /// # Errors
    /// Where it cannot be read.
    pub fn claims(&self) -> Result<Order, Malformed> {
        Order::parse(&self.body)
    }

    /// Whether the coordinator that it names has signed it on the session with this keying material.
    ///
    /// # Errors
    /// [`SignatureInvalid`] if not.
    pub fn verify(&self, order: &Order, exported: &[u8; 32]) -> Result<(), SignatureInvalid> {
        verify(&order.coordinator.0, &[ORDER_PREFIX, exported, &self.body], &self.signature)
    }
}

impl fmt::Debug for SignedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignedOrder({:?})", self.claims())
    }
}

/// A measurer's proof on one of its links that it belongs to a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Which measurement.
    pub nonce: Nonce,
    /// Who it is.
    pub measurer: MeasurerKey,
    pub(super) signature: [u8; 64],
}

impl Proof {
    /// Signs for one TLS session with `target`.
    #[must_use]
    pub fn sign(seed: &[u8; 32], nonce: Nonce, target: &RelayIds, exported: &[u8; 32]) -> Self {
        let signed = [PROOF_PREFIX, exported, &target.rsa.0, &nonce.0].concat();
        let signature = SigningKey::from_bytes(seed).sign(&signed).to_bytes();
        Self { nonce, measurer: MeasurerKey::of_seed(seed), signature }
    }

    /// Whether the measurer that it names has signed it, for this target and session.
    ///
    /// # Errors
    /// [`SignatureInvalid`] if not.
    pub fn verify(&self, target: &RelayIds, exported: &[u8; 32]) -> Result<(), SignatureInvalid> {
        let signed: [&[u8]; 4] = [PROOF_PREFIX, exported, &target.rsa.0, &self.nonce.0];
        verify(&self.measurer.0, &signed, &self.signature)
    }
}
