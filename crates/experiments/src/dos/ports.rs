//! Where a process listens, by the kernel's tables: our relay does not report the loopback port of its directory.

use crate::error::{Error, Result};
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// What any directory has.
const QUESTION: &[u8] = b"GET /tor/robots.txt HTTP/1.0\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.0 200";

/// A directory on this machine answers sooner.
const PATIENCE: Duration = Duration::from_secs(5);

/// The directory port of a process on loopback: the port that answers as a directory does.
pub(super) fn directory(pid: u32) -> Result<SocketAddr> {
    let none = || Error::Clients(format!("process {pid} has no directory port on loopback"));
    listening(pid).into_iter().find(|address| is_directory(*address)).ok_or_else(none)
}

fn is_directory(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(QUESTION)?;
        let mut answer = [0; ANSWER.len()];
        stream.read_exact(&mut answer).map(|()| answer == *ANSWER)
    };
    // Other ports end the connection, or say nothing that is HTTP.
    ask().unwrap_or(false)
}

/// Where a process listens on IPv4's loopback.
fn listening(pid: u32) -> Vec<SocketAddr> {
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap_or_default();
    let own: Vec<String> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .collect();
    let is_own = |inode: u64| own.iter().any(|link| *link == format!("socket:[{inode}]"));
    let all = table.lines().filter_map(listener);
    all.filter(|(address, inode)| address.ip().is_loopback() && is_own(*inode))
        .map(|(address, _)| address)
        .collect()
}

/// Address and inode of a line of `/proc/net/tcp`, if it is of a socket that listens (state 0A).
fn listener(line: &str) -> Option<(SocketAddr, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if *words.get(3)? != "0A" {
        return None;
    }
    let (ip, port) = words.get(1)?.split_once(':')?;
    let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
    let port = u16::from_str_radix(port, 16).ok()?;
    Some((SocketAddrV4::new(ip, port).into(), words.get(9)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn the_directory_is_found_among_the_ports_of_a_process() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let directory_port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let (other, right) = (silent.local_addr(), directory_port.local_addr());
        let (other, right) = (other.expect("bound"), right.expect("bound"));
        let pid = std::process::id();
        let all = listening(pid);
        assert!(all.contains(&other) && all.contains(&right), "{all:?}");
        thread::spawn(move || {
            // Closes the connection unanswered.
            drop(silent.accept().expect("a connection"));
        });
        thread::spawn(move || {
            let (mut client, _) = directory_port.accept().expect("a connection");
            client.read_exact(&mut [0; QUESTION.len()]).expect("a question");
            client.write_all(b"HTTP/1.0 200 OK\r\n\r\n").expect("takes it");
        });
        assert!(!is_directory(other));
        assert!(is_directory(right));
    }
}
