//! Verifiable content: a server of it, and downloads through a client's SOCKS port.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::clock;

/// Maximum number of bytes generated, sent and read at once.
const CHUNK: usize = 64 * 1024;
/// Maximum length of a request and of an answer's header.
const HEAD_MAX: usize = 4096;

/// Content of a length, generated from a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Bytes.
    pub len: u64,
    /// The seed, which distinguishes it from others of the same length.
    pub seed: u64,
}

impl Content {
    /// Its bytes in chunks.
    fn chunks(self) -> impl Iterator<Item = Vec<u8>> {
        let whole = u64::try_from(CHUNK).unwrap_or(u64::MAX);
        (0..self.len.div_ceil(whole)).map(move |chunk| {
            let len = whole.min(self.len - chunk * whole);
            // SplitMix64, a word for every eight bytes.
            let words = (chunk * whole / 8..).map(|place| {
                let mut z = self.seed.wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15));
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                z ^ (z >> 31)
            });
            let len = usize::try_from(len).unwrap_or(CHUNK);
            words.flat_map(u64::to_le_bytes).take(len).collect()
        })
    }

    /// Its SHA-256.
    #[must_use]
    pub fn sha256(self) -> [u8; 32] {
        let mut hash = Sha256::new();
        self.chunks().for_each(|chunk| hash.update(&chunk));
        hash.finalize().into()
    }

    fn path(self) -> String {
        format!("/{}/{}", self.len, self.seed)
    }

    fn of_path(path: &str) -> Option<Self> {
        let (len, seed) = path.strip_prefix('/')?.split_once('/')?;
        Some(Self { len: len.parse().ok()?, seed: seed.parse().ok()? })
    }
}

/// An HTTP server of all [`Content`], at `/LENGTH/SEED`. It ends with this value.
#[derive(Debug)]
pub struct ContentServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ContentServer {
    /// Starts it on a free port of loopback.
    ///
    /// # Errors
    /// If the system returns no port or thread.
    pub fn start() -> io::Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// Starts it at an address of this thread's network namespace.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_at(address: Ipv4Addr) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0))?;
        let address = listener.local_addr()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let must_end = Arc::clone(&is_over);
        let thread = thread::Builder::new().name("content".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                if must_end.load(Ordering::Relaxed) {
                    return;
                }
                // A client that disconnects is not an error.
                if let Ok(stream) = stream {
                    thread::spawn(move || serve(stream));
                }
            }
        })?;
        Ok(Self { address, is_over, thread: Some(thread) })
    }

    /// The address that it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ContentServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The connection ends the wait of the thread.
        let _woken = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut stream: TcpStream) -> io::Result<()> {
    let head = read_head(&mut stream)?;
    let mut words = head.split(' ');
    let content = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => Content::of_path(path),
        _ => None,
    };
    let Some(content) = content else {
        return stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n");
    };
    write!(stream, "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n", content.len)?;
    for chunk in content.chunks() {
        stream.write_all(&chunk)?;
    }
    stream.shutdown(Shutdown::Write)?;
    // Waits until the peer closes: an earlier close might reset the connection before it has received everything.
    io::copy(&mut stream, &mut io::sink()).map(drop)
}

/// Reads up to the empty line, a byte at a time: it is short.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_MAX {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    String::from_utf8(head).map_err(|_| io::Error::other("the header is not UTF-8"))
}

/// The result of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Download {
    /// From the start to the first byte of the answer.
    pub to_first_byte: Duration,
    /// From the start to the end.
    pub took: Duration,
    /// Bytes of content received.
    pub received: u64,
    /// Whether it was complete and correct.
    pub is_right: bool,
}

/// Downloads `content` from the server at `from` (a name or an address, and a port), through the SOCKS port of
/// a tor. Downloads with different `isolation` use different circuits.
///
/// # Errors
/// If the client opens no connection, or no byte arrives for `patience`.
pub fn download(
    socks: SocketAddr,
    from: (&str, u16),
    content: Content,
    isolation: &str,
    patience: Duration,
) -> io::Result<Download> {
    download_while(socks, from, content, isolation, patience, &mut |_| true)
}

