use super::{HEADER_LEN, RelayCommand, RelayMessage, write_header};
use crate::cell::BODY_LEN;
use crate::cell::reader::{Malformed, Reader};

/// The length of the tag at the beginning of a relay cell in [`RelayFormat::V1`].
pub const TAG_LEN: usize = 16;

/// The layout of a message in a relay cell. It depends on the cryptography of the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RelayFormat {
    /// With a digest in the header and a stream ID in every message (tor-spec §6.1): layers with a keystream
    /// ("tor1").
    #[default]
    V0,
    /// After a tag, with a stream ID only in stream messages (proposal 340): Counter Galois Onion. One message
    /// per cell.
    V1,
}

impl RelayFormat {
    /// Maximum data length of a message with this command.
    #[must_use]
    #[inline]
    pub const fn max_data_len(self, command: RelayCommand) -> usize {
        BODY_LEN - self.header_len(command)
    }

    /// The offset of the data of a message with this command.
    #[must_use]
    #[inline]
    pub const fn header_len(self, command: RelayCommand) -> usize {
        match self {
            Self::V0 => HEADER_LEN,
            Self::V1 if command.is_of_streams() => TAG_LEN + 5,
            Self::V1 => TAG_LEN + 3,
        }
    }

    /// Reads the body of a relay cell that has no layer left.
    ///
    /// # Errors
    /// If the stated length exceeds the cell; in version 1, if the command is unknown and with it the layout.
    #[inline]
    pub fn parse(self, body: &[u8]) -> Result<RelayMessage<'_>, Malformed> {
        match self {
            Self::V0 => RelayMessage::parse(body),
            Self::V1 => parse_v1(body),
        }
    }

    /// Writes a relay cell's body with this message, without digest, tag and encryption.
    ///
    /// # Errors
    /// If the data exceeds [`max_data_len`](Self::max_data_len); in version 1, if the command does not allow a
    /// stream ID or needs one.
    #[inline]
    pub fn write(
        self,
        message: &RelayMessage<'_>,
        body: &mut [u8; BODY_LEN],
    ) -> Result<(), Malformed> {
        let RelayMessage { command, stream_id, data } = *message;
        self.check(command, stream_id, data.len())?;
        let (header, rest) = body.split_at_mut(self.header_len(command));
        self.write_header(header, command, stream_id, data.len());
        let (room, padding) = rest.split_at_mut(data.len());
        room.copy_from_slice(data);
        padding.fill(0);
        Ok(())
    }

    /// Whether the message can be encoded.
    #[inline]
    pub(crate) fn check(
        self,
        command: RelayCommand,
        stream_id: u16,
        data_len: usize,
    ) -> Result<(), Malformed> {
        let malformed = |problem| Malformed { message: "relay cell", problem };
        if data_len > self.max_data_len(command) {
            return Err(malformed("more data than fits"));
        }
        match self {
            Self::V0 => Ok(()),
            Self::V1 if !command.is_known() => Err(malformed("unknown command")),
            Self::V1 if command.is_of_streams() != (stream_id != 0) => {
                Err(malformed("a stream ID that the command does not allow, or a missing one"))
            }
            Self::V1 => Ok(()),
        }
    }

    /// Writes the header of a message with `data_len` bytes of data; `header` has exactly the header's length.
    pub(crate) fn write_header(
        self,
        header: &mut [u8],
        command: RelayCommand,
        stream_id: u16,
        len: usize,
    ) {
        if self == Self::V0 {
            return write_header(header, command, stream_id, len);
        }
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        header[..TAG_LEN].fill(0);
        header[TAG_LEN] = command.0;
        header[TAG_LEN + 1..TAG_LEN + 3].copy_from_slice(&len.to_be_bytes());
        if let Some(id) = header.get_mut(TAG_LEN + 3..) {
            id.copy_from_slice(&stream_id.to_be_bytes()[..id.len()]);
        }
    }
}

fn parse_v1(body: &[u8]) -> Result<RelayMessage<'_>, Malformed> {
    let mut reader = Reader::new("relay cell", body);
    reader.take(TAG_LEN)?;
    let command = RelayCommand(reader.take_u8()?);
    let len = usize::from(reader.take_u16()?);
    if !command.is_known() {
        return Err(reader.malformed("unknown command"));
    }
    let stream_id = if command.is_of_streams() { reader.take_u16()? } else { 0 };
    Ok(RelayMessage { command, stream_id, data: reader.take(len)? })
}

