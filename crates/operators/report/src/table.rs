//! Formats results as a table for the terminal.

use crate::text::{NOTHING, count, mbit, plain, quotient, range};
use crate::{Mode, RelayReport, RoundAccount};
use comfy_table::presets::{NOTHING as NO_LINES, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent};

/// Maximum width of a table, in columns.
const WIDTH: u16 = 100;
/// Width of the nickname: tor permits 19 characters.
const NICKNAME_WIDTH: usize = 19;

const COLUMNS: usize = 10;

const HEADER: [&str; COLUMNS] = [
    "Relay",
    "Limit\nMbit/s",
    "Estimate\nMbit/s",
    "Its own\nMbit/s",
    "Ratio",
    "Quartiles\nMbit/s",
    "Capacity\nMbit/s",
    "Rounds",
    "Checked\ncells",
    "Verdict",
];

/// Columns for values that only the operator of a relay knows: limit, self-report, and the estimate relative to them.
const OPTIONAL: [usize; 3] = [1, 3, 4];

/// The column with the bounds of the capacity. It takes the place of the optional ones, whose values are more precise.
const BOUNDS: usize = 6;

/// Formats relays as a table of at most 100 columns of plain text. Below it are the reasons for inconclusive and failed measurements, and a
/// legend.
///
/// The ratio is the estimate divided by the configured limit or, marked with an asterisk, by the relay's self-report. The columns of
/// limit, self-report and ratio are left out if no relay has such values. Then there is a column with the bounds of the capacity.
#[must_use]
pub fn table(relays: &[RelayReport]) -> String {
    if relays.is_empty() {
        return "No relay was measured.".into();
    }
    let all: Vec<[String; COLUMNS]> = relays.iter().map(row).collect();
    let has_values = |column: &usize| all.iter().any(|row| row[*column] != NOTHING);
    let is_compared = OPTIONAL.iter().any(has_values);
    let is_used = |column: &usize| match *column {
        BOUNDS => !is_compared && has_values(column),
        _ => !OPTIONAL.contains(column) || has_values(column),
    };
    let columns: Vec<usize> = (0..HEADER.len()).filter(is_used).collect();
    let rows = all.iter().map(|row| columns.iter().map(|column| &row[*column]));
    let mut table = new_table(UTF8_HORIZONTAL_ONLY);
    table
        .set_header(columns.iter().map(|column| HEADER[*column]))
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .add_rows(rows);
    let last = columns.len() - 1;
    for (index, column) in table.column_iter_mut().enumerate() {
        if index > 0 && index < last {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if index < last {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        column.set_padding((0, if index == last { 0 } else { 1 }));
    }
    [table.trim_fmt(), reasons(relays), legend(relays)].join("\n")
}

fn new_table(preset: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table
}

fn row(relay: &RelayReport) -> [String; COLUMNS] {
    let ratio = match (relay.ratio_to_limit(), relay.ratio_to_relay_reported()) {
        (Some(ratio), _) => quotient(Some(ratio)),
        (None, Some(ratio)) => format!("{}*", quotient(Some(ratio))),
        (None, None) => NOTHING.into(),
    };
    let quartiles = relay.spread_mbit_per_s.map_or_else(
        || NOTHING.into(),
        |spread| range(spread.lower_quartile, spread.upper_quartile),
    );
    let bounds = match relay.bounds_mbit_per_s {
        None => NOTHING.into(),
        Some((lower, Some(upper))) => range(lower, upper),
        Some((lower, None)) => format!("{} or more", mbit(Some(lower))),
    };
    [
        nickname(relay),
        mbit(relay.limit_mbit_per_s),
        mbit(relay.estimate_mbit_per_s),
        mbit(relay.relay_reported_mbit_per_s),
        ratio,
        quartiles,
        bounds,
        relay.rounds.to_string(),
        count(relay.cells_checked),
        relay.verdict().word().into(),
    ]
}

/// The reasons for missing and inconclusive estimates, which are too long for a column.
fn reasons(relays: &[RelayReport]) -> String {
    let reason = |relay: &RelayReport| {
        let verdict = relay.verdict();
        let reason = verdict.reason()?;
        Some([nickname(relay), format!("{}: {}", verdict.word(), plain(reason))])
    };
    paragraphs(relays.iter().filter_map(reason))
}

/// Describes what held back the sockets of each measurer in the last rounds, according to the measurers' kernels. Empty without their
/// statistics.
#[must_use]
pub fn sockets(relays: &[RelayReport]) -> String {
    let of_last_round = |relay: &RelayReport| {
        let last = relay.accounts.last().map(|last| last.round);
        let accounts = relay.accounts.iter().filter(|account| Some(account.round) == last);
        let line = |account: &RoundAccount| {
            let (measurer, words) = (account.measurer, account.in_words());
            [nickname(relay), format!("sockets of measurer {measurer}: {words}")]
        };
        accounts.map(line).collect::<Vec<_>>()
    };
    paragraphs(relays.iter().flat_map(of_last_round))
}

/// Texts with the nicknames of their relays.
fn paragraphs(rows: impl Iterator<Item = [String; 2]>) -> String {
    let mut table = new_table(NO_LINES);
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, u16::from(index == 0)));
        if index == 0 {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.trim_fmt()
}

fn nickname(relay: &RelayReport) -> String {
    let name = plain(&relay.nickname);
    if name.chars().count() <= NICKNAME_WIDTH {
        return name;
    }
    name.chars().take(NICKNAME_WIDTH - 1).chain(['…']).collect()
}

fn legend(relays: &[RelayReport]) -> String {
    let any = |holds: fn(&RelayReport) -> bool| relays.iter().any(holds);
    let mut lines = Vec::new();
    let has_starred =
        any(|relay| relay.ratio_to_limit().is_none() && relay.ratio_to_relay_reported().is_some());
    if has_starred {
        let meaning = "no limit is known: estimate ÷ the relay’s own figure";
        lines.push(format!("Ratio: estimate ÷ limit; * {meaning}."));
    } else if any(|relay| relay.ratio_to_limit().is_some()) {
        lines.push("Ratio: estimate ÷ limit.".to_owned());
    }
    if any(|relay| relay.mode == Mode::Transit && relay.estimate().is_some()) {
        let meaning = "In transit, the traffic of the relay’s clients is not counted: it adds to the estimate.";
        lines.push(meaning.to_owned());
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{conclusive, failed, inconclusive};

    /// The cells of a relay's row, whose lines are joined per column.
    fn line_of<'a>(table: &'a str, nickname: &str) -> &'a str {
        table.lines().find(|line| line.contains(nickname)).unwrap()
    }

    #[test]
    fn a_conclusive_result_has_all_columns() {
        let table = table(&[conclusive()]);
        let line = line_of(&table, "steady");
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "steady",
                "250.0",
                "240.0",
                "241.5",
                "0.960",
                "238.0–243.0",
                "2",
                "1,234",
                "conclusive"
            ]
        );
    }

    #[test]
    fn columns_without_values_are_left_out() {
        let relay = RelayReport {
            mode: Mode::Transit,
            limit_mbit_per_s: None,
            relay_reported_mbit_per_s: None,
            ..conclusive()
        };
        let open = RelayReport { bounds_mbit_per_s: Some((228.6, None)), ..relay.clone() };
        let text = table(&[open]);
        assert!(line_of(&text, "steady").contains("228.6 or more"), "{text}");
        let alone = table(std::slice::from_ref(&relay));
        let header: Vec<&str> =
            alone.lines().nth(1).unwrap_or_default().split_whitespace().collect();
        assert_eq!(
            header,
            ["Relay", "Estimate", "Quartiles", "Capacity", "Rounds", "Checked", "Verdict"],
            "{alone}"
        );
        assert!(line_of(&alone, "steady").contains("228.6–300.0"), "{alone}");
        let row = line_of(&alone, "steady");
        assert!(row.split_whitespace().all(|cell| cell != NOTHING), "{alone}");
        assert!(!alone.contains("lower bound"), "{alone}");
        let both = table(&[relay, conclusive()]);
        assert!(
            both.contains("Limit") && both.contains("Its own") && both.contains("Ratio"),
            "{both}"
        );
        assert!(!both.contains("Capacity"), "a known limit says more: {both}");
    }

    #[test]
    fn an_inconclusive_result_has_a_reason_and_a_ratio_to_the_self_report() {
        let table = table(&[inconclusive()]);
        assert!(table.contains("unbounded inconclusive: the team is too small"), "{table}");
        assert!(line_of(&table, "unbounded").contains("0.994*"), "{table}");
        assert!(table.contains("the traffic of the relay’s clients is not counted"), "{table}");
    }

    #[test]
    fn a_failed_result_has_a_reason_and_no_estimate() {
        let table = table(&[failed()]);
        let line = line_of(&table, "broken");
        assert!(line.contains("100.0") && line.ends_with("failed"), "{table}");
        assert!(line.contains(NOTHING), "{table}");
        assert!(table.contains("broken failed: the relay forged a cell"), "{table}");
        assert!(!table.contains("clients"), "{table}");
    }

    #[test]
    fn sockets_of_the_last_round_are_described_apart_from_the_table() {
        let account = |round, measurer| RoundAccount {
            round,
            measurer,
            rwnd_limited_share: 0.71,
            ..RoundAccount::default()
        };
        let accounts = vec![account(1, 0), account(2, 0), account(2, 1)];
        let relay = RelayReport { accounts: accounts.clone(), ..inconclusive() };
        assert!(!table(std::slice::from_ref(&relay)).contains("sockets of"), "for experts only");
        let text = sockets(&[relay]);
        let waited = text.matches("the relay’s window 71 %").count();
        assert_eq!(waited, 2, "of the last round, each measurer: {text}");
        assert!(text.contains("unbounded sockets of measurer 1:"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
        let by = Some(coordinator::Bottleneck::Path { queue_ms: 80 });
        let accounts = [accounts, vec![RoundAccount { limited_by: by, ..account(2, 1) }]].concat();
        let text = sockets(&[RelayReport { accounts, ..conclusive() }]);
        assert!(text.contains("sockets of measurer 1: held back by a bottleneck"), "{text}");
        assert_eq!(sockets(&[conclusive()]), "");
    }

    #[test]
    fn a_table_fits_100_columns_for_any_text_of_relays() {
        let relay = RelayReport {
            nickname: "W".repeat(400),
            error: Some("because ".repeat(60)),
            estimate_mbit_per_s: Some(123_456.7),
            relay_reported_mbit_per_s: Some(123_456.7),
            cells_checked: 1_234_567_890,
            ..conclusive()
        };
        let table = table(&[relay, conclusive(), inconclusive(), failed()]);
        for line in table.lines() {
            assert!(line.chars().count() <= usize::from(WIDTH), "{line}");
        }
        assert!(line_of(&table, "steady").contains("238.0–243.0"), "{table}");
    }

    #[test]
    fn relays_cannot_inject_terminal_control_sequences() {
        let relay = RelayReport {
            nickname: "\u{1b}[31mred".into(),
            error: Some("\u{1b}]0;title\u{7}".into()),
            ..failed()
        };
        assert!(!table(&[relay]).contains(['\u{1b}', '\u{7}']));
    }

    #[test]
    fn nan_and_infinity_are_not_shown() {
        let relay = RelayReport {
            estimate_mbit_per_s: Some(f64::NAN),
            relay_reported_mbit_per_s: Some(0.0),
            limit_mbit_per_s: Some(f64::INFINITY),
            ..conclusive()
        };
        let table = table(&[relay]);
        assert!(!table.contains("NaN") && !table.contains("inf"), "{table}");
    }

    #[test]
    fn without_relays_there_is_no_table() {
        assert_eq!(table(&[]), "No relay was measured.");
    }
}
