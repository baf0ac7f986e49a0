//! Tests of the whole server over real sockets, on stores written by the coordinator's code.

use crate::connections::Limits;
use crate::{Options, Server};
use coordinator::{
    Attempt, Counts, End, Failure, Inconclusive, Mode, Params, PastEstimate, PathSeen, Record,
};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use store::{
    ConsensusEntry, Entry, ListedRelay, MeasurementFinished, MeasurementStarted, MeasurerHealth,
    MeasurerState, PathEntry, PeriodEntry, PeriodProgress, PublishedFile, Store,
};
use tempfile::TempDir;

pub(crate) const NOW: u64 = 1_800_000_000;

struct Running {
    folder: TempDir,
    address: String,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn new(fill: impl FnOnce(&mut Store)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("store.db");
        let mut store = Store::open(&path).expect("new");
        fill(&mut store);
        drop(store);
        Self::with_usual_limits(folder, path)
    }

    fn with_usual_limits(folder: TempDir, store: PathBuf) -> Self {
        Self::with(Limits::USUAL, folder, store)
    }

    fn with(limits: Limits, folder: TempDir, store: PathBuf) -> Self {
        let options = Options {
            store,
            file: folder.path().join("latest.v3bw"),
            hosts: Vec::new(),
            now: || NOW,
        };
        let mut server = Server::bind(([127, 0, 0, 1], 0).into(), options).expect("a port");
        server.limits = limits;
        let address = server.address().to_string();
        let over = Arc::new(AtomicBool::new(false));
        let mark = Arc::clone(&over);
        let thread = thread::spawn(move || {
            server.run(|| mark.load(Ordering::Relaxed)).expect("it listens");
        });
        Self { folder, address, over, thread: Some(thread) }
    }

    /// The status and the body.
    fn get(&self, path: &str) -> (u16, String) {
        self.ask(path, &self.address)
    }

    fn ask(&self, path: &str, host: &str) -> (u16, String) {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.get(format!("http://{}{path}", self.address)).header("host", host);
        let mut answer = request.call().expect("an answer");
        (answer.status().as_u16(), answer.body_mut().read_to_string().expect("text"))
    }

    fn page(&self, path: &str) -> String {
        let (status, text) = self.get(path);
        assert_eq!(status, 200, "{path}: {text}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            ended.expect("one").expect("no panic");
        }
    }
}

pub(crate) const fn ids(number: u8) -> RelayIds {
    RelayIds { rsa: RsaId([number; 20]), ed25519: None }
}

pub(crate) fn begun(number: u8, slot: u32) -> MeasurementStarted {
    MeasurementStarted {
        ids: ids(number),
        nickname: format!("relay{number}"),
        address: ([127, 0, 0, number], 9001).into(),
        period_unix_s: NOW - 3600,
        number: 1,
        slot: Some(slot),
        started_unix_s: NOW - 30,
    }
}

/// A measurement that failed.
pub(crate) fn failed(begun: MeasurementStarted) -> MeasurementFinished {
    let reason = Failure::RelayClosed { detail: "bye".to_owned() };
    let record = Record {
        relay: begun.subject(),
        ended_unix_s: begun.started_unix_s + 40,
        mode: Mode::Transit,
        params: Params::default(),
        rounds: Vec::new(),
        processor: None,
        shared: None,
        end: End::Failed { reason, measurer: None, round: 1, second: None },
    };
    MeasurementFinished { begun, record, follows: None, is_final: true, paths: Vec::new() }
}

