//! Downloads and uploads of the files of months and days, each compared with its digest.

use super::super::digests::FileLine;
use super::Notice;
use super::problem::is_missing;
use super::storage::Storage;
use crate::error::ArchiveError;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::buffered::BufWriter;
use object_store::{Error as StoreError, ObjectStoreExt as _};
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncWriteExt as _;

/// Number of transfers at the same time.
const AT_ONCE: usize = 4;
/// Larger files are uploaded in parts, so that they are not held in memory.
const SINGLE_PUT_MAX: usize = 16 << 20;
/// The outcome of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// The content is that of the manifest.
    Complete,
    /// There is no such object.
    Missing,
}

/// Is called with the outcome of each download. An error ends the others.
type Each<'a> =
    &'a mut dyn FnMut(&FileLine, Result<Received, ArchiveError>) -> Result<(), ArchiveError>;

impl Storage {
    /// Downloads files to the given paths, or nowhere, and compares them with their digests. Calls `each` with the outcome of each file.
    pub(super) fn receive(
        &self,
        files: &[(&FileLine, Option<&Path>)],
        notify: &mut dyn FnMut(Notice),
        each: Each<'_>,
    ) -> Result<(), ArchiveError> {
        self.runtime.block_on(async {
            let transfers = stream::iter(files)
                .map(|(file, path)| async move { (*file, self.get(file, *path).await) });
            let mut transfers = transfers.buffer_unordered(AT_ONCE);
            let mut done = 0;
            while let Some((file, result)) = transfers.next().await {
                done += 1;
                notify(Notice::Progress(format!(
                    "{done} of {} files from {}",
                    files.len(),
                    self.name
                )));
                each(file, result)?;
            }
            Ok(())
        })
    }

    async fn get(&self, file: &FileLine, path: Option<&Path>) -> Result<Received, ArchiveError> {
        let key = self.file_key(file);
        let found = match self.store.get(&key).await {
            Err(error) if is_missing(&error) => return Ok(Received::Missing),
            found => found.map_err(self.failed(&key))?,
        };
        // A file of this name is complete: it gets the name at the end.
        let temporary = path.map(|path| {
            let created =
                tempfile::Builder::new().prefix(".new").tempfile_in(files::folder_of(path));
            created.map(|temporary| (temporary, path)).map_err(ArchiveError::file("write", path))
        });
        let mut temporary = temporary.transpose()?;
        let (mut hash, mut bytes) = (Sha256::new(), 0);
        let mut stream = found.into_stream();
        while let Some(chunk) = stream.try_next().await.map_err(self.failed(&key))? {
            bytes += chunk.len() as u64;
            if bytes > file.bytes {
                break;
            }
            hash.update(&chunk);
            if let Some((temporary, path)) = &mut temporary {
                temporary.write_all(&chunk).map_err(ArchiveError::file("write", path))?;
            }
        }
        if bytes != file.bytes || hex::encode(hash.finalize()) != file.sha256 {
            let problem = format!(
                "the stored object of {} is damaged: its SHA-256 is not that in the manifest; remove the object, and import the sources of \
                 its month again with --again",
                file.file
            );
            return Err(self.damaged(&key, problem));
        }
        if let Some((temporary, path)) = temporary {
            temporary
                .persist(path)
                .map_err(|error| ArchiveError::file("write", path)(error.error))?;
        }
        Ok(Received::Complete)
    }

    /// Uploads files of a copy, which is in this folder.
    pub(super) fn send(
        &self,
        folder: &Path,
        files: &[&FileLine],
        notify: &mut dyn FnMut(Notice),
    ) -> Result<(), ArchiveError> {
        self.runtime.block_on(async {
            let transfers = stream::iter(files).map(|file| self.put(folder, file));
            let mut transfers = transfers.buffer_unordered(AT_ONCE);
            let mut done = 0;
            while let Some(result) = transfers.next().await {
                result?;
                done += 1;
                notify(Notice::Progress(format!(
                    "{done} of {} files to {}",
                    files.len(),
                    self.name
                )));
            }
            Ok(())
        })
    }

    /// An object that exists already is written again: it may be damaged.
    async fn put(&self, folder: &Path, file: &FileLine) -> Result<(), ArchiveError> {
        let (key, path) = (self.file_key(file), folder.join(&file.file));
        let mut source = File::open(&path).map_err(ArchiveError::file("read", &path))?;
        let writer = BufWriter::with_capacity(Arc::clone(&self.store), key.clone(), SINGLE_PUT_MAX);
        let mut writer = writer.with_max_concurrency(2);
        let failed = |error: std::io::Error| match error.downcast::<StoreError>() {
            Ok(error) => self.failed(&key)(error),
            Err(error) => ArchiveError::file("upload", &path)(error),
        };
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            let len = source.read(&mut buffer).map_err(ArchiveError::file("read", &path))?;
            if len == 0 {
                break;
            }
            hash.update(&buffer[..len]);
            writer.write_all(&buffer[..len]).await.map_err(failed)?;
        }
        if hex::encode(hash.finalize()) != file.sha256 {
            // The other parts of an upload that is not completed would be stored, and cost money.
            let _ = writer.abort().await;
            return Err(ArchiveError::damaged(&path)("it changed before it was uploaded"));
        }
        writer.shutdown().await.map_err(failed)
    }
}
