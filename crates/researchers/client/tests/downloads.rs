//! Downloads through our client and C tor relays.

use crate::common::{Ours, PATIENCE, exit, network};
use lab::{Content, ContentServer, download};
use std::thread;

#[test]
fn downloads_of_all_lengths_are_complete_one_by_one_and_in_parallel() {
    let network = network(vec![exit("exita"), exit("exitb")]);
    let folder = tempfile::tempdir().expect("a folder");
    let mut ours = Ours::start(&network, folder.path());
    let server = ContentServer::start().expect("a server");
    let (socks, port) = (ours.proxy.socks(), server.address().port());

    for (number, len) in [0, 1, 498, 1 << 10, 100_000, 1 << 20, 10 << 20].into_iter().enumerate() {
        let content = Content { len, seed: number as u64 };
        let done = download(socks, ("127.0.0.1", port), content, "one", PATIENCE);
        let done =
            done.unwrap_or_else(|error| panic!("{len} bytes: {error}: {:#?}", ours.all_events()));
        assert!(done.is_right, "{len} bytes: {done:?}");
    }

    // As a browser does: many in parallel, some on separate circuits.
    let all = thread::scope(|scope| {
        let downloads: Vec<_> = (0..50_u64)
            .map(|number| {
                let content = Content { len: 1 << (10 + number % 10), seed: 100 + number };
                let name = format!("tab{}", number % 5);
                scope.spawn(move || download(socks, ("127.0.0.1", port), content, &name, PATIENCE))
            })
            .collect();
        downloads.into_iter().map(|download| download.join().expect("no panic")).collect::<Vec<_>>()
    });
    for done in all {
        let done = done.unwrap_or_else(|error| panic!("{error}: {:#?}", ours.all_events()));
        assert!(done.is_right, "{done:?}");
    }
}
