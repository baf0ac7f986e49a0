//! The layout of the database, and how older ones become it.

use rusqlite::{Connection, TransactionBehavior};

/// Marks the file as ours (`PRAGMA application_id`): "FFlo" in ASCII.
pub(crate) const APPLICATION: i64 = 0x4646_6c6f;

/// Each makes of the layout before it the next one. What is here once is never changed, only followed by another.
const MIGRATIONS: [&str; 3] =
    [include_str!("schema/1.sql"), include_str!("schema/2.sql"), include_str!("schema/3.sql")];

/// The layout from which on there are paths.
pub(crate) const WITH_PATHS: i64 = 3;

/// The newest layout (`PRAGMA user_version`).
pub(crate) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Which layout the file has: zero if it is new.
pub(crate) fn layout(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Whose file it is: zero if it is new.
pub(crate) fn application(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "application_id", |row| row.get(0))
}

/// Brings it to the newest layout, step by step. A process that ends meanwhile leaves it at the end of a step.
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
