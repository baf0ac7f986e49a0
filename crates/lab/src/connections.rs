//! The TCP connections of any process of ours, as the kernel counts them: a witness that the process
//! cannot mislead.

use link::TcpBytes;
use rustix::io::{Errno, ioctl_fionread};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::{fs, io};

/// A TCP connection of some process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The kernel's number of the socket: tells it from others of the same process.
    pub inode: u64,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// What it has carried.
    pub bytes: TcpBytes,
    /// Bytes that have come and that the process has not read yet.
    pub unread: u64,
}

/// The connections of a process that stand, or whose end it has not seen yet. Each socket is borrowed for
/// the moment of looking at it.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is no such process (any more). Others where the kernel does not let
/// us look into it: it must be this one, or a child of the same user, or we must be root.
pub fn connections(pid: u32) -> io::Result<Vec<Connection>> {
    look(pid).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::SRCH) => io::ErrorKind::NotFound.into(),
        _ => error,
    })
}

fn look(pid: u32) -> io::Result<Vec<Connection>> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let process = pidfd_open(number, PidfdFlags::empty())?;
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(entry) = entry else { continue };
        let inode = fs::read_link(entry.path()).ok().and_then(|link| inode(link.to_str()?));
        let descriptor = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some((inode, descriptor)) = inode.zip(descriptor) else { continue };
        match pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()) {
            Ok(socket) => found.extend(connection(inode, socket)),
            // It was closed meanwhile.
            Err(Errno::BADF) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The number in `socket:[123]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// `None` if it is no TCP connection, or nobody is at its other end.
fn connection(inode: u64, socket: OwnedFd) -> Option<Connection> {
    let bytes = link::tcp_bytes(&socket)?;
    let unread = ioctl_fionread(&socket).ok()?;
    let stream = TcpStream::from(socket);
    let (local, peer) = (stream.local_addr().ok()?, stream.peer_addr().ok()?);
    Some(Connection { inode, local, peer, bytes, unread })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Command, Stdio};

    #[test]
    fn a_connection_is_seen_from_outside_with_what_it_carried() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(address).expect("listens");
        let (mut peer, from) = listener.accept().expect("a connection");
        stream.write_all(&[1; 5000]).expect("takes it");
        peer.read_exact(&mut [0; 3000]).expect("gets it");
        let ours = connections(std::process::id()).expect("this very process");
        let end = |local: SocketAddr| *ours.iter().find(|it| it.local == local).expect("there");
        assert_eq!((end(from).peer, end(address).peer), (address, from));
        assert_eq!((end(address).bytes.received, end(address).unread), (5000, 2000));
        assert_eq!(end(from).unread, 0);
        peer.read_exact(&mut [0; 2000]).expect("gets it");
        // Looking on does not keep it open.
        drop(stream);
        assert_eq!(peer.read(&mut [0]).expect("closed in order"), 0);
        assert_eq!(inode("pipe:[41]"), None);
    }

    #[test]
    fn a_child_has_none_until_it_opens_one_and_nobody_has_any_when_gone() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        assert_eq!(connections(child.id()).expect("a child of ours"), []);
        child.kill().expect("a child");
        child.wait().expect("a child");
        let gone = connections(child.id()).map_err(|error| error.kind());
        assert_eq!(gone, Err(io::ErrorKind::NotFound));
    }
}
