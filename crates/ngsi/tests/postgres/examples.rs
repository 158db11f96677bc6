//! The worked examples of QuantumLeap's behaviour: entities in, rows out.

use serde_json::{Value, json};

use crate::support::{TI, TestDatabase, attribute, entity, insert_one, new_insert, task_from};

/// NGSI type and value of an attribute, and the SQL type and text of its column.
type Cases = &'static [(
    &'static str,
    &'static str,
    &'static str,
    Option<&'static str>,
)];

/// Examples 3 to 7, 9 to 11 and 40: NGSI type, value, type of the column, text of the value.
const VALUES: Cases = &[
    ("Number", "\"12.5\"", "double precision", Some("12.5")),
    ("Number", "\"xx\"", "double precision", None),
    ("Number", "true", "double precision", None),
    ("Number", "\"\"", "double precision", None),
    ("Number", "\" 1e3 \"", "double precision", Some("1000")),
    ("Number", "\"NaN\"", "double precision", Some("NaN")),
    ("Number", "\"-inf\"", "double precision", Some("-Infinity")),
    ("Integer", "12.9", "bigint", Some("12")),
    ("Integer", "\"12.9\"", "bigint", Some("12")),
    ("Integer", "true", "bigint", None),
    ("Boolean", "\"TRUE\"", "boolean", Some("true")),
    ("Boolean", "1", "boolean", Some("true")),
    ("Boolean", "0", "boolean", Some("false")),
    ("Boolean", "2", "boolean", None),
    ("Boolean", "\"x\"", "boolean", None),
    ("Text", "5", "text", Some("5")),
    ("Text", "true", "text", Some("True")),
    ("Text", "{\"a\": 1}", "text", Some("{'a': 1}")),
    ("Text", "\" x \"", "text", Some(" x ")),
    (
        "Text",
        "\"\\\\N\\t\\r\\n\\\\.\"",
        "text",
        Some("\\N\t\r\n\\."),
    ),
    (
        "DateTime",
        "\"2019-01-01T00:00:00+02:00\"",
        "timestamp with time zone",
        Some("2018-12-31 22:00:00+00"),
    ),
    ("DateTime", "\"nonsense\"", "timestamp with time zone", None),
    ("DateTime", "5", "timestamp with time zone", None),
    (
        "ISO8601",
        "\"2019-01-01T00:00:00\"",
        "timestamp with time zone",
        Some("2019-01-01 00:00:00+00"),
    ),
    ("StructuredValue", "[1, \"x\"]", "jsonb", Some("[1, \"x\"]")),
    ("Array", "{\"a\": 1}", "jsonb", None),
    ("Foo", "5", "bigint", Some("5")),
    ("Foo", "{\"z\": 1}", "jsonb", Some("{\"z\": 1}")),
    (
        "Foo",
        "\"2019-01-01T00:00:00Z\"",
        "timestamp with time zone",
        Some("2019-01-01 00:00:00+00"),
    ),
    ("Property", "10.5", "double precision", Some("10.5")),
    ("Property", "false", "boolean", Some("false")),
    ("Property", "[1, 2]", "jsonb", Some("[1, 2]")),
    (
        "Property",
        "{\"@type\": \"DateTime\", \"@value\": \"2019-01-01T00:00:00Z\"}",
        "timestamp with time zone",
        Some("2019-01-01 00:00:00+00"),
    ),
];

#[tokio::test]
async fn values_arrive_in_columns_of_their_types() {
    let Some(database) = TestDatabase::plain("values_of_types") else {
        return;
    };
    for (number, (ngsi_type, value, kind, text)) in VALUES.iter().enumerate() {
        let name = format!("x{number}");
        database
            .insert(&entity(&name, &attribute(&name, ngsi_type, value)))
            .await;
        let found = database.sql(&format!(
            "set timezone = 'UTC'; \
             select (select data_type from information_schema.columns \
                 where table_schema = 'mtx' and table_name = 'ett' and column_name = '{name}'), \
                 to_json({name}::text) from mtx.ett where entity_id = '{name}'"
        ));
        let (found_kind, found_text) = found.split_once('|').expect("two values");
        assert_eq!(found_kind, *kind, "{ngsi_type} {value}");
        let found_text: Option<String> =
            (!found_text.is_empty()).then(|| serde_json::from_str(found_text).expect("JSON"));
        assert_eq!(found_text.as_deref(), *text, "{ngsi_type} {value}");
    }
}

