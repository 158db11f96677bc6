//! Hostile names, long names and large values.

use crate::support::{
    TI, TestDatabase, attribute, entity, insert_one, new_insert, settings, task, task_from,
};
use ganger_ngsi::postgres::Inserter;
use serde_json::Value;

/// Encodes a string as JSON.
fn json(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[tokio::test]
async fn no_name_breaks_out_of_its_quotes() {
    let Some(database) = TestDatabase::plain("hostile_names") else {
        return;
    };
    database.sql("create table victim (); grant all on victim to public");
    let mut inserter = database.inserter();
    let names = [
        "\"; drop table public.victim; --",
        "'; drop table public.victim; --",
        "\\'; drop table public.victim; --",
        "$$; drop table public.victim; --",
        "a\nb\tc\\",
        "%s %I {} $1 ?",
    ];
    for name in names {
        let quoted = json(name);
        let entity = format!(
            r#"{{"id": {quoted}, "type": {quoted}, {TI}, {quoted}: {{"type": {quoted}, "value": {quoted}}}}}"#
        );
        let task = task_from(Some(name), Some(name), None, &entity);
        insert_one(&mut inserter, new_insert(task))
            .await
            .expect(name);

        let literal = name.replace('\'', "''").replace('\\', "\\\\");
        let identifier = name.to_lowercase().replace('"', "\"\"");
        let value = database.sql(&format!(
            "select count(*) from \"mt{identifier}\".\"et{identifier}\" \
             where \"{identifier}\" = E'{literal}' and entity_id = E'{literal}'"
        ));
        assert_eq!(value, "1", "{name}");
    }
    assert_eq!(database.sql("select count(*) from victim"), "0");
    assert_eq!(database.sql("select count(*) from md_ets_metadata"), "6");
}

#[tokio::test]
async fn names_that_are_truncated_to_the_same_share_a_table_but_not_metadata() {
    let Some(database) = TestDatabase::plain("long_names") else {
        return;
    };
    let mut inserter = database.inserter();
    let long = "\u{e9}a".repeat(66);
    for end in ["1", "2"] {
        let name = format!("{long}{end}");
        let entity = format!(
            r#"{{"id": "e1", "type": "{name}", {TI}, "{name}": {{"type": "Integer", "value": 1}}}}"#
        );
        let task = task_from(Some(&name), None, None, &entity);
        for _ in 0..2 {
            insert_one(&mut inserter, new_insert(task.clone()))
                .await
                .expect("the task should be inserted");
        }
    }
    let tables = database.sql(
        "select n.nspname, relname from pg_class c join pg_namespace n on n.oid = relnamespace \
         where relkind = 'r' and n.nspname like 'mt%'",
    );
    assert_eq!(tables.lines().count(), 1);
    let (schema, table) = tables.split_once('|').expect("two names");
    let count = database.sql(&format!("select count(*) from \"{schema}\".\"{table}\""));
    assert_eq!(count, "4");
    assert_eq!(database.sql("select count(*) from md_ets_metadata"), "2");
}

#[tokio::test]
async fn tables_whose_indexes_would_share_a_name_still_get_an_index_each() {
    let Some(database) = TestDatabase::plain("long_index_names") else {
        return;
    };
    // Truncated to 63 bytes, the names of the tables differ, but not those of their indexes.
    let long = "t".repeat(59);
    for end in ["a", "b"] {
        database
            .insert(&format!(r#"{{"id": "e1", "type": "{long}{end}", {TI}}}"#))
            .await;
    }
    let indexed =
        database.sql("select count(distinct tablename) from pg_indexes where schemaname = 'mtx'");
    assert_eq!(indexed, "2");
}

#[tokio::test]
async fn a_huge_batch_is_inserted_in_statements_of_the_configured_size() {
    let Some(database) = TestDatabase::plain("huge_batch") else {
        return;
    };
    let mut settings = settings(&database.address);
    settings.insert_bytes_max = Some(10 * 1024);
    let mut inserter = Inserter::new(settings);
    let tasks: Vec<_> = (0..1000)
        .map(|number| {
            let one = entity(
                &format!("e{number}"),
                &attribute("x", "Integer", &number.to_string()),
            );
            let two = entity("other", &attribute("y", "Text", "\"a\\tb\""));
            new_insert(task(&format!("{one}, {two}")))
        })
        .collect();
    let outcomes = inserter.insert(&tasks).await;
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome.as_ref().is_ok_and(|done| done.rows == 2))
    );
    assert_eq!(
        database.sql("select count(*), count(distinct instanceid), sum(x) from mtx.ett"),
        "2000|2000|499500"
    );
}

#[tokio::test]
async fn a_row_larger_than_the_limit_gets_a_statement_of_its_own() {
    let Some(database) = TestDatabase::plain("huge_row") else {
        return;
    };
    let mut settings = settings(&database.address);
    settings.insert_bytes_max = Some(1);
    let mut inserter = Inserter::new(settings);
    let large = json(&"\\x\n".repeat(1_000_000));
    let entities = format!(
        "{}, {}",
        entity("e1", &attribute("x", "Text", &large)),
        entity("e2", &attribute("x", "Text", "\"small\""))
    );
    insert_one(&mut inserter, new_insert(task(&entities)))
        .await
        .expect("the task should be inserted");
    assert_eq!(
        database.sql("select length(x), instanceid is not null from mtx.ett order by ctid"),
        "3000000|t\n5|t"
    );
}
