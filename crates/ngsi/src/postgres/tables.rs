//! Creates missing schemas, tables, columns, indexes and hypertables, and their metadata.
//!
//! Each object is created in a separate transaction before the rows are inserted. In the same transaction, it would lock
//! tables against readers and other inserters until the commit, and inserters that create objects in different order
//! would deadlock. If the rows are not inserted afterwards, an empty table remains, as with QuantumLeap. An advisory lock
//! serialises our own inserters. If another program creates the same object at the same time, the database reports an
//! error and the caller repeats.

use std::collections::{HashMap, HashSet};

use crate::attribute_type::ColumnType;
use crate::rows::{Column, Table, quote_identifier, truncate_identifier};
use serde_json::{Map, Value, json};

use crate::postgres::locks;
use crate::postgres::session::Session;
use crate::postgres::session_error::{SessionError, Stage};

/// Names and types of the columns of every table.
const FIXED_COLUMNS: [(&str, &str); 6] = [
    ("entity_id", "text"),
    ("entity_type", "text"),
    ("time_index", "timestamp with time zone not null"),
    ("fiware_servicepath", "text"),
    ("__original_ngsi_entity__", "jsonb"),
    ("instanceid", "text"),
];

const METADATA: &str = "md_ets_metadata";

/// Size of an existing table beyond which a missing index is not created: that would exceed the time of an attempt and
/// block all inserts meanwhile.
const INDEXED_BYTES_MAX: i64 = 1 << 30;

const CREATE_METADATA: &str = "\
create table if not exists md_ets_metadata (table_name text primary key, entity_attrs jsonb)";

/// Adds entries. Existing entries are kept.
const ADD_METADATA: &str = "\
insert into md_ets_metadata as there (table_name, entity_attrs) values ($1::text, $2::text::jsonb) \
on conflict (table_name) do update \
    set entity_attrs = excluded.entity_attrs || coalesce(there.entity_attrs, '{}') \
    where not coalesce(there.entity_attrs, '{}') \
        ?& array(select jsonb_object_keys(excluded.entity_attrs))";

/// The columns of a table; no rows if the table does not exist.
const COLUMNS: &str = "\
select attname::text from pg_attribute \
where attrelid = to_regclass($1::text) and attnum > 0 and not attisdropped";

/// Whether a table has an index that begins with the same columns as ours, and the size of the table.
const INDEX: &str = "\
select exists(select from pg_index where indrelid = to_regclass($1::text) \
        and (select attname from pg_attribute where attrelid = indrelid and attnum = indkey[0]) = 'entity_id' \
        and (select attname from pg_attribute where attrelid = indrelid and attnum = indkey[1]) = 'time_index'), \
    pg_table_size(to_regclass($1::text))";

const IS_THERE: &str = "select to_regclass($1::text) is not null";

const SCHEMA: &str = "select exists(select from pg_namespace where nspname = $1::text)";

/// The objects that a session has found to exist.
#[derive(Debug, Default)]
pub(crate) struct SchemaCache {
    has_metadata: bool,
    schemas: HashSet<String>,
    /// Tables with the columns that are in the metadata as well.
    tables: HashMap<Table, HashSet<String>>,
}

impl SchemaCache {
    fn has(&self, table: &Table, columns: &[&Column]) -> bool {
        let Some(known) = self.tables.get(table) else {
            return false;
        };
        columns.iter().all(|column| known.contains(&column.name))
    }
}

/// Ensures that a table exists with these columns, the index, and the metadata.
pub(crate) async fn ensure_table(
    session: &mut Session,
    table: &Table,
    columns: &[&Column],
) -> Result<(), SessionError> {
    if session.schema_cache.has(table, columns) {
        return Ok(());
    }
    ensure_metadata_table(session).await?;
    if let Some(schema) = &table.schema {
        ensure_schema(session, schema).await?;
    }
    begin(session, &table.metadata_key()).await?;
    let made = create_or_extend_table(session, table, columns).await;
    session
        .end(Stage::Schema, made)
        .await
        .map_err(doubt_as_connection_loss)?;

    let known = session
        .schema_cache
        .tables
        .entry(table.clone())
        .or_default();
    known.extend(columns.iter().map(|column| column.name.clone()));
    Ok(())
}

async fn ensure_metadata_table(session: &mut Session) -> Result<(), SessionError> {
    if session.schema_cache.has_metadata {
        return Ok(());
    }
    if !is_there(session, METADATA).await? {
        begin(session, METADATA).await?;
        let made = session.execute(Stage::Schema, CREATE_METADATA).await;
        session
            .end(Stage::Schema, made)
            .await
            .map_err(doubt_as_connection_loss)?;
    }
    session.schema_cache.has_metadata = true;
    Ok(())
}

async fn ensure_schema(session: &mut Session, schema: &str) -> Result<(), SessionError> {
    if session.schema_cache.schemas.contains(schema) {
        return Ok(());
    }
    // A role without the right to create schemas may still use an existing one.
    let rows = session
        .query(Stage::Schema, SCHEMA, &[&truncate_identifier(schema)])
        .await?;
    if !rows[0].get::<_, bool>(0) {
        begin(session, schema).await?;
        let sql = format!("create schema if not exists {}", quote_identifier(schema));
        let made = session.execute(Stage::Schema, &sql).await;
        session
            .end(Stage::Schema, made)
            .await
            .map_err(doubt_as_connection_loss)?;
    }
    session.schema_cache.schemas.insert(schema.to_owned());
    Ok(())
}

