//! Tables of relays.

use crate::error::StoreError;
use crate::open::Reader;
use crate::read::{State, maybe_time, mode, rate, rsa, state, time};
use crate::write::int;
use coordinator::{Mode, PastEstimate};
use onion::Rate;
use onion::identity::RsaId;
use rusqlite::{Row, params};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// The data about a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayRow {
    /// Its identity.
    pub rsa: RsaId,
    /// Its nickname.
    pub nickname: String,
    /// Its last address, with the port.
    pub address: String,
    /// When it was seen first.
    pub first_seen_unix_s: u64,
    /// When it was seen last.
    pub last_seen_unix_s: u64,
    /// The reason why it is not measured; empty if it is.
    pub left_out: String,
    /// Its last estimate.
    pub capacity: Option<Rate>,
    /// The time of that estimate.
    pub estimated_unix_s: Option<u64>,
    /// How the relay was loaded for it.
    pub mode: Option<Mode>,
    /// Whether it has both bounds.
    pub is_conclusive: Option<bool>,
    /// The state of its last measurement.
    pub last_state: Option<State>,
    /// The end of that measurement.
    pub last_ended_unix_s: Option<u64>,
    /// The name of the reason why it was not conclusive.
    pub last_cause: Option<String>,
}

impl RelayRow {
    /// Its last estimate, for the coordinator's policy.
    #[must_use]
    pub fn estimate(&self) -> Option<PastEstimate> {
        Some(PastEstimate {
            capacity: self.capacity?,
            measured_unix_s: self.estimated_unix_s?,
            mode: self.mode,
            is_conclusive: self.is_conclusive,
            // The policy does not depend on the start of the next measurement.
            sockets: None,
        })
    }
}

/// The order of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By capacity.
    #[default]
    Capacity,
    /// By nickname.
    Nickname,
    /// By the time of the last measurement.
    Measured,
    /// By the state of the last measurement.
    State,
    /// By the time when it was seen first.
    FirstSeen,
}

impl Sort {
    /// All orders.
    pub const ALL: [Self; 5] =
        [Self::Capacity, Self::Nickname, Self::Measured, Self::State, Self::FirstSeen];

    /// The name in the query of a page's address.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Nickname => "nickname",
            Self::Measured => "measured",
            Self::State => "state",
            Self::FirstSeen => "first_seen",
        }
    }

    /// Parses that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.name() == name)
    }

    const fn column(self) -> &'static str {
        match self {
            Self::Capacity => "capacity_byte_s",
            Self::Nickname => "nickname COLLATE NOCASE",
            Self::Measured => "last_ended_unix_s",
            Self::State => "last_state",
            Self::FirstSeen => "first_seen_unix_s",
        }
    }
}

/// The filter and order of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RelayQuery {
    /// Part of the nickname, the beginning of the fingerprint (with `$` or without), or of the address; all if empty.
    pub search: String,
    /// The sort key.
    pub sort: Sort,
    /// Whether the smallest comes first.
    pub ascending: bool,
    /// Only relays whose last measurement has this state.
    pub state: Option<State>,
    /// Only those with this reason.
    pub cause: Option<String>,
    /// The number of rows to skip.
    pub skip: usize,
    /// The maximum number of rows.
    pub most: usize,
}

/// A page of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayPage {
    /// In the requested order.
    pub relays: Vec<RelayRow>,
    /// The number of all rows that match.
    pub found: u64,
}

const COLUMNS: &str =
    "rsa, nickname, address, first_seen_unix_s, last_seen_unix_s, left_out, capacity_byte_s,
     estimated_unix_s, mode, is_conclusive, last_state, last_ended_unix_s, last_cause";

const WHERE: &str = "(?1 = '' OR instr(lower(nickname), ?1) > 0 OR substr(lower(hex(rsa)), 1, length(?1)) = ?1
     OR substr(address, 1, length(?1)) = ?1) AND (?2 IS NULL OR last_state = ?2) AND (?3 IS NULL OR last_cause = ?3)";

