//! Entities that do not fit their table, and original entities that are kept.

use serde_json::{Value, json};

use crate::support::{TI, TestDatabase, attribute, entity, insert_one, new_insert, settings, task};
use ganger_ngsi::postgres::Inserter;

fn number(id: &str, value: &str) -> String {
    entity(id, &attribute("x", "Number", value))
}

fn text(id: &str, value: &str) -> String {
    entity(id, &attribute("x", "Text", value))
}

/// Returns the original entities in `"mtx"."ett"`, in the order of their rows.
fn originals(database: &TestDatabase) -> Vec<Value> {
    let rows = database.sql(
        "select __original_ngsi_entity__ from mtx.ett where __original_ngsi_entity__ is not null order by ctid",
    );
    let read = |row| serde_json::from_str(row).expect("valid JSON");
    rows.lines().map(read).collect()
}

#[tokio::test]
async fn a_string_that_is_no_number_is_saved_as_json() {
    let Some(database) = TestDatabase::plain("example_25") else {
        return;
    };
    database.insert(&number("e1", "1")).await;
    database.insert(&text("e1", "\"5\"")).await;
    assert_eq!(database.insert(&text("e1", "\"abc\"")).await, 1);

    assert_eq!(database.rows("x"), json!([[1], [5], [null]]));
    let saved = database.sql(
        "select entity_id, entity_type, time_index > now() - interval '5 min', \
         fiware_servicepath is null, instanceid is null, timeinstant is null \
         from mtx.ett where __original_ngsi_entity__ is not null",
    );
    assert_eq!(saved, "e1|T|t|t|t|t");
    let original = &originals(&database)[0];
    assert_eq!(original["data"]["x"]["value"], "abc");
    assert_eq!(original["data"]["time_index"], "2020-01-02T03:04:05+00:00");
    let error = original["error"].as_str().expect("a string");
    assert!(
        error.starts_with("ProgrammingError({'S': 'ERROR', 'V': 'ERROR', 'C': '22P02', 'M': '"),
        "{error}"
    );
    let batch = original["failedBatchID"].as_str().expect("a string");
    assert_eq!(batch.len(), 32);
    assert!(
        batch.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "{batch}"
    );
}

#[tokio::test]
async fn values_that_the_database_cannot_parse_are_saved_as_json() {
    let Some(database) = TestDatabase::plain("example_8_27_39") else {
        return;
    };
    let huge = "1180591620717411303424";
    database
        .insert(&entity("a", &attribute("d", "DateTime", "\"2019\"")))
        .await;
    database
        .insert(&entity("b", &attribute("i", "Integer", "1")))
        .await;
    database
        .insert(&entity("c", &attribute("i", "Number", "5.5")))
        .await;
    database
        .insert(&entity("d", &attribute("i", "Number", "5")))
        .await;
    database
        .insert(&entity("e", &attribute("i", "Integer", huge)))
        .await;

    let codes = database.sql(
        "select entity_id, substring(__original_ngsi_entity__ ->> 'error' from '''C'': ''(.....)''') \
         from mtx.ett order by entity_id",
    );
    assert_eq!(codes, "a|22007\nb|\nc|22P02\nd|22P02\ne|22003");
    let exact = database.sql(
        "select __original_ngsi_entity__ #>> '{data,i,value}' from mtx.ett where entity_id = 'e'",
    );
    assert_eq!(exact, huge);
    assert_eq!(
        database.sql("select i from mtx.ett where entity_id = 'b'"),
        "1"
    );
}

