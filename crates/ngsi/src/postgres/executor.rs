//! The child process of a worker: inserts the requested tasks until its input ends. A task that crashes it does not
//! crash the worker.

use std::io;
use std::time::{Duration, Instant};

use crate::task::Task;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::postgres::protocol::{self, InsertRequest, Outcome, Reply, Request};
use crate::postgres::{InsertError, InsertSummary, Inserter, Settings, TaskInsert};

/// Handles requests one after the other, over one database session.
///
/// # Errors
/// If input or output fails, or a line of the input is not a request.
pub async fn execute(
    settings: Settings,
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut inserter = Inserter::new(settings);
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).await? > 0 {
        let request: Request = protocol::from_line(&line)?;
        line.clear();
        let reply = reply_to(&mut inserter, request).await;
        output.write_all(&protocol::to_line(&reply)).await?;
        output.flush().await?;
    }
    Ok(())
}

async fn reply_to(inserter: &mut Inserter, request: Request) -> Reply {
    let received_at = Instant::now();
    let inserts: Vec<Result<TaskInsert, InsertError>> = request
        .inserts
        .into_iter()
        .map(|requested| insert(requested, received_at))
        .collect();
    let readable: Vec<TaskInsert> = inserts.iter().flatten().cloned().collect();
    let mut outcomes = inserter.insert(&readable).await.into_iter();
    let outcomes = inserts
        .into_iter()
        .map(|insert| match insert {
            Ok(_) => outcomes.next().expect("each task has an outcome"),
            Err(error) => Err(error),
        })
        .map(outcome)
        .collect();
    Reply { outcomes }
}

fn insert(requested: InsertRequest, received_at: Instant) -> Result<TaskInsert, InsertError> {
    let task = Task::from_json(requested.input.get().as_bytes()).map_err(|error| InsertError {
        message: error.to_string(),
        is_retryable: false,
    })?;
    let exclusive_for = requested.exclusive_for_ms.map(Duration::from_millis);
    Ok(TaskInsert {
        task,
        uuid: requested.uuid,
        is_repeat: requested.is_repeat,
        // A time beyond the clock's range is never reached.
        exclusive_until: exclusive_for
            .and_then(|exclusive_for| received_at.checked_add(exclusive_for)),
    })
}

fn outcome(outcome: Result<InsertSummary, InsertError>) -> Outcome {
    match outcome {
        Ok(InsertSummary { rows }) => Outcome::Inserted { rows },
        Err(error) => Outcome::Failed {
            error: error.message,
            is_retryable: error.is_retryable,
        },
    }
}
