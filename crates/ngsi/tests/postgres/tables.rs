//! Created schemas, tables, columns, indexes, metadata and hypertables.

use crate::support::{TI, TestDatabase, attribute, entity, insert_one, new_insert, task};

/// Returns the columns of `"mtx"."ett"` in order, with type and whether they are NOT NULL.
fn columns(database: &TestDatabase) -> String {
    database.sql(
        "select attname, format_type(atttypid, null), attnotnull from pg_attribute \
         where attrelid = 'mtx.ett'::regclass and attnum > 0 and not attisdropped order by attnum",
    )
}

const FIXED_COLUMNS: &str = "\
entity_id|text|f
entity_type|text|f
time_index|timestamp with time zone|t
fiware_servicepath|text|f
__original_ngsi_entity__|jsonb|f
instanceid|text|f
timeinstant|timestamp with time zone|f";

fn indexes(database: &TestDatabase) -> String {
    database.sql("select indexdef from pg_indexes where schemaname = 'mtx' order by 1")
}

const INDEX: &str =
    "CREATE INDEX \"ix_mtx.ett_eid_and_tx\" ON mtx.ett USING btree (entity_id, time_index DESC)";

#[tokio::test]
async fn a_table_has_its_columns_index_and_metadata() {
    let Some(database) = TestDatabase::plain("table_made") else {
        return;
    };
    database
        .insert(&entity("e1", &attribute("X", "Integer", "1")))
        .await;

    assert_eq!(columns(&database), format!("{FIXED_COLUMNS}\nx|bigint|f"));
    assert_eq!(indexes(&database), INDEX);
    assert_eq!(
        database.sql("select table_name, entity_attrs from md_ets_metadata"),
        "\"mtx\".\"ett\"|{\"x\": [\"X\", \"Integer\"], \"entity_id\": [\"id\", \"Text\"], \
         \"time_index\": [\"time_index\", \"DateTime\"], \"entity_type\": [\"type\", \"Text\"], \
         \"timeinstant\": [\"TimeInstant\", \"DateTime\"]}"
    );
    let key = "select indexdef from pg_indexes where tablename = 'md_ets_metadata'";
    assert!(database.sql(key).contains("UNIQUE"));
}

#[tokio::test]
async fn a_column_is_added_once_and_its_entry_stays() {
    let Some(database) = TestDatabase::plain("column_added") else {
        return;
    };
    let mut inserter = database.inserter();
    for (name, kind) in [
        ("a", "Number"),
        ("Y", "Integer"),
        ("y", "Number"),
        ("y", "Text"),
    ] {
        let entity = entity("e1", &attribute(name, kind, "1.5"));
        insert_one(&mut inserter, new_insert(task(&entity)))
            .await
            .expect("the entity should be saved");
    }
    assert_eq!(
        columns(&database),
        format!("{FIXED_COLUMNS}\na|double precision|f\ny|bigint|f")
    );
    let entry = database.sql("select entity_attrs -> 'y' from md_ets_metadata");
    assert_eq!(entry, "[\"Y\", \"Integer\"]");
}

#[tokio::test]
async fn objects_dropped_by_another_session_are_created_again() {
    let Some(database) = TestDatabase::plain("dropped") else {
        return;
    };
    let mut inserter = database.inserter();
    let entity = entity("e1", &attribute("x", "Integer", "1"));
    insert_one(&mut inserter, new_insert(task(&entity)))
        .await
        .expect("the task should be inserted");
    for drop in [
        "drop table mtx.ett",
        "drop schema mtx cascade",
        "alter table mtx.ett drop column x",
        "drop table md_ets_metadata, mtx.ett",
    ] {
        database.sql(drop);
        insert_one(&mut inserter, new_insert(task(&entity)))
            .await
            .expect(drop);
        assert_eq!(
            database.sql("select x from mtx.ett order by ctid desc limit 1"),
            "1",
            "{drop}"
        );
        assert_eq!(indexes(&database), INDEX, "{drop}");
    }
    assert_eq!(database.sql("select count(*) from md_ets_metadata"), "1");
}

#[tokio::test]
async fn a_table_without_an_index_gets_one() {
    let Some(database) = TestDatabase::plain("no_index") else {
        return;
    };
    let entity = entity("e1", &attribute("x", "Integer", "1"));
    database.insert(&entity).await;
    database.sql("drop index mtx.\"ix_mtx.ett_eid_and_tx\"");
    database.insert(&entity).await;
    assert_eq!(indexes(&database), INDEX);
}

/// A replacement for TimescaleDB's function, which records its arguments.
const FAKE_TIMESCALE: &str = "
    create schema elsewhere;
    grant usage on schema elsewhere to public;
    create table elsewhere.calls (relation text, dimension name, if_not_exists boolean, rows bigint);
    create function elsewhere.create_hypertable(
        relation text, dimension name, if_not_exists boolean default false
    ) returns void language plpgsql security definer as $$
    declare
        found bigint;
    begin
        execute 'select count(*) from ' || relation into found;
        insert into elsewhere.calls values (relation, dimension, if_not_exists, found);
    end $$;";

#[tokio::test]
async fn a_new_table_becomes_a_hypertable_before_its_first_row() {
    let Some(database) = TestDatabase::plain("hypertable") else {
        return;
    };
    database.sql(FAKE_TIMESCALE);
    let mut inserter = database.inserter();
    for number in 0..3 {
        let entity = entity("e1", &attribute(&format!("x{number}"), "Integer", "1"));
        insert_one(&mut inserter, new_insert(task(&entity)))
            .await
            .expect("the task should be inserted");
    }
    assert_eq!(
        database.sql("select * from elsewhere.calls"),
        "\"mtx\".\"ett\"|time_index|t|0"
    );
    assert_eq!(indexes(&database), INDEX);

    let odd = format!(r#"{{"id": "e1", "type": "o'dd\" T", {TI}}}"#);
    insert_one(&mut inserter, new_insert(task(&odd)))
        .await
        .expect("the task should be inserted");
    assert_eq!(
        database.sql("select relation from elsewhere.calls where relation like '%odd%' or relation like '%dd%'"),
        "\"mtx\".\"eto'dd\"\" t\""
    );
}

#[tokio::test]
async fn postgis_is_found_outside_the_search_path() {
    let Some(database) = TestDatabase::with_postgis("gis_elsewhere") else {
        return;
    };
    database.sql(
        "drop extension postgis; create schema gis; create extension postgis schema gis; \
         grant usage on schema gis to public",
    );
    database
        .insert(&entity("e1", &attribute("g", "geo:point", "\"41.3, 2.1\"")))
        .await;
    assert_eq!(
        database.sql("select gis.st_asewkt(g) from mtx.ett"),
        "SRID=4326;POINT(2.1 41.3)"
    );
}
