//! Each task is inserted exactly once, whatever happens to connections and attempts.

use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use ganger_ngsi::postgres::{Inserter, TaskInsert};

use crate::support::{TestDatabase, attribute, entity, insert_one, new_insert, settings, task};

/// What a proxy does when rows are about to be committed.
#[derive(Clone)]
enum AtCommit {
    /// Lets the commit through, but cuts the connection before its reply. Later connections work.
    Cut,
    /// Cuts in the same way, and accepts no further connection.
    CutForGood,
    /// Holds the commit back until `go_on` is notified.
    Hold {
        held: Arc<Notify>,
        go_on: Arc<Notify>,
    },
}

/// Creates an inserter whose session goes through a proxy that acts on the first commit of rows.
async fn through_proxy(database: &TestDatabase, at_commit: AtCommit) -> Inserter {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("there is a port");
    let mut settings = settings(&database.address);
    let server = settings.database.port;
    settings.database.port = listener.local_addr().expect("a bound socket").port();
    tokio::spawn(async move {
        let mut at_commit = Some(at_commit);
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", server)).await;
            let server = server.expect("the database runs");
            if relay(client, server, &mut at_commit).await {
                break;
            }
        }
    });
    Inserter::new(settings)
}

/// Forwards bytes. Returns true if no further connection may be accepted.
async fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    at_commit: &mut Option<AtCommit>,
) -> bool {
    let (mut from_client, mut from_server) = (vec![0; 65536], vec![0; 65536]);
    let mut has_copied = false;
    loop {
        tokio::select! {
            read = client.read(&mut from_client) => {
                let Ok(length @ 1..) = read else { return false };
                let bytes = &from_client[..length];
                let has = |word: &[u8]| bytes.windows(word.len()).any(|window| window == word);
                has_copied |= has(b"copy \"");
                let is_commit = has_copied && has(b"commit\0");
                match at_commit.take_if(|_| is_commit) {
                    None => server.write_all(bytes).await.expect("the database runs"),
                    Some(AtCommit::Hold { held, go_on }) => {
                        held.notify_one();
                        go_on.notified().await;
                        server.write_all(bytes).await.expect("the database runs");
                    }
                    Some(cut) => {
                        server.write_all(bytes).await.expect("the database runs");
                        // The reply shows that the commit is done.
                        let _ = server.read(&mut from_server).await;
                        return matches!(cut, AtCommit::CutForGood);
                    }
                }
            }
            read = server.read(&mut from_server) => {
                let Ok(length @ 1..) = read else { return false };
                if client.write_all(&from_server[..length]).await.is_err() {
                    return false;
                }
            }
        }
    }
}

fn fitting_insert() -> TaskInsert {
    new_insert(task(&entity("e1", &attribute("x", "Integer", "1"))))
}

/// Returns a task that does not fit the table of [`fitting_insert`].
fn unfitting_insert() -> TaskInsert {
    new_insert(task(&entity("e1", &attribute("x", "Text", "\"abc\""))))
}

