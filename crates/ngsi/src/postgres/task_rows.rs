//! A task with its rows, and whether they must be looked up before the insert.

use std::time::Instant;

use crate::Entity;
use crate::rows::{Group, Row, groups, instance_id};

use crate::postgres::{InsertError, InsertSummary, TaskInsert};

/// A task with its rows.
#[derive(Debug)]
pub(crate) struct TaskRows<'a> {
    pub(crate) insert: &'a TaskInsert,
    pub(crate) groups: Vec<Group>,
}

impl<'a> TaskRows<'a> {
    /// Converts a task into rows.
    ///
    /// # Errors
    /// If the task can never be inserted.
    pub(crate) fn of(insert: &'a TaskInsert) -> Result<Self, InsertError> {
        match groups(&insert.task) {
            Ok(groups) => Ok(Self { insert, groups }),
            Err(error) => Err(InsertError {
                message: error.to_string(),
                is_retryable: false,
            }),
        }
    }

    /// Returns the result to report once the task is in the database.
    pub(crate) fn summary(&self) -> InsertSummary {
        let rows: usize = self.groups.iter().map(|group| group.rows.len()).sum();
        InsertSummary {
            rows: u64::try_from(rows).unwrap_or(u64::MAX),
        }
    }

    /// Whether the task's rows may be in the database already. Call it under the task's lock: no other session can be
    /// inserting the task then.
    pub(crate) fn may_be_inserted(&self) -> bool {
        let is_shared = |until: Instant| until <= Instant::now();
        self.insert.is_repeat || self.insert.exclusive_until.is_some_and(is_shared)
    }

    /// Returns the entity of a row.
    pub(crate) fn entity(&self, row: &Row) -> &'a Entity {
        &self.insert.task.payload[row.entity]
    }

    /// Returns the `instanceid` of a row, which is the same in every attempt.
    pub(crate) fn instance_id(&self, row: &Row) -> String {
        instance_id(&self.insert.uuid, row.entity)
    }
}

/// Returns a member of an entity; `None` if it is missing or not a string.
pub(crate) fn member<'e>(entity: &'e Entity, name: &str) -> Option<&'e str> {
    entity.get(name)?.as_str()
}
