//! Generated queries have the same result on any number of threads, and in SQLite.

use archive::dataset::Dataset;
use archive::engine::{Engine, Limits, RecordBatch, View};
use archive::printed;
use archive::synth::{SynthOptions, synthesize};
use proptest::prelude::RngExt as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use std::sync::atomic::AtomicBool;

/// Tables of the dataset, with the columns that queries use: a relay, a time, a number, and the month.
const TABLES: [(&str, [&str; 4]); 3] = [
    ("statuses", ["relay", "valid_after_unix_s", "weight_kb_per_s", "month"]),
    ("descriptors", ["relay", "published_unix_s", "advertised_byte_per_s", "month"]),
    ("relay_hours", ["relay", "valid_after_unix_s", "capacity_week_byte_per_s", "weight_kb_per_s"]),
];

const QUERIES: usize = 100;

fn lines(batches: &[RecordBatch]) -> Vec<String> {
    printed::csv(batches).unwrap().lines().skip(1).map(str::to_owned).collect()
}

fn in_sqlite(sqlite: &Connection, sql: &str) -> Vec<String> {
    let mut statement = sqlite.prepare(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut lines = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let value = |column: usize| match row.get_ref(column).unwrap() {
            ValueRef::Null => String::new(),
            ValueRef::Integer(number) => number.to_string(),
            ValueRef::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            other => panic!("{other:?} in {sql}"),
        };
        lines.push((0..columns).map(value).collect::<Vec<_>>().join(","));
    }
    lines
}

/// Makes queries over relations of columns *k* (a relay), *t* and *v* (integers). Each limit follows a total order, up to equal rows.
struct Generator(TestRng);

impl Generator {
    fn below(&mut self, most: u32) -> u32 {
        self.0.random_range(0..most)
    }

    fn table(&mut self) -> String {
        let (table, [k, t, v, other]) = TABLES[self.below(3) as usize];
        let filter = match self.below(6) {
            0 => String::new(),
            1 => format!(" WHERE {v} % {} < 2", self.below(7) + 2),
            2 => format!(" WHERE {k} < '{:X}'", self.below(16)),
            3 => format!(" WHERE {t} > {}", 1_577_836_800 + self.below(4_000_000)),
            4 => format!(" WHERE {other} IS NOT NULL AND {v} IS NOT NULL"),
            _ => format!(" WHERE {k} IN (SELECT relay FROM statuses WHERE is_guard = (1 = 1))"),
        };
        format!("SELECT {k} AS k, {t} AS t, {v} AS v FROM {table}{filter}")
    }

    fn relation(&mut self, depth: u32) -> String {
        if depth == 0 {
            return self.table();
        }
        let inner = self.relation(depth - 1);
        match self.below(8) {
            0 | 1 => {
                let key =
                    ["k, t, v", "t DESC, k, v", "v DESC NULLS LAST, k, t"][self.below(3) as usize];
                format!("SELECT * FROM ({inner}) ORDER BY {key} LIMIT {}", self.below(3000) + 1)
            }
            2 => format!(
                "SELECT * FROM ({inner}) UNION ALL SELECT * FROM ({}) UNION ALL SELECT * FROM ({inner})",
                self.relation(depth - 1)
            ),
            3 => format!("SELECT DISTINCT k, t / 86400 AS t, v % 5 AS v FROM ({inner})"),
            4 => format!(
                "SELECT k, MIN(t) AS t, SUM(v) AS v FROM ({inner}) GROUP BY k HAVING COUNT(*) > {}",
                self.below(3)
            ),
            5 => format!(
                "SELECT a.k, a.t, b.v FROM ({inner}) a {} JOIN (SELECT k, COUNT(*) AS v FROM ({}) GROUP BY k) b ON a.k = b.k",
                ["", "LEFT"][self.below(2) as usize],
                self.relation(depth - 1)
            ),
            6 => format!(
                "SELECT k, t, ROW_NUMBER() OVER (PARTITION BY k ORDER BY t, v NULLS LAST) AS v FROM ({inner})"
            ),
            _ => format!("SELECT k, MAX(t) AS t, COUNT(DISTINCT v) AS v FROM ({inner}) GROUP BY k"),
        }
    }

    fn query(&mut self) -> String {
        let depth = self.below(4);
        let inner = self.relation(depth);
        let (columns, key) = match self.below(4) {
            0 => ("DISTINCT k", "k"),
            1 => ("DISTINCT t", "t DESC"),
            2 => ("substr(k, 1, 2) AS a, t, v", "t, a, v NULLS LAST"),
            _ => ("k, t, v", "k, t, v NULLS LAST"),
        };
        let limit = match self.below(3) {
            0 => String::new(),
            1 => format!(" LIMIT {}", self.below(40) + 1),
            _ => format!(" LIMIT {} OFFSET {}", self.below(40) + 1, self.below(20)),
        };
        format!("SELECT {columns} FROM ({inner}) ORDER BY {key}{limit}")
    }
}

