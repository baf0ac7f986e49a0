use super::*;
use onion::Duration;
use proptest::prelude::*;

fn relay(number: u8) -> RsaId {
    RsaId([number; 20])
}

fn link(rtt_ms: f64, kb_s: f64) -> Link {
    Link { rtt_ms: Some(rtt_ms), throughput_kb_s: Some(kb_s) }
}

/// A model with one link, between 1 and 2.
fn of_link(rtt_ms: f64, kb_s: f64) -> Model {
    Model::new(1000, BTreeMap::new(), [(Pair::new(relay(1), relay(2)), link(rtt_ms, kb_s))].into())
}

fn only(model: &Model) -> Option<Link> {
    model.links().get(&Pair::new(relay(2), relay(1))).copied()
}

#[test]
fn a_links_rtt_is_the_difference_of_the_rtts_to_its_ends() {
    let ms = |count| Some(Duration::from_millis(count));
    let mut seen = Observations::default();
    let path = vec![relay(1), relay(2), relay(3)];
    for (rtts, kb_s) in [([10, 31, 45], 40.0), ([12, 32, 46], 70.0), ([11, 35, 90], 50.0)] {
        let rtts = rtts.map(ms).to_vec();
        let throughput_kb_s = Some(kb_s);
        seen.add(&Observed { path: path.clone(), was_built: true, rtts, throughput_kb_s });
    }
    seen.add(&Observed { path: path.clone(), ..Observed::default() });
    let model = seen.model(7);
    assert_eq!(only(&model), Some(link(21.0, 70.0)), "the median, and the fastest");
    let node = model.nodes()[&relay(1)];
    assert_eq!((node.entry_rtt_ms, node.circuits, node.failed), (Some(10.0), 4, 1));
    assert_eq!(model.nodes()[&relay(2)].entry_rtt_ms, None);
    // A hop that answers before the one in front of it gives no value for the link.
    let mut noisy = Observations::default();
    let rtts = [5, 4].map(ms).to_vec();
    noisy.add(&Observed { path: path[..2].to_vec(), was_built: true, rtts, throughput_kb_s: None });
    assert_eq!(only(&noisy.model(7)).and_then(|link| link.rtt_ms), None);
}

#[test]
fn indices_prefer_fast_links_and_treat_unknown_ones_as_the_median() {
    let pair = |a, b| Pair::new(relay(a), relay(b));
    let links = [
        (pair(1, 2), link(10.0, 1000.0)),
        (pair(2, 3), link(20.0, 500.0)),
        (pair(1, 3), link(80.0, 100.0)),
    ];
    let model = Model::new(1, BTreeMap::new(), links.into());
    let index = |a, b| model.rtt_index(&[(relay(a), relay(b))]);
    assert!((index(1, 2) - 1.0).abs() < 1e-9 && (index(3, 1) - 0.125).abs() < 1e-9);
    assert!((index(7, 8) - index(2, 3)).abs() < 1e-9, "unknown");
    let (by_rtt, by_rate) = model.path_indices(&[relay(1), relay(2), relay(3)]);
    assert!((by_rtt - 20.0 / 30.0).abs() < 1e-9 && (by_rate - 0.5).abs() < 1e-9);
    assert!(model.node_rtt_index(&relay(2)) > model.node_rtt_index(&relay(3)));
    assert!(model.node_throughput_index(&relay(1)) > model.node_throughput_index(&relay(3)));
    let nothing = Model::default();
    assert!(nothing.is_empty() && nothing.rtt_index(&[(relay(1), relay(2))]) > 0.0);
}

#[test]
fn a_model_that_was_altered_or_has_another_day_or_key_is_refused() {
    let (secret, other) = ([1; 32], [2; 32]);
    let key = public_key(&secret);
    let signed = sign(&of_link(5.0, 9.0), &secret).expect("signed");
    let published = verify(&signed, &key, 1000).expect("good");
    assert_eq!(published, Published { key, model: of_link(5.0, 9.0) });
    assert!(matches!(verify(&signed, &public_key(&other), 1000), Err(SignedError::OtherKey)));
    for now in [1000 + MODEL_AGE_MAX_S + 1, 399] {
        assert!(matches!(verify(&signed, &key, now), Err(SignedError::Stale { .. })), "{now}");
    }
    for place in 0..signed.len() {
        let mut changed = signed.clone();
        changed[place] ^= 1;
        assert!(verify(&changed, &key, 1000).is_err(), "byte {place}");
    }
    // Times to entries depend on the client: they are neither published nor accepted.
    let node = Node { entry_rtt_ms: Some(3.0), ..Node::default() };
    let own = Model::new(1000, [(relay(1), node)].into(), BTreeMap::new());
    let published = verify(&sign(&own, &secret).expect("signed"), &key, 1000).expect("good");
    assert_eq!(published.model.nodes()[&relay(1)].entry_rtt_ms, None);
}

#[test]
fn a_small_file_that_decompresses_to_much_is_refused() {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![b' '; 1 << 20];
    for _ in 0..257 {
        std::io::Write::write_all(&mut packer, &zeros).expect("memory");
    }
    let bomb = packer.finish().expect("memory");
    assert!(bomb.len() < 4 << 20);
    assert!(matches!(read(&bomb), Err(FileError::TooLong)));
    assert!(matches!(read(b"no gzip"), Err(FileError::Packing(_))));
}

