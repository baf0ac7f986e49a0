use super::{Run, RunRoom, Weightless, WeightlessStretch};
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell::{CircId, Command, Malformed};
use crate::suite::{Body, Cell, Message, Salt, StreamId, Stretch};
use alloc::boxed::Box;

/// What is in a weightless cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightlessBody {
    /// Layers that are on it.
    pub(super) layers: u8,
    content: Content,
}

impl WeightlessBody {
    /// No relay has sealed it: with real layers it would be recognized nowhere.
    pub(super) const fn is_noise(&self) -> bool {
        matches!(self.content, Content::Bytes(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// By far the most frequent.
    Data(StreamId, Run),
    Message(RelayCommand, StreamId, Box<[u8]>),
    /// Of a cell that opens or closes circuits, or concerns a link.
    Bytes(Box<[u8]>),
}

impl Default for Content {
    fn default() -> Self {
        Self::Data(StreamId::CIRCUIT, Run { at: 0, len: 0 })
    }
}

impl Body<Weightless> for WeightlessBody {
    fn from_bytes(bytes: &[u8]) -> Self {
        Self { layers: 0, content: Content::Bytes(bytes.into()) }
    }

    fn bytes(&self) -> &[u8] {
        match &self.content {
            Content::Bytes(bytes) => bytes,
            Content::Data(..) | Content::Message(..) => &[],
        }
    }

    fn message(&self, format: RelayFormat) -> Result<Message<WeightlessStretch<'_>>, Malformed> {
        let (command, stream_id, data) = match &self.content {
            Content::Data(stream_id, run) => {
                (RelayCommand::DATA, *stream_id, WeightlessStretch::Run(*run))
            }
            Content::Message(command, stream_id, bytes) => {
                (*command, *stream_id, WeightlessStretch::Bytes(bytes))
            }
            Content::Bytes(_) => {
                return Err(Malformed { message: "relay cell", problem: "no relay message in it" });
            }
        };
        if format == RelayFormat::V1 && !command.is_known() {
            let problem = "a command that we do not know";
            return Err(Malformed { message: "relay cell", problem });
        }
        Ok(Message { command, stream_id, data })
    }

    fn write(
        &mut self,
        format: RelayFormat,
        message: &Message<WeightlessStretch<'_>>,
    ) -> Result<(), Malformed> {
        let Message { command, stream_id, data } = *message;
        format.check(command, stream_id.0, data.len())?;
        self.layers = 0;
        self.content = match data {
            WeightlessStretch::Run(run) => {
                debug_assert_eq!(command, RelayCommand::DATA, "a length says nothing else");
                Content::Data(stream_id, run)
            }
            WeightlessStretch::Bytes(bytes) => Content::Message(command, stream_id, bytes.into()),
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
        debug_assert_eq!(len, room.run.len as usize, "what is said to be there is there");
        *self = Self { layers: 0, content: Content::Data(stream_id, room.run) };
        len
    }

    fn salt(&mut self, _format: RelayFormat, _at: usize, _salt: &Salt) {}

    fn forge(&mut self, _seed: &[u8; 16]) {
        // No circuit has so many hops that this would be for one of them.
        *self = Self { layers: u8::MAX, ..Self::default() };
    }
}

/// A weightless cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WeightlessCell {
    circ_id: CircId,
    command: u8,
    body: WeightlessBody,
}

impl Cell for WeightlessCell {
    type Body = WeightlessBody;

    const EMPTY: Self = Self {
        circ_id: CircId::LINK,
        command: 0,
        body: WeightlessBody {
            layers: 0,
            content: Content::Data(StreamId::CIRCUIT, Run { at: 0, len: 0 }),
        },
    };

    fn begin(&mut self, circ_id: CircId, command: Command) -> &mut WeightlessBody {
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

    fn body(&self) -> &WeightlessBody {
        &self.body
    }

    fn shift(from: &mut [Self], to: &mut [Self]) {
        from.swap_with_slice(to);
    }
}
