//! Handling of messages on the legs of a set, and their order.

use super::Held;
use crate::cell::msg::{ConfluxLink, ConfluxNote, ConfluxSwitch};
use crate::cell::relay::{RelayCommand, RelayFormat};
use crate::cell_model::{Body, CellModel, Message, PayloadSlice};
use crate::client::application::Application;
use crate::client::circuit::Passage;
use crate::client::core::Core;
use crate::client::event::{CircuitNumber, Loss};
use crate::tunnel::conflux::{ConfluxError, Order};
use rand_core::Rng;

impl<S: CellModel, A: Application<S>, R: Rng> Core<S, A, R> {
    /// The last hop has answered LINK.
    fn handle_linked(&mut self, number: CircuitNumber, leg: u8, data: &[u8]) -> Result<(), Loss> {
        let now = self.now;
        let Some(Passage { set: Some(set), .. }) = self.passages.get_mut(&number) else {
            return Ok(());
        };
        let theirs = ConfluxLink::parse(data).map_err(|_| ConfluxError::Malformed)?;
        let place = set.asked.iter().position(|(asked, ..)| *asked == leg);
        let (_, ours, asked_at) = set.asked.remove(place.ok_or(ConfluxError::Handshake)?);
        // The first answer states the capabilities of the last hop; later ones must agree.
        if set.conflux.leg_count() == 0 && !set.is_usable {
            set.conflux.set_resumes(ours.resumes && theirs.resumes);
        } else if set.conflux.resumes() != theirs.resumes {
            return Err(ConfluxError::Handshake.into());
        }
        if theirs.resumes {
            set.conflux.set_first_leg(theirs.first_leg)?;
        }
        set.conflux.add_leg(leg, &ours, &theirs, asked_at)?;
        set.conflux.handle_answered(now, leg)?;
        self.queue_on_leg(number, leg, RelayCommand::CONFLUX_LINKED_ACK, &[]);
        self.report_lost_leg(number, leg);
        self.finish_set(number);
        Ok(())
    }

    /// A message has arrived from the last hop of a leg.
    pub(crate) fn handle_set_message(
        &mut self,
        number: CircuitNumber,
        leg: u8,
        format: RelayFormat,
        body: &S::Body,
        message: &Message<S::PayloadSlice<'_>>,
    ) -> Result<(), Loss> {
        match message.command {
            RelayCommand::CONFLUX_LINKED => {
                return self.handle_linked(number, leg, message.data.bytes());
            }
            RelayCommand::CONFLUX_SWITCH => {
                let switch = ConfluxSwitch::parse(message.data.bytes());
                let switch = switch.map_err(|_| ConfluxError::Malformed)?;
                if let Some(set) = self.set_mut(number) {
                    set.conflux.handle_switch(leg, switch)?;
                }
                return Ok(());
            }
            RelayCommand::CONFLUX_LINKED_ACK if self.resumes(number) => {
                let note = ConfluxNote::parse(message.data.bytes());
                match note.map_err(|_| ConfluxError::Malformed)? {
                    ConfluxNote::Arrived(count) => {
                        if let Some(set) = self.set_mut(number) {
                            set.conflux.handle_arrived(leg, count);
                        }
                    }
                    ConfluxNote::LostLegs(silent) => self.give_up_timed_out(number, silent),
                }
                return Ok(());
            }
            // Only clients send these.
            command if command.is_of_conflux() => return Err(ConfluxError::Handshake.into()),
            _ => {}
        }
        let Some(set) = self.set_mut(number) else { return Ok(()) };
        let order = set.conflux.handle_received(leg)?;
        if let Some(count) = set.conflux.take_report(leg, message.command == RelayCommand::DATA) {
            self.queue_note(number, leg, ConfluxNote::Arrived(count));
        }
        match order {
            Order::Early(place) => {
                let Some(set) = self.set_mut(number) else { return Ok(()) };
                set.conflux.hold(place, Held { format, body: body.clone() })?;
                if let Some(silent) = set.conflux.take_overdue() {
                    self.give_up_leg(number, silent);
                }
                self.schedule_leg_check();
                Ok(())
            }
            Order::Duplicate => Ok(()),
            Order::Next => {
                self.handle_stream_message(number, message)?;
                self.deliver_early(number)
            }
        }
    }

    /// Delivers messages whose predecessors have arrived.
    fn deliver_early(&mut self, number: CircuitNumber) -> Result<(), Loss> {
        while let Some(Held { format, body }) =
            self.set_mut(number).and_then(|set| set.conflux.poll_early())
        {
            // It was parsed when it arrived.
            let Ok(message) = body.message(format) else { continue };
            self.handle_stream_message(number, &message)?;
        }
        Ok(())
    }
}
