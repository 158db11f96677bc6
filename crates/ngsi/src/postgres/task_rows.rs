//! A task made ready: its rows, and whether they must be looked up first.

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
    /// # Errors
    /// If the task can never be inserted.
    pub(crate) fn of(insert: &'a TaskInsert) -> Result<Self, InsertError> {
        match groups(&insert.task) {
            Ok(groups) => Ok(Self { insert, groups }),
            Err(incurable) => Err(InsertError {
                message: incurable.to_string(),
                is_retryable: false,
            }),
        }
    }

    /// What is reported once it is in the database.
    pub(crate) fn summary(&self) -> InsertSummary {
        let rows: usize = self.groups.iter().map(|group| group.rows.len()).sum();
        InsertSummary {
            rows: u64::try_from(rows).unwrap_or(u64::MAX),
        }
    }

    /// Whether its rows may be there already. To be asked when its lock is held: what somebody else was about to
    /// insert before is then settled.
    pub(crate) fn may_be_inserted(&self) -> bool {
        let is_shared = |until: Instant| until <= Instant::now();
        self.insert.is_repeat || self.insert.exclusive_until.is_some_and(is_shared)
    }

    /// The entity of a row.
    pub(crate) fn entity(&self, row: &Row) -> &'a Entity {
        &self.insert.task.payload[row.entity]
    }

    /// What goes into a row's `instanceid`: the same in every attempt.
    pub(crate) fn instance_id(&self, row: &Row) -> String {
        instance_id(&self.insert.uuid, row.entity)
    }
}

/// A member of an entity that is a string.
pub(crate) fn member<'e>(entity: &'e Entity, name: &str) -> Option<&'e str> {
    entity.get(name)?.as_str()
}