fn count(database: &TestDatabase) -> String {
    database.sql("select count(*) from mtx.ett")
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_recognised_within_the_attempt() {
    let Some(database) = TestDatabase::plain("lost_answer") else {
        return;
    };
    let mut inserter = through_proxy(&database, AtCommit::Cut).await;
    let done = insert_one(&mut inserter, fitting_insert()).await;
    assert_eq!(done.map(|done| done.rows), Ok(1));
    assert_eq!(count(&database), "1");
}

#[tokio::test]
async fn a_batch_whose_answer_is_lost_is_recognised_task_by_task() {
    let Some(database) = TestDatabase::plain("lost_answer_batch") else {
        return;
    };
    let mut inserter = through_proxy(&database, AtCommit::Cut).await;
    let outcomes = inserter
        .insert(&[fitting_insert(), fitting_insert(), fitting_insert()])
        .await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(count(&database), "3");
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_for_good_is_recognised_by_the_next_attempt() {
    let Some(database) = TestDatabase::plain("lost_answer_later") else {
        return;
    };
    database
        .insert(&entity("e0", &attribute("x", "Integer", "0")))
        .await;
    for (insert, rows) in [(fitting_insert(), "2"), (unfitting_insert(), "3")] {
        let mut inserter = through_proxy(&database, AtCommit::CutForGood).await;
        let error = insert_one(&mut inserter, insert.clone())
            .await
            .expect_err("the answer is lost");
        assert!(error.is_retryable, "{error}");
        assert_eq!(count(&database), rows);

        let mut repeat = insert;
        repeat.is_repeat = true;
        let done = insert_one(&mut database.inserter(), repeat).await;
        assert_eq!(done.map(|done| done.rows), Ok(1));
        assert_eq!(count(&database), rows);
    }
}

#[tokio::test]
async fn a_repeat_of_a_missing_task_inserts_it() {
    let Some(database) = TestDatabase::plain("repeat_of_nothing") else {
        return;
    };
    for mut repeat in [fitting_insert(), unfitting_insert()] {
        repeat.is_repeat = true;
        insert_one(&mut database.inserter(), repeat)
            .await
            .expect("the task should be inserted");
    }
    assert_eq!(count(&database), "2");
}

#[tokio::test]
async fn only_the_missing_tasks_of_a_batch_are_inserted() {
    let Some(database) = TestDatabase::plain("repeat_of_some") else {
        return;
    };
    let mut inserter = database.inserter();
    let mut tasks = vec![fitting_insert(), unfitting_insert(), fitting_insert()];
    inserter.insert(&tasks[..2]).await;
    for task in &mut tasks {
        task.is_repeat = true;
    }
    let outcomes = inserter.insert(&tasks).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(count(&database), "3");
}

#[tokio::test]
async fn a_task_that_another_worker_may_have_is_looked_up() {
    let Some(database) = TestDatabase::plain("no_longer_sole") else {
        return;
    };
    let mut shared = fitting_insert();
    insert_one(&mut database.inserter(), shared.clone())
        .await
        .expect("the task should be inserted");
    shared.exclusive_until = Some(Instant::now());
    insert_one(&mut database.inserter(), shared)
        .await
        .expect("the task is found");
    assert_eq!(count(&database), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_waits_for_a_stale_attempt_that_still_runs() {
    let Some(database) = TestDatabase::plain("stale_attempt") else {
        return;
    };
    let (held, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let at_commit = AtCommit::Hold {
        held: held.clone(),
        go_on: go_on.clone(),
    };
    let mut stale = through_proxy(&database, at_commit).await;
    let first = fitting_insert();
    let mut second = first.clone();
    second.is_repeat = true;

    let stale = tokio::spawn(async move { insert_one(&mut stale, first).await });
    held.notified().await;
    let mut inserter = database.inserter();
    let next = tokio::spawn(async move { insert_one(&mut inserter, second).await });
    let waiting = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and wait_event_type = 'Lock'",
        database.address.name
    );
    while database.sql(&waiting) != "1" {
        tokio::task::yield_now().await;
    }
    go_on.notify_one();

    for attempt in [stale, next] {
        let done = attempt.await.expect("the task should not panic");
        assert_eq!(done.map(|done| done.rows), Ok(1));
    }
    assert_eq!(count(&database), "1");
}

#[tokio::test]
async fn a_time_that_the_database_cannot_parse_does_not_break_the_look_up() {
    let Some(database) = TestDatabase::plain("unreadable_time") else {
        return;
    };
    let mut repeat = fitting_insert();
    repeat.is_repeat = true;
    repeat.task.payload[0].insert("time_index".to_owned(), "nonsense".into());
    for _ in 0..2 {
        let done = insert_one(&mut database.inserter(), repeat.clone()).await;
        assert_eq!(done.map(|done| done.rows), Ok(1));
    }
    let saved = "select count(__original_ngsi_entity__) from mtx.ett";
    assert_eq!(database.sql(saved), "1");
    assert_eq!(count(&database), "1");
}
