//! The table of relays.

use crate::app::App;
use crate::format::{cause, rate, time};
use crate::response::{ErrorResponse, page};
use askama::Template;
use axum::extract::{Query, State};
use axum::response::Html;
use serde::Deserialize;
use store::{RelayQuery, RelayRow, Sort};

/// Rows on a page.
const ROWS: usize = 100;

/// Query parameters of the page. Invalid values count as absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RelayParameters {
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

/// A sortable column heading.
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
    ("Ended", Sort::Measured, false),
    ("First seen", Sort::FirstSeen, false),
];

/// Translates the parameters to a query.
pub(crate) fn query(parameters: &RelayParameters) -> RelayQuery {
    let number = parameters.page.parse::<usize>().unwrap_or(1).clamp(1, 1_000_000);
    let sort = Sort::from_name(&parameters.sort).unwrap_or_default();
    let state = store::State::from_name(&parameters.state);
    let ascending = parameters.order == "up";
    let cause = (!parameters.cause.is_empty()).then(|| parameters.cause.clone());
    let (skip, most) = ((number - 1) * ROWS, ROWS);
    RelayQuery { search: parameters.search.clone(), sort, ascending, state, cause, skip, most }
}

pub(crate) async fn relays(
    State(shared): App,
    Query(parameters): Query<RelayParameters>,
) -> Result<Html<String>, ErrorResponse> {
    let query = query(&parameters);
    let asked = query.clone();
    let found = shared.read(move |store| store.relays(&asked)).await?;
    let number = query.skip / ROWS + 1;
    let to = query.skip + found.relays.len();
    let link = |sort: Sort, ascending: bool, page: usize| link(&parameters, sort, ascending, page);
    let column = |(name, sort, is_number): (&'static str, Sort, bool)| {
        let is_sorted = sort == query.sort;
        let sorted = match (is_sorted, query.ascending) {
            (false, _) => "none",
            (true, true) => "ascending",
            (true, false) => "descending",
        };
        // Names sort ascending first, all else descending; a second click reverses the order.
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
        search: parameters.search.clone(),
        state: parameters.state.clone(),
        cause: parameters.cause.clone(),
    })
}

fn link(parameters: &RelayParameters, sort: Sort, ascending: bool, page: usize) -> String {
    let order = if ascending { "up" } else { "down" };
    let mut link = format!("/relays?sort={}&order={order}&page={page}", sort.name());
    for (name, value) in
        [("search", &parameters.search), ("state", &parameters.state), ("cause", &parameters.cause)]
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

fn row(row: &RelayRow) -> Row {
    let state = row.last_state.map_or("", store::State::in_words);
    Row {
        fingerprint: row.rsa.to_string(),
        nickname: row.nickname.clone(),
        capacity: rate(row.capacity),
        state: if state.is_empty() && !row.left_out.is_empty() { "left out" } else { state },
        class: row.last_state.map_or("", store::State::name),
        cause: row.last_cause.as_deref().map_or_else(|| row.left_out.clone(), cause),
        measured: time(row.last_ended_unix_s),
        first_seen: time(Some(row.first_seen_unix_s)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_is_kept_in_links_and_escaped() {
        let search = "a&b=\"<c>".to_owned();
        let parameters =
            RelayParameters { search, state: "failed".to_owned(), ..RelayParameters::default() };
        let link = link(&parameters, Sort::Nickname, true, 2);
        assert_eq!(
            link,
            "/relays?sort=nickname&order=up&page=2&search=a%26b%3D%22%3Cc%3E&state=failed"
        );
    }

    #[test]
    fn invalid_parameters_count_as_absent() {
        let odd = |text: &str| text.to_owned();
        let parameters = RelayParameters {
            page: odd("-3"),
            sort: odd("x"),
            order: odd("?"),
            ..RelayParameters::default()
        };
        let usual = query(&RelayParameters::default());
        assert_eq!(query(&parameters), usual);
        assert_eq!((usual.skip, usual.most), (0, ROWS));
        let last = RelayParameters { page: u64::MAX.to_string(), ..RelayParameters::default() };
        assert_eq!(query(&last).skip, 999_999 * ROWS, "no overflow");
    }
}
