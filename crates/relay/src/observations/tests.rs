use super::*;
use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tor_llcrypto::pk::ed25519::Keypair;

fn link(relay: u8, received_bytes: u64, sent_bytes: u64, circuits: usize) -> RelayLink {
    RelayLink { relay: RsaId([relay; 20]), received_bytes, sent_bytes, circuits }
}

/// What is seen of a link with so many circuits that carries, second by second, so many bytes each way.
fn seen(circuits: usize, seconds: &[u64]) -> Vec<ObservedLink> {
    let mut observer = Observer::default();
    let mut total = 0;
    for bytes in seconds {
        total += bytes;
        observer.note(1, [link(1, total, total * 2, circuits)].into_iter());
    }
    observer.take()
}

#[test]
fn of_a_link_the_most_of_ten_seconds_is_told_to_a_power_of_two() {
    let mut seconds = vec![1_000; 30];
    seconds[12..22].fill(300_000);
    let [only] = seen(CIRCUITS_MIN, &seconds)[..] else { panic!("one link") };
    assert_eq!((only.received_kb_s, only.sent_kb_s), (256, 512));
    assert_eq!(only.relay, Fingerprint::from_bytes([1; 20]));
    assert!(seen(CIRCUITS_MIN, &seconds[..9]).is_empty(), "no ten seconds are over");
}

#[test]
fn an_interval_that_is_over_is_not_told_again_and_a_link_that_is_gone_is_forgotten() {
    let mut observer = Observer::default();
    for second in 1..=10 {
        observer.note(1, [link(1, second * 100_000, 0, CIRCUITS_MIN)].into_iter());
    }
    assert_eq!(observer.take().len(), 1);
    assert!(observer.take().is_empty());
    observer.note(1, std::iter::empty());
    assert!(observer.take().is_empty() && observer.links.is_empty());
}

#[test]
fn what_is_written_can_be_read_however_many_links_there_were() {
    let mut observer = Observer::default();
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
    let told = observer.take();
    assert_eq!(told.len(), LINKS_MAX);
    assert_eq!(told[0].relay, Fingerprint::from_bytes(name(all - 1).0), "the fastest first");
    let key = Keypair::generate(&mut StdRng::from_seed([1; 32]));
    let relay = Fingerprint::from_bytes([7; 20]);
    let said = LinkObservations { relay, until_unix_s: 9, links: told };
    let signed = said.sign(&ExpandedKeypair::from(&key));
    let read = LinkObservations::verify(&signed, |_| Some(*key.verifying_key().as_bytes()));
    assert_eq!(read, Ok(said));
    // Who was there for a second, and carried nothing, leaves nothing behind.
    observer.note(1, std::iter::once(link(9, 1, 1, 1)));
    observer.note(1, std::iter::empty());
    assert!(observer.links.is_empty());
}

#[test]
fn only_the_relay_itself_can_say_what_it_has_seen() {
    let mut rng = StdRng::from_seed([1; 32]);
    let [key, other] = [(); 2].map(|()| Keypair::generate(&mut rng));
    let public = |key: &Keypair| *key.verifying_key().as_bytes();
    let relay = Fingerprint::from_bytes([7; 20]);
    let link =
        ObservedLink { relay: Fingerprint::from_bytes([1; 20]), sent_kb_s: 8, received_kb_s: 4 };
    let said = LinkObservations { relay, until_unix_s: 9, links: vec![link] };
    let signed = said.sign(&ExpandedKeypair::from(&key));
    let verify = |bytes: &[u8], key: Option<[u8; 32]>| LinkObservations::verify(bytes, |_| key);
    assert_eq!(verify(&signed, Some(public(&key))), Ok(said));
    let problem = verify(&signed, Some(public(&other)));
    assert_eq!(problem, Err(ObservationError::Signature(relay)));
    assert_eq!(verify(&signed, None), Err(ObservationError::Unknown(relay)));
    for place in 0..signed.len() {
        let mut changed = signed.clone();
        changed[place] ^= 1;
        assert!(verify(&changed, Some(public(&key))).is_err(), "byte {place}");
    }
}

proptest! {
    /// Whatever goes on: with fewer circuits than that, nothing is said.
    #[test]
    fn of_a_link_of_few_circuits_nothing_is_told(
        seconds in prop::collection::vec(0_u64..1 << 40, 0..40), circuits in 0..CIRCUITS_MIN,
    ) {
        prop_assert!(seen(circuits, &seconds).is_empty());
    }

    /// Never more than was carried; and whoever adds less than what doubles the most changes a number by one step at most.
    #[test]
    fn what_is_told_is_at_most_what_was_and_changes_with_a_doubling_alone(
        seconds in prop::collection::vec(0_u64..10_000_000, 10..30), more in 0_u64..1000,
    ) {
        let most = seconds.windows(10).map(|ten| ten.iter().sum::<u64>()).max().unwrap_or(0) / 10_000;
        let told = |seconds: &[u64]| seen(CIRCUITS_MIN, seconds).first().map_or(0, |it| it.received_kb_s);
        let before = told(&seconds);
        prop_assert!(before <= most && (before == 0 || before.is_power_of_two()));
        let added: Vec<u64> = seconds.iter().map(|it| it + it * more / 1000).collect();
        prop_assert!(told(&added) <= before.max(1) * 2);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), has_line: bool) {
        let line: &[u8] = if has_line { b"flashflow-links 1 AAAA\n" } else { b"" };
        let read = LinkObservations::verify(&[line, &bytes].concat(), |_| Some([1; 32]));
        prop_assert!(read.is_err());
    }
}
