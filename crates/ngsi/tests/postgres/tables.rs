//! What is made: schemas, tables, columns, indexes, metadata, hypertables.

use crate::support::{Ground, TI, attribute, entity, insert, one, task};

/// The columns of `"mtx"."ett"` in order, with types, and whether they may be NULL.
fn columns(ground: &Ground) -> String {
    ground.sql(
        "select attname, format_type(atttypid, null), attnotnull from pg_attribute \
         where attrelid = 'mtx.ett'::regclass and attnum > 0 and not attisdropped order by attnum",
    )
}

const STANDING: &str = "\
entity_id|text|f
entity_type|text|f
time_index|timestamp with time zone|t
fiware_servicepath|text|f
__original_ngsi_entity__|jsonb|f
instanceid|text|f
timeinstant|timestamp with time zone|f";

fn indexes(ground: &Ground) -> String {
    ground.sql("select indexdef from pg_indexes where schemaname = 'mtx' order by 1")
}

const INDEX: &str =
    "CREATE INDEX \"ix_mtx.ett_eid_and_tx\" ON mtx.ett USING btree (entity_id, time_index DESC)";

#[tokio::test]
async fn a_table_has_its_columns_index_and_metadata() {
    let Some(ground) = Ground::plain("table_made") else {
        return;
    };
    ground
        .insert(&entity("e1", &attribute("X", "Integer", "1")))
        .await;

    assert_eq!(columns(&ground), format!("{STANDING}\nx|bigint|f"));
    assert_eq!(indexes(&ground), INDEX);
    assert_eq!(
        ground.sql("select table_name, entity_attrs from md_ets_metadata"),
        "\"mtx\".\"ett\"|{\"x\": [\"X\", \"Integer\"], \"entity_id\": [\"id\", \"Text\"], \
         \"time_index\": [\"time_index\", \"DateTime\"], \"entity_type\": [\"type\", \"Text\"], \
         \"timeinstant\": [\"TimeInstant\", \"DateTime\"]}"
    );
    let key = "select indexdef from pg_indexes where tablename = 'md_ets_metadata'";
    assert!(ground.sql(key).contains("UNIQUE"));
}

#[tokio::test]
async fn a_column_is_added_once_and_its_entry_stays() {
    let Some(ground) = Ground::plain("column_added") else {
        return;
    };
    let mut inserter = ground.inserter();
    for (name, kind) in [
        ("a", "Number"),
        ("Y", "Integer"),
        ("y", "Number"),
        ("y", "Text"),
    ] {
        let entity = entity("e1", &attribute(name, kind, "1.5"));
        one(&mut inserter, insert(task(&entity)))
            .await
            .expect("it is saved at least");
    }
    assert_eq!(
        columns(&ground),
        format!("{STANDING}\na|double precision|f\ny|bigint|f")
    );
    let entry = ground.sql("select entity_attrs -> 'y' from md_ets_metadata");
    assert_eq!(entry, "[\"Y\", \"Integer\"]");
}

#[tokio::test]
async fn what_is_dropped_under_a_session_is_made_again() {
    let Some(ground) = Ground::plain("dropped") else {
        return;
    };
    let mut inserter = ground.inserter();
    let entity = entity("e1", &attribute("x", "Integer", "1"));
    one(&mut inserter, insert(task(&entity)))
        .await
        .expect("it fits");
    for drop in [
        "drop table mtx.ett",
        "drop schema mtx cascade",
        "alter table mtx.ett drop column x",
        "drop table md_ets_metadata, mtx.ett",
    ] {
        ground.sql(drop);
        one(&mut inserter, insert(task(&entity))).await.expect(drop);
        assert_eq!(
            ground.sql("select x from mtx.ett order by ctid desc limit 1"),
            "1",
            "{drop}"
        );
        assert_eq!(indexes(&ground), INDEX, "{drop}");
    }
    assert_eq!(ground.sql("select count(*) from md_ets_metadata"), "1");
}

#[tokio::test]
async fn a_table_that_has_no_index_gets_it() {
    let Some(ground) = Ground::plain("no_index") else {
        return;
    };
    let entity = entity("e1", &attribute("x", "Integer", "1"));
    ground.insert(&entity).await;
    ground.sql("drop index mtx.\"ix_mtx.ett_eid_and_tx\"");
    ground.insert(&entity).await;
    assert_eq!(indexes(&ground), INDEX);
}

/// A stand-in for TimescaleDB's function, which notes what it is called with.
const STAND_IN: &str = "
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
async fn a_new_table_is_made_a_hypertable_before_its_first_row_where_that_can_be() {
    let Some(ground) = Ground::plain("hypertable") else {
        return;
    };
    ground.sql(STAND_IN);
    let mut inserter = ground.inserter();
    for number in 0..3 {
        let entity = entity("e1", &attribute(&format!("x{number}"), "Integer", "1"));
        one(&mut inserter, insert(task(&entity)))
            .await
            .expect("it fits");
    }
    assert_eq!(
        ground.sql("select * from elsewhere.calls"),
        "\"mtx\".\"ett\"|time_index|t|0"
    );
    assert_eq!(indexes(&ground), INDEX);

    let odd = format!(r#"{{"id": "e1", "type": "o'dd\" T", {TI}}}"#);
    one(&mut inserter, insert(task(&odd)))
        .await
        .expect("it fits");
    assert_eq!(
        ground.sql("select relation from elsewhere.calls where relation like '%odd%' or relation like '%dd%'"),
        "\"mtx\".\"eto'dd\"\" t\""
    );
}

#[tokio::test]
async fn postgis_is_found_outside_of_the_search_path() {
    let Some(ground) = Ground::with_postgis("gis_elsewhere") else {
        return;
    };
    ground.sql(
        "drop extension postgis; create schema gis; create extension postgis schema gis; \
         grant usage on schema gis to public",
    );
    ground
        .insert(&entity("e1", &attribute("g", "geo:point", "\"41.3, 2.1\"")))
        .await;
    assert_eq!(
        ground.sql("select gis.st_asewkt(g) from mtx.ett"),
        "SRID=4326;POINT(2.1 41.3)"
    );
}
