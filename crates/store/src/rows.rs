//! The rows of stores that keep them in tables: their names, their sealed bytes, and the secondary index.
//!
//! Two stores write the same rows into the tables of different databases.

pub mod by_end;
pub mod counts;
pub mod external;
pub mod listing;
pub mod names;
pub mod plan;
pub mod row;
pub mod secondary_index;
pub mod small;
pub mod transfer;
pub mod values;

use std::fmt::Display;

use crate::encoding::DecodeError;

/// A row that is damaged or missing; the text names the row and what is affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RowError(pub String);

impl RowError {
    /// Returns the error for one damaged row.
    pub fn row(table: &str, key: impl Display, what: impl Display) -> Self {
        Self(format!("table {table}, row {key}: {what}"))
    }

    /// Returns the error for a record whose checksum is right, but which cannot be decoded.
    pub fn unreadable(table: &str, key: impl Display, error: &DecodeError) -> Self {
        Self::row(table, key, error)
    }
}
