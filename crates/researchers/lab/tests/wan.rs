//! The effect of an emulated network on real packets.

use lab::wan::{
    Access, Bottleneck, Congestion, Counts, HostSpec, Jitter, Queue, Reordering, Wan, WanError,
    WanPath, WanSpec,
};
use link::Clock;
use onion::{Duration, Rate};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

/// Far longer than any step takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a network; skips the test without permission for namespaces.
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
    let socket = host.run(|| UdpSocket::bind((host.address(), 0))).expect("root may enter");
    let socket = socket.expect("bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("possible");
    socket
}

/// Sends numbered packets from one host to another, several at a time, and returns the numbers that arrive, in
/// order.
fn numbers(wan: &Wan, from: &str, to: &str, count: u32, len: usize) -> Vec<u32> {
    /// Far fewer than a socket's buffer holds.
    const AT_ONCE: u32 = 50;
    let (sender, receiver) = (udp(wan, from), udp(wan, to));
    let to_address = receiver.local_addr().expect("bound");
    let mut received = Vec::new();
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
            received.push(u32::from_be_bytes(got[..4].try_into().expect("four")));
        }
    }
    received
}

/// Waits until this number of packets have been sent on a path, and none of them is in flight.
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

/// All losses were specified.
fn assert_no_unintended_losses(wan: &Wan) {
    let losses = wan.unintended_losses().expect("Linux reports it");
    assert_eq!(losses.losses(), 0, "{losses:?}");
}

#[test]
fn a_round_trip_takes_at_least_the_latency_of_both_paths() {
    let back = WanPath::with_latency(ms(30));
    let spec = WanSpec::pair(WanPath::with_latency(ms(20))).with_path("far", "near", back);
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
    assert_no_unintended_losses(&wan);
}

#[test]
fn the_loss_rate_is_as_specified_and_equal_seeds_lose_the_same_packets() {
    const COUNT: u32 = 5_000;
    let run = |seed| {
        let wan = Wan::start(&WanSpec::pair(WanPath::default().with_loss(0.1)).with_seed(seed))?;
        let received = numbers(&wan, "near", "far", COUNT, 100);
        assert_no_unintended_losses(&wan);
        Ok::<_, WanError>((received, wan.counts("near", "far")?))
    };
    let _skips_without_namespaces = wan!(&WanSpec::pair(WanPath::default()));
    let (received, counts) = run(1).expect("runs");
    assert_eq!(run(1).expect("runs"), (received.clone(), counts));
    assert_ne!(run(2).expect("runs").0, received);
    assert!(received.is_sorted());
    assert_eq!(
        counts.lost_by_chance,
        u64::from(COUNT) - u64::try_from(received.len()).expect("few")
    );
    // Five standard deviations: √(5000 · 0.1 · 0.9) = 21.
    assert!((394..=606).contains(&counts.lost_by_chance), "{counts:?}");
}

#[test]
fn tcp_data_is_intact_and_limited_by_the_bottleneck() {
    const LEN: usize = 3_000_000;
    let bottleneck = WanPath::with_latency(ms(5))
        .with_loss(0.001)
        .with_bottleneck(Rate::from_mbit_per_s(40.0), Queue::Time(ms(50)));
    let wan =
        wan!(&WanSpec::pair(bottleneck).with_path("far", "near", WanPath::with_latency(ms(5))));
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
        assert!(received == sent, "{} bytes received, of {LEN}", received.len());
    });
    // 24 Mbit at 40 Mbit/s: the minimum time on any machine.
    assert!(clock.now() - onion::Instant::ORIGIN >= ms(600));
    let counts = settle(&wan, "near", "far", 1);
    assert!(counts.bytes > 3_000_000 && counts.lost_by_chance + counts.dropped_by_queue > 0);
    assert_no_unintended_losses(&wan);
}

#[test]
fn a_blackhole_drops_all_packets_of_its_direction_only() {
    let wan = wan!(&WanSpec::pair(WanPath::default()));
    assert_eq!(numbers(&wan, "near", "far", 10, 100).len(), 10);
    wan.set_path("near", "far", WanPath::default().blackholed()).expect("possible");
    assert_eq!(numbers(&wan, "near", "far", 10, 100).len(), 0);
    assert_eq!(numbers(&wan, "far", "near", 10, 100).len(), 10);
    assert_eq!(wan.counts("near", "far").expect("is").blackholed, 10);
    wan.set_path("near", "far", WanPath::default()).expect("possible");
    assert_eq!(numbers(&wan, "near", "far", 10, 100).len(), 10);
    assert_no_unintended_losses(&wan);
}