#[tokio::test]
async fn an_entity_becomes_a_row() {
    let Some(database) = TestDatabase::plain("example_1_2") else {
        return;
    };
    let room = format!(
        r#"{{"id": "e1", "type": "Room", {TI}, "temperature": {{"type": "Number", "value": 23.3}},
            "pressure": {{"type": "Integer", "value": 720}}}}"#
    );
    database.insert(&room).await;
    database.insert(&room).await;

    let rows = database.sql(
        "set timezone = 'UTC'; select entity_id, entity_type, time_index, fiware_servicepath, \
         __original_ngsi_entity__, timeinstant, temperature, pressure from mtx.etroom",
    );
    let row = "e1|Room|2020-01-02 03:04:05+00|/||2020-01-02 03:04:05+00|23.3|720";
    assert_eq!(rows, format!("{row}\n{row}"));
    let ids = database.sql("select distinct instanceid from mtx.etroom");
    assert_eq!(ids.lines().count(), 2);
    assert!(
        ids.lines().all(|id| id.starts_with("urn:ngsi-ld:")),
        "{ids}"
    );
}

#[tokio::test]
async fn untyped_attributes_have_the_type_of_their_value() {
    let Some(database) = TestDatabase::plain("example_11_12_15") else {
        return;
    };
    let attributes = r#""x": {"value": 23.3}, "y": {"value": "abc"}, "z": {"value": 0},
        "n": {"type": "Number"}, "k": "str""#;
    database.insert(&entity("e1", attributes)).await;
    assert_eq!(database.rows("x, y, n"), json!([[23.3, "abc", null]]));
    let columns = database.sql(
        "select string_agg(attname, ',' order by attnum) from pg_attribute \
         where attrelid = 'mtx.ett'::regclass and attnum > 6",
    );
    assert_eq!(columns, "timeinstant,x,y,n");
}

#[tokio::test]
async fn entities_without_any_value_create_no_table() {
    let Some(database) = TestDatabase::plain("example_13_14") else {
        return;
    };
    let alone = |value| {
        format!(r#"{{"id": "e1", "type": "T", "x": {{"type": "Number", "value": {value}}}}}"#)
    };
    assert_eq!(database.insert(&alone("null")).await, 0);
    assert_eq!(database.insert(&alone("0.0")).await, 0);
    assert_eq!(database.sql("select to_regclass('mtx.ett') is null"), "t");
    assert_eq!(database.insert(&alone("0")).await, 1);
    assert_eq!(database.rows("x"), json!([[0]]));
}

#[tokio::test]
async fn geometries_are_stored_as_such_with_postgis() {
    let Some(database) = TestDatabase::with_postgis("example_17_to_19") else {
        return;
    };
    places(
        &database,
        "st_asewkt(g)",
        "st_asewkt(location)",
        "st_asewkt(location_centroid)",
        "geometry",
    )
    .await;
}

#[tokio::test]
async fn geometries_are_stored_as_text_without_postgis() {
    let Some(database) = TestDatabase::plain("example_17_to_19_plain") else {
        return;
    };
    places(&database, "g", "location", "location_centroid", "text").await;
}

/// Examples 17 to 20, and the line and polygon of section 7.6.
async fn places(database: &TestDatabase, g: &str, location: &str, centroid: &str, kind: &str) {
    database
        .insert(&entity("e1", &attribute("g", "geo:point", "\"41.3, 2.1\"")))
        .await;
    database
        .insert(&entity(
            "e2",
            &attribute("g", "geo:line", "[\"1,2\", \"3,4\"]"),
        ))
        .await;
    let box_ = attribute("location", "geo:box", "[\"1,2\", \"3,4\"]");
    database
        .insert(&entity(
            "e3",
            &format!("{box_}, {}", attribute("x", "Number", "1")),
        ))
        .await;
    assert_eq!(
        database.rows(&format!("{g}, {location}, {centroid}")),
        json!([
            ["SRID=4326;POINT(2.1 41.3)", null, null],
            ["SRID=4326;LINESTRING(2 1,4 3)", null, null],
            [
                null,
                "SRID=4326;POLYGON((4 3,2 3,2 1,4 1,4 3))",
                "SRID=4326;POINT(3 2)"
            ],
        ])
    );
    let kinds = database.sql(
        "select distinct atttypid::regtype from pg_attribute where attrelid = 'mtx.ett'::regclass \
         and attname in ('g', 'location', 'location_centroid')",
    );
    assert_eq!(kinds, kind);

    let error = database
        .try_insert(&entity("e4", &attribute("g", "geo:point", "\"nowhere\"")))
        .await
        .expect_err("an invalid geometry");
    assert_eq!(
        error.message,
        "AttributeError(\"'NoneType' object has no attribute '_points'\")"
    );
    assert!(!error.is_retryable);
    assert_eq!(database.sql("select count(*) from mtx.ett"), "3");
}

#[tokio::test]
async fn a_location_that_is_no_geometry_stays_text() {
    let Some(database) = TestDatabase::with_postgis("example_19") else {
        return;
    };
    let location = attribute("location", "Text", "\"home\"");
    let centroid = attribute("location_centroid", "Text", "\"q\"");
    database
        .insert(&entity("e1", &format!("{location}, {centroid}")))
        .await;
    assert_eq!(database.rows("location"), json!([["home"]]));
    let columns = database.sql(
        "select count(*) from information_schema.columns where column_name = 'location_centroid'",
    );
    assert_eq!(columns, "0");
}

#[tokio::test]
async fn the_time_index_comes_from_the_attribute_that_the_header_names() {
    let Some(database) = TestDatabase::plain("example_21_22_23") else {
        return;
    };
    let mut inserter = database.inserter();
    let ts = entity("e1", &attribute("ts", "Text", "\"2001-01-01T00:00:00Z\""));
    let task = task_from(Some("x"), None, Some("ts"), &ts);
    insert_one(&mut inserter, new_insert(task))
        .await
        .expect("the task should be inserted");
    let modified = |name: &str, date: &str| {
        format!(
            r#""{name}": {{"type": "Number", "value": 1, "metadata":
                {{"dateModified": {{"type": "DateTime", "value": "{date}T00:00:00Z"}}}}}}"#
        )
    };
    database
        .insert(&format!(
            r#"{{"id": "e2", "type": "T", {}, {}}}"#,
            modified("x", "2001-01-01"),
            modified("y", "2001-06-01")
        ))
        .await;
    database
        .insert(
            r#"{"id": "e3", "type": "T",
                "p": {"type": "Property", "value": 1, "observedAt": "2004-01-01T00:00:00Z"}}"#,
        )
        .await;
    assert_eq!(
        database.rows("to_char(time_index at time zone 'UTC', 'YYYY-MM-DD'), ts, x, p"),
        json!([
            ["2001-01-01", "2001-01-01T00:00:00Z", null, null],
            ["2001-06-01", null, 1, null],
            ["2004-01-01", null, null, 1],
        ])
    );
    let entry = database.sql("select entity_attrs -> 'p' from md_ets_metadata");
    assert_eq!(entry, "[\"p\", \"Integer\"]");
}

