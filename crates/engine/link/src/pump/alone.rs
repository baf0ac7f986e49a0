//! The work that no relay can leave out, each part alone: cryptography in memory, and the kernel's two copies.

use super::PumpError;
use super::forward::{ForwardResult, listener};
use crate::clock::{Clock, thread_cpu_time};
use crate::driver::PENDING_LEN;
use crate::tls::{Session, TlsConfigs};
use onion::cell::{BODY_LEN, CELL_LEN};
use onion::crypto::Keystream;
use onion::{Duration, Instant};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::thread;

/// Decrypts records of this many cells in memory, applies a keystream to each cell as a relay does, and encrypts them
/// again, for `length`.
///
/// # Errors
/// [`PumpError`] if TLS fails.
pub fn cryptography(
    configs: &TlsConfigs,
    cells: usize,
    length: Duration,
) -> Result<ForwardResult, PumpError> {
    let ((mut sender, mut from), (mut to, _receiver)) = (connected(configs)?, connected(configs)?);
    let mut layer = Keystream::new(&[1; 16]);
    let (plaintext, mut record) = (vec![0x5a; cells * CELL_LEN], vec![0; cells * CELL_LEN]);
    let (mut bytes, mut cpu) = (0, Duration::ZERO);
    let clock = Clock::start();
    while clock.now() - Instant::ORIGIN < length {
        while sender.pending().len() < PENDING_LEN {
            sender.encrypt(&plaintext)?;
        }
        hand_over(&mut sender, &mut from);
        let cpu_before = thread_cpu_time();
        let mut outcome = Ok(());
        from.process(&mut |received| {
            let record = &mut record[..received.len()];
            record.copy_from_slice(received);
            for cell in record.chunks_exact_mut(CELL_LEN) {
                layer.apply(&mut cell[CELL_LEN - BODY_LEN..]);
            }
            bytes += record.len() as u64;
            if outcome.is_ok() {
                outcome = to.encrypt(record);
            }
        })?;
        outcome?;
        cpu += thread_cpu_time() - cpu_before;
        to.advance(to.pending().len());
    }
    Ok(ForwardResult { bytes, cpu })
}

/// Two sides of a connection in memory, client first, after the handshake.
fn connected(configs: &TlsConfigs) -> Result<(Session, Session), PumpError> {
    let address = IpAddr::from(Ipv4Addr::LOCALHOST);
    let (mut client, mut server) = (Session::client(configs, address)?, Session::server(configs)?);
    while !(client.is_established() && server.is_established()) {
        client.process(&mut |_| {})?;
        hand_over(&mut client, &mut server);
        server.process(&mut |_| {})?;
        hand_over(&mut server, &mut client);
    }
    Ok((client, server))
}

/// Moves what one side has to send to the other, as far as there is space.
fn hand_over(from: &mut Session, to: &mut Session) {
    let space = to.read_space();
    let len = space.len().min(from.pending().len());
    space[..len].copy_from_slice(&from.pending()[..len]);
    to.commit(len);
    from.advance(len);
}

/// Reads from one connection over loopback and writes to another, with as many bytes for each system call as the
/// [`Driver`](crate::Driver), for `length`.
///
/// # Errors
/// [`PumpError`] if loopback fails.
pub fn copies(length: Duration) -> Result<ForwardResult, PumpError> {
    let (entrance, exit) = (listener()?, listener()?);
    let (to_entrance, to_exit) = (entrance.local_addr()?, exit.local_addr()?);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut stream, _) = exit.accept()?;
            io::copy(&mut stream, &mut io::sink())
        });
        let forwarder = scope.spawn(|| {
            let mut outward = TcpStream::connect(to_exit)?;
            let (mut inward, _) = entrance.accept()?;
            let mut buffer = vec![0; PENDING_LEN];
            let (mut bytes, cpu_before) = (0, thread_cpu_time());
            loop {
                let len = inward.read(&mut buffer)?;
                if len == 0 {
                    return Ok(ForwardResult { bytes, cpu: thread_cpu_time() - cpu_before });
                }
                outward.write_all(&buffer[..len])?;
                bytes += len as u64;
            }
        });
        let mut sender = TcpStream::connect(to_entrance)?;
        let (clock, sent) = (Clock::start(), vec![0x5a; PENDING_LEN]);
        while clock.now() - Instant::ORIGIN < length {
            sender.write_all(&sent)?;
        }
        drop(sender);
        let forwarded = forwarder.join().unwrap_or_else(|_| Err(io::Error::other("panicked")));
        receiver.join().unwrap_or_else(|_| Err(io::Error::other("panicked")))?;
        Ok(forwarded?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity_issuer::IdentityIssuer;

    #[test]
    fn all_cells_pass_in_memory_and_over_loopback() {
        let issuer = IdentityIssuer::new([6; 32], 1_700_000_000).expect("keys");
        let configs = TlsConfigs::new(&issuer).expect("usable");
        for cells in [1, 31] {
            let result =
                cryptography(&configs, cells, Duration::from_millis(50)).expect("in memory");
            assert!(
                result.bytes > 0 && result.bytes.is_multiple_of((cells * CELL_LEN) as u64),
                "{result:?}"
            );
        }
        let result = copies(Duration::from_millis(50)).expect("loopback");
        assert!(result.bytes >= PENDING_LEN as u64 && result.gbit_per_cpu_s() > 0.0, "{result:?}");
    }
}
