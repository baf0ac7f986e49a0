//! The schema of the database, and its migrations.

use rusqlite::{Connection, TransactionBehavior};

/// Marks the file as ours (`PRAGMA application_id`): "FFlo" in ASCII.
pub(crate) const APPLICATION: i64 = 0x4646_6c6f;

/// Each script migrates from the previous version to the next. Released scripts are never changed; new ones are added.
const MIGRATIONS: [&str; 7] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
    include_str!("schema/4.sql"),
    include_str!("schema/5.sql"),
    include_str!("schema/6.sql"),
    include_str!("schema/7.sql"),
];

/// The first version with suspicions.
pub(crate) const WITH_SUSPICIONS: i64 = 2;

/// The first version with paths.
pub(crate) const WITH_PATHS: i64 = 3;
/// The first schema version with consensus weights.
pub(crate) const WITH_WEIGHTS: i64 = 4;
/// The first version with the coordinator's country.
pub(crate) const WITH_COUNTRY: i64 = 6;

/// The newest version (`PRAGMA user_version`).
pub(crate) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// The file's version: zero if it is new.
pub(crate) fn layout(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// The file's application: zero if it is new.
pub(crate) fn application(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// Migrates to the newest version, step by step. If the process ends meanwhile, the file has the version of the last
/// complete step.
pub(crate) fn migrate(db: &mut Connection) -> rusqlite::Result<()> {
    for (number, step) in (1i64..).zip(MIGRATIONS) {
        if layout(db)? >= number {
            continue;
        }
        let change = db.transaction_with_behavior(TransactionBehavior::Exclusive)?;
        change.execute_batch(step)?;
        change.pragma_update(None, "application_id", APPLICATION)?;
        change.pragma_update(None, "user_version", number)?;
        change.commit()?;
    }
    Ok(())
}

/// Makes a store as an earlier version of this program made it.
#[cfg(test)]
pub(crate) fn create(path: &std::path::Path, version: usize) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    MIGRATIONS[..version].iter().try_for_each(|step| db.execute_batch(step))?;
    db.pragma_update(None, "application_id", APPLICATION)?;
    db.pragma_update(None, "user_version", version as i64)?;
    Ok(db)
}
