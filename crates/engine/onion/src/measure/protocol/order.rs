use super::fields::{each, push};
use crate::cell::{Malformed, Reader};
use crate::identity::{Ed25519Id, RelayIds, RsaId};
use alloc::vec::Vec;
use core::fmt;
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

/// Maximum number of measurers in an order.
pub const MEASURERS_MAX: usize = 32;

/// The prefix of a coordinator's signed bytes, before the keying material and the order.
const ORDER_PREFIX: &[u8] = b"FlashFlow order 1\0";
/// The prefix of a measurer's signed bytes, before keying material, target and nonce.
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
    /// The name of one measurement: 32 random bytes from the coordinator.
    Nonce
}

/// Maximum share of client traffic in all traffic of a relay while it is measured: *r*, in thousandths, below
/// 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientShare(u16);

impl ClientShare {
    /// *r* = 0.25, the default of proposal 316: a relay that lies about its clients gains a third.
    pub const DEFAULT: Self = Self(250);

    /// From thousandths; `None` from 1000 on, which would leave nothing for the measurement.
    #[must_use]
    pub const fn from_permille(permille: u16) -> Option<Self> {
        if permille < 1000 { Some(Self(permille)) } else { None }
    }

    /// Thousandths.
    #[must_use]
    pub const fn as_permille(self) -> u16 {
        self.0
    }

    /// *y* ≤ *x*·*r*/(1−*r*): the client traffic allowed with `measured_bytes` (§4.1).
    #[must_use]
    pub fn allowance(self, measured_bytes: u64) -> u64 {
        let share = u128::from(self.0);
        let bytes = u128::from(measured_bytes) * share / (1000 - share);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// A coordinator's order for a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The coordinator.
    pub coordinator: CoordinatorKey,
    /// The target: both identities.
    pub target: RelayIds,
    /// The measurers.
    pub measurers: Vec<MeasurerKey>,
    /// *t*: the length of the measurement, in seconds.
    pub seconds: u16,
    /// *r*: the maximum share of client traffic. The relay may apply a smaller one of its own.
    pub client_share: ClientShare,
    /// *s*: the links of all measurers together.
    pub sockets: u16,
    /// When the order expires, in Unix time.
    pub expires_unix_s: u64,
    /// The name of the measurement.
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
    /// The signed bytes.
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

    /// Signs it for one TLS session with the keying material `exported` (see
    /// [`EXPORTER_LABEL`](super::EXPORTER_LABEL)).
    ///
    /// The coordinator in it becomes the one with this `seed`.
    #[must_use]
    pub fn sign(&self, seed: &[u8; 32], exported: &[u8; 32]) -> SignedOrder {
        let coordinator = CoordinatorKey::of_seed(seed);
        let body = Self { coordinator, ..self.clone() }.encode();
        let signed = [ORDER_PREFIX, exported, &body].concat();
        let signature = SigningKey::from_bytes(seed).sign(&signed).to_bytes();
        SignedOrder { body, signature }
    }
}

/// A signature that is invalid: by another key, for other contents or for another session.
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
    // Strictly: weak keys, under which one signature is valid for many messages, are refused.
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
    /// Its content before its signature is verified, to find the claimed coordinator.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn claims(&self) -> Result<Order, Malformed> {
        Order::parse(&self.body)
    }

    /// Verifies that the coordinator in it has signed it for the session with this keying material.
    ///
    /// # Errors
    /// [`SignatureInvalid`].
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
    /// The measurement.
    pub nonce: Nonce,
    /// The measurer.
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

    /// Verifies that the measurer in it has signed it for this target and session.
    ///
    /// # Errors
    /// [`SignatureInvalid`].
    pub fn verify(&self, target: &RelayIds, exported: &[u8; 32]) -> Result<(), SignatureInvalid> {
        let signed: [&[u8]; 4] = [PROOF_PREFIX, exported, &target.rsa.0, &self.nonce.0];
        verify(&self.measurer.0, &signed, &self.signature)
    }
}