/// Three relays: one with an estimate, one being measured, one left out.
pub(crate) fn fill(store: &mut Store) {
    let sighting = |number: u8, left_out: Option<&str>| ListedRelay {
        ids: ids(number),
        nickname: format!("relay{number}"),
        address: ([127, 0, 0, number], 9001).into(),
        weight_kb_s: Some(u32::from(number) * 1000),
        left_out: left_out.map(str::to_owned),
    };
    let relays = vec![
        sighting(1, None),
        sighting(2, None),
        sighting(3, Some("it said <script>alert(1)</script>")),
    ];
    let source = "a test".to_owned();
    let (valid_after_unix_s, at_unix_s, signers) = (NOW - 600, NOW - 500, Some(5));
    let counts = Counts { waiting: 1, running: 1, done: 2, without_slot: 0 };
    let period_unix_s = NOW - 3600;
    let estimate = PastEstimate {
        capacity: Rate::from_mbit_per_s(42.0),
        measured_unix_s: NOW - 900,
        mode: None,
        is_conclusive: Some(true),
        sockets: None,
    };
    let measurer = MeasurerHealth {
        key: "ab".repeat(32),
        place: 0,
        address: "127.0.0.1:7100".to_owned(),
        capacity: Rate::from_mbit_per_s(1000.0),
        state: MeasurerState::Up,
        detail: String::new(),
        at_unix_s: NOW,
    };
    let entries = [
        Entry::Period(PeriodEntry {
            begin_unix_s: period_unix_s,
            length_s: 7200,
            slot_s: 71,
            seed: None,
        }),
        Entry::Consensus(ConsensusEntry { valid_after_unix_s, at_unix_s, source, signers, relays }),
        Entry::Imported(ids(1), "relay1".to_owned(), estimate),
        Entry::Started(begun(2, 50)),
        Entry::Progress(PeriodProgress { at_unix_s: NOW - 5, period_unix_s, counts }),
        Entry::Measurer(measurer),
    ];
    store.write(&entries).expect("room");
}

#[test]
fn verdicts_are_counted_by_week() {
    let none = Running::new(fill).page("/periods");
    assert!(!none.contains("Verdicts by week"), "no measurement has ended: {none}");
    let running = Running::new(|store| {
        fill(store);
        let entry = Entry::Finished(Box::new(failed(begun(9, 40))));
        store.write(&[Entry::Started(begun(9, 40)), entry]).expect("room");
    });
    let page = running.page("/periods");
    let (_, weeks) = page.split_once("Verdicts by week").expect("a table");
    let cell = |count: u32| format!("<td class=\"number\">{count}</td>");
    let row = [cell(0), cell(0), cell(1)].concat();
    assert!(weeks.contains(&row) && weeks.contains("<rect"), "{weeks}");
}

#[test]
fn the_network_slots_and_paths_are_drawn() {
    let key = "ab".repeat(32);
    let running = Running::new(|store| {
        fill(store);
        let lossy = PathSeen {
            rtt: Some(Duration::from_millis(80)),
            loss_ppm: Some(15_000),
            limit: Some(Rate::from_mbit_per_s(20.0)),
        };
        let seen_unix_s = NOW - 10;
        let (relay, measurer) = (ids(9).rsa, "ab".repeat(32));
        let paths = vec![PathEntry { relay, measurer, path: lossy, seen_unix_s }];
        let closed = MeasurementFinished { paths, ..failed(begun(9, 40)) };
        let published = PublishedFile {
            created_unix_s: NOW - 1800,
            path: "a.v3bw".to_owned(),
            lines: 2,
            voted: 1,
            capacity_kb_s: 5250,
            scanner_country: None,
        };
        let entries = [Entry::Finished(Box::new(closed)), Entry::Published(published)];
        store.write(&entries).expect("room");
    });
    let totals = running.page("/totals.svg");
    assert!(
        totals.contains("capacity measured") && totals.contains("consensus weight"),
        "{totals}"
    );
    let weights = running.page("/weights.svg");
    assert!(weights.contains("equal shares"), "{weights}");
    let (_, dots) = weights.split_once("class=\"dots\"").expect("estimates");
    let dots = dots.split("/>").next().unwrap_or_default();
    assert!(dots.contains(" d=\"M"), "the relay with an estimate has a dot: {weights}");
    let overview = running.page("/");
    assert!(overview.contains("/totals.svg") && overview.contains("/weights.svg"), "{overview}");
    for part in ["time (UTC)", "<title>capacity measured: 42.00 (2027-01-15 07:30)</title>"] {
        assert!(overview.contains(part) && totals.contains(part), "no {part} in {overview}");
    }
    assert!(
        !overview.contains("style=") && !overview.contains("<style"),
        "the policy permits none"
    );
    // 3,600 of 7,200 s have passed: 50 slots of 71 s, of which two were used.
    let periods = running.page("/periods");
    assert!(
        periods.contains("<td class=\"number\">2</td><td class=\"number\">48</td>"),
        "{periods}"
    );
    assert!(running.page("/measurers").contains(&format!("/measurers/{key}")));
    let measurer = running.page(&format!("/measurers/{key}"));
    for part in ["relay9", "80.0 ms", "1.500 %", "20.0 Mbit/s"] {
        assert!(measurer.contains(part), "no {part} in {measurer}");
    }
    let paths = running.page(&format!("/measurers/{key}/paths.svg"));
    assert!(paths.contains("held back by the path"), "{paths}");
    assert_eq!(running.get("/measurers/cd").0, 404);
}

