use super::{HeaderOnly, HeaderOnlyPayload, Run, RunRoom};
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{CircId, Command, Malformed};
use crate::cell_model::{Body, Cell, Message, PayloadSlice, Salt, StreamId};
use alloc::boxed::Box;

/// The body of a header-only cell.
///
/// Simulations hold millions of them, so it is as small as possible, and rare content is boxed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderOnlyBody(Content);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// The hot path.
    Data {
        layers: u8,
        stream_id: StreamId,
        len: u16,
        at: u32,
    },
    Message {
        layers: u8,
        message: Box<(RelayCommand, StreamId, Box<[u8]>)>,
    },
    /// A cell that is not a relay cell.
    Bytes {
        layers: u8,
        bytes: Box<Box<[u8]>>,
    },
}

const EMPTY: HeaderOnlyBody =
    HeaderOnlyBody(Content::Data { layers: 0, stream_id: StreamId::CIRCUIT, len: 0, at: 0 });

impl Default for HeaderOnlyBody {
    fn default() -> Self {
        EMPTY
    }
}

impl HeaderOnlyBody {
    /// Not sealed by any relay: with real layers, no hop would recognize it.
    pub(super) const fn is_noise(&self) -> bool {
        matches!(self.0, Content::Bytes { .. })
    }

    /// The number of layers on it.
    #[inline]
    pub(super) const fn layers(&self) -> u8 {
        match &self.0 {
            Content::Data { layers, .. }
            | Content::Message { layers, .. }
            | Content::Bytes { layers, .. } => *layers,
        }
    }

    #[inline]
    pub(super) const fn set_layers(&mut self, count: u8) {
        match &mut self.0 {
            Content::Data { layers, .. }
            | Content::Message { layers, .. }
            | Content::Bytes { layers, .. } => *layers = count,
        }
    }

    /// The length always fits into a cell.
    fn data(stream_id: StreamId, run: Run) -> Self {
        let len = u16::try_from(run.len).unwrap_or(u16::MAX);
        Self(Content::Data { layers: 0, stream_id, len, at: run.at })
    }
}

impl Body<HeaderOnly> for HeaderOnlyBody {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self(Content::Bytes { layers: 0, bytes: Box::new(bytes.into()) })
    }

    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Content::Bytes { bytes, .. } => bytes,
            Content::Data { .. } | Content::Message { .. } => &[],
        }
    }

    fn message(&self, format: RelayFormat) -> Result<Message<HeaderOnlyPayload<'_>>, Malformed> {
        let (command, stream_id, data) = match &self.0 {
            Content::Data { stream_id, len, at, .. } => {
                let run = Run { at: *at, len: u32::from(*len) };
                (RelayCommand::DATA, *stream_id, HeaderOnlyPayload::Run(run))
            }
            Content::Message { message, .. } => {
                let (command, stream_id, bytes) = &**message;
                (*command, *stream_id, HeaderOnlyPayload::Bytes(bytes))
            }
            Content::Bytes { .. } => {
                return Err(Malformed {
                    message: "relay cell",
                    problem: "it contains no relay message",
                });
            }
        };
        if format == RelayFormat::V1 && !command.is_known() {
            let problem = "unknown command";
            return Err(Malformed { message: "relay cell", problem });
        }
        Ok(Message { command, stream_id, data })
    }

    fn write(
        &mut self,
        format: RelayFormat,
        message: &Message<HeaderOnlyPayload<'_>>,
    ) -> Result<(), Malformed> {
        let Message { command, stream_id, data } = *message;
        format.check(command, stream_id.0, data.len())?;
        *self = match data {
            HeaderOnlyPayload::Run(run) => {
                debug_assert_eq!(command, RelayCommand::DATA, "only DATA is stored as a length");
                Self::data(stream_id, run)
            }
            HeaderOnlyPayload::Bytes(bytes) => {
                let message = Box::new((command, stream_id, bytes.into()));
                Self(Content::Message { layers: 0, message })
            }
        };
        Ok(())
    }

    fn write_data(
        &mut self,
        format: RelayFormat,
        stream_id: StreamId,
        most_bytes: usize,
        fill: impl FnOnce(&mut RunRoom) -> usize,
    ) -> usize {
        let fitting_bytes = format.max_data_len(RelayCommand::DATA);
        let room_bytes = u32::try_from(most_bytes.min(fitting_bytes)).unwrap_or(0);
        let mut room = RunRoom { room_bytes, run: Run::default() };
        let len = fill(&mut room);
        debug_assert_eq!(len, room.run.len as usize, "the length matches the data");
        *self = Self::data(stream_id, room.run);
        len
    }

    fn salt(&mut self, _format: RelayFormat, _at: usize, _salt: &Salt) {}

    fn forge(&mut self, _seed: &[u8; 16]) {
        *self = EMPTY;
        // No circuit is that long.
        self.set_layers(u8::MAX);
    }
}

/// A header-only cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderOnlyCell {
    circ_id: CircId,
    command: u8,
    body: HeaderOnlyBody,
}

impl Cell for HeaderOnlyCell {
    type Body = HeaderOnlyBody;

    const EMPTY: Self = Self { circ_id: CircId::LINK, command: 0, body: EMPTY };

    fn begin(&mut self, circ_id: CircId, command: Command) -> &mut HeaderOnlyBody {
        self.circ_id = circ_id;
        self.command = command.get();
        &mut self.body
    }

    fn circ_id(&self) -> CircId {
        self.circ_id
    }

    fn command(&self) -> Command {
        Command::new(self.command)
    }

    fn body(&self) -> &HeaderOnlyBody {
        &self.body
    }

    fn body_mut(&mut self) -> &mut HeaderOnlyBody {
        &mut self.body
    }

    fn shift(from: &mut [Self], to: &mut [Self]) {
        from.swap_with_slice(to);
    }
}

const _: () = assert!(size_of::<HeaderOnlyCell>() <= 24, "millions of them are held");
