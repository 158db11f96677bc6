//! Inserts rows with `COPY` in its text format, whose values PostgreSQL parses like literals.

use std::collections::HashMap;

use crate::rows::{Column, Row, Table, quote_identifier};
use serde_json::json;

use crate::postgres::session::Session;
use crate::postgres::session_error::SessionError;
use crate::postgres::task_rows::{TaskRows, member};

/// Options of inserting rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOptions {
    /// Whether to store the original entity in each row.
    pub(crate) keep_raw: bool,
    /// Maximum data of one statement in bytes; a larger row gets a statement of its own. `None` for no limit.
    pub(crate) bytes_max: Option<u64>,
}

/// Rows for the same columns of one table, from one or several tasks.
pub(crate) struct CopyBatch<'a> {
    pub(crate) table: &'a Table,
    pub(crate) columns: &'a [Column],
    pub(crate) rows: Vec<(&'a TaskRows<'a>, &'a Row)>,
}

/// Groups the rows of tasks by table and columns, in order of first appearance.
pub(crate) fn copy_batches<'a>(tasks: &[&'a TaskRows<'a>]) -> Vec<CopyBatch<'a>> {
    let mut copy_batches: Vec<CopyBatch<'a>> = Vec::new();
    let mut indexes: HashMap<(&Table, Vec<&str>), usize> = HashMap::new();
    for task in tasks {
        for group in &task.groups {
            let names = group.columns.iter().map(|column| column.name.as_str());
            let index = *indexes
                .entry((&group.table, names.collect()))
                .or_insert(copy_batches.len());
            if index == copy_batches.len() {
                copy_batches.push(CopyBatch {
                    table: &group.table,
                    columns: &group.columns,
                    rows: Vec::new(),
                });
            }
            let rows = group.rows.iter().map(|row| (*task, row));
            copy_batches[index].rows.extend(rows);
        }
    }
    copy_batches
}

/// Inserts the rows of a batch.
pub(crate) async fn insert(
    session: &mut Session,
    batch: &CopyBatch<'_>,
    options: CopyOptions,
) -> Result<(), SessionError> {
    let sql = statement(batch, options);
    let lines = batch
        .rows
        .iter()
        .map(|(task, row)| line(task, row, batch.columns.len(), options));
    copy(session, &sql, lines, options.bytes_max).await
}

/// Sends lines with one statement, or with several whose data each stay below the limit.
pub(crate) async fn copy(
    session: &mut Session,
    sql: &str,
    lines: impl Iterator<Item = String> + Send,
    bytes_max: Option<u64>,
) -> Result<(), SessionError> {
    let bytes_max = bytes_max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    let mut writer = session.copy(sql).await?;
    let mut sent = 0;
    for line in lines {
        if sent > 0 && line.len().saturating_add(sent) > bytes_max {
            writer.finish().await?;
            writer = session.copy(sql).await?;
            sent = 0;
        }
        writer.write(line.as_bytes()).await?;
        sent += line.len();
    }
    writer.finish().await.map(drop)
}

fn statement(batch: &CopyBatch<'_>, options: CopyOptions) -> String {
    let mut sql = format!(
        "copy {} (entity_id, entity_type, time_index, fiware_servicepath, instanceid",
        batch.table.sql_name()
    );
    if options.keep_raw {
        sql.push_str(", __original_ngsi_entity__");
    }
    for column in batch.columns {
        sql.push_str(", ");
        sql.push_str(&quote_identifier(&column.name));
    }
    sql.push_str(") from stdin");
    sql
}

fn line(task: &TaskRows<'_>, row: &Row, columns: usize, options: CopyOptions) -> String {
    let entity = task.entity(row);
    let mut line = CopyLine::default();
    line.push_field(member(entity, "id"));
    line.push_field(member(entity, "type"));
    line.push_field(member(entity, "time_index"));
    line.push_field(Some(&row.service_path));
    line.push_field(Some(&task.instance_id(row)));
    if options.keep_raw {
        line.push_field(Some(&json!({ "data": entity }).to_string()));
    }
    for value in row.values(columns) {
        line.push_field(value);
    }
    line.finish()
}

/// A row in the text format of `COPY`.
#[derive(Default)]
pub(crate) struct CopyLine {
    text: String,
    has_fields: bool,
}

impl CopyLine {
    /// Adds a field to the row.
    pub(crate) fn push_field(&mut self, value: Option<&str>) {
        if self.has_fields {
            self.text.push('\t');
        }
        self.has_fields = true;
        let Some(value) = value else {
            self.text.push_str("\\N");
            return;
        };
        for character in value.chars() {
            match character {
                '\\' => self.text.push_str("\\\\"),
                '\t' => self.text.push_str("\\t"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                other => self.text.push(other),
            }
        }
    }

    /// Ends the row and returns its text.
    pub(crate) fn finish(mut self) -> String {
        self.text.push('\n');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Parses a line as the manual of PostgreSQL describes.
    fn read(line: &str) -> Vec<Option<String>> {
        let line = line.strip_suffix('\n').expect("a line ends");
        assert!(!line.contains(['\n', '\r']), "one line");
        let field = |field: &str| {
            if field == "\\N" {
                return None;
            }
            let mut text = String::new();
            let mut characters = field.chars();
            while let Some(character) = characters.next() {
                text.push(match character {
                    '\\' => match characters.next().expect("something is escaped") {
                        't' => '\t',
                        'n' => '\n',
                        'r' => '\r',
                        other => other,
                    },
                    other => other,
                });
            }
            Some(text)
        };
        line.split('\t').map(field).collect()
    }

    proptest! {
        #[test]
        fn every_value_reads_back(
            values in prop::collection::vec(
                prop::option::of("[\\\\NntrA.\t\n\r\u{e9}]{0,8}"), 1..6
            )
        ) {
            let mut line = CopyLine::default();
            for value in &values {
                line.push_field(value.as_deref());
            }
            prop_assert_eq!(read(&line.finish()), values);
        }
    }

    #[test]
    fn strings_that_look_like_null_or_the_end_of_data_are_escaped() {
        let mut line = CopyLine::default();
        line.push_field(Some("\\N"));
        line.push_field(None);
        line.push_field(Some("\\."));
        line.push_field(Some(""));
        assert_eq!(line.finish(), "\\\\N\t\\N\t\\\\.\t\n");
    }
}
