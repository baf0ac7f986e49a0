use super::*;
use proptest::prelude::*;

const THREE: &str = r#"
# Three places, as hands write it.
graph [
  directed 0
  node [ id 1 label "here [not a list]" country_code "DE" host_bandwidth_up "10 Mbit" host_bandwidth_down "50 Mbit" ]
  node [
    id 2
    country_code "US"
    graphics [ x 1.5 id 7 ]
  ]
  node [ id 3 ]
  edge [ source 1 target 1 latency "2 ms" ]
  edge [ source 2 target 2 latency "3 ms" packet_loss 0.0 ]
  edge [ source 3 target 3 latency "4 ms" ]
  edge [ source 1 target 2 latency "45500 us" packet_loss 0.25 ]
  edge [ source 2 target 3 latency "10 ms" packet_loss 0.5 ]
  edge [ source 1 target 3 latency "80 ms" packet_loss 0.0 ]
]
"#;

fn used(ids: &[u32]) -> BTreeSet<u32> {
    ids.iter().copied().collect()
}

const fn path(latency_us: u64, loss: f64) -> MapPath {
    MapPath { latency: Duration::from_micros(latency_us), loss }
}

#[test]
fn nodes_and_edges_are_read_in_both_directions() {
    let map = Map::parse(THREE, false, &used(&[1, 2])).expect("it is sound");
    let here = map.node(1).expect("it is there");
    assert_eq!(here.country.as_deref(), Some("DE"));
    assert_eq!(here.up, Some(Rate::from_mbit_per_s(10.0)));
    assert_eq!(here.down, Some(Rate::from_mbit_per_s(50.0)));
    assert_eq!(map.path(1, 2), path(45_500, 0.25));
    assert_eq!(map.path(2, 1), path(45_500, 0.25));
    assert_eq!(map.path(1, 1), path(2_000, 0.0));
    assert!(map.node(3).is_none(), "no host is there");
}

#[test]
fn the_shortest_path_may_use_unused_nodes_and_combines_the_losses_of_its_edges() {
    let direct = Map::parse(THREE, false, &used(&[1, 3])).expect("it is sound");
    assert_eq!(direct.path(1, 3), path(80_000, 0.0));
    let shortest = Map::parse(THREE, true, &used(&[1, 3])).expect("it is sound");
    assert_eq!(shortest.path(1, 3), path(55_500, 1.0 - 0.75 * 0.5));
    assert_eq!(shortest.path(3, 1), path(55_500, 1.0 - 0.75 * 0.5));
    assert_eq!(shortest.path(3, 3), path(4_000, 0.0), "its own edge");
}

#[test]
fn a_directed_map_has_only_the_paths_of_its_edges() {
    let text = THREE.replace("directed 0", "directed 1");
    let error = Map::parse(&text, false, &used(&[1, 2])).expect_err("there is no return path");
    assert!(error.contains("no edge from node 2 to node 1"), "{error}");
}

#[test]
fn errors_of_a_map_are_described() {
    let cases = [
        (THREE.replace("source 1 target 1 ", "source 2 target 1 "), "two edges"),
        (THREE.replace("source 1 target 1 ", "source 9 target 9 "), "from node 1 to node 1"),
        (THREE.replace("latency \"45500 us\"", ""), "has no latency"),
        (THREE.replace("45500 us", "0 us"), "latency of nothing"),
        (THREE.replace("45500 us", "45500 parsecs"), "unit of time"),
        (THREE.replace("0.25", "1.25"), "packet_loss"),
        (THREE.replace("id 3 ]", "id 2 ]"), "two nodes have the id 2"),
        (THREE.replace("id 3 ]", "]"), "without an id"),
        (THREE.replace("source 2 target 3", "source 1 target 2"), "two edges"),
        (THREE.replace("source 2 target 3", "source two target 3"), "no such source"),
        (THREE.replace("\"US\"", "\"US"), "has no name"),
        (THREE.split("80 ms").take(1).collect(), "a quotation without an end"),
        (THREE.trim_end().trim_end_matches(']').to_owned(), "no end"),
        (format!("{THREE} ]"), "bracket"),
    ];
    for (text, expected) in cases {
        let error = Map::parse(&text, false, &used(&[1, 2, 3])).expect_err(expected);
        assert!(error.contains(expected), "{error}, not {expected}");
    }
    let beyond = THREE.replace("directed 0", "edge [ source 1 target 9 latency \"1 ms\" ]");
    let error = Map::parse(&beyond, false, &used(&[1, 2])).expect_err("node 9 is nowhere");
    assert!(error.contains("node 9, which is not on the map"), "{error}");
    let error = Map::parse(THREE, true, &used(&[1, 5])).expect_err("there is no such node");
    assert!(error.contains("node 5"), "{error}");
}

#[test]
fn a_host_with_only_a_country_is_placed_at_the_nearest_node() {
    let map = Map::parse(THREE, false, &used(&[1, 2, 3])).expect("it is sound");
    let known = Places::new().expect("the table is sound");
    for (country, node) in [("DE", 1), ("US", 2), ("NL", 1), ("CA", 2)] {
        assert_eq!(map.nearest(country, &known), Some(node), "{country}");
    }
    assert_eq!(Map::one_switch().nearest("DE", &known), Some(0), "there is no other");
}

/// As in Shadow, whose undirected edges have no direction: petgraph finds both.
#[test]
fn an_undirected_edge_given_in_both_directions_is_a_duplicate() {
    let back = |directed: &str| {
        let text = THREE.replace("directed 0", directed);
        text.trim_end().trim_end_matches(']').to_owned()
            + "  edge [ source 2 target 1 latency \"20 ms\" ]\n]"
    };
    let twice = Map::parse(&back("directed 0"), false, &used(&[1, 2])).expect_err("two edges");
    assert!(twice.contains("two edges lead from node"), "{twice}");
    let elsewhere = Map::parse(&back("directed 0"), false, &used(&[1, 3]));
    assert!(elsewhere.is_ok(), "no host uses that path: {elsewhere:?}");
    let directed =
        Map::parse(&back("directed 1"), false, &used(&[1, 2])).expect("one in each direction");
    assert_eq!((directed.path(1, 2), directed.path(2, 1)), (path(45_500, 0.25), path(20_000, 0.0)));
    let shortest = Map::parse(&back("directed 0"), true, &used(&[1, 2])).expect("the shorter one");
    assert_eq!((shortest.path(1, 2), shortest.path(2, 1)), (path(20_000, 0.0), path(20_000, 0.0)));
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z0-9\\[\\]\" #\\n.]{0,200}", by_shortest: bool) {
        let _said = Map::parse(&text, by_shortest, &used(&[0, 1]));
        let _said = Map::parse(&format!("graph [ {text} ]"), by_shortest, &used(&[0, 1]));
    }
}
