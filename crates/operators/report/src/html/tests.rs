//! Tests of the page.

use crate::testing::{conclusive, failed, inconclusive, report};
use crate::{RelayReport, Report, RoundAccount, Spread, plots};

fn page(relays: Vec<RelayReport>) -> String {
    report(relays).to_html()
}

#[test]
fn untrusted_text_is_escaped_everywhere() {
    let evil = "</script><img src=x onerror='alert(1)'>\"&";
    let relay = |base: RelayReport| RelayReport {
        nickname: evil.into(),
        fingerprint: evil.into(),
        error: base.error.is_some().then(|| evil.into()),
        inconclusive_reason: base.inconclusive_reason.is_some().then(|| evil.into()),
        ..base
    };
    let html = Report {
        title: evil.into(),
        software_version: evil.into(),
        tor_version: Some(evil.into()),
        parameters: vec![(evil.into(), evil.into())],
        notes: vec![evil.into()],
        bandwidth_file: Some(evil.into()),
        ..report([conclusive(), inconclusive(), failed()].map(relay).to_vec())
    }
    .to_html();
    assert!(!html.contains("<img"));
    assert!(!html.contains(evil));
    assert!(
        html.contains("&lt;/script&gt;&lt;img src=x onerror=&#39;alert(1)&#39;&gt;&quot;&amp;")
    );
    assert_eq!(html.matches("<script").count(), html.matches("</script>").count());
}

#[test]
fn the_page_is_self_contained_and_small() {
    let html = report(vec![conclusive(), inconclusive(), failed()]).to_html();
    assert_eq!(html.matches("<figure class=\"plot\">").count(), 3);
    assert_eq!(html.matches("\"use strict\"").count(), 1, "one script for all plots");
    assert!(!html.contains("://") && !html.contains("@import") && !html.contains("url("));
    assert!(!html.contains("src=") && !html.contains("href=\"h"));
    assert!(html.contains("default-src 'none'"));
    let many = report(vec![conclusive(); 30]).to_html();
    assert!(many.len() < 500_000, "{} bytes", many.len());
}

#[test]
fn each_verdict_is_explained() {
    let html = page(vec![conclusive(), inconclusive(), failed()]);
    assert!(html.contains("240.0 Mbit/s after 2 rounds of 3 seconds, 1,234 checked cells."));
    assert!(html.contains("The capacity is between 228.6 and 300.0 Mbit/s."));
    assert!(html.contains("inconclusive: the team is too small."));
    assert!(html.contains("The capacity that clients left unused is more than 228.6 Mbit/s."));
    assert!(html.contains("Failed in round 1 after 0 checked cells: the relay forged a cell."));
}

#[test]
fn limits_of_sockets_are_shown_by_round() {
    let account = RoundAccount {
        round: 2,
        rwnd_limited_share: 0.714,
        retransmitted_share: 0.0002,
        min_rtt_ms: Some(20.12),
        outstanding_bytes: 5_432_109,
        ..RoundAccount::default()
    };
    let html = page(vec![RelayReport { accounts: vec![account, account], ..conclusive() }]);
    for cell in ["71 %", "0.02 %", "20.1", "5,432"] {
        let cell = format!("<td class=\"number\">{cell}</td>");
        assert_eq!(html.matches(&cell).count(), 2, "{cell}");
    }
    assert!(!page(vec![conclusive()]).contains("sockets to it waited"), "nobody knows");
}

#[test]
fn weights_are_compared_with_the_voted_ones() {
    let mut report = report(vec![conclusive(), failed()]);
    report.weights_in_consensus = Some(true);
    let html = report.to_html();
    assert!(html.contains("A consensus has these weights."));
    assert!(
        html.contains("30,000</td><td class=\"number\">29,000</td><td class=\"number\">0.967<")
    );
}

#[test]
fn an_empty_report_is_a_small_page_without_plots() {
    let html = report(Vec::new()).to_html();
    assert!(html.contains("No relay was measured."));
    assert!(!html.contains("<script") && html.len() < 20_000);
    assert!(html.ends_with("</body></html>\n"));
}

#[test]
fn nan_and_infinity_are_not_shown() {
    let mut odd = conclusive();
    odd.series[3].measured_mbit_per_s = f64::NAN;
    let odd = RelayReport {
        estimate_mbit_per_s: Some(f64::NAN),
        relay_reported_mbit_per_s: Some(f64::INFINITY),
        limit_mbit_per_s: Some(0.0),
        conclusive_limit_mbit_per_s: Some(f64::NAN),
        bounds_mbit_per_s: Some((f64::NAN, Some(f64::INFINITY))),
        spread_mbit_per_s: Some(Spread {
            min: f64::NAN,
            upper_quartile: f64::NAN,
            ..Spread::default()
        }),
        weight_kb_s: Some(0),
        consensus_weight_kb_s: Some(0),
        ..odd
    };
    let html = page(vec![odd, conclusive()]);
    assert!(!html.contains("NaN"));
    assert!(!html.contains(">inf") && !html.contains("inf<") && !html.contains(":inf"));
}

#[test]
fn the_overview_shows_a_limited_number_of_relays() {
    let html = page(vec![conclusive(); plots::MOST_IN_OVERVIEW + 1]);
    assert!(html.contains("Only the first 100 relays are shown here."));
}

#[test]
fn field_names_include_units() {
    let json = serde_json::to_value(report(vec![inconclusive()])).unwrap();
    let relay = &json["relays"][0];
    assert_eq!(relay["mode"], "transit");
    assert_eq!(relay["estimate_mbit_per_s"], 240.0);
    assert_eq!(relay["bounds_mbit_per_s"], serde_json::json!([228.6, null]));
}