#[tokio::test]
async fn a_group_is_saved_as_json_if_one_entity_does_not_fit_but_other_types_are_inserted() {
    let Some(database) = TestDatabase::plain("example_31") else {
        return;
    };
    database.insert(&number("first", "1")).await;
    let other = format!(r#"{{"id": "other", "type": "U", {TI}}}"#);
    let new = entity(
        "good",
        &format!(
            "{}, {}",
            attribute("x", "Number", "2"),
            attribute("new", "Text", "\"n\"")
        ),
    );
    let batch = format!("{new}, {other}, {}", text("bad", "\"bad\""));
    assert_eq!(database.insert(&batch).await, 3);

    assert_eq!(
        database.rows("entity_id, x, new"),
        json!([
            ["first", 1, null],
            ["good", null, null],
            ["bad", null, null]
        ])
    );
    let originals = originals(&database);
    assert_eq!(originals.len(), 2);
    assert_eq!(originals[0]["failedBatchID"], originals[1]["failedBatchID"]);
    assert_eq!(database.sql("select entity_id from mtx.etu"), "other");
}

#[tokio::test]
async fn a_task_that_does_not_fit_does_not_affect_others_in_its_batch() {
    let Some(database) = TestDatabase::plain("neighbours") else {
        return;
    };
    let mut inserter = database.inserter();
    let tasks = [
        new_insert(task(&number("a", "1"))),
        new_insert(task(&entity(
            "b",
            &attribute("g", "geo:point", "\"nowhere\""),
        ))),
        new_insert(task(&text("c", "\"abc\""))),
        new_insert(task(&text("d", "\"a\\u0000b\""))),
        new_insert(task(&number("e", "2"))),
    ];
    let outcomes = inserter.insert(&tasks).await;

    let is_done: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(is_done, [true, false, true, false, true]);
    assert!(
        !outcomes[1]
            .as_ref()
            .expect_err("an invalid geometry")
            .is_retryable
    );
    assert!(!outcomes[3].as_ref().expect_err("NUL").is_retryable);
    assert_eq!(
        database.rows("entity_id, x, __original_ngsi_entity__ is null"),
        json!([["a", 1, true], ["c", null, false], ["e", 2, true]])
    );
}

#[tokio::test]
async fn nul_in_a_string_fails_the_task_permanently() {
    let Some(database) = TestDatabase::plain("nul") else {
        return;
    };
    for attributes in [
        attribute("x", "Text", "\"a\\u0000b\""),
        attribute("y", "StructuredValue", "{\"a\": \"\\u0000\"}"),
        attribute("z", "\\u0000", "1"),
        attribute("\\u0000", "Text", "\"a\""),
    ] {
        let outcome = database.try_insert(&entity("e1", &attributes)).await;
        let error = outcome.expect_err(&attributes);
        assert!(!error.is_retryable, "{error}");
    }
    assert_eq!(database.rows("entity_id"), json!([]));
}

#[tokio::test]
async fn entities_whose_columns_cannot_be_created_are_saved_as_json() {
    let Some(database) = TestDatabase::plain("unmakeable_columns") else {
        return;
    };
    // The name of a system column, in a new table and in an existing one.
    assert_eq!(
        database
            .insert(&entity("a", &attribute("ctid", "Number", "1")))
            .await,
        1
    );
    assert_eq!(
        database
            .insert(&entity("b", &attribute("xmin", "Number", "1")))
            .await,
        1
    );
    let originals = originals(&database);
    assert_eq!(originals.len(), 2);
    for original in originals {
        let error = original["error"].as_str().expect("a string");
        assert!(error.contains("'C': '42701'"), "{error}");
    }
}

#[tokio::test]
async fn original_entities_are_kept_if_configured() {
    let Some(database) = TestDatabase::plain("keep_raw") else {
        return;
    };
    let mut settings = settings(&database.address);
    settings.keep_raw = true;
    let mut inserter = Inserter::new(settings);
    let came = task(&number("e1", "1"));
    insert_one(&mut inserter, new_insert(came.clone()))
        .await
        .expect("the task should be inserted");
    assert_eq!(originals(&database), [json!({ "data": came.payload[0] })]);
    assert_eq!(database.rows("x, instanceid is null"), json!([[1, false]]));
}
