//! The directory port of a process, from the kernel's tables: our relay does not report the loopback port of its directory.

use crate::error::{Error, Result};
use crate::process::tcp_sockets;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A request that every directory answers.
const REQUEST: &[u8] = b"GET /tor/robots.txt HTTP/1.0\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.0 200";

/// The timeout of each operation.
const PATIENCE: Duration = Duration::from_secs(5);

/// The port on loopback at which a process answers directory requests.
pub(super) fn directory(pid: u32) -> Result<SocketAddr> {
    let none = || Error::Clients(format!("process {pid} has no directory port on loopback"));
    let listening = tcp_sockets(pid).into_iter().filter(|socket| socket.is_listening);
    let mut ports =
        listening.filter_map(|socket| socket.local).filter(|address| address.ip().is_loopback());
    ports.find(|address| is_directory((*address).into())).map(Into::into).ok_or_else(none)
}

fn is_directory(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(REQUEST)?;
        let mut answer = [0; ANSWER.len()];
        stream.read_exact(&mut answer).map(|()| answer == *ANSWER)
    };
    // Other ports close the connection, or do not answer in HTTP.
    ask().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};
    use std::thread;

    #[test]
    fn only_a_port_that_answers_like_a_directory_is_one() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let directory_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (other, right) = (silent.local_addr(), directory_port.local_addr());
        thread::spawn(move || {
            // Closes the connection unanswered.
            drop(silent.accept().expect("a connection"));
        });
        thread::spawn(move || {
            let (mut client, _) = directory_port.accept().expect("a connection");
            client.read_exact(&mut [0; REQUEST.len()]).expect("a request");
            client.write_all(b"HTTP/1.0 200 OK\r\n\r\n").expect("sent");
        });
        assert!(!is_directory(other.expect("bound")));
        assert!(is_directory(right.expect("bound")));
    }
}