#[test]
fn own_measurements_take_precedence_over_reports() {
    let liars = [of_link(0.0, 1e6), of_link(0.0, 1e6), of_link(0.0, 1e6)];
    let merged = merge(Some(&of_link(70.0, 40.0)), &liars);
    assert_eq!(only(&merged), Some(link(70.0, 40.0)));
}

fn values() -> impl Strategy<Value = f64> {
    prop_oneof![
        0.0..RTT_MAX_MS,
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(-1.0),
        any::<f64>()
    ]
}

/// Round trips and throughputs of fewer than this number of links.
fn honest(most: usize) -> impl Strategy<Value = Vec<(f64, f64)>> {
    let one =
        (0_u32..60_000, 0_u32..1_250_000).prop_map(|link| (f64::from(link.0), f64::from(link.1)));
    prop::collection::vec(one, 1..most)
}

proptest! {
    /// With fewer liars than honest ones, each value lies between two honest ones, or is missing.
    #[test]
    fn a_lying_minority_moves_no_value_out_of_the_honest_range(
        honest in honest(8),
        lies in prop::collection::vec((values(), values()), 0..8),
        place in 0_usize..8,
    ) {
        let lies: Vec<_> = lies.into_iter().take(honest.len() - 1).collect();
        let mut models: Vec<Model> = honest.iter().map(|link| of_link(link.0, link.1)).collect();
        lies.iter().for_each(|lie| models.insert(place.min(models.len()), of_link(lie.0, lie.1)));
        let merged = merge(None, &models);
        let found = only(&merged).expect("most have it");
        let range = |of: fn(&(f64, f64)) -> f64| {
            let values = sorted(honest.iter().map(of));
            values[0]..=values[values.len() - 1]
        };
        let (rtts, rates) = (range(|link| link.0), range(|link| link.1));
        prop_assert!(found.rtt_ms.is_some_and(|rtt_ms| rtts.contains(&rtt_ms)), "{:?}", found);
        prop_assert!(found.throughput_kb_s.is_some_and(|throughput_kb_s| rates.contains(&throughput_kb_s)), "{:?}", found);
    }

    /// As many liars as honest ones can make a link look worse than it is, and never better than the best honest word.
    #[test]
    fn lies_of_half_make_no_link_look_better(
        honest in honest(6),
        lies in prop::collection::vec((values(), values()), 6),
    ) {
        let mut models: Vec<Model> = honest.iter().map(|link| of_link(link.0, link.1)).collect();
        models.extend(lies.iter().take(honest.len()).map(|lie| of_link(lie.0, lie.1)));
        let found = only(&merge(None, &models)).unwrap_or_default();
        let best_rtt = honest.iter().map(|link| link.0).fold(f64::INFINITY, f64::min);
        let best_rate = honest.iter().map(|link| link.1).fold(0.0, f64::max);
        prop_assert!(found.rtt_ms.is_none_or(|rtt_ms| rtt_ms >= best_rtt));
        prop_assert!(found.throughput_kb_s.is_none_or(|throughput_kb_s| throughput_kb_s <= best_rate));
    }

    #[test]
    fn a_link_that_only_a_minority_reports_is_left_out(
        silent in 1_usize..6, lies in prop::collection::vec((values(), values()), 1..6),
    ) {
        let liars = lies.len().min(silent);
        let mut models = vec![Model::default(); silent];
        models.extend(lies.iter().take(liars).map(|lie| of_link(lie.0, lie.1)));
        prop_assert_eq!(only(&merge(None, &models)), None);
    }

    #[test]
    fn decoding_a_file_returns_the_model_and_no_bytes_cause_a_panic(
        links in prop::collection::vec((any::<u8>(), any::<u8>(), values(), values()), 0..20),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let links = links.into_iter().map(|(a, b, rtt, kb)| (Pair::new(relay(a), relay(b)), link(rtt, kb)));
        let node = Node { entry_rtt_ms: Some(1.5), throughput_kb_s: None, circuits: 3, failed: 1 };
        let model = Model::new(77, [(relay(1), node)].into(), links.collect());
        prop_assert_eq!(read(&write(&model).expect("written")).expect("read"), model);
        let _ = read(&bytes);
        let _ = verify(&bytes, &[3; 32], 0);
    }

    #[test]
    fn indices_are_between_0_and_1(
        links in prop::collection::vec((0_u8..6, 0_u8..6, values(), values()), 0..20),
        path in prop::collection::vec(0_u8..8, 1..5),
    ) {
        let links = links.into_iter().map(|(a, b, rtt, kb)| (Pair::new(relay(a), relay(b)), link(rtt, kb)));
        let model = Model::new(77, BTreeMap::new(), links.collect());
        let path: Vec<RsaId> = path.into_iter().map(relay).collect();
        let (rtt, rate) = model.path_indices(&path);
        let one = 0.0..=1.0;
        prop_assert!(one.contains(&rtt) && one.contains(&rate), "{} {}", rtt, rate);
        prop_assert!(one.contains(&model.entry_index(&path[0])));
        prop_assert!(one.contains(&model.node_rtt_index(&path[0])));
        prop_assert!(one.contains(&model.node_throughput_index(&path[0])));
    }
}