#[test]
fn a_measurement_that_another_one_follows_is_no_result() {
    let running = Running::new(|store| {
        let next = Attempt::first(Rate::from_mbit_per_s(90.0), 4);
        let (begun, capacity) = (begun(1, 40), Rate::from_mbit_per_s(30.0));
        let inconclusive = Some(Inconclusive::LoadTooSmall { next });
        let mut finished = failed(begun);
        finished.record.end = End::Measured { capacity, round: 1, inconclusive };
        finished.follows = Some(next);
        finished.is_final = false;
        store.write(&[Entry::Finished(Box::new(finished))]).expect("room");
    });
    let metrics = running.page("/metrics");
    let lower_bounds = "flashflow_coordinator_measurements_of_a_day{state=\"lower_bound\"} 0";
    assert!(metrics.lines().any(|line| line == lower_bounds), "{metrics}");
    assert!(!metrics.contains("cause=\"load_too_small\""), "{metrics}");
    let overview = running.page("/");
    assert!(
        overview.contains("Lower bounds: <b>0</b>") && !overview.contains("no round"),
        "{overview}"
    );
    for path in [format!("/periods/{}", NOW - 3600), format!("/relays/{}", "01".repeat(20))] {
        assert!(running.page(&path).contains(">continued<"), "{path}");
    }
    let api = running.page(&format!("/api/relays/{}", "01".repeat(20)));
    assert!(api.contains("another measurement was to follow"), "{api}");
    assert!(!api.contains("no round"), "{api}");
}

#[test]
fn all_pages_show_the_content_of_the_store() {
    let running = Running::new(fill);
    let overview = running.page("/");
    for part in ["2 of 4 relays measured", "42.0 Mbit/s", "relay2", "signatures of 5", "60 min"] {
        assert!(overview.contains(part), "no {part:?} in {overview}");
    }
    let relays = running.page("/relays?sort=nickname&order=up");
    let places = ["relay1", "relay2", "relay3"].map(|name| relays.find(name).expect(name));
    assert!(places.is_sorted(), "{places:?}");
    assert!(relays.contains("aria-sort=\"ascending\""));
    let found = running.page("/relays?search=0202");
    assert!(found.contains("relay2") && !found.contains("relay1"));
    let relay = running.page(&format!("/relays/{}", "01".repeat(20)));
    assert!(relay.contains("Why it has its weight") && relay.contains("42.00 Mbit/s"), "{relay}");
    let same = running.page(&format!("/relay/{}", "01".repeat(20)));
    assert!(same.contains("Why it has its weight"), "{same}");
    assert!(running.page("/measurers").contains("127.0.0.1:7100"));
    assert!(running.page("/periods").contains(&format!("/periods/{}", NOW - 3600)));
    let period = running.page(&format!("/periods/{}", NOW - 3600));
    assert!(period.contains("relay2") && period.contains("running"));
    for path in ["/", "/relays", "/measurers", "/periods"] {
        let text = running.page(path);
        for part in
            ["<html lang=\"en\">", "<main", "<nav", "<h1>", "name=\"viewport\"", "Skip to content"]
        {
            assert!(text.contains(part), "no {part} on {path}");
        }
        for elsewhere in ["http://", "https://", "src=\"//"] {
            assert!(!text.contains(elsewhere), "{path} points elsewhere");
        }
    }
    assert!(
        running.page("/style.css").contains("--page")
            && running.page("/live.js").contains("EventSource")
    );
}

