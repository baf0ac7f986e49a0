//! The effect of an emulated network on real packets.

use lab::wan::{
    Access, Congestion, Counts, HostSpec, Jitter, Narrow, Queue, Reordering, Wan, WanError,
    WanSpec, Way,
};
use link::Clock;
use onion::{Duration, Rate};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

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

/// Nothing was lost but what was specified.
fn assert_orderly(wan: &Wan) {
    let unordered = wan.unordered().expect("Linux reports it");
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

/// Like [`Wan::start`], where that has worked in the same test before.
fn start(spec: &WanSpec) -> Wan {
    Wan::start(spec).expect("as before")
}

/// Three hosts with this link of the first to the network.
fn three(access: Access) -> WanSpec {
    let host = |name, at| HostSpec::new(name, Ipv4Addr::new(10, 77, 0, at));
    WanSpec::new(vec![host("hub", 1).with_access(access), host("one", 2), host("two", 3)])
}

#[test]
fn lost_bursts_are_as_long_as_asked_for() {
    const COUNT: u32 = 10_000;
    let wan = wan!(&WanSpec::pair(Way::default().losing_in_bursts(0.1, 4.0)).with_seed(3));
    let came = numbers(&wan, "near", "far", COUNT, 100);
    let gaps: Vec<u32> =
        came.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|&gap| gap > 0).collect();
    let count = f64::from(u32::try_from(gaps.len()).expect("few"));
    let mean = f64::from(gaps.iter().sum::<u32>()) / count;
    // About 250 bursts with a deviation of √12 packets: five times 0.22.
    assert!((mean - 4.0).abs() < 1.1, "{mean} in {count}");
    assert_orderly(&wan);
}

#[test]
fn a_narrow_place_lets_through_what_its_rate_says_and_drops_what_its_queue_has_no_room_for() {
    const LEN: usize = 972;
    let rate = Rate::from_byte_per_s(500_000);
    // Ten packets of 1000 bytes, with IP and UDP header: one is sent, and nine wait.
    let wan = wan!(&WanSpec::pair(Way::default().narrowed_to(rate, Queue::Bytes(10_000))));
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
    assert_orderly(&wan);
}

#[test]
fn packets_stay_in_order_whatever_the_jitter_unless_reordering_is_asked_for() {
    let jitter =
        |reorders| Way { jitter: Jitter { up_to: ms(20), reorders }, ..Way::with_latency(ms(5)) };
    let orderly = wan!(&WanSpec::pair(jitter(false)));
    assert!(numbers(&orderly, "near", "far", 500, 100).is_sorted());
    let tangled = start(&WanSpec::pair(jitter(true)));
    let came = numbers(&tangled, "near", "far", 500, 100);
    assert!(came.len() == 500 && !came.is_sorted());
    let reordering = Reordering { share: 0.2, held_back: ms(20) };
    let held_back = start(&WanSpec::pair(Way { reordering, ..Way::default() }));
    let came = numbers(&held_back, "near", "far", 500, 100);
    assert!(came.len() == 500 && !came.is_sorted());
    let count = held_back.counts("near", "far").expect("is").held_back;
    // Five standard deviations: √(500 · 0.2 · 0.8) = 9.
    assert!((55..=145).contains(&count), "{count}");
}

#[test]
fn duplicates_arrive_twice_and_the_others_once() {
    let wan = wan!(&WanSpec::pair(Way { duplicate_share: 0.3, ..Way::default() }));
    let mut came = numbers(&wan, "near", "far", 1000, 100);
    let duplicated = wan.counts("near", "far").expect("is").duplicated;
    assert_eq!(u64::try_from(came.len()).expect("few"), 1000 + duplicated);
    // Five standard deviations: √(1000 · 0.3 · 0.7) = 14.5.
    assert!((227..=373).contains(&duplicated), "{duplicated}");
    came.dedup();
    assert_eq!(came, (0..1000).collect::<Vec<_>>());
    assert_orderly(&wan);
}

#[test]
fn ways_of_one_host_share_its_access_link_and_ways_of_others_do_not_feel_it() {
    let narrow = Narrow { rate: Rate::from_byte_per_s(100_000), queue: Queue::Bytes(50_000) };
    let wan = wan!(&three(Access::both(narrow)));
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
    // Those two have nothing to do with the hub: 40 packets there take 400 ms, and here nothing waits.
    for _ in 0..1000 {
        send(one, two);
        let mut packet = [0; 1000];
        two.recv_from(&mut packet).expect("received");
    }
    let counts = [("hub", "one"), ("hub", "two")].map(|(from, to)| settle(&wan, from, to, 20));
    let bytes = counts[0].delivered_bytes + counts[1].delivered_bytes;
    assert_eq!(bytes, 40_000);
    assert!(clock.now() - onion::Instant::ORIGIN >= narrow.rate.time_for(bytes));
    let other = settle(&wan, "one", "two", 1000);
    assert_eq!((other.packets, other.delivered_packets), (1000, 1000));
    // Into it, more than fits at once: 100 packets from each.
    for _ in 0..100 {
        send(one, hub);
        send(two, hub);
    }
    let counts = [("one", "hub"), ("two", "hub")].map(|(from, to)| settle(&wan, from, to, 100));
    assert!(counts.iter().any(|counts| counts.dropped_by_access > 0), "{counts:?}");
    assert_orderly(&wan);
}

