//! Network namespaces for experiments.

mod tools;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::thread;

/// A network namespace: its own interfaces, addresses, routes and queues. No interface is up at
/// first.
///
/// The namespace has no name. The kernel removes it with its last process, socket and descriptor,
/// however this process ends.
#[derive(Debug)]
pub struct Namespace(File);

impl Namespace {
    /// Creates a namespace.
    ///
    /// # Errors
    /// The I/O error, for example if the process lacks the capability `CAP_SYS_ADMIN`.
    pub fn new() -> io::Result<Self> {
        // A separate thread enters the namespace and returns a descriptor of it.
        let made = thread::spawn(|| {
            // SAFETY: of the flags that the function takes, those are unsafe that part a thread's
            // descriptors from others'. NEWNET changes only which network its sockets will be in.
            #[expect(unsafe_code, reason = "a namespace cannot be created otherwise")]
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            File::open("/proc/thread-self/ns/net")
        });
        made.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))).map(Self)
    }

    /// Runs `task` in the namespace on a separate thread. Sockets that it opens and processes that
    /// it starts stay in this namespace.
    ///
    /// # Errors
    /// The I/O error if the thread cannot enter the namespace.
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> io::Result<T> {
        thread::scope(|scope| {
            let thread = scope.spawn(|| self.enter().map(|()| body()));
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
        })
    }

    /// Moves the calling thread into the namespace permanently.
    ///
    /// # Errors
    /// The I/O error if the thread cannot enter the namespace.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// A path to the namespace for `ip link … netns`, valid while this value lives.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Duplicates the handle.
    ///
    /// # Errors
    /// The I/O error if the process has no descriptors left.
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    #[test]
    fn code_in_a_namespace_sees_another_network() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                skip::this_test!("it needs network namespaces: {error}");
            }
        };
        let ours = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = ours.local_addr().expect("an address");
        // Even the loopback interface is down in a new namespace.
        let result = namespace.run(move || std::net::TcpStream::connect(address).map(|_| ()));
        assert!(result.expect("root may enter").is_err());
        assert!(std::net::TcpStream::connect(address).is_ok());
    }
}