impl RelayCommand {
    /// Whether messages with this command belong to streams and have a stream ID in [`RelayFormat::V1`].
    #[must_use]
    #[inline]
    pub const fn is_of_streams(self) -> bool {
        matches!(
            self,
            Self::BEGIN
                | Self::DATA
                | Self::END
                | Self::CONNECTED
                | Self::RESOLVE
                | Self::RESOLVED
                | Self::BEGIN_DIR
                | Self::XOFF
                | Self::XON
        )
    }

    /// Whether messages with this command are multiplexed: in one order over all legs of a Conflux set
    /// (proposal 329 §2.8). All others concern one circuit.
    #[must_use]
    #[inline]
    pub const fn is_multiplexed(self) -> bool {
        self.is_of_streams() && self.0 != Self::BEGIN_DIR.0
    }

    /// Whether it is a Conflux command (proposal 329).
    #[must_use]
    #[inline]
    pub const fn is_of_conflux(self) -> bool {
        matches!(self.0, 19..=22)
    }

    /// Whether tor defines this command, so that the layout in [`RelayFormat::V1`] is known: streams and
    /// circuits (tor-spec §6.1), Conflux (19 to 22), onion services (32 to 40), padding and flow control.
    #[must_use]
    pub const fn is_known(self) -> bool {
        matches!(self.0, 1..=15 | 19..=22 | 32..=44)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The maximum of a cell, as in C tor.
    #[test]
    fn the_maximum_data_length_excludes_the_header() {
        let of = |format: RelayFormat, command| format.max_data_len(command);
        assert_eq!(of(RelayFormat::V0, RelayCommand::DATA), 498);
        assert_eq!(of(RelayFormat::V0, RelayCommand::EXTEND2), 498);
        assert_eq!(of(RelayFormat::V1, RelayCommand::DATA), 488);
        assert_eq!(of(RelayFormat::V1, RelayCommand::EXTEND2), 490);
    }

    #[test]
    fn a_message_has_the_layout_of_tor_spec() {
        let mut body = [0xff; BODY_LEN];
        let data = RelayMessage { command: RelayCommand::DATA, stream_id: 0x1234, data: b"abc" };
        RelayFormat::V1.write(&data, &mut body).expect("it fits");
        assert_eq!(body[..25], *b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\x03\x12\x34abc\0");
        assert!(body[24..].iter().all(|byte| *byte == 0), "earlier content is erased");
        let sendme = RelayMessage { command: RelayCommand::SENDME, stream_id: 0, data: b"abc" };
        RelayFormat::V1.write(&sendme, &mut body).expect("it fits");
        assert_eq!(body[16..23], *b"\x05\0\x03abc\0");
    }

    #[test]
    fn only_stream_messages_carry_a_stream_id() {
        let mut body = [0; BODY_LEN];
        let mut write = |command, stream_id| {
            let message = RelayMessage { command, stream_id, data: &[] };
            RelayFormat::V1.write(&message, &mut body).is_ok()
        };
        assert!(write(RelayCommand::DATA, 1) && !write(RelayCommand::DATA, 0));
        assert!(write(RelayCommand::EXTEND2, 0) && !write(RelayCommand::EXTEND2, 1));
        // There is no stream-level SENDME in this format, since it implies congestion control.
        assert!(write(RelayCommand::SENDME, 0) && !write(RelayCommand::SENDME, 1));
        assert!(!write(RelayCommand(45), 0) && !write(RelayCommand(0), 0));
    }

    proptest! {
        #[test]
        fn a_message_survives_a_round_trip(
            is_v1: bool, command: u8, stream_id: u16,
            data in prop::collection::vec(any::<u8>(), 0..510),
        ) {
            let format = if is_v1 { RelayFormat::V1 } else { RelayFormat::V0 };
            let message =
                RelayMessage { command: RelayCommand(command), stream_id, data: &data };
            let mut body = [0x77; BODY_LEN];
            if format.write(&message, &mut body).is_ok() {
                prop_assert_eq!(format.parse(&body), Ok(message));
            } else if !is_v1 {
                prop_assert!(data.len() > 498);
            }
        }

        #[test]
        fn arbitrary_bodies_never_panic(body in prop::collection::vec(any::<u8>(), BODY_LEN)) {
            if let Ok(found) = RelayFormat::V1.parse(&body) {
                prop_assert!(found.command.is_known());
                prop_assert!(found.data.len() <= RelayFormat::V1.max_data_len(found.command));
            }
        }
    }
}
