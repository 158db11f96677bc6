//! The documents of enq's documentation, ganger's own forms, and errors in documents.

use ganger_client::{Dependency, Edge, Input, NewJob, Start};

use super::{Document, read};

const SINGLE: &str = r#"[{
    "task_id": {
        "shard": "1",
        "id": "mytask"
    },
    "method": "process-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "eyJ1aWQiOjEyMzR9"
        }
    ]
}]"#;

/// The tree of the documentation, with its trailing commas.
const TREE: &str = r#"[{
    "task_id": {
        "shard": "1",
        "id": "save",
    },
    "method": "save-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "{\"uid\": 1234}",
        }
    ]
}, {
    "task_id": {
        "shard": "1",
        "id": "email",
    },
    "method": "process-user-data",
    "args": [
        {
            "type": "TASKREF",
            "task_id": {
                "shard": "1",
                "id": "save",
            },
        }
    ]
}]"#;

/// The document for two shards.
const TREE_2: &str = r#"[{
    "task_id": {
        "shard": "1",
        "id": "save",
    },
    "method": "save-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "{\"uid\": 1234}",
        }
    ]
}, {
    "task_id": {
        "shard": "2",
        "id": "save",
    },
    "method": "save-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "{\"uid\": 1234}",
        }
    ]
}, {
    "task_id": {
        "shard": "1",
        "id": "email",
    },
    "method": "process-user-data",
    "args": [
        {
            "type": "TASKREF",
            "task_id": {
                "shard": "1",
                "id": "save",
            },
        },
        {
            "type": "TASKREF",
            "task_id": {
                "shard": "2",
                "id": "save",
            },
        }
    ]
}]"#;

fn good(text: &str) -> Document {
    read(text.as_bytes()).expect("the document is good")
}

fn bad(text: &str) -> String {
    read(text.as_bytes())
        .expect_err("the document is bad")
        .to_string()
}

fn result_of(place: u32) -> Input {
    Input::Result(Edge::on(Dependency::Member(place)))
}

#[test]
fn the_single_task_of_the_document_is_read() {
    let document = good(SINGLE);
    assert_eq!(document.jobs.len(), 1);
    assert_eq!(document.jobs[0].kind, "process-user-data");
    assert_eq!(
        document.jobs[0].inputs,
        [Input::Value("{\"uid\":1234}".into())]
    );
    assert_eq!(document.names, [Some("1/mytask".to_owned())]);
    assert_eq!(document.jobs[0].shard.as_deref(), Some("1"));
}

#[test]
fn the_tree_of_the_document_is_read_with_its_trailing_commas() {
    let document = good(TREE);
    assert_eq!(
        document.jobs[0].inputs,
        [Input::Value("{\"uid\": 1234}".into())]
    );
    assert_eq!(document.jobs[1].inputs, [result_of(0)]);
    assert_eq!(
        document.names,
        [Some("1/save".to_owned()), Some("1/email".to_owned())]
    );
}

#[test]
fn mock_ids_of_two_shards_are_two_tasks() {
    let document = good(TREE_2);
    assert_eq!(document.jobs[2].inputs, [result_of(0), result_of(1)]);
    let shards = document.jobs.iter().map(|job| job.shard.as_deref());
    let shards: Vec<_> = shards.collect();
    assert_eq!(shards, [Some("1"), Some("2"), Some("1")]);
}

#[test]
fn literal_values_comments_and_all_fields_are_read() {
    let document = good(
        r#"[ // one task
        {"task_id": {"shard": "1", "id": "a"}, "method": "m", "max_retries": 7,
         "deadline": "2030-01-31T09:30:00Z", /* a literal: */
         "args": [{"type": "VALUE", "value": {"n": 1.50}}, {"type": "VALUE", "value": null},
                  {"type": "TASKREF", "task_id": {"shard": "1", "id": "01final"}}]}]"#,
    );
    let job = &document.jobs[0];
    assert_eq!(job.retry.as_ref().map(|retry| retry.retries_max), Some(7));
    assert!(job.deadline.is_some());
    assert_eq!(
        job.inputs[0],
        Input::Value("{\"n\": 1.50}".into()),
        "numbers keep their text"
    );
    assert_eq!(job.inputs[1], Input::Value("null".into()));
    let known = Dependency::Job("1/01final".to_owned());
    assert_eq!(
        job.inputs[2],
        Input::Result(Edge::on(known)),
        "an id that no member has is a final id"
    );
}

