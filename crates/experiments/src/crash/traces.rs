//! What the kernel knows of processes: no program can forget to report it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process;

/// TCP sockets that a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sockets {
    pub(super) listening: usize,
    /// In whatever state: also those that the other end has closed.
    pub(super) connections: usize,
}

/// Those of a process; none if there is no such process.
pub(super) fn sockets(pid: u32) -> Sockets {
    let own = own_inodes(pid);
    let mut found = Sockets::default();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for (is_listening, _) in rows(&text).filter(|(_, inode)| own.contains(inode)) {
            if is_listening {
                found.listening += 1;
            } else {
                found.connections += 1;
            }
        }
    }
    found
}

/// The numbers of a process's sockets of any kind.
fn own_inodes(pid: u32) -> BTreeSet<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return BTreeSet::new() };
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter_map(|link| inode(link.to_str()?)).collect()
}

/// The number in `socket:[123]`.
fn inode(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The kernel's table, one socket a row: whether it listens, and its number.
fn rows(table: &str) -> impl Iterator<Item = (bool, u64)> + '_ {
    /// `TCP_LISTEN`, in the kernel's `include/net/tcp_states.h`.
    const LISTEN: &str = "0A";
    table.lines().skip(1).filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let state = fields.nth(3)?;
        Some((state == LISTEN, fields.nth(5)?.parse().ok()?))
    })
}

/// Processes that are our children, or have to do with this folder by their arguments: each with its
/// arguments.
pub(super) fn processes(folder: &Path) -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let us = process::id();
    let mark = folder.to_string_lossy();
    let found = entries.filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let is_child = fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| parent(&stat) == Some(us));
        (pid != us && (is_child || line.contains(&*mark))).then_some((pid, line))
    });
    found.collect()
}

/// The parent of a process, by its `/proc/…/stat`.
fn parent(stat: &str) -> Option<u32> {
    // The program's name, in parentheses, may hold blanks and parentheses.
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn our_own_sockets_are_found_and_are_gone_when_they_are() {
        let us = process::id();
        // Other tests of this process have sockets, too.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(address).expect("listens");
        let (found, inodes) = (sockets(us), own_inodes(us));
        assert!(found.listening >= 1 && found.connections >= 1, "{found:?}");
        drop((listener, stream));
        assert!(own_inodes(us).len() < inodes.len() + 2);
        assert_eq!(sockets(u32::MAX), Sockets::default());
    }

    #[test]
    fn rows_and_names_are_read_as_the_kernel_writes_them() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
            0: 0100007F:1B59 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1 0 100 0 0 10 0\n   \
            1: 0100007F:1B59 0100007F:C350 08 00000000:00000000 00:00000000 00000000     0        0 42 1 0 20 4 30 10 -1\n";
        assert_eq!(rows(table).collect::<Vec<_>>(), [(true, 41), (false, 42)]);
        assert_eq!((inode("socket:[41]"), inode("pipe:[41]")), (Some(41), None));
        assert_eq!(parent("12 (a (b) c) S 7 12 12 0"), Some(7));
    }

    #[test]
    fn a_child_is_found_until_it_has_been_reaped() {
        let mut child = process::Command::new("sleep").arg("60").spawn().expect("a program");
        let pid = child.id();
        let nowhere = Path::new("/nowhere/at/all");
        let is_there = || processes(nowhere).iter().any(|(found, _)| *found == pid);
        assert!(is_there());
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(!is_there());
    }
}
