//! The dashboard in a real browser: keyboard navigation, live updates, a phone.

use coordinator::{Counts, PastEstimate};
use dashboard::{Options, Server, SiteOptions, write_site};
use onion::Rate;
use onion::identity::{RelayIds, RsaId};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use store::{
    ConsensusEntry, Entry, ListedRelay, MeasurementStarted, PeriodEntry, PeriodProgress,
    PublishedFile, Store,
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
    // The only file so far: a single point of its line.
    let file = PublishedFile {
        created_unix_s: NOW - 400,
        path: "latest.v3bw".to_owned(),
        lines: 99,
        voted: 99,
        capacity_kb_s: 1_000_000,
        scanner_country: None,
    };
    let mut entries =
        vec![Entry::Period(period), Entry::Consensus(seen), Entry::Published(file), progress(40)];
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

/// The drawings that are shown: their number, the smallest share of the width of their section, the size of the smallest text in pixels,
/// points with values, and all texts.
const CHARTS: &str = "(() => {
    const shown = [...document.querySelectorAll('main figure svg')].filter(svg => svg.getBoundingClientRect().width > 0);
    const width = (element) => element.getBoundingClientRect().width;
    const room = (svg) => {
        const style = getComputedStyle(svg.closest('section'));
        return width(svg.closest('section')) - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 2;
    };
    return {
        count: shown.length,
        share: Math.min(...shown.map(svg => width(svg) / room(svg))),
        text_px: Math.min(...shown.map(svg => 12 * width(svg) / svg.viewBox.baseVal.width)),
        values: shown.map(svg => svg.querySelectorAll('circle title').length),
        texts: shown.flatMap(svg => [...svg.querySelectorAll('text')].map(text => text.textContent)),
        ink: getComputedStyle(shown[0].querySelector('text')).fill,
    };
})()";

fn charts_fill_the_page_and_are_readable(browser: &mut Browser, base: &str) {
    browser.open(&format!("{base}/"));
    for (width_px, is_dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        let is_phone = width_px == 390;
        browser.resize(width_px, 1600, is_phone);
        browser.prefer_dark(is_dark);
        let charts = browser.evaluate(CHARTS);
        assert_eq!(charts["count"], 2, "one drawing of each figure: {charts}");
        let number = |name: &str| charts[name].as_f64().expect(name);
        assert!(number("share") > 0.97, "{charts}");
        assert!(number("text_px") >= 10.0, "at {width_px} px: {charts}");
        // One point of the capacity, one of the weight; 99 relays, and the ends of the line.
        assert_eq!(charts["values"], serde_json::json!([2, 101]), "{charts}");
        let texts = charts["texts"].to_string();
        assert!(texts.contains("time (UTC), 2027-01-15") && texts.contains(':'), "{texts}");
        let ink = charts["ink"].as_str().unwrap_or_default();
        assert_eq!(ink, if is_dark { "rgb(230, 237, 243)" } else { "rgb(31, 35, 40)" });
        let form = if is_phone { "phone" } else { "desktop" };
        picture(browser, &format!("overview-{form}-{}", if is_dark { "dark" } else { "light" }));
    }
    // On a phone, a fingerprint is shortened, and all columns but the last few are visible.
    browser.open(&format!("{base}/relays"));
    let shown = browser.evaluate("document.querySelector('tbody code').innerText");
    assert_eq!(shown.as_str().map(str::len), Some(8), "{shown}");
    let rows =
        browser.evaluate("document.querySelector('tbody tr').getBoundingClientRect().height");
    assert!(rows.as_f64().is_some_and(|height_px| height_px < 60.0), "a row is {rows} px high");
    picture(browser, "relays-phone");
    browser.prefer_dark(false);
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
        assert!(width.as_u64().is_some_and(|width| width <= 360), "{page} is {width} px wide");
        for landmark in ["main", "header", "nav", "footer", "h1"] {
            let count =
                browser.evaluate(&format!("document.querySelectorAll('{landmark}').length"));
            assert!(count.as_u64().is_some_and(|count| count >= 1), "no {landmark} on {page}");
        }
        let unnamed = "[...document.querySelectorAll('input:not([type=hidden]), select')]
            .filter(it => it.labels.length === 0).length";
        assert_eq!(browser.evaluate(unnamed), 0, "fields without names on {page}");
    }
    charts_fill_the_page_and_are_readable(browser, base);
}

#[test]
fn a_relay_is_found_on_a_site_that_is_opened_as_a_file() {
    let mut browser = match Browser::start() {
        Ok(browser) => browser,
        Err(lacking) => skip::this_test!("{lacking}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let [path, out] = ["store.db", "site"].map(|name| folder.path().join(name));
    fill(&mut Store::open(&path).expect("new"));
    let options = SiteOptions { store: &path, file: None, votes: &[], out: &out, now_unix_s: NOW };
    write_site(&options).expect("room");
    for (width_px, is_dark) in [(1280, false), (1280, true), (390, false), (390, true)] {
        browser.resize(width_px, 900, width_px == 390);
        browser.prefer_dark(is_dark);
        browser.open(&format!("file://{}/index.html", out.display()));
        browser.evaluate("document.getElementById('search').focus()");
        browser.type_text("elay77");
        browser.wait_for("document.querySelectorAll('#found a').length === 1");
        picture(&mut browser, &format!("site-{width_px}-{is_dark}"));
        browser.press("Enter", 13, "\r");
        browser.wait_for("document.querySelector('h1').innerText === 'relay77'");
        // Without the script, the list of its prefix.
        for page in
            ["index.html", "relays/4D/index.html", &format!("relays/4D/{}.html", "4D".repeat(20))]
        {
            browser.open(&format!("file://{}/{page}", out.display()));
            let width = browser.evaluate("document.documentElement.scrollWidth");
            assert!(
                width.as_u64().is_some_and(|px| px <= u64::from(width_px)),
                "{page} is {width} px wide"
            );
            let ground = browser.evaluate("getComputedStyle(document.body).backgroundColor");
            let expected = if is_dark { "rgb(17, 21, 27)" } else { "rgb(246, 247, 249)" };
            assert_eq!(ground, expected, "{page} has its style");
            for landmark in ["main", "header", "footer", "h1"] {
                let count =
                    browser.evaluate(&format!("document.querySelectorAll('{landmark}').length"));
                assert_eq!(count, 1, "{landmark} on {page}");
            }
        }
        browser.open(&format!("file://{}/relays/4D/{}.html", out.display(), "4D".repeat(20)));
        picture(&mut browser, &format!("site-relay-{width_px}-{is_dark}"));
    }
}

/// Screenshots for `docs/`, on request.
fn picture(browser: &mut Browser, name: &str) {
    if let Ok(folder) = std::env::var("FLASHFLOW_PICTURES") {
        browser.save_picture(&Path::new(&folder).join(format!("dashboard-{name}.png")));
    }
}
