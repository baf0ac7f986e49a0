use super::*;
use crate::consensus::{Consensus, Flag};

#[test]
fn a_generated_file_has_the_line_order_of_tor() {
    let estimates = [measured(1, 2_000_499, 60, None), failed(2, "no route to host")];
    let counts = Eligibility { eligible: 1, in_consensus: 1 };
    let file = BandwidthFile::generate(&estimates, counts, &settings()).unwrap();
    let key = Ed25519Id([1; 32]);
    assert_eq!(
        text(&file),
        format!(
            "1767225540\n\
             version=1.9.0\n\
             software=flashflow\n\
             software_version=0.1.0\n\
             file_created=2026-01-01T00:00:00\n\
             generator_started=2025-12-31T23:00:00\n\
             earliest_bandwidth=2025-12-31T23:59:00\n\
             latest_bandwidth=2025-12-31T23:59:00\n\
             number_eligible_relays=1\n\
             minimum_number_eligible_relays=1\n\
             number_consensus_relays=1\n\
             percent_eligible_relays=100\n\
             minimum_percent_eligible_relays=60\n\
             =====\n\
             node_id=${} bw=2000 nick=relay1 master_key_ed25519={key} time=2025-12-31T23:59:00 \
             flashflow_mode=transit\n\
             node_id=${} bw=1 nick=relay2 time=2025-12-31T23:59:55 error=no_route_to_host \
             unmeasured=1 vote=0\n",
            id(1),
            id(2)
        )
    );
}

#[test]
fn the_timestamp_is_that_of_the_newest_successful_result() {
    let estimates =
        [measured(1, 9_000, 500, None), measured(2, 9_000, 100, None), failed(3, "late")];
    let file = BandwidthFile::generate(&estimates, all(3), &settings()).unwrap();
    assert_eq!(file.timestamp, NOW - 100);
    assert_eq!(file.header.latest_bandwidth, Some(NOW - 100));
    assert_eq!(file.header.earliest_bandwidth, Some(NOW - 500));
    assert_eq!(file.header.file_created, Some(NOW));
}

#[test]
fn without_recent_results_there_is_no_file() {
    let generate = |estimates: &[Estimate]| {
        BandwidthFile::generate(estimates, all(1), &settings()).unwrap_err()
    };
    assert_eq!(generate(&[]), GenerateError::NoResults { tried: 0 });
    assert_eq!(generate(&[failed(1, "x")]), GenerateError::NoResults { tried: 1 });
    let three_days = 3 * 86_400;
    let old = [measured(1, 1, three_days + 1, None)];
    assert_eq!(generate(&old), GenerateError::NoRecentResults { age_s: three_days + 1 });
    assert!(
        BandwidthFile::generate(&[measured(1, 1, three_days, None)], all(1), &settings()).is_ok()
    );
}

#[test]
fn a_result_of_the_future_costs_its_own_line_only() {
    let early = Settings { file_created: NOW - 61, ..settings() };
    let estimates =
        [measured(1, 1, 60, None), measured(2, 7000, 61, None), measured(3, 9000, 62, None)];
    let file = BandwidthFile::generate(&estimates, all(3), &early).unwrap();
    assert_eq!((file.timestamp, file.header.latest_bandwidth), (NOW - 61, Some(NOW - 61)));
    assert_eq!(file.header.number_eligible_relays, Some(2));
    let [wrong, second, third] = &file.relays[..] else { panic!("{:?}", file.relays) };
    assert!(wrong.unmeasured && !wrong.vote && wrong.time.is_none(), "{wrong:?}");
    assert_eq!(wrong.extra, [("error".to_owned(), "dated_1_s_after_this_file".to_owned())]);
    assert!(second.vote && third.vote && (second.bw_kb_s, third.bw_kb_s) == (7, 9), "{second:?}");
    let error = BandwidthFile::generate(&estimates[..1], all(1), &early).unwrap_err();
    assert_eq!(error, GenerateError::NoResults { tried: 1 });
}