#[test]
fn text_from_relays_is_escaped() {
    let running = Running::new(fill);
    for path in ["/relays", &format!("/relays/{}", "03".repeat(20))] {
        let text = running.page(path);
        assert!(!text.contains("<script>alert"), "{path}");
        assert!(
            text.contains("&#60;script&#62;") || text.contains("&lt;script&gt;"),
            "{path}: {text}"
        );
    }
    let (_, text) = running.get("/relays?search=%22%3E%3Cscript%3E");
    assert!(!text.contains("\"><script>"), "{text}");
}

#[test]
fn missing_pages_are_reported_and_nothing_can_be_changed() {
    let running = Running::new(fill);
    for path in [
        "/none",
        "/relays/xyz",
        &format!("/relays/{}", "09".repeat(20)),
        "/measurements/77/seconds.svg",
    ] {
        let (status, text) = running.get(path);
        assert_eq!(status, 404, "{path}");
        assert!(text.contains("<main"), "{path}: {text}");
    }
    let agent: ureq::Agent =
        ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let posted =
        agent.post(format!("http://{}/relays", running.address)).send("x").expect("an answer");
    assert_eq!(posted.status().as_u16(), 405);
    let (status, _) = running.ask("/", "rebound.example");
    assert_eq!(status, 421, "a name that is not ours");
    assert_eq!(running.ask("/", "localhost").0, 200);
}

