//! Rows into tables: `COPY` in its text format, whose values PostgreSQL reads as it would read literals.

use std::collections::HashMap;

use crate::rows::{Column, Row, Table, quote_identifier};
use serde_json::json;

use crate::postgres::faults::Fault;
use crate::postgres::session::Session;
use crate::postgres::work::{Work, member};

/// How rows are inserted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// Each with its entity as it came.
    pub(crate) keep_raw: bool,
    /// Data of one statement, in bytes; a row with more goes alone.
    pub(crate) bytes_max: Option<u64>,
}

/// Rows for the same columns of the same table, of one task or several.
pub(crate) struct Portion<'a> {
    pub(crate) table: &'a Table,
    pub(crate) columns: &'a [Column],
    pub(crate) rows: Vec<(&'a Work<'a>, &'a Row)>,
}

/// The rows of tasks, in order of first appearance of their tables and columns.
pub(crate) fn portions<'a>(works: &[&'a Work<'a>]) -> Vec<Portion<'a>> {
    let mut portions: Vec<Portion<'a>> = Vec::new();
    let mut places: HashMap<(&Table, Vec<&str>), usize> = HashMap::new();
    for work in works {
        for group in &work.groups {
            let names = group.columns.iter().map(|column| column.name.as_str());
            let place = *places
                .entry((&group.table, names.collect()))
                .or_insert(portions.len());
            if place == portions.len() {
                portions.push(Portion {
                    table: &group.table,
                    columns: &group.columns,
                    rows: Vec::new(),
                });
            }
            let rows = group.rows.iter().map(|row| (*work, row));
            portions[place].rows.extend(rows);
        }
    }
    portions
}

/// Inserts the rows of a portion.
pub(crate) async fn insert(
    session: &mut Session,
    portion: &Portion<'_>,
    manner: Manner,
) -> Result<(), Fault> {
    let sql = statement(portion, manner);
    let lines = portion
        .rows
        .iter()
        .map(|(work, row)| line(work, row, portion.columns.len(), manner));
    copy(session, &sql, lines, manner.bytes_max).await
}

/// Sends lines with a statement, or with several whose data each stay under the limit.
pub(crate) async fn copy(
    session: &mut Session,
    sql: &str,
    lines: impl Iterator<Item = String> + Send,
    bytes_max: Option<u64>,
) -> Result<(), Fault> {
    let bytes_max = bytes_max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    let mut copying = session.copy(sql).await?;
    let mut sent = 0;
    for line in lines {
        if sent > 0 && line.len().saturating_add(sent) > bytes_max {
            copying.finish().await?;
            copying = session.copy(sql).await?;
            sent = 0;
        }
        copying.write(line.as_bytes()).await?;
        sent += line.len();
    }
    copying.finish().await.map(drop)
}

fn statement(portion: &Portion<'_>, manner: Manner) -> String {
    let mut sql = format!(
        "copy {} (entity_id, entity_type, time_index, fiware_servicepath, instanceid",
        portion.table.sql_name()
    );
    if manner.keep_raw {
        sql.push_str(", __original_ngsi_entity__");
    }
    for column in portion.columns {
        sql.push_str(", ");
        sql.push_str(&quote_identifier(&column.name));
    }
    sql.push_str(") from stdin");
    sql
}

fn line(work: &Work<'_>, row: &Row, columns: usize, manner: Manner) -> String {
    let entity = work.entity(row);
    let mut line = Line::default();
    line.add(member(entity, "id"));
    line.add(member(entity, "type"));
    line.add(member(entity, "time_index"));
    line.add(Some(&row.service_path));
    line.add(Some(&work.instance_id(row)));
    if manner.keep_raw {
        line.add(Some(&json!({ "data": entity }).to_string()));
    }
    for value in row.values(columns) {
        line.add(value);
    }
    line.end()
}

/// A row in the text format of `COPY`.
#[derive(Default)]
pub(crate) struct Line {
    text: String,
    has_fields: bool,
}

impl Line {
    /// Adds a field to the row.
    pub(crate) fn add(&mut self, value: Option<&str>) {
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
    pub(crate) fn end(mut self) -> String {
        self.text.push('\n');
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What PostgreSQL makes of a line, by its manual.
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
            let mut line = Line::default();
            for value in &values {
                line.add(value.as_deref());
            }
            prop_assert_eq!(read(&line.end()), values);
        }
    }

    #[test]
    fn a_text_that_looks_like_null_or_the_end_of_data_is_neither() {
        let mut line = Line::default();
        line.add(Some("\\N"));
        line.add(None);
        line.add(Some("\\."));
        line.add(Some(""));
        assert_eq!(line.end(), "\\\\N\t\\N\t\\\\.\t\n");
    }
}
