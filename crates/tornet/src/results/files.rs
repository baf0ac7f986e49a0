//! The files of a run, and their fingerprint.

use crate::error::Error;
use crate::network::{Network, Users};
use crate::run::Outcome;
use sha2::{Digest, Sha256};
use sim::world::{Ending, Record};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes what goes to a file, if there is one, and takes its digest.
struct Tee<'a> {
    digest: &'a mut Sha256,
    file: Option<BufWriter<File>>,
}

impl Write for Tee<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.digest.update(bytes);
        match &mut self.file {
            Some(file) => file.write_all(bytes).map(|()| bytes.len()),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

type Rows<'a> = &'a dyn Fn(&mut csv::Writer<Tee<'_>>) -> Result<(), csv::Error>;

/// Returns the fingerprint of all files.
pub(super) fn write(
    network: &Network,
    outcome: &Outcome,
    folder: Option<&Path>,
) -> Result<String, Error> {
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)
            .map_err(|source| Error::Write { path: folder.into(), source })?;
    }
    let mut digest = Sha256::new();
    let mut add = |name: &str, rows: Rows<'_>| -> Result<(), Error> {
        let path = folder.map(|folder| folder.join(name));
        let failed =
            |source: io::Error| Error::Write { path: path.clone().unwrap_or_default(), source };
        let file = path.as_ref().map(File::create).transpose().map_err(failed)?;
        let tee = Tee { digest: &mut digest, file: file.map(BufWriter::new) };
        let mut writer = csv::Writer::from_writer(tee);
        let written = rows(&mut writer).and_then(|()| Ok(writer.flush()?));
        written.map_err(|error| failed(io::Error::other(error)))
    };
    add("transfers.csv", &|writer| transfers(network, outcome, writer))?;
    add("relays.csv", &|writer| relays(network, outcome, writer))?;
    add("seconds.csv", &|writer| seconds(network, outcome, writer))?;
    let digest = digest.finalize();
    Ok(digest[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn transfers(
    network: &Network,
    outcome: &Outcome,
    writer: &mut csv::Writer<Tee<'_>>,
) -> Result<(), csv::Error> {
    writer.write_record([
        "client",
        "begun_ns",
        "asked_bytes",
        "received_bytes",
        "first_byte_ns",
        "last_byte_ns",
        "ending",
    ])?;
    let ns = |time: Option<onion::Duration>| time.map(|it| it.as_nanos());
    for record in &outcome.records {
        let ending = match record.ending {
            Ending::Complete => "complete",
            Ending::TimedOut => "timed out",
            Ending::Lost => "lost",
        };
        writer.serialize((
            &outcome.names[record.client.0 as usize],
            record.begun.as_nanos(),
            asked_bytes(network, record),
            record.bytes,
            ns(record.first_byte),
            ns(record.last_byte),
            ending,
        ))?;
    }
    Ok(())
}

/// How large a benchmark's download is.
pub(super) fn asked_bytes(network: &Network, record: &Record) -> Option<u32> {
    let before = network.relays.len() + network.servers.len();
    let client = network.clients.get((record.client.0 as usize).checked_sub(before)?)?;
    match &client.users {
        Users::Fetch(fetch) => Some(fetch.sizes.get(usize::from(record.size?))?.bytes),
        Users::Models(_) => None,
    }
}

fn relays(
    network: &Network,
    outcome: &Outcome,
    writer: &mut csv::Writer<Tee<'_>>,
) -> Result<(), csv::Error> {
    writer.write_record([
        "relay",
        "weight",
        "capacity_bit_per_s",
        "relayed_bytes",
        "cells",
        "waited_cell_us",
        "circuits",
        "lost_flights",
        "dropped_flights",
    ])?;
    for (relay, figures) in network.relays.iter().zip(&outcome.figures) {
        writer.serialize((
            &relay.site.name,
            relay.weight,
            relay.capacity().as_bit_per_s(),
            figures.relayed_bytes,
            figures.cells,
            micros(figures.waited_cell_s),
            figures.circuits,
            figures.lost_flights,
            figures.dropped_flights,
        ))?;
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive")]
fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// What relays have sent in each second.
fn seconds(
    network: &Network,
    outcome: &Outcome,
    writer: &mut csv::Writer<Tee<'_>>,
) -> Result<(), csv::Error> {
    writer.write_record(["relay", "second", "sent_bytes"])?;
    for (relay, figures) in network.relays.iter().zip(&outcome.figures) {
        for (second, bytes) in figures.sent_bytes.iter().enumerate() {
            writer.serialize((&relay.site.name, second, bytes))?;
        }
    }
    Ok(())
}
