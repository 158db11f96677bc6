//! Finds out that a statement waits for a synchronous standby, while it waits.
//!
//! A commit that no standby confirms looks like a database that does not answer. Another connection can tell the two
//! apart: the server shows what each of its sessions waits for.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::poll_fn;
use ganger_store::StoreHold;
use tokio::time::{sleep, timeout};
use tokio_postgres::types::Type;

use crate::connect::open;
use crate::durability::{SERVER, identity_in};
use crate::fault::Fault;
use crate::newest::NewestServer;
use crate::session::{Parameter, drive};
use crate::settings::Settings;

/// Time after which a statement that has not ended is asked about, and the time between two questions.
const ASK_AFTER: Duration = Duration::from_secs(1);
/// Longest time for the answer.
const ASK_MAX: Duration = Duration::from_secs(3);

const QUESTION: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = $1 AND wait_event = 'SyncRep'";

/// What callers are told.
const REASON: &str = "commits wait for a synchronous standby of the database, and none confirms them: start a standby \
    that `synchronous_standby_names` names, or change that setting. The server goes on by itself";

/// Watches the statements of a session.
pub(crate) struct StandbyWait {
    pub(crate) settings: Arc<Settings>,
    /// Name of the session, as the server shows it.
    pub(crate) application: String,
    pub(crate) hold: StoreHold,
    pub(crate) newest: Arc<NewestServer>,
}

impl StandbyWait {
    /// Waits for the end of a statement, and finds out meanwhile whether a standby is what it waits for, and whether another
    /// server has taken the place of its own, on which nothing is waited for any more.
    pub(crate) async fn during<T>(
        &self,
        statement: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let server = self.newest.number();
        let mut statement = pin!(statement);
        let asking = async {
            let mut first = 0;
            loop {
                sleep(ASK_AFTER).await;
                // The session's own server is the first host as a rule, and may be the one that says nothing.
                first += 1;
                let asked = timeout(ASK_MAX, self.ask(first)).await;
                if self.newest.number() != server {
                    let reason = "another server has taken the place of the database";
                    return Fault::Lost(reason.to_owned());
                }
                if let Ok(Ok(true)) = asked
                    && self.hold.set(REASON)
                {
                    tracing::warn!(session = self.application, "{REASON}");
                }
            }
        };
        tokio::select! {
            biased;
            done = &mut statement => done,
            fault = asking => Err(fault),
        }
    }

    /// Notes that a commit has been confirmed. That another statement has ended says nothing: it did not wait for a standby.
    pub(crate) fn has_ended(&self) {
        if self.hold.clear() {
            tracing::info!(
                session = self.application,
                "a standby confirms commits again"
            );
        }
    }

    /// Asks a server that accepts writes, over another connection, whether the session waits for a standby there. With
    /// each host as the first in turn, this meets a standby that was promoted while the former primary lives on.
    async fn ask(&self, first: usize) -> Result<bool, Fault> {
        let (client, mut driver) = open(&self.settings, "ganger/why", first).await?;
        let mut warning = None;
        let end = poll_fn(|cx| match drive(&mut driver, &mut warning, cx) {
            Some(fault) => std::task::Poll::Ready(fault),
            None => std::task::Poll::Pending,
        });
        let parameters: [Parameter<'_>; 1] = [(&self.application, Type::TEXT)];
        let questions = async {
            let server = client.query_typed(SERVER, &[]).await?;
            let rows = client.query_typed(QUESTION, &parameters).await?;
            Ok::<_, Fault>((server, rows))
        };
        let (server, rows) = tokio::select! {
            biased;
            answers = questions => answers?,
            fault = end => return Err(fault),
        };
        let server = server.first().map(identity_in).transpose()?;
        if server.is_some_and(|server| self.newest.learn(server)) {
            tracing::warn!(
                session = self.application,
                "a standby of the database was promoted: it is used from now on"
            );
        }
        if server != self.newest.now() {
            // What still waits at a former primary is none of ours.
            return Ok(false);
        }
        let waiting: i64 = match rows.first() {
            Some(row) => row.try_get(0)?,
            None => 0,
        };
        Ok(waiting > 0)
    }
}
