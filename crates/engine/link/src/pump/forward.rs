//! An upper limit for any relay outside the kernel: forwards TLS records from one connection to
//! another.

use super::{PumpError, receive, send, shake_hands};
use crate::clock::thread_cpu_time;
use crate::tls::{Session, TlsConfigs};
use onion::Duration;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

/// Cost of a forwarding run.
#[derive(Clone, Copy, Debug)]
pub struct ForwardResult {
    /// Plaintext bytes forwarded.
    pub bytes: u64,
    /// Processor time of the forwarder: reading, decrypting, encrypting and writing.
    pub cpu: Duration,
}

impl ForwardResult {
    /// Gbit forwarded for each second of processor time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a measured figure")]
    pub fn gbit_per_cpu_s(&self) -> f64 {
        self.bytes as f64 * 8e-9 / self.cpu.as_secs_f64()
    }
}

/// Forwards records of `record_len` bytes of plaintext over loopback for `length`, from one TLS
/// connection to another, on a separate thread.
///
/// # Errors
/// [`PumpError`](super::PumpError) if loopback or TLS fails.
pub fn forward(
    configs: &TlsConfigs,
    record_len: usize,
    length: Duration,
) -> Result<ForwardResult, PumpError> {
    let (entrance, exit) = (listener()?, listener()?);
    let (to_entrance, to_exit) = (entrance.local_addr()?, exit.local_addr()?);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (stream, _) = exit.accept()?;
            receive(stream, Session::server(configs)?)
        });
        let forwarder = scope.spawn(|| {
            // Dialled before the other connection is accepted: if anything fails, the receiver
            // reads an end of stream.
            let outward = TcpStream::connect(to_exit)?;
            let (inward, _) = entrance.accept()?;
            let (from, to) = (Session::server(configs)?, Session::client(configs, to_exit.ip())?);
            pass(inward, from, outward, to)
        });
        let sent = TcpStream::connect(to_entrance).map_err(PumpError::from).and_then(|stream| {
            send(stream, Session::client(configs, to_entrance.ip())?, record_len, length)
        });
        let panicked = || Err(io::Error::other("panicked").into());
        let cpu = forwarder.join().unwrap_or_else(|_| panicked());
        let received = receiver.join().unwrap_or_else(|_| Err(io::Error::other("panicked").into()));
        sent?;
        let (cpu, (bytes, _)) = (cpu?, received?);
        Ok(ForwardResult { bytes, cpu })
    })
}

pub(super) fn listener() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
}

/// Forwards records from one connection to the other until the first ends. Returns the cost.
fn pass(
    mut inward: TcpStream,
    mut from: Session,
    mut outward: TcpStream,
    mut to: Session,
) -> Result<Duration, PumpError> {
    shake_hands(&mut outward, &mut to)?;
    shake_hands(&mut inward, &mut from)?;
    let cpu_before = thread_cpu_time();
    loop {
        let mut outcome = Ok(());
        from.process(&mut |plaintext| {
            if outcome.is_ok() {
                outcome = to.encrypt(plaintext);
            }
        })?;
        outcome?;
        outward.write_all(to.pending())?;
        to.advance(to.pending().len());
        let len = inward.read(from.read_space())?;
        if len == 0 {
            return Ok(thread_cpu_time() - cpu_before);
        }
        from.commit(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity_issuer::IdentityIssuer;

    #[test]
    fn data_is_forwarded_for_any_record_size() {
        let issuer = IdentityIssuer::new([6; 32], 1_700_000_000).expect("keys");
        let configs = TlsConfigs::new(&issuer).expect("usable");
        for record_len in [514, 15_934] {
            let result =
                forward(&configs, record_len, Duration::from_millis(50)).expect("loopback");
            assert!(
                result.bytes > 0 && result.bytes.is_multiple_of(record_len as u64),
                "{result:?}"
            );
            assert!(result.gbit_per_cpu_s() > 0.0);
        }
    }
}
