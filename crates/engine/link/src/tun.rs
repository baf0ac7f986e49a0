//! A network interface served by this process.

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The longest interface name, without its terminating zero.
const NAME_MAX: usize = libc::IFNAMSIZ - 1;

/// A TUN interface: packets that the kernel sends to it are read here, and packets written here are
/// received by the kernel.
///
/// The interface is removed when this value is dropped or the process ends. It belongs to the
/// network namespace in which it was created ([`Namespace::run`](crate::Namespace::run)). Reads and
/// writes never block.
#[derive(Debug)]
pub struct Tun(File);

impl Tun {
    /// Creates an interface in the network namespace of the calling thread. It is down, and has no
    /// address.
    ///
    /// # Errors
    /// The I/O error: not permitted without the capability `CAP_NET_ADMIN`, not found without the
    /// kernel module `tun`, invalid or busy for a name that is too long or taken.
    pub fn new(name: &str) -> io::Result<Self> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Errno::INVAL.into());
        }
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(open("/dev/net/tun", flags, Mode::empty())?);
        let mut request = libc::ifreq {
            ifr_name: [0; libc::IFNAMSIZ],
            ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: 0 },
        };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        // Both flags are small constants: IP packets without a header.
        let flags = libc::c_short::try_from(libc::IFF_TUN | libc::IFF_NO_PI);
        request.ifr_ifru.ifru_flags = flags.map_err(|_| Errno::INVAL)?;
        // SAFETY: the descriptor is open, since `file` lives; the kernel reads and writes one
        // `ifreq`, which `request` is, and which outlives the call.
        #[expect(unsafe_code, reason = "no lean library makes TUN devices")]
        let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(file))
    }

    /// Reads the next packet and returns its length; `None` if there is none. A packet longer than
    /// `buffer` is truncated.
    ///
    /// # Errors
    /// The I/O error if the interface was removed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match (&self.0).read(buffer) {
                Ok(len) => return Ok(Some(len)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Passes a packet to the kernel, which receives it at once.
    ///
    /// # Errors
    /// The I/O error if it is not an IP packet or the interface is down.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        // A packet is written completely or not at all.
        (&self.0).write(packet).map(drop)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Namespace;
    use std::net::UdpSocket;

    #[test]
    fn packets_pass_a_tun_device_in_both_directions() {
        let namespace = match Namespace::new() {
            Ok(namespace) => namespace,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
                skip::this_test!("it needs network namespaces: {error}");
            }
        };
        let body = || {
            let tun = Tun::new("wire").expect("root may");
            namespace.ip("addr add 10.1.2.3/24 dev wire\nlink set wire up\n").expect("laid");
            let socket = UdpSocket::bind("10.1.2.3:7").expect("bound");
            socket.send_to(b"out and back", "10.1.2.4:9").expect("sent");
            let mut packet = [0; 1500];
            // The kernel may send its own packets first.
            let len = loop {
                let len = tun.receive(&mut packet).expect("works").expect("a packet");
                if packet[..len].ends_with(b"out and back") {
                    break len;
                }
            };
            assert_eq!(len, 20 + 8 + 12);
            assert_eq!(packet[16..20], [10, 1, 2, 4]);
            // The packet returns with addresses and ports swapped.
            let packet = &mut packet[..len];
            let (from, to) = packet[12..20].split_at_mut(4);
            from.swap_with_slice(to);
            let (from, to) = packet[20..24].split_at_mut(2);
            from.swap_with_slice(to);
            tun.send(packet).expect("taken");
            let mut received = [0; 20];
            let (len, from) = socket.recv_from(&mut received).expect("received");
            assert_eq!(&received[..len], b"out and back");
            assert_eq!(from, "10.1.2.4:9".parse().expect("an address"));
        };
        namespace.run(body).expect("root may enter");
    }

    #[test]
    fn too_long_device_names_are_rejected() {
        for name in ["", "sixteen-letters-"] {
            let error = Tun::new(name).expect_err("no name");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
