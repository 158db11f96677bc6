//! The child process that inserts for a worker, tested over its protocol.

use ganger_ngsi::postgres::executor::execute;
use ganger_ngsi::postgres::protocol::{self, InsertRequest, Outcome, Reply, Request};
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::support::{TestDatabase, attribute, entity, settings, task};

fn requested(number: u32, input: String) -> InsertRequest {
    InsertRequest {
        uuid: format!("{number:032x}"),
        is_repeat: false,
        exclusive_for_ms: None,
        input: RawValue::from_string(input).expect("valid JSON"),
    }
}

fn input(entities: &str) -> String {
    String::from_utf8(task(entities).to_json()).expect("JSON is UTF-8")
}

#[tokio::test]
async fn requests_are_answered_in_order_until_the_input_ends() {
    let Some(database) = TestDatabase::plain("executor") else {
        return;
    };
    let (ours, theirs) = tokio::io::duplex(1024);
    let (their_input, their_output) = tokio::io::split(theirs);
    let executor = tokio::spawn(execute(
        settings(&database.address),
        their_input,
        their_output,
    ));
    let (our_input, mut our_output) = tokio::io::split(ours);
    let mut answers = BufReader::new(our_input).lines();
    let mut ask = async |inserts: Vec<InsertRequest>| {
        let line = protocol::to_line(&Request { inserts });
        our_output
            .write_all(&line)
            .await
            .expect("the executor reads its input");
        let line = answers
            .next_line()
            .await
            .expect("the executor writes its output");
        let reply: Reply =
            protocol::from_line(line.expect("the output continues").as_bytes()).expect("an answer");
        reply.outcomes
    };

    let good = input(&entity("e1", &attribute("x", "Integer", "1")));
    let outcomes = ask(vec![
        requested(1, good.clone()),
        requested(2, "[\"no\",\n\"task\"]".to_owned()),
        requested(3, input("")),
    ])
    .await;
    assert_eq!(outcomes[0], Outcome::Inserted { rows: 1 });
    assert!(matches!(
        outcomes[1],
        Outcome::Failed {
            is_retryable: false,
            ..
        }
    ));
    assert_eq!(outcomes[2], Outcome::Inserted { rows: 0 });

    // The same task again, which another worker may have by now.
    let mut again = requested(1, good);
    again.exclusive_for_ms = Some(0);
    assert_eq!(ask(vec![again]).await, [Outcome::Inserted { rows: 1 }]);
    assert_eq!(database.sql("select count(*) from mtx.ett"), "1");

    our_output
        .shutdown()
        .await
        .expect("the pipe should be open");
    drop(our_output);
    drop(answers);
    executor
        .await
        .expect("the task should not panic")
        .expect("the input ended");
}

#[tokio::test]
async fn an_invalid_line_ends_the_executor() {
    let settings = ganger_ngsi::postgres::Settings::from_url("postgres://nobody@localhost/none");
    let done = execute(
        settings.expect("a complete URL"),
        &b"nonsense\n"[..],
        Vec::new(),
    )
    .await;
    assert_eq!(
        done.expect_err("no request").kind(),
        std::io::ErrorKind::InvalidData
    );
}
