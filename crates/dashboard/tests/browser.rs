//! The dashboard in a real browser: keyboard navigation, live updates, a phone.

use coordinator::{Counts, PastEstimate};
use dashboard::{Options, Server};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use store::{
    ConsensusEntry, Entry, ListedRelay, MeasurementStarted, PeriodEntry, PeriodProgress, Store,
};
use testbin::chromium::Browser;

const NOW: u64 = 1_800_000_000;
const PERIOD: u64 = NOW - 3600;

fn ids(number: u8) -> RelayIds {
    RelayIds { rsa: RsaId([number; 20]), ed25519: None }
}

fn sighting(number: u8) -> ListedRelay {
    let address = ([127, 0, 0, number], 9001).into();
    ListedRelay {
        ids: ids(number),
        nickname: format!("relay{number}"),
        address,
        weight_kb_s: Some(u32::from(number) * 300),
        left_out: None,
    }
}

fn estimate(number: u8) -> Entry {
    let estimate = PastEstimate {
        capacity: Rate::from_mbit_per_s(f64::from(number) * 3.0),
        measured_unix_s: NOW - 900,
        mode: None,
        is_conclusive: Some(true),
        sockets: None,
    };
    Entry::Imported(ids(number), format!("relay{number}"), estimate)
}

fn progress(done: usize) -> Entry {
    let counts = Counts { waiting: 99 - done, running: 1, done, without_slot: 0 };
    Entry::Progress(PeriodProgress { at_unix_s: NOW, period_unix_s: PERIOD, counts })
}

fn begun(number: u8) -> Entry {
    let ListedRelay { ids, nickname, address, .. } = sighting(number);
    Entry::Started(MeasurementStarted {
        ids,
        nickname,
        address,
        period_unix_s: PERIOD,
        number: 1,
        slot: Some(3),
        started_unix_s: NOW - 12,
    })
}

fn fill(store: &mut Store) {
    let period = PeriodEntry { begin_unix_s: PERIOD, length_s: 7200, slot_s: 71, seed: None };
    let seen = ConsensusEntry {
        valid_after_unix_s: NOW - 600,
        at_unix_s: NOW - 500,
        source: "a test".to_owned(),
        signers: Some(5),
        relays: (1..=99).map(sighting).collect(),
    };
    let mut entries = vec![Entry::Period(period), Entry::Consensus(seen), progress(40)];
    entries.extend((1..=99).map(estimate));
    store.write(&entries).expect("room");
}

#[test]
fn a_relay_is_found_and_followed_by_keyboard_and_all_fits_on_a_phone() {
    let mut browser = match Browser::start() {
        Ok(browser) => browser,
        Err(lacking) => skip::this_test!("{lacking}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("store.db");
    let mut store = Store::open(&path).expect("new");
    fill(&mut store);
    let options = Options {
        store: path,
        file: folder.path().join("latest.v3bw"),
        hosts: Vec::new(),
        now: || NOW,
    };
    let server = Server::bind(([127, 0, 0, 1], 0).into(), options).expect("a port");
    let base = format!("http://{}", server.address());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(|| over.load(Ordering::Relaxed)));
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            look(&mut browser, &base, &mut store);
        }));
        over.store(true, Ordering::Relaxed);
        serving.join().expect("no panic").expect("it listens");
        if let Err(panic) = looked {
            std::panic::resume_unwind(panic);
        }
    });
}

fn look(browser: &mut Browser, base: &str, store: &mut Store) {
    browser.resize(1200, 900, false);
    browser.open(&format!("{base}/"));
    assert_eq!(
        browser.evaluate("document.querySelector('.big').innerText"),
        "40 of 100 relays measured"
    );

    // A write becomes visible without any action.
    store.write([&progress(41), &begun(7)]).expect("room");
    browser.wait_for("document.querySelector('.big').innerText === '41 of 100 relays measured'");
    browser.wait_for("document.querySelector('#progress').innerText.includes('relay7')");
    picture(browser, "overview");

    // By keyboard alone: past the skip link, to the search, and to a result.
    browser.press("Tab", 9, "");
    assert_eq!(browser.evaluate("document.activeElement.className"), "skip");
    for _ in 0..40 {
        browser.press("Tab", 9, "");
        if browser.evaluate("document.activeElement.id") == "search" {
            break;
        }
    }
    assert_eq!(browser.evaluate("document.activeElement.id"), "search", "the keyboard gets there");
    browser.type_text("relay77");
    browser.press("Enter", 13, "\r");
    browser.wait_for(
        "location.pathname === '/relays' && document.querySelectorAll('tbody tr').length === 1",
    );
    picture(browser, "relays");
    browser.evaluate("document.querySelector('tbody a').focus()");
    browser.press("Enter", 13, "\r");
    browser.wait_for(
        "location.pathname.startsWith('/relays/4D4D') && document.readyState === 'complete'",
    );
    browser.wait_for("document.querySelector('h1').innerText === 'relay77'");
    let why = browser.evaluate("document.querySelector('#why').innerText");
    assert!(why.as_str().is_some_and(|why| why.contains("231.00 Mbit/s")), "{why}");

    // A measurement of the displayed relay starts.
    store.write([&begun(77)]).expect("room");
    browser
        .wait_for("document.querySelector('#why').innerText.includes('is being measured since')");
    picture(browser, "relay");

    // On a phone no page overflows, and every page has landmarks.
    browser.resize(360, 780, true);
    for page in [
        "/",
        "/relays",
        "/measurers",
        "/periods",
        &format!("/periods/{PERIOD}"),
        &format!("/relays/{}", "4D".repeat(20)),
    ] {
        browser.open(&format!("{base}{page}"));
        let width = browser.evaluate("document.documentElement.scrollWidth");
        assert!(width.as_u64().is_some_and(|it| it <= 360), "{page} is {width} px wide");
        for landmark in ["main", "header", "nav", "footer", "h1"] {
            let count =
                browser.evaluate(&format!("document.querySelectorAll('{landmark}').length"));
            assert!(count.as_u64().is_some_and(|it| it >= 1), "no {landmark} on {page}");
        }
        let unnamed = "[...document.querySelectorAll('input:not([type=hidden]), select')]
            .filter(it => it.labels.length === 0).length";
        assert_eq!(browser.evaluate(unnamed), 0, "fields without names on {page}");
    }
    browser.open(&format!("{base}/"));
    picture(browser, "phone");
}

/// Screenshots for `docs/`, on request.
fn picture(browser: &mut Browser, name: &str) {
    if let Ok(folder) = std::env::var("FLASHFLOW_PICTURES") {
        browser.save_picture(&Path::new(&folder).join(format!("dashboard-{name}.png")));
    }
}
