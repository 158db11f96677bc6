//! Tables of external systems.

/// Tables of raw keys by their number, and of list elements from left to right.
pub(super) const KEYS: &str = "
CREATE TABLE keys (name BLOB PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE elements (name BLOB PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
";

/// Table of all qless rows, by namespace, kind and name.
pub(super) const QLESS: &str = "
CREATE TABLE qless (name BLOB PRIMARY KEY, body BLOB NOT NULL);
";
