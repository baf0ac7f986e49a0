use proptest::prelude::*;

use super::*;

#[test]
fn dates_are_utc_and_checked() {
    assert_eq!(date_time(b"1970-01-01 00:00:00"), Some(0));
    assert_eq!(date_time(b"2018-04-16T20:49:18"), Some(1_523_911_758));
    for bad in [
        "2018-02-30 00:00:00",
        "2018-04-16 24:00:00",
        "2018-04-16",
        "2018/04/16 00:00:00",
        "1969-12-31 23:59:59",
        "2018-04-16 20:49:1x",
        "2016-12-31 23:59:61",
        "2016-12-31 23:60:60",
        "2016-02-30 23:59:60",
    ] {
        assert_eq!(date_time(bad.as_bytes()), None, "{bad}");
    }
}

/// As tor's `parse_iso_time` and `timegm`.
#[test]
fn a_leap_second_is_the_first_of_the_next_minute() {
    for (leap, next) in [
        ("2016-12-31 23:59:60", "2017-01-01 00:00:00"),
        ("2015-06-30T23:59:60", "2015-07-01T00:00:00"),
        ("2020-02-28 12:34:60", "2020-02-28 12:35:00"),
    ] {
        let read = date_time(leap.as_bytes());
        assert!(read.is_some() && read == date_time(next.as_bytes()), "{leap}: {read:?}");
    }
}

#[test]
fn numbers_have_no_sign_and_must_fit() {
    assert_eq!(decimal::<u16>(b"65535"), Some(65535));
    for bad in ["", "+1", "-1", "65536", "1 ", "99999999999999999999999"] {
        assert_eq!(decimal::<u16>(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn a_last_line_without_newline_is_incomplete() {
    let lines: Vec<_> = Lines::new(b"a\n\nb").collect();
    assert_eq!(
        lines.iter().map(|l| (l.number, l.bytes, l.complete)).collect::<Vec<_>>(),
        [(1, &b"a"[..], true), (2, b"", true), (3, b"b", false)]
    );
}

#[test]
fn an_excerpt_stays_on_one_line() {
    assert_eq!(excerpt(b"\xff!"), "\u{fffd}!");
    assert_eq!(excerpt(&[b'x'; 100]).chars().count(), 61);
}

proptest! {
    #[test]
    fn dates_survive_a_round_trip(unix in 0u64..253_402_207_200) {
        prop_assert_eq!(date_time(iso(unix).as_bytes()), Some(unix));
    }
}
