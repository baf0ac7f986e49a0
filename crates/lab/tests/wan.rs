//! What a network of our own does to real packets.

use lab::wan::{Counts, Queue, Wan, WanError, WanSpec, Way};
use link::Clock;
use onion::{Duration, Rate};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

/// Far more than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A network; skips the test where none can be made.
macro_rules! wan {
    ($spec:expr) => {
        match Wan::start($spec) {
            Ok(wan) => wan,
            Err(WanError::Namespace(error)) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
                skip::this_test!("it needs network namespaces: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    };
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn udp(wan: &Wan, host: &str) -> UdpSocket {
    let host = wan.host(host).expect("a host");
    let socket = host.run(|| UdpSocket::bind((host.address(), 7))).expect("root may enter");
    let socket = socket.expect("bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("possible");
    socket
}

/// Sends numbered packets from one host to another, some at a time, and gives the numbers that arrive, in their
/// order.
fn numbers(wan: &Wan, from: &str, to: &str, count: u32, len: usize) -> Vec<u32> {
    /// Far fewer than a socket's buffer holds.
    const AT_ONCE: u32 = 50;
    let (sender, receiver) = (udp(wan, from), udp(wan, to));
    let to_address = receiver.local_addr().expect("bound");
    let mut came = Vec::new();
    let mut packet = vec![0; len];
    for first in (0..count).step_by(50) {
        let before = wan.counts(from, to).expect("hosts");
        let end = count.min(first + AT_ONCE);
        for number in first..end {
            packet[..4].copy_from_slice(&number.to_be_bytes());
            sender.send_to(&packet, to_address).expect("sent");
        }
        let after = settle(wan, from, to, before.packets + u64::from(end - first));
        let mut got = [0; 2000];
        for _ in before.delivered_packets..after.delivered_packets {
            let (len, _) = receiver.recv_from(&mut got).expect("delivered");
            assert_eq!(len, packet.len());
            came.push(u32::from_be_bytes(got[..4].try_into().expect("four")));
        }
    }
    came
}

/// Waits until so many packets have been sent one way, and none of them is in the air any more.
fn settle(wan: &Wan, from: &str, to: &str, packets: u64) -> Counts {
    let clock = Clock::start();
    loop {
        let counts = wan.counts(from, to).expect("hosts");
        let ended = counts.delivered_packets
            + counts.lost_by_chance
            + counts.dropped_by_queue
            + counts.dropped_by_access
            + counts.blackholed;
        if counts.packets >= packets && ended == counts.packets + counts.duplicated {
            return counts;
        }
        assert!(clock.now() - onion::Instant::ORIGIN < PATIENCE, "{counts:?}");
        std::thread::park_timeout(ms(1));
    }
}

/// Nothing was lost but what was asked for.
fn assert_orderly(wan: &Wan) {
    let unordered = wan.unordered().expect("Linux tells");
    assert_eq!(unordered.losses(), 0, "{unordered:?}");
}

#[test]
fn a_packet_takes_the_latency_of_both_ways_at_the_least() {
    let back = Way::with_latency(ms(30));
    let spec = WanSpec::pair(Way::with_latency(ms(20))).with_way("far", "near", back);
    let wan = wan!(&spec);
    let (near, far) = (udp(&wan, "near"), udp(&wan, "far"));
    far.set_read_timeout(Some(PATIENCE)).expect("possible");
    near.set_read_timeout(Some(PATIENCE)).expect("possible");
    let clock = Clock::start();
    for _ in 0..5 {
        let start = clock.now();
        near.send_to(b"ping", far.local_addr().expect("bound")).expect("sent");
        let mut packet = [0; 10];
        let (_, from) = far.recv_from(&mut packet).expect("received");
        assert!(clock.now() - start >= ms(20));
        far.send_to(b"pong", from).expect("sent");
        near.recv_from(&mut packet).expect("received");
        assert!(clock.now() - start >= ms(50));
    }
    assert_orderly(&wan);
}

#[test]
fn the_same_packets_are_lost_with_the_same_seed_and_as_many_as_asked_for() {
    const COUNT: u32 = 5_000;
    let run = |seed| {
        let wan = Wan::start(&WanSpec::pair(Way::default().losing(0.1)).with_seed(seed))?;
        let came = numbers(&wan, "near", "far", COUNT, 100);
        assert_orderly(&wan);
        Ok::<_, WanError>((came, wan.counts("near", "far")?))
    };
    let _skips_where_it_must = wan!(&WanSpec::pair(Way::default()));
    let (came, counts) = run(1).expect("runs");
    assert_eq!(run(1).expect("runs"), (came.clone(), counts));
    assert_ne!(run(2).expect("runs").0, came);
    assert!(came.is_sorted());
    assert_eq!(counts.lost_by_chance, u64::from(COUNT) - u64::try_from(came.len()).expect("few"));
    // Five standard deviations: √(5000 · 0.1 · 0.9) = 21.
    assert!((394..=606).contains(&counts.lost_by_chance), "{counts:?}");
}

#[test]
fn tcp_gets_through_intact_and_is_bound_by_the_narrow_place() {
    const LEN: usize = 3_000_000;
    let narrow = Way::with_latency(ms(5))
        .losing(0.001)
        .narrowed_to(Rate::from_mbit_per_s(40.0), Queue::Time(ms(50)));
    let wan = wan!(&WanSpec::pair(narrow).with_way("far", "near", Way::with_latency(ms(5))));
    let (near, far) = (wan.host("near").expect("is"), wan.host("far").expect("is"));
    let listener =
        far.run(|| TcpListener::bind((far.address(), 80))).expect("root").expect("bound");
    let connect = || TcpStream::connect((far.address(), 80));
    let mut stream = near.run(connect).expect("root").expect("connects");
    let (mut peer, _) = listener.accept().expect("accepts");
    let clock = Clock::start();
    let sent: Vec<u8> = (0_u32..).flat_map(u32::to_be_bytes).take(LEN).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stream.write_all(&sent).expect("taken");
            stream.shutdown(std::net::Shutdown::Write).expect("shut");
        });
        let mut received = Vec::new();
        peer.read_to_end(&mut received).expect("read");
        assert!(received == sent, "{} bytes came, of {LEN}", received.len());
    });
    // 24 Mbit at 40 Mbit/s: no faster than that, however slow the machine.
    assert!(clock.now() - onion::Instant::ORIGIN >= ms(600));
    let counts = settle(&wan, "near", "far", 1);
    assert!(counts.bytes > 3_000_000 && counts.lost_by_chance + counts.dropped_by_queue > 0);
    assert_orderly(&wan);
}

#[test]
fn a_way_that_becomes_a_blackhole_takes_nothing_more_while_the_way_back_works() {
    let wan = wan!(&WanSpec::pair(Way::default()));
    assert_eq!(numbers(&wan, "near", "far", 10, 100).len(), 10);
    wan.set_way("near", "far", Way::default().broken()).expect("possible");
    assert_eq!(numbers(&wan, "near", "far", 10, 100).len(), 0);
    assert_eq!(numbers(&wan, "far", "near", 10, 100).len(), 10);
    assert_eq!(wan.counts("near", "far").expect("is").blackholed, 10);
    wan.set_way("near", "far", Way::default()).expect("possible");
    assert_eq!(numbers(&wan, "near", "far", 10, 100).len(), 10);
    assert_orderly(&wan);
}
