//! Events of a set, selected by bytes: for fuzzing and random runs.

use super::{LegEnd, LinkedPair, LinkedParams};
use crate::script::Script;
use alloc::vec::Vec;
use onion::Duration;
use onion::cell::Command;
use onion::cell::msg::{ConfluxLink, ConfluxSwitch, DesiredUx};
use onion::cell::relay::{RelayCommand, RelayFormat};
use onion::cell_model::{
    Body, CellModel, HeaderOnly, HeaderOnlyBody, HeaderOnlyPayload, Layer, Layers, Message,
    PayloadSlice, StreamId,
};
use onion::tunnel::conflux::schedulers;

/// Maximum number of transfers in one run.
const TRANSFERS_MAX: usize = 6;

impl LinkedParams {
    /// The parameters that two bytes select.
    #[must_use]
    pub fn from_bytes([first, second]: [u8; 2]) -> Self {
        let early_max_cells = [1 << 15, 1 << 15, 64, 8][usize::from(first / 32 % 4)];
        Self {
            legs: 1 + usize::from(first % 4),
            scheduler: schedulers::ALL[usize::from(first / 4) % schedulers::ALL.len()],
            early_max_cells,
            resumes: first < 128,
            held_bytes_max: 4 << 20,
            seed: second.into(),
        }
    }
}

impl LinkedPair {
    /// Applies the events that the bytes select, and calls `check` after each. Cells are forged only if
    /// `may_forge`.
    pub fn run_script(&mut self, script: &[u8], may_forge: bool, mut check: impl FnMut(&Self)) {
        let mut script = Script(script);
        while !script.0.is_empty() {
            self.apply(&mut script, may_forge);
            check(self);
        }
    }

    fn apply(&mut self, script: &mut Script<'_>, may_forge: bool) {
        let link = script.below(self.links());
        match script.next() % 16 {
            0..=2 => _ = self.deliver(link, LegEnd::Exit, 1 + script.below(40)),
            // Delivers everything in flight.
            3 => {
                for link in 0..self.links() {
                    self.deliver(link, LegEnd::Exit, 1000);
                    self.deliver(link, LegEnd::Client, 1000);
                }
            }
            4..=8 => _ = self.deliver(link, LegEnd::Client, 1 + script.below(40)),
            9 => self.apply_begin(script),
            10 | 11 => {
                let number = script.below(self.transfers.len());
                self.feed(number, u64::from(script.next()) << (script.next() % 10));
            }
            12 => {
                self.advance(Duration::from_micros(
                    u64::from(script.next()) << (script.next() % 16),
                ));
            }
            13 => self.apply_cut(link, script),
            14 => self.add_leg(),
            _ if may_forge => self.apply_forgery(link, script),
            _ => {}
        }
    }

    fn apply_begin(&mut self, script: &mut Script<'_>) {
        let bytes = |script: &mut Script<'_>| u64::from(script.next()) << (script.next() % 12);
        if self.transfers.len() < TRANSFERS_MAX {
            let (download, upload) = (bytes(script), bytes(script));
            self.begin(download, upload);
        }
    }

    fn apply_cut(&mut self, link: usize, script: &mut Script<'_>) {
        match script.next() % 4 {
            // Seldom: runs without cuts reach more states.
            0 => self.cut(link, Self::end_of(script.next())),
            1 => _ = self.report_cuts(),
            _ => {}
        }
    }

    /// Replaces, drops or duplicates the next cell of a leg.
    fn apply_forgery(&mut self, link: usize, script: &mut Script<'_>) {
        let to = Self::end_of(script.next());
        let (command, stream_id, data) = match script.next() % 10 {
            0 => return self.drop_next(link, to),
            1 => return self.repeat_next(link, to),
            2..=4 => {
                let mut data = Vec::new();
                let shift = script.next() % 32;
                ConfluxSwitch { skipped: script.u32() >> shift }.encode_into(&mut data);
                (RelayCommand::CONFLUX_SWITCH, StreamId::CIRCUIT, data)
            }
            5 | 6 => {
                let command = [
                    RelayCommand::CONFLUX_LINK,
                    RelayCommand::CONFLUX_LINKED,
                    RelayCommand::CONFLUX_LINKED_ACK,
                ][script.below(3)];
                (command, StreamId::CIRCUIT, self.link_data(script))
            }
            7 => (RelayCommand::DATA, StreamId(1), Vec::new()),
            8 => (RelayCommand::END, StreamId(1), Vec::from([6])),
            _ => {
                (RelayCommand(script.next()), StreamId(script.next().into()), Vec::from([1, 2, 3]))
            }
        };
        self.replace_message(link, to, command, stream_id, &data);
    }

    fn link_data(&self, script: &mut Script<'_>) -> Vec<u8> {
        let mut nonce = self.nonce;
        nonce.0[0] ^= u8::from(script.next().is_multiple_of(8));
        let action = [DesiredUx::NoOpinion, DesiredUx::HighThroughput][script.below(2)];
        let (last_sent, last_received) = (script.next().into(), script.next().into());
        let resumes = !script.next().is_multiple_of(3);
        let (desired, leg, first_leg) = (action, script.next() % 16, script.next() % 16);
        let link =
            ConfluxLink { nonce, last_sent, last_received, desired, resumes, leg, first_leg };
        let mut data = Vec::new();
        link.encode_into(&mut data);
        data
    }

    fn drop_next(&mut self, link: usize, to: LegEnd) {
        if let Some(cells) = self.cells_to(link, to)
            && cells.pop_front().is_some()
        {
            self.has_forged = true;
        }
    }

    fn repeat_next(&mut self, link: usize, to: LegEnd) {
        if let Some(cells) = self.cells_to(link, to)
            && let Some(first) = cells.front().cloned()
        {
            cells.push_front(first);
            self.has_forged = true;
        }
    }

    /// Replaces the message of the next relay cell to an end.
    fn replace_message(
        &mut self,
        link: usize,
        to: LegEnd,
        command: RelayCommand,
        stream_id: StreamId,
        bytes: &[u8],
    ) {
        let Some(cells) = self.cells_to(link, to) else { return };
        let Some(first) = cells.front_mut().filter(|cell| cell.1 == Command::RELAY) else { return };
        let format = RelayFormat::V0;
        let mut body = HeaderOnlyBody::from_bytes(&[]);
        let written = if command == RelayCommand::DATA {
            let data = HeaderOnlyPayload::Run(onion::cell_model::Run { at: 0, len: 9 });
            body.write(format, &Message { command, stream_id, data })
        } else {
            let data = HeaderOnlyPayload::from_bytes(bytes);
            body.write(format, &Message { command, stream_id, data })
        };
        if written.is_err() {
            return;
        }
        // Fresh layers suffice: header-only layers only record the format and the hop.
        match to {
            LegEnd::Client => {
                <HeaderOnly as CellModel>::Layer::new(&format).originate(&mut body);
            }
            LegEnd::Exit => {
                let mut layers = <HeaderOnly as CellModel>::Layers::default();
                layers.push(&format);
                layers.seal(0, Command::RELAY, &mut body);
            }
        }
        first.2 = body;
        self.has_forged = true;
    }

    fn cells_to(
        &mut self,
        link: usize,
        to: LegEnd,
    ) -> Option<&mut alloc::collections::VecDeque<super::QueuedCell>> {
        let state = self.links.get_mut(link)?;
        Some(match to {
            LegEnd::Exit => &mut state.forward,
            LegEnd::Client => &mut state.backward,
        })
    }
}