impl Reader {
    /// The relays that match a query.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn relays(&self, query: &RelayQuery) -> Result<RelayPage, StoreError> {
        let RelayQuery { search, sort, ascending, state, cause, skip, most } = query;
        let search = search.trim().trim_start_matches('$').to_ascii_lowercase();
        let state = state.map(State::code);
        let count = format!("SELECT count(*) FROM relay WHERE {WHERE}");
        let found = self.all(&count, params![search, state, cause], |row| time(row, 0))?;
        let direction = if *ascending { "ASC" } else { "DESC" };
        // Rows without the sort key come last in either direction.
        let sql = format!(
            "SELECT {COLUMNS} FROM relay WHERE {WHERE} ORDER BY {0} IS NULL, {0} {direction}, rsa LIMIT ?4 OFFSET ?5",
            sort.column()
        );
        let values = params![search, state, cause, int(*most as u64), int(*skip as u64)];
        let relays = self.all(&sql, values, relay)?;
        Ok(RelayPage { relays, found: found.first().copied().unwrap_or_default() })
    }

    /// The data about one relay.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn relay(&self, rsa: RsaId) -> Result<Option<RelayRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM relay WHERE rsa = ?1");
        Ok(self.all(&sql, [&rsa.0[..]], relay)?.into_iter().next())
    }

    /// The names of the reasons why estimates are lower bounds, where the estimate is from the relay's last measurement.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn lower_bound_causes(&self) -> Result<BTreeMap<RsaId, String>, StoreError> {
        let sql = "SELECT rsa, last_cause FROM relay
                   WHERE is_conclusive = 0 AND last_ended_unix_s = estimated_unix_s AND last_cause IS NOT NULL";
        let causes = self.all(sql, [], |row| Ok((rsa(row, 0)?, row.get(1)?)))?;
        Ok(causes.into_iter().collect())
    }

    /// The relays with exactly this nickname.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn relays_called(&self, nickname: &str) -> Result<Vec<RelayRow>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM relay WHERE nickname = ?1 ORDER BY rsa");
        self.all(&sql, [nickname], relay)
    }

    /// When the relays at each address were last observed. Loopback, where private networks run, is left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub(crate) fn relays_by_host(&self) -> Result<BTreeMap<IpAddr, Vec<u64>>, StoreError> {
        let sql = "SELECT address, last_seen_unix_s FROM relay";
        let rows = self.all(sql, [], |row| Ok((row.get::<_, String>(0)?, time(row, 1)?)))?;
        let mut hosts: BTreeMap<IpAddr, Vec<u64>> = BTreeMap::new();
        for (address, seen_unix_s) in rows {
            if let Some(host) = shared_host(&address) {
                hosts.entry(host).or_default().push(seen_unix_s);
            }
        }
        Ok(hosts)
    }
}

/// The host of a relay's address, at which other relays share its machine.
pub(crate) fn shared_host(address: &str) -> Option<IpAddr> {
    let host = address.parse::<SocketAddr>().ok()?.ip();
    (!host.is_loopback()).then_some(host)
}

fn relay(row: &Row<'_>) -> rusqlite::Result<RelayRow> {
    Ok(RelayRow {
        rsa: rsa(row, 0)?,
        nickname: row.get(1)?,
        address: row.get(2)?,
        first_seen_unix_s: time(row, 3)?,
        last_seen_unix_s: time(row, 4)?,
        left_out: row.get(5)?,
        capacity: rate(row, 6)?,
        estimated_unix_s: maybe_time(row, 7)?,
        mode: mode(row, 8)?,
        is_conclusive: row.get(9)?,
        last_state: state(row, 10)?,
        last_ended_unix_s: maybe_time(row, 11)?,
        last_cause: row.get(12)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{NOW, Scratch, closed, failed, relay};
    use crate::{Entry, Store};
    use coordinator::Failure;

    #[test]
    fn relays_are_found_by_nickname_fingerprint_and_address_and_sorted() {
        let scratch = Scratch::new();
        let mut store = Store::open(&scratch.store).expect("new");
        for number in 1..=9u8 {
            let bytes_s = u64::from(number) * 1_000_000;
            let ended = Entry::Finished(Box::new(closed(relay(number), NOW, 1, bytes_s)));
            store.write([&ended]).expect("room");
        }
        let gone = Failure::RelayUnreachable { detail: "refused".to_owned() };
        let ended = Entry::Finished(Box::new(failed(relay(0xab), NOW, 1, gone)));
        store.write([&ended]).expect("room");
        let found = |query: RelayQuery| {
            let page = store.relays(&RelayQuery { most: 4, ..query }).expect("read");
            let names = page.relays.iter().map(|relay| relay.nickname.clone()).collect::<Vec<_>>();
            (page.found, names.join(" "))
        };
        let all = RelayQuery::default();
        assert_eq!(found(all.clone()), (10, "relay9 relay8 relay7 relay6".to_owned()));
        let slowest = RelayQuery { ascending: true, ..all.clone() };
        assert_eq!(found(slowest.clone()), (10, "relay1 relay2 relay3 relay4".to_owned()));
        let last = RelayQuery { skip: 8, ..slowest };
        assert_eq!(
            found(last),
            (10, "relay9 relay171".to_owned()),
            "relays without an estimate come last"
        );
        let search = |text: &str| found(RelayQuery { search: text.to_owned(), ..all.clone() });
        assert_eq!(search("RELAY17"), (1, "relay171".to_owned()));
        assert_eq!(search("$ABABab"), (1, "relay171".to_owned()));
        assert_eq!(search(" 0505 "), (1, "relay5".to_owned()));
        assert_eq!(search("127.0.0").0, 10);
        assert_eq!(search("%"), (0, String::new()), "no pattern");
        let called = |nickname| store.relays_called(nickname).expect("read").len();
        assert_eq!([called("relay1"), called("relay17"), called("RELAY1")], [1, 0, 0]);
        let failed = RelayQuery { state: Some(State::Failed), ..all.clone() };
        assert_eq!(found(failed), (1, "relay171".to_owned()));
        let cause = Some("relay_unreachable".to_owned());
        assert_eq!(found(RelayQuery { cause, ..all }).0, 1);
        for sort in Sort::ALL {
            assert_eq!(Sort::from_name(sort.name()), Some(sort));
            store.relays(&RelayQuery { sort, most: 3, ..RelayQuery::default() }).expect("an order");
        }
    }
}
