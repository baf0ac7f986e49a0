//! Limited resources of a process: file descriptors and local ports.

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

static WITHOUT_DESCRIPTOR: AtomicU64 = AtomicU64::new(0);
static WITHOUT_PORT: AtomicU64 = AtomicU64::new(0);

/// Raises the limit on file descriptors to the maximum allowed, and returns it. The usual default,
/// 1024, would limit a relay's connections.
pub fn raise_descriptor_limit() -> u32 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(u32::MAX)
}

/// How often this process could not open a socket for lack of a resource, over all drivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exhaustion {
    /// No file descriptor was left, in the process or the host.
    pub descriptors: u64,
    /// No local port was left.
    pub ports: u64,
}

impl Exhaustion {
    /// The counts since the process started.
    #[must_use]
    pub fn so_far() -> Self {
        Self {
            descriptors: WITHOUT_DESCRIPTOR.load(Ordering::Relaxed),
            ports: WITHOUT_PORT.load(Ordering::Relaxed),
        }
    }

    /// Counts a failure to open, accept or connect a socket.
    pub(crate) fn note(error: &io::Error) {
        let is = |errno: Errno| error.raw_os_error() == Some(errno.raw_os_error());
        if is(Errno::MFILE) || is(Errno::NFILE) {
            WITHOUT_DESCRIPTOR.fetch_add(1, Ordering::Relaxed);
        } else if is(Errno::ADDRNOTAVAIL) {
            WITHOUT_PORT.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exhausted_resources_are_counted() {
        let before = Exhaustion::so_far();
        for errno in [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::CONNREFUSED] {
            Exhaustion::note(&io::Error::from_raw_os_error(errno.raw_os_error()));
        }
        let now = Exhaustion::so_far();
        // Other tests may exhaust a resource at the same time.
        assert!(now.descriptors >= before.descriptors + 2 && now.ports > before.ports);
    }
}
