//! The rows of a run's files, independent of the format.

use super::files::asked_bytes;
use crate::network::{Network, Relay};
use crate::run::Outcome;
use serde::Serialize;
use sim::world::{Ending, HostFigures, Record};

/// A transfer.
#[derive(Serialize)]
pub(super) struct TransferRow<'a> {
    client: &'a str,
    begun_ns: u64,
    /// The size of a benchmark's download.
    asked_bytes: Option<u32>,
    received_bytes: u64,
    first_byte_ns: Option<u64>,
    last_byte_ns: Option<u64>,
    ending: &'a str,
}

impl TransferRow<'_> {
    pub(super) const COLUMNS: [&'static str; 7] = [
        "client",
        "begun_ns",
        "asked_bytes",
        "received_bytes",
        "first_byte_ns",
        "last_byte_ns",
        "ending",
    ];
}

pub(super) fn transfers<'a>(
    network: &'a Network,
    outcome: &'a Outcome,
) -> impl Iterator<Item = TransferRow<'a>> {
    let ns = |time: onion::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let row = move |record: &'a Record| TransferRow {
        client: &outcome.names[record.client.0 as usize],
        begun_ns: record.begun.as_nanos(),
        asked_bytes: asked_bytes(network, record),
        received_bytes: record.bytes,
        first_byte_ns: record.first_byte.map(ns),
        last_byte_ns: record.last_byte.map(ns),
        ending: match record.ending {
            Ending::Complete => "complete",
            Ending::TimedOut => "timed out",
            Ending::Lost => "lost",
            Ending::UnderWay => "under way",
        },
    };
    outcome.records.iter().map(row)
}

/// A relay, over the whole run.
#[derive(Serialize)]
pub(super) struct RelayRow<'a> {
    relay: &'a str,
    weight: u64,
    capacity_bit_per_s: u64,
    relayed_bytes: u64,
    cells: u64,
    /// The sum of all cells' delays in its queues.
    waited_cell_us: u64,
    /// The sum of the delays after that, in its kernel's sockets.
    kernel_waited_cell_us: u64,
    circuits: u64,
    lost_flights: u64,
    dropped_flights: u64,
}

impl RelayRow<'_> {
    pub(super) const COLUMNS: [&'static str; 10] = [
        "relay",
        "weight",
        "capacity_bit_per_s",
        "relayed_bytes",
        "cells",
        "waited_cell_us",
        "kernel_waited_cell_us",
        "circuits",
        "lost_flights",
        "dropped_flights",
    ];
}

pub(super) fn relays<'a>(
    network: &'a Network,
    outcome: &'a Outcome,
) -> impl Iterator<Item = RelayRow<'a>> {
    let row = |(relay, figures): (&'a Relay, &HostFigures)| RelayRow {
        relay: &relay.site.name,
        weight: relay.weight,
        capacity_bit_per_s: relay.capacity().as_bit_per_s(),
        relayed_bytes: figures.relayed_bytes,
        cells: figures.cells,
        waited_cell_us: micros(figures.waited_cell_s),
        kernel_waited_cell_us: micros(figures.kernel_waited_cell_s),
        circuits: figures.circuits,
        lost_flights: figures.lost_flights,
        dropped_flights: figures.dropped_flights,
    };
    network.relays.iter().zip(&outcome.figures).map(row)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive")]
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// The bytes that a relay has sent in a second.
#[derive(Serialize)]
pub(super) struct SecondRow<'a> {
    relay: &'a str,
    second: u32,
    sent_bytes: u64,
}

impl SecondRow<'_> {
    pub(super) const COLUMNS: [&'static str; 3] = ["relay", "second", "sent_bytes"];
}

pub(super) fn seconds<'a>(
    network: &'a Network,
    outcome: &'a Outcome,
) -> impl Iterator<Item = SecondRow<'a>> {
    let relays = network.relays.iter().zip(&outcome.figures);
    relays.flat_map(|(relay, figures)| {
        let row = |(second, sent_bytes): (u32, &u64)| SecondRow {
            relay: &relay.site.name,
            second,
            sent_bytes: *sent_bytes,
        };
        (0..).zip(&figures.sent_bytes).map(row)
    })
}
