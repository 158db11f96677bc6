//! The child process of a worker: inserts what it is asked to, until its input ends. If a task brings it down, the
//! worker lives on.

use std::io;
use std::time::{Duration, Instant};

use crate::task::Task;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};

use crate::postgres::protocol::{self, Answer, Outcome, Request, RequestedInsert};
use crate::postgres::{Insert, InsertError, Inserted, Inserter, Settings};

/// Answers the requests that come in, one after the other, over one session with the database.
///
/// # Errors
/// If input or output fail, or a line of the input is no request.
pub async fn execute(
    settings: Settings,
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut inserter = Inserter::new(settings);
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    while input.read_until(b'\n', &mut line).await? > 0 {
        let request: Request = protocol::read(&line)?;
        line.clear();
        let answer = answer(&mut inserter, request).await;
        output.write_all(&protocol::line(&answer)).await?;
        output.flush().await?;
    }
    Ok(())
}

async fn answer(inserter: &mut Inserter, request: Request) -> Answer {
    let came_at = Instant::now();
    let inserts: Vec<Result<Insert, InsertError>> = request
        .inserts
        .into_iter()
        .map(|requested| insert(requested, came_at))
        .collect();
    let readable: Vec<Insert> = inserts.iter().flatten().cloned().collect();
    let mut outcomes = inserter.insert(&readable).await.into_iter();
    let outcomes = inserts
        .into_iter()
        .map(|insert| match insert {
            Ok(_) => outcomes.next().expect("each task has an outcome"),
            Err(error) => Err(error),
        })
        .map(outcome)
        .collect();
    Answer { outcomes }
}

fn insert(requested: RequestedInsert, came_at: Instant) -> Result<Insert, InsertError> {
    let task = Task::from_json(requested.input.get().as_bytes()).map_err(|error| InsertError {
        message: error.to_string(),
        is_curable: false,
    })?;
    let sole_for = requested.sole_for_ms.map(Duration::from_millis);
    Ok(Insert {
        task,
        uuid: requested.uuid,
        is_repeat: requested.is_repeat,
        // A moment that no clock shows never comes.
        sole_until: sole_for.and_then(|sole_for| came_at.checked_add(sole_for)),
    })
}

fn outcome(outcome: Result<Inserted, InsertError>) -> Outcome {
    match outcome {
        Ok(Inserted { rows }) => Outcome::Inserted { rows },
        Err(error) => Outcome::Failed {
            error: error.message,
            curable: error.is_curable,
        },
    }
}
