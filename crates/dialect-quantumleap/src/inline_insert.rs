//! Inserts within the request, over a pool of database sessions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ganger_ngsi::postgres::{InsertError, InsertSummary, Inserter, Settings, TaskInsert};
use tokio::sync::Semaphore;

/// Maximum number of sessions; further inserts wait for one, in order of arrival.
const SESSIONS_MAX: usize = 8;
/// Longest insert, as in a worker.
const INSERT_MAX: Duration = Duration::from_secs(180);

/// Inserts within a request.
pub(crate) struct InlineInsert {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Settings,
    idle: Mutex<Vec<Inserter>>,
    permits: Arc<Semaphore>,
}

impl InlineInsert {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            shared: Arc::new(Shared {
                settings,
                idle: Mutex::default(),
                permits: Arc::new(Semaphore::new(SESSIONS_MAX)),
            }),
        }
    }

    /// Inserts a task. The insert continues if the caller stops waiting, so that its session stays usable.
    pub(crate) async fn insert(&self, insert: TaskInsert) -> Result<InsertSummary, InsertError> {
        let shared = Arc::clone(&self.shared);
        let inserted = tokio::spawn(async move { shared.insert(insert).await });
        inserted.await.unwrap_or_else(|_| {
            Err(failed(
                "the insert failed because of a defect of the server",
            ))
        })
    }
}

impl Shared {
    async fn insert(&self, insert: TaskInsert) -> Result<InsertSummary, InsertError> {
        let permit = self.permits.acquire().await;
        let idle = self.lock().pop();
        let mut session = idle.unwrap_or_else(|| Inserter::new(self.settings.clone()));
        let inserting = session.insert(std::slice::from_ref(&insert));
        // After a timeout the session is dropped, because its state is unknown.
        let Ok(mut outcomes) = tokio::time::timeout(INSERT_MAX, inserting).await else {
            return Err(failed("the insert took longer than 180 s"));
        };
        self.lock().push(session);
        drop(permit);
        outcomes
            .pop()
            .unwrap_or_else(|| Err(failed("the insert returned no outcome")))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Inserter>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(message: &str) -> InsertError {
    InsertError {
        message: message.to_owned(),
        is_retryable: false,
    }
}