/// Begins the transaction that creates an object.
async fn begin(session: &Session, what: &str) -> Result<(), SessionError> {
    let keys = vec![locks::creation_key(what)];
    session.begin(Stage::Schema, keys).await
}

/// Converts a commit in doubt into a lost connection. The existence of objects is looked up in any case.
fn doubt_as_connection_loss(error: SessionError) -> SessionError {
    match error {
        SessionError::InDoubt(message) => SessionError::ConnectionLost(message),
        error => error,
    }
}

async fn create_or_extend_table(
    session: &mut Session,
    table: &Table,
    columns: &[&Column],
) -> Result<(), SessionError> {
    let name = table.sql_name();
    let rows = session.query(Stage::Schema, COLUMNS, &[&name]).await?;
    let there: HashSet<String> = rows.iter().map(|row| row.get(0)).collect();
    let missing = missing(session, columns, &there);
    if there.is_empty() {
        session
            .execute(
                Stage::Schema,
                &format!("create table {name} ({})", missing.join(", ")),
            )
            .await?;
        create_hypertable(session, &name).await?;
        create_index(session, table).await?;
    } else {
        if !missing.is_empty() {
            let added: Vec<String> = missing
                .iter()
                .map(|column| format!("add column if not exists {column}"))
                .collect();
            session
                .execute(
                    Stage::Schema,
                    &format!("alter table {name} {}", added.join(", ")),
                )
                .await?;
        }
        ensure_index(session, table).await?;
    }
    add_metadata(session, table, columns).await
}

/// Returns the definitions of the missing columns.
fn missing(session: &Session, columns: &[&Column], there: &HashSet<String>) -> Vec<String> {
    let fixed = FIXED_COLUMNS
        .iter()
        .filter(|(name, _)| !there.contains(*name))
        .map(|(name, kind)| format!("{name} {kind}"));
    let attributes = columns
        .iter()
        .filter(|column| !there.contains(truncate_identifier(&column.name)))
        .map(|column| {
            format!(
                "{} {}",
                quote_identifier(&column.name),
                sql_type(session, column.column_type)
            )
        });
    fixed.chain(attributes).collect()
}

fn sql_type(session: &Session, kind: ColumnType) -> &str {
    match kind {
        ColumnType::Text => "text",
        ColumnType::Double => "double precision",
        ColumnType::BigInt => "bigint",
        ColumnType::Boolean => "boolean",
        ColumnType::Timestamp => "timestamp with time zone",
        ColumnType::Json => "jsonb",
        ColumnType::Geometry => session.extensions.geometry.as_deref().unwrap_or("text"),
    }
}

async fn create_hypertable(session: &Session, name: &str) -> Result<(), SessionError> {
    let Some(function) = &session.extensions.create_hypertable else {
        return Ok(());
    };
    let literal = name.replace('\'', "''");
    let sql = format!("select {function}('{literal}', 'time_index', if_not_exists => true)");
    session.execute(Stage::Schema, &sql).await
}

async fn ensure_index(session: &mut Session, table: &Table) -> Result<(), SessionError> {
    let rows = session
        .query(Stage::Schema, INDEX, &[&table.sql_name()])
        .await?;
    let (has_index, bytes): (bool, Option<i64>) = (rows[0].get(0), rows[0].get(1));
    if has_index {
        return Ok(());
    }
    if bytes.is_some_and(|bytes| bytes > INDEXED_BYTES_MAX) {
        tracing::warn!(
            table = table.sql_name(),
            "the table has no index on (entity_id, time_index desc) and is too large to create it now: create it with CREATE INDEX CONCURRENTLY"
        );
        return Ok(());
    }
    create_index(session, table).await
}

async fn create_index(session: &mut Session, table: &Table) -> Result<(), SessionError> {
    let index = quote_identifier(&table.index_name());
    let qualified = match &table.schema {
        Some(schema) => format!("{}.{index}", quote_identifier(schema)),
        None => index.clone(),
    };
    // Long names may be truncated to the same one. The later index then gets a name that the database chooses.
    let index = if is_there(session, &qualified).await? {
        String::new()
    } else {
        index
    };
    let table = table.sql_name();
    let sql = format!("create index {index} on {table} (entity_id, time_index desc)");
    session.execute(Stage::Schema, &sql).await
}

async fn add_metadata(
    session: &mut Session,
    table: &Table,
    columns: &[&Column],
) -> Result<(), SessionError> {
    let entries = metadata(columns);
    let (key, entries) = (table.metadata_key(), entries.to_string());
    session
        .query(Stage::Schema, ADD_METADATA, &[&key, &entries])
        .await?;
    Ok(())
}

/// Returns the metadata of a table's columns: name and NGSI type of the attribute of each.
fn metadata(columns: &[&Column]) -> Value {
    let mut entries = Map::new();
    entries.insert("entity_id".to_owned(), json!(["id", "Text"]));
    entries.insert("entity_type".to_owned(), json!(["type", "Text"]));
    entries.insert("time_index".to_owned(), json!(["time_index", "DateTime"]));
    for column in columns {
        entries.insert(
            column.name.clone(),
            json!([column.attribute, column.ngsi_type]),
        );
    }
    Value::Object(entries)
}

async fn is_there(session: &mut Session, name: &str) -> Result<bool, SessionError> {
    let rows = session.query(Stage::Schema, IS_THERE, &[&name]).await?;
    Ok(rows[0].get(0))
}
