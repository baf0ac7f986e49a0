//! Parses the few lines of a consensus that waiting needs. The crate `netdoc` parses whole consensuses.

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// The `valid-after` time in Unix seconds.
pub(crate) fn valid_after(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix("valid-after "))?;
    unix_time(value.trim_end())
}

/// The number of these relays, given by their RSA fingerprints, that have the Running flag.
pub(crate) fn running<'a>(text: &str, relays: impl Iterator<Item = &'a [u8; 20]>) -> usize {
    let mut found = Vec::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("r ") {
            current = rest.split(' ').nth(1).unwrap_or("");
        } else if let Some(flags) = line.strip_prefix("s ")
            && flags.split(' ').any(|flag| flag.trim_end() == "Running")
        {
            found.push(current);
        }
    }
    relays.filter(|rsa| found.contains(&STANDARD_NO_PAD.encode(rsa).as_str())).count()
}

/// Whether a relay's status has all of these flags.
pub(crate) fn has_flags(status: &str, flags: &[&str]) -> bool {
    let found = status.lines().find_map(|line| line.strip_prefix("s ")).unwrap_or_default();
    flags.iter().all(|flag| found.split_ascii_whitespace().any(|other| other == *flag))
}

/// Reads `YYYY-MM-DD HH:MM:SS`, from 1970 on.
pub(crate) fn unix_time(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(' ')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let mut time = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years that begin in March have their leap day at the end, so one formula gives the days of whole months.
    let year = year - u64::from(month <= 2);
    let month = (month + 9) % 12;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    // Days from 1 March of the year 0 to 1 January 1970.
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_are_parsed() {
        assert_eq!(unix_time("1970-01-01 00:00:00"), Some(0));
        assert_eq!(unix_time("2000-02-29 12:00:01"), Some(951_825_601));
        assert_eq!(unix_time("2026-11-21 12:13:10"), Some(1_795_263_190));
        assert_eq!(unix_time("2026-13-21 12:13:10"), None);
        assert_eq!(unix_time("now"), None);
        assert_eq!(valid_after("a\nvalid-after 1970-01-01 00:01:00\r\nb"), Some(60));
    }

    #[test]
    fn running_relays_are_counted() {
        let (one, two) = ([1; 20], [2; 20]);
        let (one_64, two_64) = (STANDARD_NO_PAD.encode(one), STANDARD_NO_PAD.encode(two));
        let text =
            format!("r one {one_64} x\ns Fast Running V2Dir\nr two {two_64} x\ns Fast\nw x\n");
        assert_eq!(running(&text, [one, two].iter()), 1);
        assert_eq!(running("", [one].iter()), 0);
    }

    #[test]
    fn flags_are_whole_words_of_the_s_line() {
        let status = "r Stable AAAA\r\ns Fast Guardian Running\r\nw Bandwidth=1\r\n";
        assert!(has_flags(status, &["Running", "Fast"]) && has_flags(status, &[]));
        for missing in ["Guard", "Stable", "Bandwidth=1"] {
            assert!(!has_flags(status, &["Fast", missing]), "{missing}");
        }
        assert!(!has_flags("", &["Fast"]));
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text in "(valid-after |r |s |Running|[-0-9: ]|\n|\\PC)*") {
            let _ = valid_after(&text);
            let _ = running(&text, [[0; 20]].iter());
            let _ = unix_time(&text);
        }
    }
}
