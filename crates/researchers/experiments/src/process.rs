//! Memory and TCP sockets of a process, as reported by the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Resident memory of a process, in MiB: the current and the maximum value (`VmRSS` and `VmHWM`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    pub(crate) now_mib: f64,
    pub(crate) peak_mib: f64,
}

impl Memory {
    /// `None` if the process has ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
    }

    fn parse(status: &str) -> Option<Self> {
        let mib = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: u32 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(f64::from(kib) / 1024.0)
        };
        Some(Self { now_mib: mib("VmRSS:")?, peak_mib: mib("VmHWM:")? })
    }
}

/// A TCP socket, in any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpSocket {
    pub(crate) is_listening: bool,
    /// The local address; `None` for IPv6.
    pub(crate) local: Option<SocketAddrV4>,
    inode: u64,
}

/// The TCP sockets of a process, including those that the peer has closed; none if there is no such process.
pub(crate) fn tcp_sockets(pid: u32) -> Vec<TcpSocket> {
    let own = socket_inodes(pid);
    let table = |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    let all = ["tcp", "tcp6"].map(table).concat();
    all.lines().filter_map(tcp_socket).filter(|socket| own.contains(&socket.inode)).collect()
}

/// A row of `/proc/net/tcp` or `tcp6`; `None` for its heading.
fn tcp_socket(row: &str) -> Option<TcpSocket> {
    /// `TCP_LISTEN`, in the kernel's `include/net/tcp_states.h`.
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = row.split_ascii_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let ip = u32::from_str_radix(ip, 16).ok().map(|ip| Ipv4Addr::from(ip.to_ne_bytes()));
    Some(TcpSocket {
        is_listening: *fields.get(3)? == LISTEN,
        local: ip.map(|ip| SocketAddrV4::new(ip, port)),
        inode: fields.get(9)?.parse().ok()?,
    })
}

/// The inodes of a process's sockets of any kind.
fn socket_inodes(pid: u32) -> BTreeSet<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter_map(|link| socket_inode(link.to_str()?)).collect()
}

/// The number in `socket:[123]`.
fn socket_inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn memory_is_parsed_from_the_status_of_a_process() {
        let status = "Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = Memory { now_mib: 1.0, peak_mib: 2.0 };
        assert_eq!(Memory::parse(status), Some(memory));
        assert_eq!(Memory::parse("VmRSS: 12 kB"), None);
        assert!(Memory::of(std::process::id()).expect("this process").peak_mib > 1.0);
        assert_eq!(Memory::of(u32::MAX), None);
    }

    #[test]
    fn sockets_of_this_process_are_found_until_they_are_closed() {
        let pid = std::process::id();
        // Other tests of this process have sockets, too.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).expect("listens");
        let (found, inodes) = (tcp_sockets(pid), socket_inodes(pid));
        let is_listener = |socket: &TcpSocket| {
            socket.is_listening && socket.local.map(Into::into) == Some(address)
        };
        assert!(found.iter().any(is_listener), "{found:?}");
        assert!(found.iter().any(|socket| !socket.is_listening), "{found:?}");
        drop((listener, stream));
        assert!(socket_inodes(pid).len() < inodes.len() + 2);
        assert!(!tcp_sockets(pid).iter().any(is_listener));
        assert_eq!(tcp_sockets(u32::MAX), []);
    }

    #[test]
    fn rows_and_links_of_the_kernel_are_parsed() {
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        let listening = "   0: 0100007F:1B59 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0 100 0 0 10 0";
        let closing = "   1: 0100007F:1B59 0100007F:C350 08 00000000:00000000 00:00000000 00000000     0        0 42 1 0 20 4 30 10 -1";
        let local = Some(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7001));
        assert_eq!(tcp_socket(heading), None);
        let expected = TcpSocket { is_listening: true, local, inode: 41 };
        assert_eq!(tcp_socket(listening), Some(expected));
        let expected = TcpSocket { is_listening: false, local, inode: 42 };
        assert_eq!(tcp_socket(closing), Some(expected));
        assert_eq!((socket_inode("socket:[41]"), socket_inode("pipe:[41]")), (Some(41), None));
    }
}
