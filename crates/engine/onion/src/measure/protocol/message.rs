use super::MESSAGE_LEN_MAX;
use super::code::ErrorCode;
use super::fields::{each, push};
use super::order::{MEASURERS_MAX, MeasurerKey, Nonce, Proof, SignedOrder};
use crate::cell::{Malformed, Reader};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Maximum length of an error's text, sent or received; more is truncated.
pub const TEXT_LEN_MAX: usize = 200;

/// Client traffic of one second, as a relay reports it: cells of circuits that are not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientSecond {
    /// Counted from zero at the first measurement cell that the relay received.
    pub second: u16,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// The bytes that a relay has returned to one measurer in a second, as it reports them: a check on the
/// measurer's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentBack {
    /// The measurer.
    pub measurer: MeasurerKey,
    /// Bytes of its measurement circuits' cells.
    pub bytes: u64,
}

/// One message of the measurement protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Coordinator to target: requests a measurement.
    Order(SignedOrder),
    /// Target to coordinator: measurers may connect.
    Accepted {
        /// The order.
        nonce: Nonce,
    },
    /// Measurer to target, first on each of its links.
    Proof(Proof),
    /// Target to measurer: circuits on this link are measurement circuits.
    Proven,
    /// Target to coordinator, once a second, with the bytes returned to each measurer, at most
    /// [`MEASURERS_MAX`] of them.
    ClientSecond(ClientSecond, Vec<SentBack>),
    /// Both directions: the measurement is impossible, or ended early. The link is closed.
    Error {
        /// The error code.
        code: ErrorCode,
        /// Details for people; at most [`TEXT_LEN_MAX`] bytes.
        text: String,
    },
}

mod kind {
    pub(super) const ORDER: u8 = 1;
    pub(super) const ACCEPTED: u8 = 2;
    pub(super) const PROOF: u8 = 3;
    pub(super) const PROVEN: u8 = 4;
    pub(super) const CLIENT_SECOND: u8 = 5;
    pub(super) const ERROR: u8 = 6;
}

mod field {
    pub(super) const ORDER_BODY: u16 = 1;
    pub(super) const SIGNATURE: u16 = 2;
    pub(super) const NONCE: u16 = 3;
    pub(super) const MEASURER: u16 = 4;
    pub(super) const SECOND: u16 = 5;
    pub(super) const RECEIVED: u16 = 6;
    pub(super) const SENT: u16 = 7;
    pub(super) const CODE: u16 = 8;
    pub(super) const TEXT: u16 = 9;
    pub(super) const SENT_BACK: u16 = 10;
}

/// The message's name in errors before its type is known.
const NAME: &str = "MEASURE";

