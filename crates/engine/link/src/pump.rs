//! A baseline for benchmarks: TLS over loopback.
//!
//! One thread encrypts and writes, another reads and decrypts, as fast as they can, through the
//! same [`Session`]s and with the same number of records for each system call as the
//! [`Driver`](crate::Driver). A measurer's cost beyond that is Tor's. [`forward`] adds a third
//! thread that decrypts and encrypts again: a relay without any other work. [`cryptography`] and
//! [`copies`] are its two parts, each alone.

mod alone;
mod forward;

pub use alone::{copies, cryptography};
pub use forward::{ForwardResult, forward};

use crate::clock::{Clock, thread_cpu_time};
use crate::driver::PENDING_LEN;
use crate::tls::{Progress, Session, TlsConfigs, TlsError};
use onion::{Duration, Rate};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

/// Cost of a run.
#[derive(Clone, Copy, Debug)]
pub struct PumpResult {
    /// Plaintext bytes transferred.
    pub bytes: u64,
    /// Length of the run.
    pub wall: Duration,
    /// Processor time of encrypting and writing.
    pub send_cpu: Duration,
    /// Processor time of reading and decrypting.
    pub receive_cpu: Duration,
}

impl PumpResult {
    /// Processor seconds for sending 10⁹ bytes.
    #[must_use]
    pub fn send_cpu_s_per_gb(&self) -> f64 {
        per_gb(self.send_cpu, self.bytes)
    }

    /// Processor seconds for receiving 10⁹ bytes.
    #[must_use]
    pub fn receive_cpu_s_per_gb(&self) -> f64 {
        per_gb(self.receive_cpu, self.bytes)
    }

    /// Throughput of one core that sends and receives.
    #[must_use]
    pub fn rate_per_core(&self) -> Rate {
        Rate::from_bytes_over(self.bytes, self.send_cpu + self.receive_cpu)
    }
}

/// Processor seconds for 10⁹ bytes.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a measured figure")]
pub fn per_gb(cpu: Duration, bytes: u64) -> f64 {
    cpu.as_secs_f64() / (bytes.max(1) as f64 / 1e9)
}

/// A run failed: loopback or TLS does not work.
#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    /// An I/O error.
    #[error("loopback connection: {0}")]
    Io(#[from] io::Error),
    /// An error of the TLS library.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
}

/// Transfers records of `record_len` bytes of plaintext over loopback for `length`.
///
/// # Errors
/// [`PumpError`] if loopback or TLS fails.
pub fn run(
    configs: &TlsConfigs,
    record_len: usize,
    length: Duration,
) -> Result<PumpResult, PumpError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (stream, _) = listener.accept()?;
            receive(stream, Session::server(configs)?)
        });
        let sent = TcpStream::connect(address).map_err(PumpError::from).and_then(|stream| {
            let session = Session::client(configs, address.ip())?;
            send(stream, session, record_len, length)
        });
        let received = receiver.join().unwrap_or_else(|_| Err(io::Error::other("panicked").into()));
        let (wall, send_cpu) = sent?;
        let (bytes, receive_cpu) = received?;
        Ok(PumpResult { bytes, wall, send_cpu, receive_cpu })
    })
}

/// Exchanges handshake messages until TLS is established.
fn shake_hands(stream: &mut TcpStream, session: &mut Session) -> Result<(), PumpError> {
    loop {
        let progress = session.process(&mut |_| {})?;
        stream.write_all(session.pending())?;
        session.advance(session.pending().len());
        if progress == Progress::Established {
            return Ok(());
        }
        let len = stream.read(session.read_space())?;
        if len == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        session.commit(len);
    }
}

fn send(
    mut stream: TcpStream,
    mut session: Session,
    record_len: usize,
    length: Duration,
) -> Result<(Duration, Duration), PumpError> {
    shake_hands(&mut stream, &mut session)?;
    let plaintext = vec![0x5a; record_len];
    let clock = Clock::start();
    let cpu_before = thread_cpu_time();
    while clock.now() - onion::Instant::ORIGIN < length {
        while session.pending().len() < PENDING_LEN {
            session.encrypt(&plaintext)?;
        }
        stream.write_all(session.pending())?;
        session.advance(session.pending().len());
    }
    Ok((clock.now() - onion::Instant::ORIGIN, thread_cpu_time() - cpu_before))
}

fn receive(mut stream: TcpStream, mut session: Session) -> Result<(u64, Duration), PumpError> {
    shake_hands(&mut stream, &mut session)?;
    let cpu_before = thread_cpu_time();
    let mut bytes = 0;
    loop {
        session.process(&mut |plaintext| bytes += plaintext.len() as u64)?;
        let len = stream.read(session.read_space())?;
        if len == 0 {
            return Ok((bytes, thread_cpu_time() - cpu_before));
        }
        session.commit(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity_issuer::IdentityIssuer;

    #[test]
    fn data_arrives_for_any_record_size() {
        let issuer = IdentityIssuer::new([6; 32], 1_700_000_000).expect("keys");
        let configs = TlsConfigs::new(&issuer).expect("usable");
        for record_len in [514, 15_934] {
            let result = run(&configs, record_len, Duration::from_millis(50)).expect("loopback");
            assert!(result.bytes > 0);
            assert_eq!(result.bytes % record_len as u64, 0);
            assert!(result.rate_per_core() > Rate::ZERO);
        }
    }
}
