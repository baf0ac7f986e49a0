//! The files of a run, and their fingerprint.

use super::rows::{self, RelayRow, SecondRow, TransferRow};
use crate::error::Error;
use crate::network::{Network, Users};
use crate::run::Outcome;
use serde::Serialize;
use sha2::{Digest, Sha256};
use sim::world::Record;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes to a file, if there is one, and digests the content.
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
        let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(tee);
        let written = rows(&mut writer).and_then(|()| Ok(writer.flush()?));
        written.map_err(|error| failed(io::Error::other(error)))
    };
    add("transfers.csv", &|writer| {
        table(&TransferRow::COLUMNS, rows::transfers(network, outcome), writer)
    })?;
    add("relays.csv", &|writer| table(&RelayRow::COLUMNS, rows::relays(network, outcome), writer))?;
    add("seconds.csv", &|writer| {
        table(&SecondRow::COLUMNS, rows::seconds(network, outcome), writer)
    })?;
    let digest = digest.finalize();
    Ok(digest[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// There is a header even without rows.
fn table(
    columns: &[&str],
    rows: impl Iterator<Item = impl Serialize>,
    writer: &mut csv::Writer<Tee<'_>>,
) -> Result<(), csv::Error> {
    writer.write_record(columns)?;
    for row in rows {
        writer.serialize(row)?;
    }
    Ok(())
}

/// The size of a benchmark's download.
pub(super) fn asked_bytes(network: &Network, record: &Record) -> Option<u32> {
    let before = network.relays.len() + network.servers.len();
    let client = network.clients.get((record.client.0 as usize).checked_sub(before)?)?;
    match &client.users {
        Users::Fetch(fetch) => Some(fetch.sizes.get(usize::from(record.size?))?.bytes),
        Users::Models(_) => None,
    }
}
