//! `flashflow client` end to end: what its user meets.

#[expect(dead_code, reason = "what the other test files need")]
mod common;

use common::{PATIENCE, Scratch, number};
use lab::{Content, ContentServer, Network, NetworkSpec, RelaySpec};
use rustix::process::Signal;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// Downloads, and programs that do them at the same time.
const DOWNLOADS: u64 = 100;
const AT_ONCE: usize = 4;

/// A line of JSON.
fn value(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_default()
}

/// What is downloaded: 90 of 1 KiB to 512 KiB, nine of 1 to 9 MiB, and one of 100 MiB, which comes first: the others pass beside it.
fn content(number: u64) -> Content {
    let len = match number {
        0 => 100 << 20,
        1..10 => number << 20,
        _ => 1 << (10 + number % 10),
    };
    Content { len, seed: number }
}

/// Downloads by `curl`; what is wrong with what came, if anything is.
fn wrong_by_curl(socks: &str, isolation: u64, server: u16, content: Content) -> Option<String> {
    let Content { len, seed } = content;
    let done = Command::new("curl")
        .args(["--silent", "--show-error", "--fail", "--noproxy", "", "--max-time"])
        .arg(PATIENCE.as_secs().to_string())
        .args(["--proxy", &format!("socks5://{isolation}:x@{socks}")])
        .arg(format!("http://127.0.0.1:{server}/{len}/{seed}"))
        .output()
        .expect("curl runs");
    let has_all = <[u8; 32]>::from(Sha256::digest(&done.stdout)) == content.sha256();
    let said = String::from_utf8_lossy(&done.stderr);
    let came = done.stdout.len();
    let is_right = done.status.success() && has_all;
    (!is_right).then(|| format!("{content:?}: {came} bytes came; {}: {said}", done.status))
}

#[test]
fn curl_downloads_through_the_client_and_it_says_what_happens() {
    if let Err(error) = Command::new("curl").arg("--version").output() {
        skip::this_test!("the program `curl`: {error}");
    }
    let exit = |nickname: &str| RelaySpec::open_exit(nickname);
    let spec = NetworkSpec::new(vec![exit("exita"), exit("exitb")]);
    let network = Network::start(&spec, &mut |_| {}).expect("up");
    let scratch = Scratch::new();
    let authorities: Vec<_> = network.directory_addrs().iter().map(ToString::to_string).collect();
    let authorities = authorities.join(",");
    let arguments = [
        "client",
        "--authority",
        &authorities,
        "--socks",
        "127.0.0.1:0",
        "--data",
        "data",
        "--strategy",
        "uniform",
        "--json",
    ];
    let mut client = scratch.start(&arguments);
    let address = RefCell::new(String::new());
    client.wait_for_out("address", |line| {
        let value = value(line);
        address.replace(value["address"].as_str().unwrap_or_default().to_owned());
        value["type"] == "socks"
    });
    let socks = address.take();
    client.wait_for_out("network", |line| value(line)["type"] == "bootstrapped");
    let server = ContentServer::start().expect("a server");
    let port = server.address().port();
    let numbers = Mutex::new(0..DOWNLOADS);
    let next = || numbers.lock().expect("no panic").next();
    let wrong = || {
        let all = std::iter::from_fn(next);
        all.filter_map(|it| wrong_by_curl(&socks, it % 3, port, content(it))).collect::<Vec<_>>()
    };
    let wrong = thread::scope(|scope| {
        let programs: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(wrong)).collect();
        programs.into_iter().flat_map(|it| it.join().expect("no panic")).collect::<Vec<_>>()
    });
    assert_eq!(wrong, Vec::<String>::new());
    client.signal(Signal::TERM);
    let ended = client.end();
    ended.assert_code(0);
    assert!(scratch.path("data/client-state.json").is_file(), "guards are kept");
    let values = ended.values();
    let of = |kind: &str| values.iter().filter(|it| it["type"] == kind).collect::<Vec<_>>();
    assert_eq!(of("stream_opened").len(), usize::try_from(DOWNLOADS).expect("few"));
    let received_bytes: f64 = of("stream_closed").iter().map(|it| number(it, "received_bytes")).sum();
    let expected: u64 = (0..DOWNLOADS).map(|it| content(it).len).sum();
    assert!(received_bytes > expected as f64, "all came through it, with its heads: {received_bytes}");
    assert!(of("stream_closed").iter().all(|it| it["ok"] == true && it["sent_bytes"] != 0));
    let built = of("circuit_built");
    assert!(built.len() >= 3);
    assert!(built.iter().all(|it| it["path"].as_array().is_some_and(|path| path.len() == 3)));
    assert!(built.iter().all(|it| it["took_ms"].as_f64().is_some_and(|ms| ms > 0.0)));
    assert_eq!(of("ended").len(), 1);
}

#[test]
fn what_would_be_unwise_is_refused_before_anything_is_done() {
    let scratch = Scratch::new();
    for (arguments, code, word) in [
        (&["client"][..], 2, "--authority"),
        (&["client", "--authority", "128.31.0.39:9231"], 1, "--public"),
        (&["client", "--authority", "127.0.0.1:1", "--socks", "0.0.0.0:0"], 1, "--allow-others"),
        (&["client", "--public", "--authority", "127.0.0.1:1"], 2, "--public"),
        (&["client", "--network", "nowhere"], 1, "nowhere"),
        (&["client", "--authority", "127.0.0.1:1", "--strategy", "best"], 2, "uniform"),
    ] {
        let ended = scratch.run(arguments);
        ended.assert_code(code);
        assert!(ended.error.contains(word), "{arguments:?}: {}", ended.error);
    }
    scratch.assert_clean();
}
