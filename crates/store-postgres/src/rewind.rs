//! Opens a shard again that was closed because its log has lost commits.

use std::sync::Arc;

use ganger_store::StoreError;
use ganger_store::rows::row::to_sql;
use tokio_postgres::types::Type;

use crate::control::{ShardEntry, ShardStatus, explain, statuses};
use crate::database::{Database, QUERY_MAX};
use crate::fence::REWOUND;
use crate::mark::epoch_after_rewind;
use crate::schema::schema_of;

/// Why a rewind was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RewindError {
    /// The shard has lost nothing, as far as is known.
    #[error("shard {shard} is not rewound, but {state}: there is nothing to accept")]
    NotRewound {
        /// Id of the shard.
        shard: String,
        /// State of the shard, such as `open`.
        state: String,
    },
    /// The log ends elsewhere than the operator has seen.
    #[error(
        "shard {shard} ends with commit {found}, not {given}: `ganger cluster status` shows it"
    )]
    OtherEnd {
        /// Id of the shard.
        shard: String,
        /// Sequence of its last commit.
        found: u64,
        /// The sequence that was given.
        given: u64,
    },
    /// The database cannot be used, or somebody else changed the shard at the same time.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens a rewound shard again; `at` is the sequence of its last commit, which the operator has seen. What nodes know of
/// later commits counts no more.
///
/// # Errors
/// If the shard is not rewound, or does not end there.
pub fn accept_rewind(
    database: &Arc<Database>,
    shard: &ShardEntry,
    at: u64,
) -> Result<(), RewindError> {
    let label = database.settings().label();
    let status = statuses(database, std::slice::from_ref(shard))?.pop();
    let missing = || StoreError::Damaged {
        path: label.clone(),
        what: format!("the fence of shard {} is missing", shard.id),
    };
    let ShardStatus {
        epoch, state, last, ..
    } = status.ok_or_else(missing)?;
    let id = shard.id.to_string();
    if state != REWOUND {
        return Err(RewindError::NotRewound { shard: id, state });
    }
    if last != at {
        return Err(RewindError::OtherEnd {
            shard: id,
            found: last,
            given: at,
        });
    }
    let sql = format!(
        "UPDATE {}.fence SET state = 'open', epoch = $2 WHERE state = '{REWOUND}' AND epoch = $1",
        schema_of(shard.number)
    );
    let (before, after) = (to_sql(epoch), to_sql(epoch_after_rewind(epoch)));
    let changed = database.with_reader(|session| {
        session.run_for(QUERY_MAX, async |wire| {
            wire.execute_once(&sql, &[(&before, Type::INT8), (&after, Type::INT8)])
                .await
        })
    });
    let changed = changed.map_err(|fault| explain(fault, &label))?;
    // The rows `log` and `rows`.
    if changed == 2 {
        return Ok(());
    }
    Err(RewindError::Store(StoreError::Io {
        path: label,
        doing: "opened again",
        reason: format!(
            "shard {} was changed at the same time: look at it again",
            shard.id
        ),
    }))
}
