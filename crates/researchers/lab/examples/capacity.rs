//! Temporary. Arguments: hosts, Mbit/s, seconds, RTT ms, loss, configured Mbit/s.
use coordinator::team_capacities;
use lab::wan::{Access, Bottleneck, HostSpec, Queue, Wan, WanPath, WanSpec};
use measurer::Site;
use measurer::capacity::*;
use onion::{Duration, Rate};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;

fn main() {
    let args: Vec<f64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let (hosts, truth, seconds, rtt, loss, rate) = (args[0] as u8, args[1], args[2] as u32, args[3], args[4], args[5]);
    let sockets = args.get(6).map_or(SOCKETS_PER_MEMBER / u16::from(hosts - 1), |s| *s as u16);
    let link = Bottleneck { rate: Rate::from_mbit_per_s(truth), queue: Queue::Time(Duration::from_millis(100)) };
    let mut spec = WanSpec::new((0..hosts).map(|n| HostSpec::new(format!("h{n}"), Ipv4Addr::new(10, 9, 0, n + 1)).with_access(Access::both(link))).collect()).with_seed(1);
    spec.default_path = WanPath::with_latency(Duration::from_micros((rtt * 500.0) as u64)).with_loss(loss);
    let wan = Wan::start(&spec).unwrap();
    let site = Site::new().unwrap();
    let listeners: Vec<_> = (0..hosts).map(|n| {
        let at = IpAddr::from([10, 9, 0, n + 1]);
        wan.host(&format!("h{n}")).unwrap().run(|| site.listen(at, 1)).unwrap().unwrap()
    }).collect();
    let all: Vec<Vec<u16>> = listeners.iter().map(|l| ports(l)).collect();
    let team: Vec<CapacityPeer> = (0..hosts).map(|n| CapacityPeer { index: n.into(), address: SocketAddr::from(([10, 9, 0, n + 1], 7100)) }).collect();
    let reports: Vec<CapacityReport> = std::thread::scope(|scope| {
        let threads: Vec<_> = team.iter().zip(listeners).map(|(own, listeners)| {
            let (wan, team, all, site) = (&wan, &team, &all, &site);
            scope.spawn(move || {
                let test = CapacityTest {
                    index: own.index,
                    peers: team.iter().filter(|p| p.index != own.index).copied().collect(),
                    token: Token::from_bytes([1; 32]), seconds, sockets,
                    rate: Rate::from_mbit_per_s(rate),
                };
                let ports: Vec<_> = team.iter().zip(all).filter(|(p, _)| p.index != own.index).map(|(_, p)| p.clone()).collect();
                wan.host(&format!("h{}", own.index)).unwrap().run(|| test.run(site, listeners, &ports, Duration::from_secs(5), &AtomicBool::new(false))).unwrap().unwrap()
            })
        }).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    let traffic: Vec<_> = reports.iter().map(CapacityReport::traffic).collect();
    let found: Vec<_> = team_capacities(seconds, &traffic).iter().map(|c| c.capacity.map_or(-1.0, Rate::as_mbit_per_s)).collect();
    let sums: Vec<f64> = reports.iter().map(|r| { let mut v: Vec<u64> = (0..seconds as usize).map(|s| { let t: (u64, u64) = r.peers.iter().map(|p| p.seconds[s]).fold((0, 0), |a, s| (a.0 + s.sent_bytes, a.1 + s.received_bytes)); t.0.min(t.1) }).collect(); v.sort(); v[v.len() / 2] as f64 * 8e-6 }).collect();
    println!("tls truth {truth} rtt {rtt} loss {loss} rate {rate} sockets {sockets}: {found:.1?} of sums {sums:.1?} lost {:?} unintended {:?} cpu {:?}", reports.iter().flat_map(|r| r.lost().map(|(p, l)| (p.peer.index, l, p.send_error.clone()))).collect::<Vec<_>>(), wan.unintended_losses().unwrap(), wan.cpu_time());
    if std::env::var_os("SECONDS").is_some() { for r in &reports { for p in &r.peers { println!("{} {} {:?}", r.index, p.peer.index, p.seconds.iter().map(|s| (s.sent_bytes / 1000, s.received_bytes / 1000)).collect::<Vec<_>>()); } } }
}