/// Starts a network after one has started in the same test.
fn start(spec: &WanSpec) -> Wan {
    Wan::start(spec).expect("as before")
}

/// Three hosts, of which the first has this access link.
fn hub_and_two(access: Access) -> WanSpec {
    let host = |name, at| HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at));
    WanSpec::new(vec![host("hub", 1).with_access(access), host("one", 2), host("two", 3)])
}

#[test]
fn loss_bursts_have_the_specified_length() {
    const COUNT: u32 = 10_000;
    let wan = wan!(&WanSpec::pair(WanPath::default().with_burst_loss(0.1, 4.0)).with_seed(3));
    let received = numbers(&wan, "near", "far", COUNT, 100);
    let gaps: Vec<u32> =
        received.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|&gap| gap > 0).collect();
    let count = f64::from(u32::try_from(gaps.len()).expect("few"));
    let mean = f64::from(gaps.iter().sum::<u32>()) / count;
    // About 250 bursts with a deviation of √12 packets: five times 0.22.
    assert!((mean - 4.0).abs() < 1.1, "{mean} in {count}");
    assert_no_unintended_losses(&wan);
}

#[test]
fn a_bottleneck_sends_at_its_rate_and_drops_packets_beyond_its_queue() {
    const LEN: usize = 972;
    let rate = Rate::from_byte_per_s(500_000);
    // Ten packets of 1000 bytes, with IP and UDP header: one is sent, and nine wait.
    let wan = wan!(&WanSpec::pair(WanPath::default().with_bottleneck(rate, Queue::Bytes(10_000))));
    let (near, far) = (udp(&wan, "near"), udp(&wan, "far"));
    let address = far.local_addr().expect("bound");
    let clock = Clock::start();
    let start = clock.now();
    for _ in 0..100 {
        near.send_to(&[0; LEN], address).expect("sent");
    }
    let counts = settle(&wan, "near", "far", 100);
    let (delivered, took) = (counts.delivered_packets, clock.now() - start);
    assert_eq!(delivered + counts.dropped_by_queue, 100);
    assert!((10..100).contains(&delivered), "{counts:?}");
    assert!(took >= rate.time_for(counts.delivered_bytes), "{took:?} {counts:?}");
    assert_no_unintended_losses(&wan);
}

#[test]
fn jitter_reorders_packets_only_if_specified() {
    let jitter = |reorders| WanPath {
        jitter: Jitter { up_to: ms(20), reorders },
        ..WanPath::with_latency(ms(5))
    };
    let orderly = wan!(&WanSpec::pair(jitter(false)));
    assert!(numbers(&orderly, "near", "far", 500, 100).is_sorted());
    let tangled = start(&WanSpec::pair(jitter(true)));
    let received = numbers(&tangled, "near", "far", 500, 100);
    assert!(received.len() == 500 && !received.is_sorted());
    let reordering = Reordering { share: 0.2, held_back: ms(20) };
    let held_back = start(&WanSpec::pair(WanPath { reordering, ..WanPath::default() }));
    let received = numbers(&held_back, "near", "far", 500, 100);
    assert!(received.len() == 500 && !received.is_sorted());
    let count = held_back.counts("near", "far").expect("is").held_back;
    // Five standard deviations: √(500 · 0.2 · 0.8) = 9.
    assert!((55..=145).contains(&count), "{count}");
}

#[test]
fn duplicated_packets_arrive_twice_and_the_others_once() {
    let wan = wan!(&WanSpec::pair(WanPath { duplicate_share: 0.3, ..WanPath::default() }));
    let mut received = numbers(&wan, "near", "far", 1000, 100);
    let duplicated = wan.counts("near", "far").expect("is").duplicated;
    assert_eq!(u64::try_from(received.len()).expect("few"), 1000 + duplicated);
    // Five standard deviations: √(1000 · 0.3 · 0.7) = 14.5.
    assert!((227..=373).contains(&duplicated), "{duplicated}");
    received.dedup();
    assert_eq!(received, (0..1000).collect::<Vec<_>>());
    assert_no_unintended_losses(&wan);
}