/// RFC 9112, section 3.2: a proxy and the dashboard might look at different ones.
#[test]
fn a_request_with_two_host_lines_is_refused() {
    let running = Running::new(fill);
    let status_of = |target: &str, lines: &str| {
        let mut stream = connect(&running);
        let request = format!("GET {target} HTTP/1.1\r\n{lines}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("text");
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    let status = |lines: &str| status_of("/", lines);
    let (ours, other) = ("Host: 127.0.0.1\r\n", "host: rebound.example\r\n");
    assert_eq!(status(ours), "200");
    assert_eq!(status("Host: localhost.\r\n"), "200");
    for lines in [[ours, other], [other, ours], [ours, ours]] {
        assert_eq!(status(&lines.concat()), "400", "{lines:?}");
    }
    assert_eq!(status(other), "421");
    // The host of an absolute target counts.
    assert_eq!(status_of("http://127.0.0.1/", ours), "200");
    assert_eq!(status_of("http://rebound.example/", ours), "421");
}

#[test]
fn a_query_that_takes_too_long_is_aborted_and_others_are_answered() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    fill(&mut Store::open(&path).expect("new"));
    let endless = "ALTER TABLE progress RENAME TO progress_before;
        CREATE VIEW progress AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
        SELECT x AS at_unix_s, x AS period_unix_s, x AS waiting, x AS running, x AS done, x AS without_slot
        FROM c WHERE x < 0;";
    rusqlite::Connection::open(&path).expect("a store").execute_batch(endless).expect("a view");
    let limits = Limits { request: Duration::from_millis(200), ..Limits::USUAL };
    let running = Running::with(limits, folder, path);
    // More than there are threads for queries.
    for _ in 0..8 {
        assert_eq!(running.get("/health").0, 504);
    }
    // On a loaded machine even this may take longer than the limit.
    let is_answered = (0..50).any(|_| running.get("/api/measurers").0 == 200);
    assert!(is_answered, "no thread is left");
}

/// A dashboard with short limits, so that tests are fast.
fn impatient() -> Running {
    let short = Duration::from_millis(200);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    fill(&mut Store::open(&path).expect("new"));
    Running::with(Limits { headers: short, stall: short, ..Limits::USUAL }, folder, path)
}

fn connect(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(&running.address).expect("connected");
    // Applies only if the connection is open although it should be closed.
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    stream.set_write_timeout(Some(Duration::from_secs(60))).expect("set");
    stream
}

#[test]
fn a_client_that_does_not_finish_its_request_is_disconnected() {
    let running = impatient();
    for begun in ["", "GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow:"] {
        let mut stream = connect(&running);
        stream.write_all(begun.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer);
        let is_closed =
            end.as_ref().map_or_else(|end| end.kind() == ErrorKind::ConnectionReset, |_| true);
        assert!(is_closed, "{begun:?}: {end:?}");
    }
    assert_eq!(running.get("/").0, 200, "others are answered");
}

#[test]
fn a_client_that_reads_nothing_is_disconnected() {
    let running = impatient();
    let mut stream = connect(&running);
    let request = b"GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let end = loop {
        if let Err(error) = stream.write_all(&request) {
            break error.kind();
        }
    };
    assert!(matches!(end, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{end:?}");
    assert_eq!(running.get("/").0, 200, "others are answered");
}

#[test]
fn pages_of_other_origins_can_embed_nothing() {
    let running = Running::new(fill);
    for path in ["/", "/style.css", "/api/relays", "/metrics", "/none"] {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let answer = agent.get(format!("http://{}{path}", running.address)).call();
        let answer = answer.expect("an answer");
        let policy = answer.headers().get("cross-origin-resource-policy");
        assert_eq!(policy.map(|policy| policy.as_bytes()), Some(&b"same-origin"[..]), "{path}");
    }
}

#[test]
fn the_api_has_the_data_of_the_pages() {
    let running = Running::new(fill);
    let json = |path: &str| -> serde_json::Value {
        serde_json::from_str(&running.page(path)).expect("JSON")
    };
    let overview = json("/api/overview");
    assert_eq!(
        (&overview["progress"]["done"], &overview["capacity_byte_s"]),
        (&2.into(), &5_250_000.into())
    );
    assert_eq!(json("/api/relays?search=relay3")["relays"][0]["nickname"], "relay3");
    let relay = json(&format!("/api/relays/{}", "02".repeat(20)));
    assert_eq!(relay["measurements"][0]["state"], "running");
    assert!(relay["explanation"].as_array().is_some_and(|lines| !lines.is_empty()));
    assert_eq!(json("/api/measurers")["measurers"][0]["state"], "up");
    assert_eq!(json("/api/periods")["periods"][0]["measurements"], 1);
    let metrics = running.page("/metrics");
    for line in [
        "flashflow_coordinator_relays{state=\"done\"} 2",
        "flashflow_coordinator_capacity_bytes_per_second 5250000",
        "flashflow_coordinator_measurer_up{measurer=\"127.0.0.1:7100\"} 1",
        "flashflow_coordinator_fallen_relays 0",
    ] {
        assert!(metrics.lines().any(|other| other == line), "no {line} in\n{metrics}");
    }
    testbin::monitoring::assert_exported(&metrics, &["flashflow_coordinator_", "flashflow_gate_"]);
    assert_eq!(running.get("/health"), (200, "ok\n".to_owned()));
}

#[test]
fn the_gate_of_the_newest_file_is_shown() {
    let running = Running::new(fill);
    let has = |metrics: &str, line: &str| metrics.lines().any(|known| known == line);
    assert!(!running.page("/metrics").contains("flashflow_gate_passed 0"));
    assert!(!running.page("/").contains("Its gate"));
    let outcome = r#"{"passed":false,"checked_unix_s":1800000000,"checks":[
        {"check":"total_fall","verdict":"fail","figure":41.5,"limit":20,"limit_name":"total_fall_max_percent",
         "is_minimum":false,"unit":"percent","what":"it fell"},
        {"check":"missing","verdict":"not_checked","figure":null,"limit":10,"limit_name":"missing_max_percent",
         "is_minimum":false,"unit":"percent","what":"not checked"}]}"#;
    std::fs::write(running.folder.path().join("gate.json"), outcome).expect("space");
    std::fs::write(running.folder.path().join("latest.v3bw"), "1799990000\nversion=1.9.0\n")
        .expect("space");
    let metrics = running.page("/metrics");
    for line in [
        "flashflow_gate_passed 0",
        "flashflow_gate_checked_seconds 1800000000",
        "flashflow_gate_check_failed{check=\"total_fall\"} 1",
        "flashflow_gate_figure{check=\"total_fall\"} 41.5",
        "flashflow_gate_limit{check=\"missing\"} 10",
        "flashflow_coordinator_latest_file_timestamp_seconds 1799990000",
    ] {
        assert!(has(&metrics, line), "no {line} in\n{metrics}");
    }
    assert!(!metrics.contains("failed{check=\"missing\"}"), "{metrics}");
    assert!(running.page("/").contains("failed (total_fall)"));
    let overview: serde_json::Value =
        serde_json::from_str(&running.page("/api/overview")).expect("JSON");
    assert_eq!(overview["gate"]["checks"][0]["figure"], 41.5);
}