#[tokio::test]
async fn without_any_time_the_time_of_arrival_is_used() {
    let Some(database) = TestDatabase::plain("example_24") else {
        return;
    };
    database
        .insert(r#"{"id": "e1", "type": "T", "x": {"type": "Number", "value": 1}}"#)
        .await;
    let recent =
        database.sql("select time_index between now() - interval '5 min' and now() from mtx.ett");
    assert_eq!(recent, "t");
}

#[tokio::test]
async fn later_values_go_into_the_existing_column() {
    let Some(database) = TestDatabase::plain("example_26_28") else {
        return;
    };
    for (kind, value) in [
        ("Text", "\"a\""),
        ("Boolean", "true"),
        ("StructuredValue", "{\"a\": 1}"),
        ("Number", "5"),
    ] {
        database
            .insert(&entity("e1", &attribute("x", kind, value)))
            .await;
    }
    database
        .insert(&entity("e1", &attribute("y", "Text", "\"n\"")))
        .await;
    let both = format!(
        "{}, {}",
        attribute("x", "Integer", "2"),
        attribute("y", "Text", "\"m\"")
    );
    database.insert(&entity("e1", &both)).await;
    assert_eq!(
        database.rows("x, y"),
        json!([
            ["a", null],
            ["true", null],
            ["{\"a\": 1}", null],
            ["5.0", null],
            [null, "n"],
            ["2", "m"],
        ])
    );
}

#[tokio::test]
async fn the_last_entity_of_a_batch_decides_the_type_of_a_new_column() {
    let Some(database) = TestDatabase::plain("example_29") else {
        return;
    };
    let number = |of: &str| {
        format!(r#"{{"id": "a", "type": "{of}", {TI}, "x": {{"type": "Number", "value": 2}}}}"#)
    };
    let text = |of: &str| {
        format!(r#"{{"id": "b", "type": "{of}", {TI}, "x": {{"type": "Text", "value": "t"}}}}"#)
    };
    database
        .insert(&format!("{}, {}", number("U"), text("U")))
        .await;
    database
        .insert(&format!("{}, {}", text("V"), number("V")))
        .await;
    let values = |table| {
        database.sql(&format!(
            "select json_agg(x order by ctid) from mtx.{table}"
        ))
    };
    assert_eq!(values("etu"), "[\"2\", \"t\"]");
    assert_eq!(values("etv").replace(".0", ""), "[null, 2]");
}

#[tokio::test]
async fn types_have_tables_and_paths_have_rows() {
    let Some(database) = TestDatabase::plain("example_30_32_33") else {
        return;
    };
    let of = |id: &str, kind: &str| format!(r#"{{"id": "{id}", "type": "{kind}", {TI}}}"#);
    database
        .insert(&format!(
            "{}, {}, {}",
            of("1", "Ta"),
            of("2", "Tb"),
            of("3", "Ta")
        ))
        .await;
    assert_eq!(database.sql("select count(*) from mtx.etta"), "2");
    assert_eq!(database.sql("select count(*) from mtx.ettb"), "1");

    let mut inserter = database.inserter();
    let two = format!("{}, {}", of("1", "T"), of("2", "T"));
    let task = task_from(Some("x"), Some("/a, /b"), None, &two);
    insert_one(&mut inserter, new_insert(task))
        .await
        .expect("as many as paths");
    assert_eq!(
        database.rows("entity_id, fiware_servicepath"),
        json!([["1", "/a"], ["2", "/b"]])
    );

    let three = format!("{}, {}, {}", of("1", "Z"), of("2", "Z"), of("3", "Z"));
    let task = task_from(Some("x"), Some("/a,/b"), None, &three);
    let error = insert_one(&mut inserter, new_insert(task))
        .await
        .expect_err("not as many");
    assert!(error.message.starts_with("InvalidHeaderValue("), "{error}");
    assert!(!error.is_retryable);
    assert_eq!(database.sql("select to_regclass('mtx.etz') is null"), "t");
}

#[tokio::test]
async fn names_only_lose_their_case() {
    let Some(database) = TestDatabase::plain("example_34_to_38") else {
        return;
    };
    database
        .insert(&entity("e1", &attribute("Temp", "Number", "1")))
        .await;
    database
        .insert(&entity("e1", &attribute("TEMP", "Number", "2")))
        .await;
    assert_eq!(database.rows("temp"), json!([[1], [2]]));
    let entry = database.sql("select entity_attrs -> 'temp' from md_ets_metadata");
    assert_eq!(entry, "[\"Temp\", \"Number\"]");

    let names = ["a b", "a.b", "a'b", "select", "9x", "\u{e9}"];
    let attributes: Vec<_> = names
        .iter()
        .map(|name| attribute(name, "Integer", "7"))
        .collect();
    database.insert(&entity("e2", &attributes.join(", "))).await;
    for name in names {
        let value = database.sql(&format!(
            "select \"{name}\" from mtx.ett where entity_id = 'e2'"
        ));
        assert_eq!(value, "7", "{name}");
    }

    let of = |kind: &str| format!(r#"{{"id": "e1", "type": "{kind}", {TI}}}"#);
    let kind = "https://uri.fiware.org/ns/data-models#AirQualityObserved";
    database.insert(&of(kind)).await;
    let table = "\"mtx\".\"ethttps://uri.fiware.org/ns/data-models#airqualityobserved\"";
    assert_eq!(database.sql(&format!("select count(*) from {table}")), "1");

    let mut inserter = database.inserter();
    let task = task_from(None, None, None, &of("Room"));
    insert_one(&mut inserter, new_insert(task))
        .await
        .expect("the task should be inserted");
    assert_eq!(database.sql("select count(*) from public.etroom"), "1");
    let key = "select count(*) from md_ets_metadata where table_name = '\"etroom\"'";
    assert_eq!(database.sql(key), "1");

    let task = task_from(Some("AbC"), None, None, &of("Room"));
    insert_one(&mut inserter, new_insert(task))
        .await
        .expect("the task should be inserted");
    assert_eq!(database.sql("select count(*) from mtabc.etroom"), "1");
}

#[tokio::test]
async fn an_entity_of_ngsi_ld_is_stored_by_its_values() {
    let Some(database) = TestDatabase::with_postgis("example_40") else {
        return;
    };
    database
        .insert(
            r#"{"id": "urn:1", "type": "T",
                "location": {"type": "GeoProperty", "value": {"type": "Point", "coordinates": [2.1, 41.3]}},
                "s": {"type": "Property", "value": "text"},
                "i": {"type": "Property", "value": 10},
                "o": {"type": "Property", "value": {"k": 1}},
                "at": {"type": "Property", "value": {"@type": "DateTime", "@value": "2019-01-01T00:00:00Z"}},
                "by": {"type": "Relationship", "object": "urn:2"}}"#,
        )
        .await;
    let rows: Value = database.rows(
        "st_asewkt(location), st_asewkt(location_centroid), s, i, o, at at time zone 'UTC', by",
    );
    assert_eq!(
        rows,
        json!([[
            "SRID=4326;POINT(2.1 41.3)",
            "SRID=4326;POINT(2.1 41.3)",
            "text",
            10,
            {"k": 1},
            "2019-01-01T00:00:00",
            "urn:2"
        ]])
    );
}