#[test]
fn what_is_sent_to_nobody_is_told() {
    let wan = wan!(&WanSpec::pair(Way::default()));
    let near = udp(&wan, "near");
    near.send_to(b"anybody?", "10.77.0.99:7").expect("sent");
    let clock = Clock::start();
    while wan.unordered().expect("Linux reports it").to_nobody == 0 {
        assert!(clock.now() - onion::Instant::ORIGIN < PATIENCE);
        std::thread::park_timeout(ms(1));
    }
    assert_eq!(wan.unordered().expect("Linux reports it").losses(), 1);
}

/// The congestion control of a connected socket, as printed by `ss`: the word after the state of its timers.
fn congestion(wan: &Wan, host: &str) -> String {
    let output = wan.host(host).expect("is").run(|| Command::new("ss").arg("-tinH").output());
    let output = output.expect("root may enter").expect("`ss` comes with `ip`");
    let text = String::from_utf8(output.stdout).expect("text");
    let names = Congestion::ALL.map(Congestion::name);
    let found = text.split_ascii_whitespace().find(|word| names.contains(word));
    found.unwrap_or_else(|| panic!("none in {text:?}")).to_owned()
}

#[test]
fn each_host_has_the_congestion_control_asked_for_when_it_connects_and_when_it_accepts() {
    let spec = |near, far| {
        let mut spec = WanSpec::pair(Way::default());
        (spec.hosts[0].congestion, spec.hosts[1].congestion) = (Some(near), Some(far));
        spec
    };
    let [bbr, cubic, reno] = Congestion::ALL;
    let _skips_where_it_must = wan!(&spec(bbr, bbr));
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
fn a_shaped_host_sends_no_faster_than_its_filter_lets_it() {
    const LEN: usize = 2_000_000;
    let wan = wan!(&WanSpec::pair(Way::default()));
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
    // All but what the bucket lets through at once.
    assert!(took() >= rate.time_for(1_980_000));
    near.unshape().expect("tc");
    let counts = wan.counts("near", "far").expect("is");
    took();
    assert!(wan.counts("near", "far").expect("is").bytes > counts.bytes + 2_000_000);
    assert_eq!(near.namespace().tc("qdisc show dev wan").expect("tc").matches("tbf").count(), 0);
}

#[test]
fn what_runs_at_a_host_ends_with_the_network() {
    let wan = wan!(&WanSpec::pair(Way::default()));
    let host = wan.host("near").expect("is");
    // It leaves its group and its parent, as a daemon does.
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

/// Its folder is removed by the one, or by nobody.
#[test]
fn a_private_networks_keeper_at_a_host_may_do_its_work_before_it_ends_with_the_network() {
    let wan = wan!(&WanSpec::pair(Way::default()));
    let folder = tempfile::tempdir().expect("a folder");
    let done = folder.path().join("done");
    let mut keeper = Command::new("sh");
    keeper.args(["-c", "sleep 1; sleep 1; : >\"$1\"", "flashflow-lab-keeper"]).arg(&done);
    let mut child = wan.host("near").expect("is").start(&mut keeper).expect("started");
    drop(wan);
    assert!(child.wait().expect("ended").success() && done.exists());
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let refused = |spec: &WanSpec| match Wan::start(spec) {
        Err(WanError::Spec(problem)) => problem,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it started"),
    };
    let way = Way::default();
    assert!(refused(&WanSpec::pair(way.losing(1.1))).contains("1.1"));
    assert!(refused(&WanSpec::pair(way.losing(f64::NAN))).contains("NaN"));
    assert!(refused(&WanSpec::pair(way.losing_in_bursts(0.9, 2.0))).contains("bursts"));
    assert!(refused(&WanSpec::pair(way.losing_in_bursts(0.5, 0.5))).contains("bursts"));
    let none = way.narrowed_to(Rate::ZERO, Queue::Bytes(1));
    assert!(refused(&WanSpec::pair(none)).contains("rate"));
    assert!(refused(&WanSpec::pair(way).with_way("near", "moon", way)).contains("moon"));
    assert!(refused(&WanSpec::new(Vec::new())).contains("hosts"));
    let mut twins = WanSpec::pair(way);
    twins.hosts[1].address = twins.hosts[0].address;
    assert!(refused(&twins).contains("10.77.0.1"));
    let long = Way::with_latency(Duration::from_secs(61));
    assert!(refused(&WanSpec::pair(long)).contains("61s"));
}