#[test]
fn a_graph_in_gangers_form_refers_by_name() {
    let document = good(
        r#"{"jobs": [{"name": "a", "kind": "x", "payload": [1, 2], "delay": "1s"},
                     {"name": "b", "kind": "y", "inputs": [{"result_of": "a"}, {"value": 3}],
                      "after": [{"name": "a"}], "tags": ["t"], "labels": {"k": "v"}}],
            "idempotency_key": "once"}"#,
    );
    assert_eq!(document.idempotency_key.as_deref(), Some("once"));
    assert_eq!(&document.jobs[0].payload[..], b"[1, 2]");
    assert_eq!(
        document.jobs[0].start,
        Start::After(std::time::Duration::from_secs(1))
    );
    assert_eq!(
        document.jobs[1].inputs,
        [result_of(0), Input::Value("3".into())]
    );
    assert_eq!(document.jobs[1].after, [Edge::on(Dependency::Member(0))]);
    assert_eq!(document.jobs[1].labels, [("k".to_owned(), "v".to_owned())]);
}

#[test]
fn short_forms_mean_the_same_as_long_forms() {
    let document = good(
        r#"{"jobs": [{"name": "a", "kind": "x", "unique": "k"},
                     {"kind": "y", "after": ["a", "1/old", {"name": "a", "policy": "wait"}]}]}"#,
    );
    let unique = document.jobs[0].unique.as_ref().expect("a key");
    assert_eq!((&*unique.key, unique.window), ("k", None));
    let after = &document.jobs[1].after;
    assert_eq!(after[0], Edge::on(Dependency::Member(0)));
    assert_eq!(after[1], Edge::on(Dependency::Job("1/old".to_owned())));
    assert_eq!(after[2].policy, ganger_client::FailurePolicy::Wait);
}