#[test]
fn paths_of_one_host_share_its_access_link_and_do_not_affect_other_hosts() {
    let bottleneck =
        Bottleneck { rate: Rate::from_byte_per_s(100_000), queue: Queue::Bytes(50_000) };
    let wan = wan!(&hub_and_two(Access::both(bottleneck)));
    let sockets = ["hub", "one", "two"].map(|host| udp(&wan, host));
    let [hub, one, two] = &sockets;
    let send = |from: &UdpSocket, to: &UdpSocket| {
        from.send_to(&[0; 972], to.local_addr().expect("bound")).expect("sent");
    };
    let clock = Clock::start();
    for _ in 0..20 {
        send(hub, one);
        send(hub, two);
    }
    // The other two do not use the hub's link: its 40 packets take 400 ms, these are not delayed.
    for _ in 0..1000 {
        send(one, two);
        let mut packet = [0; 1000];
        two.recv_from(&mut packet).expect("received");
    }
    let counts = [("hub", "one"), ("hub", "two")].map(|(from, to)| settle(&wan, from, to, 20));
    let bytes = counts[0].delivered_bytes + counts[1].delivered_bytes;
    assert_eq!(bytes, 40_000);
    assert!(clock.now() - onion::Instant::ORIGIN >= bottleneck.rate.time_for(bytes));
    let other = settle(&wan, "one", "two", 1000);
    assert_eq!((other.packets, other.delivered_packets), (1000, 1000));
    // Towards the hub, more packets than the queue holds: 100 from each host.
    for _ in 0..100 {
        send(one, hub);
        send(two, hub);
    }
    let counts = [("one", "hub"), ("two", "hub")].map(|(from, to)| settle(&wan, from, to, 100));
    assert!(counts.iter().any(|counts| counts.dropped_by_access > 0), "{counts:?}");
    assert_no_unintended_losses(&wan);
}

#[test]
fn packets_to_unknown_addresses_are_counted() {
    let wan = wan!(&WanSpec::pair(WanPath::default()));
    let near = udp(&wan, "near");
    near.send_to(b"anybody?", "10.77.0.99:7").expect("sent");
    let clock = Clock::start();
    while wan.unintended_losses().expect("Linux reports it").to_nobody == 0 {
        assert!(clock.now() - onion::Instant::ORIGIN < PATIENCE);
        std::thread::park_timeout(ms(1));
    }
    assert_eq!(wan.unintended_losses().expect("Linux reports it").losses(), 1);
}

/// The congestion control of a connected socket, as printed by `ss`.
fn congestion(wan: &Wan, host: &str) -> String {
    let output = wan.host(host).expect("is").run(|| Command::new("ss").arg("-tinH").output());
    let output = output.expect("root may enter").expect("`ss` comes with `ip`");
    let text = String::from_utf8(output.stdout).expect("text");
    let names = Congestion::ALL.map(Congestion::name);
    let found = text.split_ascii_whitespace().find(|word| names.contains(word));
    found.unwrap_or_else(|| panic!("none in {text:?}")).to_owned()
}

#[test]
fn each_host_uses_its_congestion_control_as_client_and_as_server() {
    let spec = |near, far| {
        let mut spec = WanSpec::pair(WanPath::default());
        (spec.hosts[0].congestion, spec.hosts[1].congestion) = (Some(near), Some(far));
        spec
    };
    let [bbr, cubic, reno] = Congestion::ALL;
    let _skips_without_namespaces = wan!(&spec(bbr, bbr));
    for (near, far) in [(bbr, cubic), (cubic, reno), (reno, bbr)] {
        let wan = start(&spec(near, far));
        let _pair = connection(&wan);
        assert_eq!(congestion(&wan, "near"), near.name());
        assert_eq!(congestion(&wan, "far"), far.name());
    }
}

