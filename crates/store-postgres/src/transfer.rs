//! One transaction that moves all rows of a shard, into another store or out of it.

use std::time::Duration;

use tokio_postgres::types::Type;

use crate::admin::{Admin, AdminError, explain};
use crate::fault::Fault;
use crate::schema::{ADMIN, schema_of};
use crate::session::Wire;

/// Longest time for the transaction.
const TRANSFER_MAX: Duration = Duration::from_secs(24 * 3_600);

impl Admin {
    /// Runs `work` in one transaction. A refusal or a failure rolls it back; a connection that ends, or a standby that
    /// does not answer, while it is committed leaves it open whether it was done, and the error says so.
    pub(crate) fn transfer<V>(
        &mut self,
        shard: &str,
        work: impl AsyncFnOnce(&Wire) -> Result<Result<V, AdminError>, Fault>,
    ) -> Result<V, AdminError> {
        let (label, session) = self.parts();
        let label = label.to_owned();
        let begin = format!("BEGIN; SET LOCAL ROLE {ADMIN}");
        let moved = session.run_for(TRANSFER_MAX, async |wire| {
            wire.batch(&begin).await?;
            let moved = work(wire).await;
            if !matches!(moved, Ok(Ok(_))) {
                // If this fails too, the connection is gone, and the transaction with it.
                drop(wire.batch("ROLLBACK").await);
            }
            moved
        });
        let moved = moved.map_err(|fault| explain(&label, fault))??;
        session.take_warning();
        let committed = session.run_for(TRANSFER_MAX, async |wire| wire.batch("COMMIT").await);
        let doubt = match committed {
            Ok(()) => session.take_warning(),
            Err(Fault::Lost(reason)) => Some(reason),
            Err(fault) => return Err(explain(&label, fault)),
        };
        match doubt {
            None => Ok(moved),
            Some(reason) => Err(AdminError::Unknown {
                database: label,
                shard: shard.to_owned(),
                reason,
            }),
        }
    }
}

/// Returns who has a shard open, by name: a node of the cluster that showed itself in the last minute, or the owner of a
/// connection for the shard. The caller has locked the shard's fence, so that nobody can open it meanwhile.
pub(crate) async fn holder(wire: &Wire, number: i32) -> Result<Option<String>, Fault> {
    let schema = schema_of(u32::try_from(number).unwrap_or(u32::MAX));
    let sql = format!(
        "SELECT coalesce(
            (SELECT p.holder FROM ganger.place p JOIN ganger.node n ON n.id = p.holder
             WHERE p.shard = $1 AND n.at > clock_timestamp() - interval '1 minute'),
            (SELECT nullif(split_part(f.owner, ' ', 1), '') FROM {schema}.fence f
             WHERE f.what = 'log' AND EXISTS (SELECT 1 FROM pg_stat_activity
                WHERE datname = current_database() AND application_name LIKE 'ganger/' || $1 || '/%')))"
    );
    let rows = wire.query_once(&sql, &[(&number, Type::INT4)]).await?;
    Ok(rows.first().map_or(Ok(None), |row| row.try_get(0))?)
}