/// Downloads `content`; after each read, `on_bytes` gets the number of bytes and returns whether to continue.
///
/// # Errors
/// As for [`download`].
pub fn download_while(
    socks: SocketAddr,
    from: (&str, u16),
    content: Content,
    isolation: &str,
    patience: Duration,
    on_bytes: &mut dyn FnMut(u64) -> bool,
) -> io::Result<Download> {
    let start = clock::now();
    let mut stream = connect_through(socks, from, isolation, patience)?;
    write!(stream, "GET {} HTTP/1.0\r\n\r\n", content.path())?;
    let head = read_head(&mut stream)?;
    let to_first_byte = start.elapsed();
    let mut hash = Sha256::new();
    let mut received = 0;
    let mut buffer = vec![0; CHUNK];
    loop {
        let len = stream.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        let more = u64::try_from(len).unwrap_or(0);
        received += more;
        if !on_bytes(more) {
            break;
        }
        hash.update(&buffer[..len]);
    }
    let took = start.elapsed();
    let is_right = head.starts_with("HTTP/1.0 200 ")
        && received == content.len
        && <[u8; 32]>::from(hash.finalize()) == content.sha256();
    Ok(Download { to_first_byte, took, received, is_right })
}

/// A connection to `to` (a name or an address, and a port) through the SOCKS port of a tor.
///
/// # Errors
/// If the client opens none, or no byte arrives for `patience`; later reads have the same timeout.
pub fn connect_through(
    socks: SocketAddr,
    to: (&str, u16),
    isolation: &str,
    patience: Duration,
) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(socks)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    connect_by_socks(&mut stream, to, isolation)?;
    Ok(stream)
}

/// Reads until the stream ends, in any way.
///
/// # Errors
/// If no byte arrives within the stream's read timeout. The error states the number of bytes received.
pub fn read_rest(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            Err(io::Error::new(
                error.kind(),
                format!("no data for the timeout after {} bytes", rest.len()),
            ))
        }
        Ok(_) | Err(_) => Ok(rest),
    }
}

/// SOCKS 5 (RFC 1928) with a user name for isolation (RFC 1929).
fn connect_by_socks(stream: &mut TcpStream, to: (&str, u16), isolation: &str) -> io::Result<()> {
    let refused = |what: &str| io::Error::other(format!("the SOCKS port {what}"));
    let len =
        |text: &str| u8::try_from(text.len()).map_err(|_| refused("cannot take a name that long"));
    stream.write_all(&[5, 1, 2])?;
    let mut answer = [0; 2];
    stream.read_exact(&mut answer)?;
    if answer != [5, 2] {
        return Err(refused("does not accept a user name"));
    }
    let mut request = vec![1, len(isolation)?];
    request.extend_from_slice(isolation.as_bytes());
    request.extend([1, b'x']);
    stream.write_all(&request)?;
    stream.read_exact(&mut answer)?;
    let mut request = vec![5, 1, 0];
    match to.0.parse::<Ipv4Addr>() {
        Ok(ip) => {
            request.push(1);
            request.extend(ip.octets());
        }
        Err(_) => {
            request.extend([3, len(to.0)?]);
            request.extend_from_slice(to.0.as_bytes());
        }
    }
    request.extend(to.1.to_be_bytes());
    stream.write_all(&request)?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    match answer[1] {
        0 => Ok(()),
        code => Err(refused(&format!("refused the connection: code {code} of RFC 1928"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_depends_on_length_and_seed_only() {
        let content = Content { len: 100_003, seed: 7 };
        let bytes: Vec<u8> = content.chunks().flatten().collect();
        assert_eq!(bytes.len(), 100_003);
        assert_eq!(<[u8; 32]>::from(Sha256::digest(&bytes)), content.sha256());
        assert_ne!(Content { seed: 8, ..content }.sha256(), content.sha256());
        assert_eq!(Content::of_path(&content.path()), Some(content));
        assert_eq!(Content { len: 0, seed: 1 }.chunks().count(), 0);
    }
}
