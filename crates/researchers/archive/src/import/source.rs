//! Files of archives as decompressed, bounded streams.

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};
use sha2::{Digest as _, Sha256};
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

/// Maximum memory of the xz decoder. `xz -9` needs 65 MiB.
const XZ_MEMORY: u64 = 1 << 28;
/// A file may decompress to this size; a larger one to at most [`RATIO_MAX`] times its size.
const FREE_BYTES: u64 = 1 << 30;
/// Maximum compression ratio. A month of consensuses has 90.
const RATIO_MAX: u64 = 500;
/// Maximum size of a tar member.
pub(super) const MEMBER_MAX: u64 = 1 << 32;

/// Formats that are named with the remedy, by their first bytes.
const UNSUPPORTED: [(&[u8], &str, &str); 8] = [
    (b"BZh", "compressed with bzip2", "bunzip2"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unzstd"),
    (b"\x5d\0\0", "compressed in the old format LZMA", "unlzma"),
    (b"LZIP", "compressed with lzip", "lzip -d"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "unlz4"),
    (b"\x1f\x9d", "compressed with compress", "uncompress"),
    (b"PK\x03\x04", "a ZIP archive", "unzip"),
    (b"7z\xbc\xaf", "a 7-Zip archive", "7z x"),
];

/// Counts and hashes the compressed bytes that were read.
#[derive(Default)]
pub(super) struct Count {
    /// Of all sources.
    pub(super) total: AtomicU64,
    /// Digest and length of the current source.
    digest: Mutex<(Sha256, u64)>,
}

impl Count {
    /// The SHA-256, in hex, and the length of the bytes read since the last call.
    pub(super) fn digest(&self) -> (String, u64) {
        let mut digest = self.lock();
        let (hash, bytes) = std::mem::take(&mut *digest);
        (hex::encode(hash.finalize()), bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Sha256, u64)> {
        self.digest.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn add(&self, bytes: &[u8]) {
        let mut digest = self.lock();
        digest.0.update(bytes);
        digest.1 += bytes.len() as u64;
        self.total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    }
}

/// An opened file: a stream of its decompressed content.
pub(super) struct Opened {
    pub(super) stream: Box<dyn Read + Send>,
    /// Whether the stream is a tar.
    pub(super) is_tar: bool,
}

/// Opens a file. Pipes and devices are refused: their size is unknown, and a pipe without a writer would block.
pub(super) fn open(path: &Path, count: Arc<Count>) -> io::Result<Opened> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(other(
            "this is a pipe or a device, not a file: save its content to a file first",
        ));
    }
    let size = metadata.len();
    let (magic, raw) = peek::<6>(Box::new(Counted { from: File::open(path)?, count }))?;
    let stream: Box<dyn Read + Send> = match magic.as_slice() {
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            let stream = Stream::new_stream_decoder(XZ_MEMORY, CONCATENATED)?;
            Box::new(XzDecoder::new_stream(raw, stream))
        }
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(raw)),
        start => match UNSUPPORTED.iter().find(|(magic, ..)| start.starts_with(magic)) {
            Some((_, name, remedy)) => {
                return Err(other(&format!(
                    "{name}, which is not supported: use `{remedy}` first"
                )));
            }
            None => raw,
        },
    };
    let most = FREE_BYTES.max(size.saturating_mul(RATIO_MAX));
    let bounded = Bounded { from: stream, left: most };
    let (head, stream) = peek::<512>(Box::new(bounded))?;
    Ok(Opened { is_tar: head.get(257..262) == Some(b"ustar"), stream })
}

/// Size of a chunk from the decompressing thread, and maximum number of queued chunks. They hold about three consensuses of 2.4 MB.
const CHUNK: usize = 1 << 18;
const CHUNKS: usize = 32;

/// A stream that a separate thread decompresses. The thread ends with the stream, or when the stream is dropped.
pub(super) struct Decompressed {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: io::Cursor<Vec<u8>>,
    /// Returns used chunks, so that few are allocated.
    used: Sender<Vec<u8>>,
}

impl Decompressed {
    pub(super) fn new<'scope>(
        scope: &'scope Scope<'scope, '_>,
        stream: Box<dyn Read + Send>,
    ) -> Self {
        let (sender, chunks) = sync_channel(CHUNKS);
        let (used, unused) = channel();
        scope.spawn(move || send(stream, &sender, &unused));
        Self { chunks, chunk: io::Cursor::default(), used }
    }
}

fn send(
    mut stream: Box<dyn Read + Send>,
    sender: &SyncSender<io::Result<Vec<u8>>>,
    unused: &Receiver<Vec<u8>>,
) {
    loop {
        let mut chunk = unused.try_recv().unwrap_or_default();
        chunk.resize(CHUNK, 0);
        let read = match stream.read(&mut chunk) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read,
        };
        let is_end = !matches!(read, Ok(1..));
        let sent = sender.send(read.map(|len| {
            chunk.truncate(len);
            chunk
        }));
        if is_end || sent.is_err() {
            return;
        }
    }
}

impl Read for Decompressed {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            let len = self.chunk.read(room)?;
            if len > 0 || room.is_empty() {
                return Ok(len);
            }
            match self.chunks.recv() {
                Ok(chunk) => {
                    let used = std::mem::replace(&mut self.chunk, io::Cursor::new(chunk?));
                    let _is_over = self.used.send(used.into_inner());
                }
                Err(_) => return Ok(0),
            }
        }
    }
}

/// The decompressed content of a file, at most `most` bytes.
pub(super) fn read_all(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut opened = open(path, Arc::default())?;
    let mut content = Vec::new();
    let read = opened.stream.by_ref().take(most + 1).read_to_end(&mut content)?;
    if read as u64 > most {
        return Err(other(&format!("longer than {most} bytes")));
    }
    Ok(content)
}

fn other(text: &str) -> io::Error {
    io::Error::other(text.to_owned())
}

/// The first bytes of a stream, and the complete stream.
fn peek<const N: usize>(
    mut from: Box<dyn Read + Send>,
) -> io::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    let mut head = Vec::new();
    from.by_ref().take(N as u64).read_to_end(&mut head)?;
    let stream = BufReader::with_capacity(1 << 16, io::Cursor::new(head.clone()).chain(from));
    Ok((head, Box::new(stream)))
}

struct Counted<R> {
    from: R,
    count: Arc<Count>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(room)?;
        self.count.add(room.get(..len).unwrap_or_default());
        Ok(len)
    }
}

/// Fails at a line that is longer than any line of a valid table.
pub(super) struct ShortLines<R> {
    from: R,
    len: usize,
}

impl<R: Read> ShortLines<R> {
    const MAX: usize = 1 << 16;

    pub(super) const fn new(from: R) -> Self {
        Self { from, len: 0 }
    }
}

impl<R: Read> Read for ShortLines<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(room)?;
        let read = room.get(..len).unwrap_or_default();
        // A line within one read is not longer than that read.
        self.len = match memchr::memrchr(b'\n', read) {
            Some(last) => len - last,
            None => self.len + len,
        };
        match self.len > Self::MAX.max(room.len()) {
            true => Err(other(&format!("a line is longer than {} bytes", Self::MAX))),
            false => Ok(len),
        }
    }
}

struct Bounded<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let len = self.from.read(room)?;
        self.left = self.left.checked_sub(len as u64).ok_or_else(|| {
            other(&format!("the file decompresses to more than {RATIO_MAX} times its size, like a decompression bomb; the rest is not read"))
        })?;
        Ok(len)
    }
}
