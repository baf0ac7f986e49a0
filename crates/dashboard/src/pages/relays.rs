//! The table of relays.

use crate::answer::{Refused, page};
use crate::line::fingerprint;
use crate::server::App;
use crate::words::{cause, rate, time};
use askama::Template;
use axum::extract::{Query, State};
use axum::response::Html;
use serde::Deserialize;
use store::{RelayQuery, RelayRow, Sort};

/// Rows of a page.
const ROWS: usize = 100;

/// As the address says it. What is not understood counts as not said.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Wanted {
    search: String,
    sort: String,
    order: String,
    state: String,
    cause: String,
    page: String,
}

#[derive(Template)]
#[template(path = "relays.html")]
struct Page {
    here: &'static str,
    search: String,
    state: String,
    cause: String,
    found: u64,
    from: usize,
    to: usize,
    columns: Vec<Column>,
    rows: Vec<Row>,
    previous: Option<String>,
    next: Option<String>,
}

/// A heading by which can be sorted.
struct Column {
    name: &'static str,
    sorted: &'static str,
    link: String,
    is_number: bool,
}

struct Row {
    fingerprint: String,
    nickname: String,
    capacity: String,
    state: &'static str,
    class: &'static str,
    cause: String,
    measured: String,
    first_seen: String,
}

const COLUMNS: [(&str, Sort, bool); 5] = [
    ("Relay", Sort::Nickname, false),
    ("Mbit/s", Sort::Capacity, true),
    ("Last measurement", Sort::State, false),
    ("It ended", Sort::Measured, false),
    ("First seen", Sort::FirstSeen, false),
];

/// What is asked of the store.
pub(crate) fn query(wanted: &Wanted) -> RelayQuery {
    let number = wanted.page.parse::<usize>().unwrap_or(1).clamp(1, 1_000_000);
    let sort = Sort::from_word(&wanted.sort).unwrap_or_default();
    let state = store::State::from_word(&wanted.state);
    let ascending = wanted.order == "up";
    let cause = (!wanted.cause.is_empty()).then(|| wanted.cause.clone());
    let (skip, most) = ((number - 1) * ROWS, ROWS);
    RelayQuery { search: wanted.search.clone(), sort, ascending, state, cause, skip, most }
}

pub(crate) async fn relays(
    State(shared): App,
    Query(wanted): Query<Wanted>,
) -> Result<Html<String>, Refused> {
    let query = query(&wanted);
    let asked = query.clone();
    let found = shared.read(move |store| store.relays(&asked)).await?;
    let number = query.skip / ROWS + 1;
    let to = query.skip + found.relays.len();
    let link = |sort: Sort, ascending: bool, page: usize| link(&wanted, sort, ascending, page);
    let column = |(name, sort, is_number): (&'static str, Sort, bool)| {
        let is_sorted = sort == query.sort;
        let sorted = match (is_sorted, query.ascending) {
            (false, _) => "none",
            (true, true) => "ascending",
            (true, false) => "descending",
        };
        // Names from A on, all else from the largest on; again: the other way round.
        let ascending = if is_sorted { !query.ascending } else { sort == Sort::Nickname };
        Column { name, sorted, link: link(sort, ascending, 1), is_number }
    };
    page(&Page {
        here: "relays",
        from: query.skip + usize::from(!found.relays.is_empty()),
        to,
        found: found.found,
        columns: COLUMNS.into_iter().map(column).collect(),
        rows: found.relays.iter().map(row).collect(),
        previous: (number > 1).then(|| link(query.sort, query.ascending, number - 1)),
        next: ((to as u64) < found.found).then(|| link(query.sort, query.ascending, number + 1)),
        search: wanted.search.clone(),
        state: wanted.state.clone(),
        cause: wanted.cause.clone(),
    })
}

fn link(wanted: &Wanted, sort: Sort, ascending: bool, page: usize) -> String {
    let order = if ascending { "up" } else { "down" };
    let mut link = format!("/relays?sort={}&order={order}&page={page}", sort.word());
    for (name, value) in
        [("search", &wanted.search), ("state", &wanted.state), ("cause", &wanted.cause)]
    {
        if !value.is_empty() {
            link.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    link
}

/// Percent-encoding of all but letters and digits (RFC 3986 §2.1).
fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

fn row(it: &RelayRow) -> Row {
    let state = it.last_state.map_or("", store::State::in_words);
    Row {
        fingerprint: fingerprint(it.rsa),
        nickname: it.nickname.clone(),
        capacity: rate(it.capacity),
        state: if state.is_empty() && !it.left_out.is_empty() { "left out" } else { state },
        class: it.last_state.map_or("", store::State::word),
        cause: it.last_cause.as_deref().map_or_else(|| it.left_out.clone(), cause),
        measured: time(it.last_ended_unix_s),
        first_seen: time(Some(it.first_seen_unix_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_searched_for_stays_in_links_and_cannot_leave_them() {
        let search = "a&b=\"<c>".to_owned();
        let wanted = Wanted { search, state: "failed".to_owned(), ..Wanted::default() };
        let link = link(&wanted, Sort::Nickname, true, 2);
        assert_eq!(
            link,
            "/relays?sort=nickname&order=up&page=2&search=a%26b%3D%22%3Cc%3E&state=failed"
        );
    }

    #[test]
    fn addresses_that_make_no_sense_ask_for_the_usual() {
        let odd = |text: &str| text.to_owned();
        let wanted =
            Wanted { page: odd("-3"), sort: odd("x"), order: odd("?"), ..Wanted::default() };
        let usual = query(&Wanted::default());
        assert_eq!(query(&wanted), usual);
        assert_eq!((usual.skip, usual.most), (0, ROWS));
        let last = Wanted { page: u64::MAX.to_string(), ..Wanted::default() };
        assert_eq!(query(&last).skip, 999_999 * ROWS, "no overflow");
    }
}