/// A connection from near to far: the ends there.
fn connection(wan: &Wan) -> (TcpStream, TcpStream) {
    let (near, far) = (wan.host("near").expect("is"), wan.host("far").expect("is"));
    let listener =
        far.run(|| TcpListener::bind((far.address(), 80))).expect("root").expect("bound");
    let connect = || TcpStream::connect((far.address(), 80));
    let stream = near.run(connect).expect("root").expect("connects");
    (stream, listener.accept().expect("accepts").0)
}

#[test]
fn a_shaped_host_sends_no_faster_than_its_filter_permits() {
    const LEN: usize = 2_000_000;
    let wan = wan!(&WanSpec::pair(WanPath::default()));
    let near = wan.host("near").expect("is");
    let took = || {
        let (mut stream, mut peer) = connection(&wan);
        let clock = Clock::start();
        std::thread::scope(|scope| {
            scope.spawn(move || stream.write_all(&vec![1; LEN]).expect("taken"));
            let mut received = Vec::new();
            peer.read_to_end(&mut received).expect("read");
            assert_eq!(received.len(), LEN);
        });
        clock.now() - onion::Instant::ORIGIN
    };
    let rate = Rate::from_mbit_per_s(20.0);
    near.shape(rate, 60_000).expect("tc");
    // All bytes except for the burst of the bucket.
    assert!(took() >= rate.time_for(1_980_000));
    near.unshape().expect("tc");
    let counts = wan.counts("near", "far").expect("is");
    took();
    assert!(wan.counts("near", "far").expect("is").bytes > counts.bytes + 2_000_000);
    assert_eq!(near.namespace().tc("qdisc show dev wan").expect("tc").matches("tbf").count(), 0);
}

#[test]
fn processes_on_a_host_end_with_the_network() {
    let wan = wan!(&WanSpec::pair(WanPath::default()));
    let host = wan.host("near").expect("is");
    // It leaves its process group and its parent, like a daemon.
    let mut shell = Command::new("sh");
    shell.args(["-c", "setsid sleep 600 >/dev/null & echo $!"]).stdout(Stdio::piped());
    let child = host.start(&mut shell).expect("started");
    let output = child.wait_with_output().expect("ended");
    let pid: u32 =
        String::from_utf8(output.stdout).expect("text").trim().parse().expect("a number");
    assert!(lab::cpu_time(pid).is_some());
    drop(wan);
    let is_gone = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    assert!(is_gone());
}

/// Nothing else removes the folder of that network.
#[test]
fn the_keeper_of_a_tor_network_on_a_host_finishes_its_cleanup_first() {
    let wan = wan!(&WanSpec::pair(WanPath::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let done = folder.path().join("done");
    let mut keeper = Command::new("sh");
    keeper.args(["-c", "sleep 1; sleep 1; : >\"$1\"", "flashflow-lab-keeper"]).arg(&done);
    let mut child = wan.host("near").expect("is").start(&mut keeper).expect("started");
    drop(wan);
    assert!(child.wait().expect("ended").success() && done.exists());
}

#[test]
fn invalid_specifications_are_refused_with_a_reason() {
    let refused = |spec: &WanSpec| match Wan::start(spec) {
        Err(WanError::Spec(problem)) => problem,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    };
    let path = WanPath::default();
    assert!(refused(&WanSpec::pair(path.with_loss(1.1))).contains("1.1"));
    assert!(refused(&WanSpec::pair(path.with_loss(f64::NAN))).contains("NaN"));
    assert!(refused(&WanSpec::pair(path.with_burst_loss(0.9, 2.0))).contains("bursts"));
    assert!(refused(&WanSpec::pair(path.with_burst_loss(0.5, 0.5))).contains("bursts"));
    let none = path.with_bottleneck(Rate::ZERO, Queue::Bytes(1));
    assert!(refused(&WanSpec::pair(none)).contains("rate"));
    assert!(refused(&WanSpec::pair(path).with_path("near", "moon", path)).contains("moon"));
    assert!(refused(&WanSpec::new(Vec::new())).contains("hosts"));
    let mut twins = WanSpec::pair(path);
    twins.hosts[1].address = twins.hosts[0].address;
    assert!(refused(&twins).contains("10.77.0.1"));
    let long = WanPath::with_latency(Duration::from_secs(61));
    assert!(refused(&WanSpec::pair(long)).contains("61s"));
}
