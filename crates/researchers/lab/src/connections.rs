//! The TCP connections of any local process, as counted by the kernel, independently of the process.

use link::TcpBytes;
use rustix::io::{Errno, ioctl_fionread};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::{fs, io};

/// A TCP connection of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The kernel's number of the socket, which identifies it within the process.
    pub inode: u64,
    /// The local address.
    pub local: SocketAddr,
    /// The remote address.
    pub peer: SocketAddr,
    /// Its traffic.
    pub bytes: TcpBytes,
    /// Bytes received and not read by the process yet.
    pub unread: u64,
}

/// The connections of a process: those that are established, or that it has not closed yet. Each socket is
/// duplicated for the duration of the query.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is no such process. Others if the kernel does not permit access: the
/// process must be this one or a child of the same user, or this process must run as root.
pub fn connections(pid: u32) -> io::Result<Vec<Connection>> {
    read(pid).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::SRCH) => io::ErrorKind::NotFound.into(),
        _ => error,
    })
}

fn read(pid: u32) -> io::Result<Vec<Connection>> {
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

/// `None` if it is not a TCP connection, or not connected.
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
    fn connections_are_listed_with_their_traffic() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut stream = TcpStream::connect(address).expect("listens");
        let (mut peer, from) = listener.accept().expect("a connection");
        stream.write_all(&[1; 5000]).expect("written");
        peer.read_exact(&mut [0; 3000]).expect("received");
        let all = connections(std::process::id()).expect("this process");
        let end = |local: SocketAddr| {
            *all.iter().find(|connection| connection.local == local).expect("there")
        };
        assert_eq!((end(from).peer, end(address).peer), (address, from));
        assert_eq!((end(address).bytes.received, end(address).unread), (5000, 2000));
        assert_eq!(end(from).unread, 0);
        peer.read_exact(&mut [0; 2000]).expect("received");
        // The duplicate does not keep it open.
        drop(stream);
        assert_eq!(peer.read(&mut [0]).expect("closed in order"), 0);
        assert_eq!(inode("pipe:[41]"), None);
    }

    #[test]
    fn a_child_without_connections_has_none_and_an_ended_one_is_not_found() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        assert_eq!(connections(child.id()).expect("a child"), []);
        child.kill().expect("a child");
        child.wait().expect("a child");
        let gone = connections(child.id()).map_err(|error| error.kind());
        assert_eq!(gone, Err(io::ErrorKind::NotFound));
    }
}