impl Message {
    /// The body of the cell that carries it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Order(order) => {
                out.push(kind::ORDER);
                push(&mut out, field::ORDER_BODY, &order.body);
                push(&mut out, field::SIGNATURE, &order.signature);
            }
            Self::Accepted { nonce } => {
                out.push(kind::ACCEPTED);
                push(&mut out, field::NONCE, &nonce.0);
            }
            Self::Proof(proof) => {
                out.push(kind::PROOF);
                push(&mut out, field::NONCE, &proof.nonce.0);
                push(&mut out, field::MEASURER, &proof.measurer.0);
                push(&mut out, field::SIGNATURE, &proof.signature);
            }
            Self::Proven => out.push(kind::PROVEN),
            Self::ClientSecond(second, sent_back) => {
                out.push(kind::CLIENT_SECOND);
                push(&mut out, field::SECOND, &second.second.to_be_bytes());
                push(&mut out, field::RECEIVED, &second.received_bytes.to_be_bytes());
                push(&mut out, field::SENT, &second.sent_bytes.to_be_bytes());
                for SentBack { measurer, bytes } in sent_back {
                    let mut value = measurer.0.to_vec();
                    value.extend(bytes.to_be_bytes());
                    push(&mut out, field::SENT_BACK, &value);
                }
            }
            Self::Error { code, text } => {
                out.push(kind::ERROR);
                push(&mut out, field::CODE, &code.get().to_be_bytes());
                let len = text.floor_char_boundary(TEXT_LEN_MAX);
                push(&mut out, field::TEXT, &text.as_bytes()[..len]);
            }
        }
        out
    }

    /// Reads the body of a cell.
    ///
    /// # Errors
    /// If it is truncated, too long, of an unknown type, or lacks a field.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(NAME, body);
        if body.len() > MESSAGE_LEN_MAX {
            return Err(reader.malformed("longer than any message"));
        }
        let kind = reader.take_u8()?;
        let unknown = reader.malformed("of an unknown kind");
        let fields = Fields::parse(reader)?;
        match kind {
            kind::ORDER => Ok(Self::Order(SignedOrder {
                body: Fields::need(fields.order_body)?,
                signature: Fields::need(fields.signature)?,
            })),
            kind::ACCEPTED => Ok(Self::Accepted { nonce: Fields::need(fields.nonce)? }),
            kind::PROOF => Ok(Self::Proof(Proof {
                nonce: Fields::need(fields.nonce)?,
                measurer: Fields::need(fields.measurer)?,
                signature: Fields::need(fields.signature)?,
            })),
            kind::PROVEN => Ok(Self::Proven),
            kind::CLIENT_SECOND => {
                let second = ClientSecond {
                    second: Fields::need(fields.second)?,
                    received_bytes: Fields::need(fields.received)?,
                    sent_bytes: Fields::need(fields.sent)?,
                };
                Ok(Self::ClientSecond(second, fields.sent_back))
            }
            kind::ERROR => Ok(Self::Error {
                code: Fields::need(fields.code)?,
                text: fields.text.unwrap_or_default(),
            }),
            _ => Err(unknown),
        }
    }
}

/// All fields of all messages.
#[derive(Default)]
struct Fields {
    order_body: Option<Vec<u8>>,
    signature: Option<[u8; 64]>,
    nonce: Option<Nonce>,
    measurer: Option<MeasurerKey>,
    second: Option<u16>,
    received: Option<u64>,
    sent: Option<u64>,
    code: Option<ErrorCode>,
    text: Option<String>,
    sent_back: Vec<SentBack>,
}

impl Fields {
    fn parse(reader: Reader<'_>) -> Result<Self, Malformed> {
        let mut fields = Self::default();
        let too_many = reader.malformed("too many measurers");
        each(reader, |field_type, value| match field_type {
            field::SENT_BACK if fields.sent_back.len() == MEASURERS_MAX => Err(too_many),
            field::SENT_BACK => {
                let mut one = None;
                value.set(&mut one, sent_back)?;
                fields.sent_back.extend(one);
                Ok(())
            }
            field::ORDER_BODY => value.set_bytes(&mut fields.order_body, <[u8]>::to_vec),
            field::SIGNATURE => value.set(&mut fields.signature, |bytes| bytes),
            field::NONCE => value.set(&mut fields.nonce, Nonce),
            field::MEASURER => value.set(&mut fields.measurer, MeasurerKey),
            field::SECOND => value.set(&mut fields.second, u16::from_be_bytes),
            field::RECEIVED => value.set(&mut fields.received, u64::from_be_bytes),
            field::SENT => value.set(&mut fields.sent, u64::from_be_bytes),
            field::CODE => {
                value.set(&mut fields.code, |code| ErrorCode::new(u16::from_be_bytes(code)))
            }
            field::TEXT => value.set_bytes(&mut fields.text, readable),
            _ => Ok(()),
        })?;
        Ok(fields)
    }

    fn need<T>(field: Option<T>) -> Result<T, Malformed> {
        field.ok_or(Malformed { message: NAME, problem: "a field is missing" })
    }
}

fn sent_back(value: [u8; 40]) -> SentBack {
    let (mut measurer, mut bytes) = ([0; 32], [0; 8]);
    measurer.copy_from_slice(&value[..32]);
    bytes.copy_from_slice(&value[32..]);
    SentBack { measurer: MeasurerKey(measurer), bytes: u64::from_be_bytes(bytes) }
}

/// A peer's text, sanitized for a terminal and a log: without control characters, and truncated.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_LEN_MAX)]);
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .trim()
        .to_string()
}
