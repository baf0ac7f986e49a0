use super::Reachability;
use super::fetch::Fetch;
use super::paths::Others;
use dirmgr::documents::CachedConsensus;
use dirmgr::fixture::{DESCRIPTORS, NS};
use dirmgr::{Documents, Wanted};
use netdoc::consensus::Flavour;
use onion::client::{Application, Progress};
use onion::identity::RsaId;
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

fn others(own: &RsaId, address: Ipv4Addr) -> Others {
    let mut documents = Documents::default();
    let consensus = CachedConsensus::parse(NS.to_vec(), Flavour::Ns).expect("a consensus");
    // One real descriptor serves for all relays: nothing here verifies signatures.
    let template = netdoc::pieces::server_descriptors(DESCRIPTORS).next().expect("one");
    let template = String::from_utf8_lossy(template.text).into_owned();
    let line = template.lines().find(|line| line.starts_with("fingerprint ")).expect("a line");
    for router in consensus.content.routers() {
        let text = template.replace(line, &format!("fingerprint {}", router.fingerprint));
        documents.put_descriptors(0, text.as_bytes(), Wanted::All);
    }
    documents.put_consensus(0, consensus);
    Others::from_documents(&documents, own, address, &mut StdRng::from_seed([1; 32]))
}

/// The last hops of `circuits` circuits.
fn last_hops(others: &mut Others, circuits: usize) -> Vec<RsaId> {
    let hops = |others: &mut Others| others.before_us(|_| true).expect("relays");
    (0..circuits).map(|_| hops(others).pop().expect("one at least").ids.rsa).collect()
}

#[test]
fn each_test_uses_other_known_relays() {
    let nobody = RsaId([0; 20]);
    let far = Ipv4Addr::new(198, 51, 100, 1);
    let mut all = others(&nobody, far);
    let path = all.before_us(|_| true).expect("relays");
    assert_eq!(path.len(), 2);
    assert_ne!(path[0].ids.rsa, path[1].ids.rsa);
    assert_ne!(path[0].onion_key, [0; 32]);
    let found = last_hops(&mut all, 3);
    assert!(found.windows(2).all(|pair| pair[0] != pair[1]), "{found:?}");

    // Never through ourselves, and not by a relay that we have dialled.
    let own = found[0];
    let mut without = others(&own, far);
    assert!(!last_hops(&mut without, 20).contains(&own));
    for _ in 0..20 {
        let path = all.before_us(|relay| *relay != own).expect("relays");
        assert_ne!(path.last().map(|hop| hop.ids.rsa), Some(own));
    }
    assert_eq!(all.before_us(|_| false), None);
    let around = all.around_us(40);
    assert_eq!(around.len(), 40);
    let ends = [0, 1].map(|end: usize| -> BTreeSet<RsaId> {
        around.iter().map(|pair| pair[end].ids.rsa).collect()
    });
    assert!(ends[0].is_disjoint(&ends[1]), "{ends:?}");
    let before = around[0][0];

    // Relays in the relay's own network come last.
    let near = before.address.ip();
    let std::net::IpAddr::V4(near) = near else { panic!("{near}") };
    let mut sorted = others(&nobody, near);
    assert_ne!(last_hops(&mut sorted, 1), [before.ids.rsa]);
    assert!(others(&nobody, far).before_us(|relay| *relay == before.ids.rsa).is_some());
    assert!(Others::default().is_empty() && Others::default().around_us(4).is_empty());
}

#[test]
fn only_a_response_with_status_200_completes_a_fetch() {
    let mut request = Fetch::default();
    let mut sent = vec![0; 100];
    let len = request.fill(0, &mut sent[..5]);
    assert_eq!((&sent[..len], request.has_more(5)), (&b"GET /"[..], true));
    let rest = request.fill(5, &mut sent);
    assert!(sent[..rest].ends_with(b" HTTP/1.0\r\n\r\n") && !request.has_more(5 + rest as u64));
    assert_eq!(request.take(0, b"HTTP/1.0 2"), Progress::Open);
    assert_eq!(request.take(10, b"00 OK\r\n"), Progress::Complete);
    assert_eq!(Fetch::default().take(0, b"HTTP/1.1 200 OK"), Progress::Complete);
    assert_eq!(Fetch::default().take(0, b"HTTP/1.0 404"), Progress::Wrong);
    assert_eq!(Fetch::default().take(0, b"SSH-2.0"), Progress::Wrong);
}

#[test]
fn an_unreachable_relay_reports_what_to_check() {
    let address = SocketAddr::from(([192, 0, 2, 7], 9001));
    let unreached = |is_published| {
        let problem = "why".to_owned();
        Reachability::Unreached { address, problem, is_published }.to_string()
    };
    assert!(unreached(false).starts_with("not reachable at 192.0.2.7:9001: why; no descriptor"));
    assert!(unreached(false).contains("firewall"));
    assert!(unreached(true).contains("`assume_reachable`"));
    let reached = |directory| Reachability::Reached { address, directory }.to_string();
    assert!(!reached(None).contains("directory") && reached(Some(false)).contains("without one"));
}
