//! The packets of a capacity test. Numbers are big-endian.
//!
//! | packet | bytes |
//! |---|---|
//! | hello | kind 1 or 2, version 1, from u16, to u16, nonce 16, echo 16, tag 16 |
//! | frame | kind 3 to 5, zero, length u16, tick u16, echoed tick u16, sequence u64, tag 16, filler |
//!
//! A parsed packet is not authentic yet: its tag must be compared with the one by the keys of its direction.

/// The version of this protocol.
const VERSION: u8 = 1;
/// Length of a tag.
pub const TAG_LEN: usize = 16;
/// Length of a nonce.
pub const NONCE_LEN: usize = 16;
/// The bytes of a hello that its tag covers.
pub const HELLO_BODY_LEN: usize = 6 + 2 * NONCE_LEN;
/// Length of a hello, and of the answer to one.
pub const HELLO_LEN: usize = HELLO_BODY_LEN + TAG_LEN;
/// The bytes of a frame that its tag covers: one block of AES.
pub const FRAME_BODY_LEN: usize = 16;
/// Length of a frame without filler.
pub const FRAME_LEN_MIN: usize = FRAME_BODY_LEN + TAG_LEN;
/// Length of a full frame: with IPv6 and UDP 1,420 bytes, which common tunnels carry without fragmentation.
pub const FRAME_LEN_MAX: usize = 1372;

const HELLO: u8 = 1;
const ANSWER: u8 = 2;
const DATA: u8 = 3;
const DONE: u8 = 4;
const CANCELLED: u8 = 5;

/// Proof that the sender has the keys.
pub type Tag = [u8; TAG_LEN];
/// A random number of one side, for one test.
pub type Nonce = [u8; NONCE_LEN];

/// A request to prove presence and knowledge of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Answers are not answered.
    pub is_answer: bool,
    /// The sender's index.
    pub from: u16,
    /// The addressee's index.
    pub to: u16,
    /// The sender's nonce.
    pub nonce: Nonce,
    /// The nonce of the other side, which proves that its hello arrived; otherwise zeros.
    pub echo: Nonce,
}

/// The kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Filler, if it has any; and that its sender is alive.
    Data,
    /// The sender has finished the test: send nothing more.
    Done,
    /// The sender gives up the test: send nothing more.
    Cancelled,
}

/// The header of a packet between sides that know each other's nonces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The kind.
    pub kind: FrameKind,
    /// Length of the whole datagram.
    pub len: u16,
    /// The sender's time, in ticks since its part began, from one.
    pub tick: u16,
    /// The newest tick that the sender has received from the addressee; zero if none.
    pub echoed_tick: u16,
    /// Counts the frames of a direction from zero.
    pub sequence: u64,
}

/// A datagram that has the form of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A hello, or an answer to one.
    Hello(Hello, Tag),
    /// Any other packet.
    Frame(Frame, Tag),
}

impl Packet {
    /// Parses a datagram; `None` if it has no valid form.
    #[must_use]
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        match *datagram.first()? {
            HELLO | ANSWER => {
                let (body, tag) = datagram.split_first_chunk::<HELLO_BODY_LEN>()?;
                Some(Self::Hello(Hello::parse(body)?, tag.try_into().ok()?))
            }
            _ => {
                let (body, rest) = datagram.split_first_chunk::<FRAME_BODY_LEN>()?;
                let frame = Frame::parse(body)?;
                let fits = usize::from(frame.len) == datagram.len()
                    && (frame.kind == FrameKind::Data || datagram.len() == FRAME_LEN_MIN)
                    && datagram.len() <= FRAME_LEN_MAX;
                Some(Self::Frame(frame, *rest.first_chunk()?)).filter(|_| fits)
            }
        }
    }
}

impl Hello {
    /// The bytes that the tag covers.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HELLO_BODY_LEN] {
        let mut bytes = [0; HELLO_BODY_LEN];
        bytes[0] = if self.is_answer { ANSWER } else { HELLO };
        bytes[1] = VERSION;
        bytes[2..4].copy_from_slice(&self.from.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.to.to_be_bytes());
        bytes[6..22].copy_from_slice(&self.nonce);
        bytes[22..].copy_from_slice(&self.echo);
        bytes
    }

    fn parse(bytes: &[u8; HELLO_BODY_LEN]) -> Option<Self> {
        let [kind, version, f0, f1, t0, t1, nonces @ ..] = bytes;
        let (nonce, echo) = nonces.split_first_chunk()?;
        let hello = Self {
            is_answer: *kind == ANSWER,
            from: u16::from_be_bytes([*f0, *f1]),
            to: u16::from_be_bytes([*t0, *t1]),
            nonce: *nonce,
            echo: echo.try_into().ok()?,
        };
        (*version == VERSION && matches!(*kind, HELLO | ANSWER)).then_some(hello)
    }
}