/// Prometheus' own test of rules.
#[test]
fn alerts_fire_on_sharp_falls_and_on_nothing_else() {
    use std::process::Command;
    if let Err(error) = Command::new("promtool").arg("--version").output() {
        skip::this_test!("promtool (Debian: prometheus): {error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rules = source.join("../../../packaging/monitoring/alerts.yml");
    for (from, to) in [(rules, "alerts.yml"), (source.join("src/alerts-test.yml"), "test.yml")] {
        std::fs::copy(&from, folder.path().join(to)).expect("a file of the repository");
    }
    let mut promtool = Command::new("promtool");
    let tested = promtool.args(["test", "rules", "test.yml"]).current_dir(folder.path()).output();
    let tested = tested.expect("it runs");
    let output = [tested.stdout, tested.stderr].concat();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&output));
}

#[test]
fn no_response_contains_a_future_seed_or_slot() {
    // What the store lacks cannot be disclosed, so only what has started may be stored.
    let running = Running::new(fill);
    let begin = NOW - 3600;
    let paths = ["/periods".to_owned(), format!("/periods/{begin}"), "/api/periods".to_owned()];
    for path in paths {
        assert!(!running.page(&path).contains("seed\":"), "{path}");
    }
    assert!(running.page("/periods").contains("<code></code>"), "no seed yet");
}

#[test]
fn the_dashboard_waits_for_a_missing_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let running = Running::with_usual_limits(folder, path.clone());
    let (status, text) = running.get("/");
    assert_eq!(status, 503);
    assert!(text.contains("there is no store"), "{text}");
    assert_eq!(running.get("/health").0, 503);
    fill(&mut Store::open(&path).expect("new"));
    assert_eq!(running.get("/").0, 200);
    assert!(running.folder.path().exists());
}

#[test]
fn an_event_follows_each_write() {
    use std::io::{BufRead as _, BufReader};
    let running = Running::new(fill);
    let mut answer =
        ureq::get(format!("http://{}/events", running.address)).call().expect("an answer");
    let body = BufReader::new(answer.body_mut().as_reader());
    let store = running.folder.path().join("store.db");
    let over = Arc::new(AtomicBool::new(false));
    let mark = Arc::clone(&over);
    let writing = thread::spawn(move || keep_writing(&store, &mark));
    let event = body.lines().map(|line| line.expect("text")).find(|line| line.starts_with("data:"));
    over.store(true, Ordering::Relaxed);
    writing.join().expect("no panic");
    assert_eq!(event.as_deref(), Some("data: changed"));
}

fn keep_writing(path: &Path, over: &AtomicBool) {
    let mut store = Store::open(path).expect("there");
    for at_unix_s in NOW.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let counts = Counts::default();
        let progress = PeriodProgress { at_unix_s, period_unix_s: NOW - 3600, counts };
        store.write([&Entry::Progress(progress)]).expect("room");
        thread::park_timeout(Duration::from_millis(20));
    }
}