#[test]
fn errors_use_the_terms_of_json_and_name_no_rust_type() {
    let values = [
        "7",
        "-1",
        "1.5",
        "\"x\"",
        "null",
        "true",
        "[]",
        "[7]",
        "[[]]",
        "{}",
        r#"{"x": 1}"#,
    ];
    let fields = [
        "name",
        "id",
        "shard",
        "queue",
        "payload_base64",
        "inputs",
        "after",
        "priority",
        "delay",
        "run_at",
        "deadline",
        "timeout",
        "retry",
        "tags",
        "labels",
        "tracked",
        "unique",
        "keep_succeeded",
        "keep_failed",
    ];
    let mut refused = 0;
    for field in fields {
        for value in values {
            for value in [
                value.to_owned(),
                format!("[{{\"policy\": {value}}}]"),
                format!("{{\"max\": {value}}}"),
            ] {
                let text = format!(r#"{{"kind": "k", "{field}": {value}}}"#);
                let Err(problem) = read(text.as_bytes()) else {
                    continue;
                };
                refused += 1;
                let message = problem.to_string();
                for word in [
                    "struct", "enum", "variant", "sequence", "i64", "u32", "u64", "f64", "In ",
                    "unit",
                ] {
                    assert!(!message.contains(word), "{text}: {message}");
                }
            }
        }
    }
    assert!(refused > 300, "only {refused} refusals");
}

#[test]
fn an_array_of_jobs_is_a_graph_too() {
    let document = good(r#"[{"kind": "x", "name": "a"}, {"kind": "y", "after": [{"name": "a"}]}]"#);
    assert_eq!(document.jobs[1].after, [Edge::on(Dependency::Member(0))]);
    assert!(!document.is_single);
}

#[test]
fn one_object_is_one_job_or_one_task() {
    let document = good(r#"{"kind": "resize", "payload": {"w": 1}}"#);
    assert!(document.is_single);
    let wanted = NewJob::new("resize").payload("{\"w\": 1}");
    assert_eq!(document.jobs, [wanted]);
    let task = good(r#"{"task_id": {"shard": "1", "id": "a"}, "method": "m"}"#);
    assert_eq!(task.jobs[0].kind, "m");
}

#[test]
fn errors_name_line_column_and_field() {
    for (text, wanted) in [
        ("", "there is nothing to submit"),
        ("// nothing\n", "there is nothing to submit"),
        ("hello", "line 1, column 1: a submission begins with"),
        ("[]", "the submission is empty"),
        (r#"{"jobs": []}"#, "the submission is empty"),
        (
            "[{\n  \"task_id\" }]",
            "line 2, column 13: this is not valid JSON",
        ),
        (
            "[{\"method\": \"m\"",
            "line 1, column 15: the JSON ends too early",
        ),
        (
            "{\"kind\":\"a\"}\n{\"kind\":\"b\"}",
            "line 2, column 1: there is more after the end",
        ),
        (
            "[{\"task_id\": {\"shard\": \"1\", \"id\": \"a\"}, \"method\": \"m\"},\n {\"task_id\": {\"shard\": \"1\", \"id\": \"b\"}}]",
            "line 2, column 39: /1: missing field `method`",
        ),
        (
            r#"[{"task_id": {"shard": "1", "id": "a"}, "method": "m", "retries": 3}]"#,
            "/0/retries: unknown field `retries`",
        ),
        (
            r#"[{"task_id": {"shard": "1", "id": "a"}, "method": "m", "args": [{"type": "VALUE", "value_json": "{x"}]}]"#,
            "line 1, column 97: task 0 (1/a), argument 0: value_json is neither JSON nor base64",
        ),
        (
            r#"[{"task_id": {"shard": "1", "id": "a"}, "method": "m", "args": [{"type": "TASKREF", "value": 1}]}]"#,
            "task 0 (1/a), argument 0: a TASKREF has a task_id",
        ),
        (
            r#"[{"task_id": {"shard": "1", "id": "a"}, "method": "m"}, {"task_id": {"shard": "1", "id": "a"}, "method": "m"}]"#,
            "task 1 has the same task_id as task 0, 1/a",
        ),
        (
            r#"{"jobs": [{"kind": "x", "inputs": [{"result_of": "nobody"}]}]}"#,
            "line 1, column 50: /jobs/0/inputs/0: no job of this submission is named \"nobody\"",
        ),
        (
            r#"{"jobs": [{"kind": "x", "name": "a"}, {"kind": "x", "name": "a"}]}"#,
            "/jobs/1/name: job 0 is named \"a\" already",
        ),
        (
            r#"{"kind": "x", "delay": "soon"}"#,
            "\"soon\" is not a duration",
        ),
        (
            r#"{"kind": "x", "payload": 1, "payload_base64": "eA=="}"#,
            "are both given",
        ),
        (
            r#"{"kind": "x", "colour": "red"}"#,
            "unknown field `colour`",
        ),
        (r#"{"payload": 1}"#, "missing field `kind`"),
        (
            r#"{"jobs": [{"kind": "x"}], "more": 1}"#,
            "unknown field `more`",
        ),
    ] {
        let message = bad(text);
        assert!(
            message.contains(wanted),
            "{text}\n  gives {message}\n  wanted {wanted}"
        );
    }
}

#[test]
fn a_deep_document_is_refused_and_does_not_overflow() {
    for text in [
        "[".repeat(200_000),
        format!(
            r#"{{"kind": "x", "payload": {}1{}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        ),
    ] {
        let message = bad(&text);
        assert!(
            message.contains("nested more than 128 levels deep"),
            "{}",
            &message[..80]
        );
    }
    let in_a_string = format!(r#"{{"kind": "x", "payload": "{}"}}"#, "[".repeat(200));
    assert_eq!(good(&in_a_string).jobs.len(), 1);
}