impl Frame {
    /// The bytes that the tag covers.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; FRAME_BODY_LEN] {
        let kind = match self.kind {
            FrameKind::Data => DATA,
            FrameKind::Done => DONE,
            FrameKind::Cancelled => CANCELLED,
        };
        let [l0, l1] = self.len.to_be_bytes();
        let [t0, t1] = self.tick.to_be_bytes();
        let [h0, h1] = self.echoed_tick.to_be_bytes();
        let mut bytes = [kind, 0, l0, l1, t0, t1, h0, h1, 0, 0, 0, 0, 0, 0, 0, 0];
        bytes[8..].copy_from_slice(&self.sequence.to_be_bytes());
        bytes
    }

    fn parse(bytes: &[u8; FRAME_BODY_LEN]) -> Option<Self> {
        let [kind, zero, l0, l1, t0, t1, h0, h1, sequence @ ..] = *bytes;
        let kind = match kind {
            DATA => FrameKind::Data,
            DONE => FrameKind::Done,
            CANCELLED => FrameKind::Cancelled,
            _ => return None,
        };
        let frame = Self {
            kind,
            len: u16::from_be_bytes([l0, l1]),
            tick: u16::from_be_bytes([t0, t1]),
            echoed_tick: u16::from_be_bytes([h0, h1]),
            sequence: u64::from_be_bytes(sequence),
        };
        (zero == 0).then_some(frame)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind() -> impl Strategy<Value = FrameKind> {
        prop_oneof![Just(FrameKind::Data), Just(FrameKind::Done), Just(FrameKind::Cancelled)]
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..1500)) {
            let _ = Packet::parse(&bytes);
        }

        #[test]
        fn what_is_parsed_is_what_the_tag_covers(
            kind in 0u8..7, mut bytes in prop::collection::vec(any::<u8>(), 1..100), fits: bool,
        ) {
            bytes[0] = kind;
            if fits && bytes.len() > 3 {
                let len = u16::try_from(bytes.len()).expect("short").to_be_bytes();
                (bytes[1], bytes[2], bytes[3]) = (u8::from(kind < 3), len[0], len[1]);
            }
            match Packet::parse(&bytes) {
                Some(Packet::Hello(hello, tag)) => {
                    prop_assert_eq!(&hello.to_bytes()[..], &bytes[..HELLO_BODY_LEN]);
                    prop_assert_eq!(&tag[..], &bytes[HELLO_BODY_LEN..]);
                }
                Some(Packet::Frame(frame, tag)) => {
                    prop_assert_eq!(&frame.to_bytes()[..], &bytes[..FRAME_BODY_LEN]);
                    prop_assert_eq!(&tag[..], &bytes[FRAME_BODY_LEN..FRAME_LEN_MIN]);
                    prop_assert_eq!(usize::from(frame.len), bytes.len());
                }
                None => {}
            }
        }

        #[test]
        fn a_hello_survives_encoding(
            is_answer: bool, from: u16, to: u16, nonce: Nonce, echo: Nonce, tag: Tag,
        ) {
            let hello = Hello { is_answer, from, to, nonce, echo };
            let mut bytes = hello.to_bytes().to_vec();
            bytes.extend(tag);
            prop_assert_eq!(Packet::parse(&bytes), Some(Packet::Hello(hello, tag)));
            bytes.push(0);
            prop_assert_eq!(Packet::parse(&bytes), None, "trailing bytes");
        }

        #[test]
        fn a_frame_survives_encoding(
            kind in kind(), filler in 0..=FRAME_LEN_MAX - FRAME_LEN_MIN, tick: u16, echoed_tick: u16,
            sequence: u64, tag: Tag,
        ) {
            let filler = if kind == FrameKind::Data { filler } else { 0 };
            let len = u16::try_from(FRAME_LEN_MIN + filler).expect("short");
            let frame = Frame { kind, len, tick, echoed_tick, sequence };
            let mut bytes = frame.to_bytes().to_vec();
            bytes.extend(tag);
            bytes.resize(usize::from(len), 0x55);
            prop_assert_eq!(Packet::parse(&bytes), Some(Packet::Frame(frame, tag)));
            bytes.push(0);
            prop_assert_eq!(Packet::parse(&bytes), None, "longer than its length field");
        }
    }
}