#[test]
fn a_repeated_result_is_rejected() {
    let twice = [measured(1, 1, 60, None), failed(1, "x")];
    let error = BandwidthFile::generate(&twice, all(1), &settings()).unwrap_err();
    assert_eq!(error, GenerateError::Duplicate { relay: id(1) });
}

#[test]
fn bandwidths_are_rounded_capped_by_the_descriptor_and_never_0() {
    let cases = [
        (0, None, 1),
        (499, None, 1),
        (1_499, None, 1),
        (1_500, None, 2),
        (125_000_000, None, 125_000),
        (125_000_000, Some(1_000_000), 1_000),
        (1_700, Some(1_700), 1), // 2 would exceed what the operator allows
        (5_000, Some(0), 1),
        (5_000, Some(u64::MAX), 5),
        (u64::MAX, None, i32::MAX.cast_unsigned().into()),
    ];
    for (capacity, cap, expected) in cases {
        let estimates = [measured(1, capacity, 1, cap)];
        let file = BandwidthFile::generate(&estimates, all(1), &settings()).unwrap();
        assert_eq!(file.relays[0].bw_kb_s, expected, "{capacity} {cap:?}");
    }
}

#[test]
fn below_60_percent_no_line_gets_a_vote_and_bandwidths_stay() {
    let estimates = [measured(1, 2_000_000, 60, None), failed(2, "x")];
    for (eligible, in_consensus, votes) in
        [(60, 100, true), (59, 100, false), (599, 1000, false), (3, 5, true), (0, 0, false)]
    {
        let counts = Eligibility { eligible, in_consensus };
        let file = BandwidthFile::generate(&estimates, counts, &settings()).unwrap();
        let text = text(&file);
        let report = check_as_tor(text.as_bytes(), NOW);
        assert_eq!(report.relays.len(), usize::from(votes), "{counts:?}");
        assert_eq!(file.relays[0].bw_kb_s, 2_000);
        let marked = text.matches("under_min_report=1 vote=0\n").count();
        assert_eq!(marked, if votes { 0 } else { 2 }, "{counts:?}");
        let header = &file.header;
        let printed_opens = header.percent_eligible_relays >= Some(60) && in_consensus > 0;
        assert_eq!(printed_opens, votes, "the printed percentage must agree: {counts:?}");
        let enough = header.number_eligible_relays >= header.minimum_number_eligible_relays;
        assert_eq!(enough && in_consensus > 0, votes, "{counts:?}");
    }
}

#[test]
fn only_running_relays_that_are_not_authorities_count() {
    let bytes = include_bytes!("../../../tests/data/consensus-ns");
    let consensus = Consensus::parse(bytes).unwrap();
    let estimate = |i: usize| {
        let fingerprint = consensus.routers()[i].fingerprint;
        Estimate { fingerprint, ..measured(1, 1, 1, None) }
    };
    assert!(consensus.routers()[4].flags.contains(Flag::Authority));
    let stranger = measured(9, 1, 1, None);
    let failed = Estimate { outcome: failed(1, "x").outcome, ..estimate(2) };
    let estimates = [estimate(0), estimate(1), estimate(4), stranger, failed];
    let counts = Eligibility::count(&consensus, &estimates);
    assert_eq!(counts, Eligibility { eligible: 2, in_consensus: 4 });
    assert_eq!((counts.percent(), counts.minimum(60)), (50, 3));
}

#[test]
fn no_failure_reason_can_break_a_line() {
    for reason in ["", "two\nlines vote=1", "bw=7 node_id=", "é\0\t", &"x".repeat(5000)] {
        let estimates = [measured(1, 5_000, 1, None), failed(2, reason)];
        let file = BandwidthFile::generate(&estimates, all(2), &settings()).unwrap();
        let text = text(&file);
        let report = check_as_tor(text.as_bytes(), NOW);
        assert!(report.is_clean(), "{reason:?}: {report:?}");
        assert_eq!(report.relays.len(), 1);
        assert!(BandwidthFile::parse(text.as_bytes()).unwrap().skipped.is_empty());
    }
}
