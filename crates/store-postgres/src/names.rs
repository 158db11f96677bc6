//! The names of a shard in its database.

use crate::schema::schema_of;

/// The names of a shard in its database.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    /// Number of the shard.
    pub(crate) number: u32,
    /// Schema of the shard's tables.
    pub(crate) schema: String,
    /// The shard and its database in words, without a password.
    pub(crate) label: String,
}

impl Names {
    pub(crate) fn new(database: &str, number: u32) -> Self {
        Self {
            number,
            schema: schema_of(number),
            label: format!("{database}, shard {number}"),
        }
    }

    /// Returns the name that connections of an owner have.
    pub(crate) fn application(&self, epoch: u64) -> String {
        format!("ganger/{}/{epoch}", self.number)
    }

    /// Puts the schema into SQL, wherever it says `{s}`.
    pub(crate) fn sql(&self, template: &str) -> String {
        template.replace("{s}", &self.schema)
    }
}
