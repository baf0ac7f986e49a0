use super::*;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

fn link(relay: u8, received_bytes: u64, sent_bytes: u64, circuits: usize) -> RelayLink {
    RelayLink { relay: RsaId([relay; 20]), received_bytes, sent_bytes, circuits }
}

/// The observations of a link that transfers these bytes in each second.
fn observed(circuits: usize, seconds: &[u64]) -> Vec<ObservedLink> {
    let mut observer = LinkObserver::default();
    let mut total = 0;
    for bytes in seconds {
        total += bytes;
        observer.note(1, [link(1, total, total * 2, circuits)].into_iter());
    }
    observer.take()
}

#[test]
fn the_maximum_of_ten_seconds_is_rounded_to_a_power_of_two() {
    let mut seconds = vec![1_000; 30];
    seconds[12..22].fill(300_000);
    let [only] = observed(CIRCUITS_MIN, &seconds)[..] else { panic!("one link") };
    assert_eq!((only.received_kb_s, only.sent_kb_s), (256, 512));
    assert_eq!(only.relay, RsaId([1; 20]));
    assert!(observed(CIRCUITS_MIN, &seconds[..9]).is_empty(), "less than ten seconds");
}

#[test]
fn an_interval_is_reported_once_and_a_closed_link_is_dropped() {
    let mut observer = LinkObserver::default();
    for second in 1..=10 {
        observer.note(1, [link(1, second * 100_000, 0, CIRCUITS_MIN)].into_iter());
    }
    assert_eq!(observer.take().len(), 1);
    assert!(observer.take().is_empty());
    observer.note(1, std::iter::empty());
    assert!(observer.take().is_empty() && observer.links.is_empty());
}

#[test]
fn a_document_is_readable_for_any_number_of_links() {
    let mut observer = LinkObserver::default();
    let name = |number: u32| {
        let mut name = [0; 20];
        name[..4].copy_from_slice(&number.to_be_bytes());
        RsaId(name)
    };
    let all = u32::try_from(LINKS_MAX).expect("few") + 2;
    for second in 1..=10 {
        observer.note(
            1,
            (0..all).map(|number| RelayLink {
                relay: name(number),
                received_bytes: second * if number == all - 1 { 90_000 } else { 10_000 },
                sent_bytes: 0,
                circuits: CIRCUITS_MIN,
            }),
        );
    }
    let links = observer.take();
    assert_eq!(links.len(), LINKS_MAX);
    assert_eq!(links[0].relay, name(all - 1), "the fastest first");
    let key = Ed25519Key::generate(&mut StdRng::from_seed([1; 32]));
    let relay = RsaId([7; 20]);
    let document = LinkObservations { relay, until_unix_s: 9, links };
    let signed = document.sign(&key);
    let read = LinkObservations::verify(&signed, |_| Some(key.id().0));
    assert_eq!(read, Ok(document));
    // A link that was open for a second and transferred nothing leaves no state.
    observer.note(1, std::iter::once(link(9, 1, 1, 1)));
    observer.note(1, std::iter::empty());
    assert!(observer.links.is_empty());
}

proptest! {
    /// No load is reported for a link with few circuits.
    #[test]
    fn links_with_few_circuits_are_not_reported(
        seconds in prop::collection::vec(0_u64..1 << 40, 0..40), circuits in 0..CIRCUITS_MIN,
    ) {
        prop_assert!(observed(circuits, &seconds).is_empty());
    }

    /// A report never exceeds the load, and additional load that does not double it changes the
    /// report by one step at most.
    #[test]
    fn a_report_changes_only_if_the_load_doubles(
        seconds in prop::collection::vec(0_u64..10_000_000, 10..30), more in 0_u64..1000,
    ) {
        let most = seconds.windows(10).map(|ten| ten.iter().sum::<u64>()).max().unwrap_or(0) / 10_000;
        let reported = |seconds: &[u64]| observed(CIRCUITS_MIN, seconds).first().map_or(0, |link| link.received_kb_s);
        let before = reported(&seconds);
        prop_assert!(before <= most && (before == 0 || before.is_power_of_two()));
        let added: Vec<u64> = seconds.iter().map(|second| second + second * more / 1000).collect();
        prop_assert!(reported(&added) <= before.max(1) * 2);
    }
}