/// Queries whose results were wrong in DataFusion 55.2 (apache/datafusion#24927) or an earlier version, and their siblings.
fn known() -> Vec<String> {
    let sorted = "SELECT relay FROM statuses ORDER BY relay LIMIT 20000";
    let union = "SELECT * FROM s UNION ALL SELECT * FROM s UNION ALL SELECT * FROM s";
    let mut queries: Vec<String> = [
        "SELECT DISTINCT relay FROM t ORDER BY relay LIMIT 10",
        "SELECT relay, COUNT(*) AS n FROM t GROUP BY relay ORDER BY relay LIMIT 10",
        "SELECT relay, COUNT(*) AS n FROM t GROUP BY relay HAVING COUNT(*) > 1 ORDER BY relay LIMIT 10",
        "SELECT * FROM (SELECT DISTINCT relay FROM t ORDER BY relay LIMIT 10) ORDER BY relay LIMIT 5",
        "SELECT relay, ROW_NUMBER() OVER (ORDER BY relay) AS n FROM (SELECT DISTINCT relay FROM t) ORDER BY relay LIMIT 10",
        "SELECT relay FROM t WHERE relay > '4' ORDER BY relay LIMIT 10",
        "SELECT DISTINCT relay FROM t WHERE relay > '4' ORDER BY relay LIMIT 3 OFFSET 2",
    ]
    .iter()
    .map(|query| format!("WITH s AS ({sorted}), t AS ({union}) {query}"))
    .collect();
    queries.push(
        "WITH s(x) AS (SELECT * FROM (VALUES (0), (1), (2)) ORDER BY 1 LIMIT 3), t AS (SELECT * FROM s UNION ALL SELECT * FROM s \
         UNION ALL SELECT * FROM s) SELECT DISTINCT x FROM t ORDER BY x LIMIT 3"
            .to_owned(),
    );
    queries
}

#[test]
fn queries_have_one_result_on_any_number_of_threads_and_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let dataset = Dataset::create(folder.path()).unwrap();
    let options =
        SynthOptions { relays: 6, hours: 1500, mean_life_hours: 300.0, ..SynthOptions::default() };
    synthesize(&dataset, &options, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let engines = [1, 2, 3, 5].map(|threads| {
        let engine = Engine::open(dataset.clone(), Limits { threads, memory_mib: 256 }).unwrap();
        let periods = vec!["week".parse().unwrap()];
        engine.view(View { periods, ..View::new("synthetic") }).unwrap();
        engine
    });
    let mut sqlite = Connection::open_in_memory().unwrap();
    let transaction = sqlite.transaction().unwrap();
    for (table, columns) in TABLES {
        let is_guard = if table == "statuses" { ", CAST(is_guard AS INT) AS is_guard" } else { "" };
        let wanted = columns.join(", ");
        let rows = engines[0].query(&format!("SELECT {wanted}{is_guard} FROM {table}")).unwrap();
        let also = if is_guard.is_empty() { "" } else { ", is_guard INTEGER" };
        let [k, t, v, other] = columns;
        let kind = if other == "month" { "TEXT" } else { "INTEGER" };
        let create = format!(
            "CREATE TABLE {table} ({k} TEXT, {t} INTEGER, {v} INTEGER, {other} {kind}{also})"
        );
        transaction.execute(&create, []).unwrap();
        for line in lines(&rows) {
            let values = line.split(',').map(|value| match value {
                "" => "NULL".to_owned(),
                value => format!("'{value}'"),
            });
            let values = values.collect::<Vec<_>>().join(", ");
            transaction.execute(&format!("INSERT INTO {table} VALUES ({values})"), []).unwrap();
        }
    }
    transaction.commit().unwrap();
    let mut generator = Generator(TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]));
    let mut queries = known();
    queries.extend((0..QUERIES).map(|_| generator.query()));
    let mut with_rows = 0;
    for sql in &queries {
        let expected = in_sqlite(&sqlite, sql);
        with_rows += usize::from(!expected.is_empty());
        for (engine, threads) in engines.iter().zip([1, 2, 3, 5]) {
            let found = engine.query(sql).unwrap_or_else(|error| panic!("{error}: {sql}"));
            let found = lines(&found);
            assert!(
                found == expected,
                "{threads} threads: {} rows instead of {}: {sql}",
                found.len(),
                expected.len()
            );
        }
    }
    assert!(with_rows > queries.len() * 3 / 4, "only {with_rows} queries have a result");
}

#[test]
fn parts_of_texts_have_the_functions_that_other_databases_have() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(Dataset::create(folder.path()).unwrap(), Limits::default()).unwrap();
    let sql = "SELECT substr('2019-07', 1, 4) AS a, substring('2019-07', 6) AS b, substring('2019-07' FROM 6 FOR 2) AS c, \
               position('-' IN '2019-07') AS d, strpos('2019-07', '-') AS e, left('2019-07', 4) AS f";
    assert_eq!(lines(&engine.query(sql).unwrap()), ["2019,07,07,5,5,2019"]);
}

#[test]
fn the_largest_values_come_first_and_nulls_last() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(Dataset::create(folder.path()).unwrap(), Limits::default()).unwrap();
    let values = "SELECT x FROM (VALUES (1), (NULL), (3)) AS t(x) ORDER BY x";
    assert_eq!(lines(&engine.query(&format!("{values} DESC")).unwrap()), ["3", "1", "\"\""]);
    assert_eq!(lines(&engine.query(values).unwrap()), ["1", "3", "\"\""]);
}

#[test]
fn a_column_that_a_result_lacks_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let engine = Engine::open(Dataset::create(folder.path()).unwrap(), Limits::default()).unwrap();
    let found = engine.query("SELECT 1 AS n, 'x' AS x").unwrap();
    assert_eq!(archive::engine::integers(&found, "n").unwrap(), [1]);
    let error = archive::engine::numbers(&found, "m").unwrap_err().to_string();
    assert!(error.contains("`m`"), "{error}");
    assert!(archive::engine::numbers(&found, "x").is_err());
}
