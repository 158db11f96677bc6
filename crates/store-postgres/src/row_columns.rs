//! Rows of the tables of jobs, collected by column.

use ganger_store::rows::row::to_sql;
use ganger_types::JobKey;

use crate::columns::{Column, Insert};
use crate::names::Names;

/// Rows of a job's number and a body.
#[derive(Default)]
pub(crate) struct KeyedRows {
    pub(crate) keys: Vec<i64>,
    pub(crate) bodies: Vec<Vec<u8>>,
}

/// Rows of live jobs.
#[derive(Default)]
pub(crate) struct JobRows {
    pub(crate) rows: KeyedRows,
    pub(crate) marked: Vec<bool>,
}

/// Rows of jobs that have ended.
#[derive(Default)]
pub(crate) struct FinishedRows {
    pub(crate) rows: KeyedRows,
    pub(crate) marked: Vec<bool>,
    pub(crate) places: Vec<i64>,
    pub(crate) outcomes: Vec<i16>,
    pub(crate) ended_at: Vec<i64>,
    pub(crate) ended_order: Vec<i64>,
    pub(crate) own: Vec<Option<i64>>,
    pub(crate) results: Vec<Option<Vec<u8>>>,
}

/// Rows of a name and a body.
#[derive(Default)]
pub(crate) struct KeyedNames {
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) bodies: Vec<Vec<u8>>,
}

impl KeyedRows {
    pub(crate) fn push(&mut self, key: JobKey, body: Vec<u8>) {
        self.keys.push(to_sql(key.0));
        self.bodies.push(body);
    }

    pub(crate) fn insert(self, table: String, conflict: &'static str) -> Insert {
        Insert {
            table,
            names: "key, body",
            columns: vec![Column::Int8(self.keys), Column::Bytes(self.bodies)],
            conflict,
        }
    }
}

impl JobRows {
    pub(crate) fn insert(self, table: String, conflict: &'static str) -> Insert {
        Insert {
            table,
            names: "key, marked, body",
            columns: vec![
                Column::Int8(self.rows.keys),
                Column::Bool(self.marked),
                Column::Bytes(self.rows.bodies),
            ],
            conflict,
        }
    }
}

impl FinishedRows {
    /// Returns the statement that rewrites stored rows, which keep their results, and its columns.
    pub(crate) fn update(&self, names: &Names) -> (String, Vec<Column>) {
        let sql = names.sql(
            "UPDATE {s}.finished SET marked = m, place = p, outcome = o, ended_at = a, ended_order = e, own = w, body = b
             FROM unnest($1::int8[], $2::bool[], $3::int8[], $4::int2[], $5::int8[], $6::int8[], $7::int8[], $8::bytea[])
                AS new (k, m, p, o, a, e, w, b)
             WHERE key = k AND key BETWEEN $9 AND $10",
        );
        let columns = vec![
            Column::Int8(self.rows.keys.clone()),
            Column::Bool(self.marked.clone()),
            Column::Int8(self.places.clone()),
            Column::Int2(self.outcomes.clone()),
            Column::Int8(self.ended_at.clone()),
            Column::Int8(self.ended_order.clone()),
            Column::Int8Option(self.own.clone()),
            Column::Bytes(self.rows.bodies.clone()),
        ];
        (sql, columns)
    }

    pub(crate) fn insert(self, table: String, conflict: &'static str) -> Insert {
        Insert {
            table,
            names: "key, marked, place, outcome, ended_at, ended_order, own, body, result",
            columns: vec![
                Column::Int8(self.rows.keys),
                Column::Bool(self.marked),
                Column::Int8(self.places),
                Column::Int2(self.outcomes),
                Column::Int8(self.ended_at),
                Column::Int8(self.ended_order),
                Column::Int8Option(self.own),
                Column::Bytes(self.rows.bodies),
                Column::BytesOption(self.results),
            ],
            conflict,
        }
    }
}
