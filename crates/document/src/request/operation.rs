//! An operation as submitted.

use std::borrow::Cow;

use ganger_types::command::StartOperation;
use ganger_types::operation::{AlteredFields, JobFilter};
use ganger_types::{Namespace, OperationAction};
use serde::{Deserialize, Deserializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::bulk::FilterIn;
use super::job::start;
use crate::error::DocumentError;
use crate::labels::{LabelChanges, Rank};
use crate::names::{QueueName, TagName};
use crate::one_of::read_word;
use crate::time::{Moment, Span};

/// The words for actions.
const ACTIONS: &[(&str, ActionWord)] = &[
    ("retry", ActionWord::Retry),
    ("cancel", ActionWord::Cancel),
    ("delete", ActionWord::Delete),
    ("alter", ActionWord::Alter),
];

/// What an operation does with each job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionWord {
    /// Puts finished jobs back on their queue.
    Retry,
    /// Cancels each job that is not finished.
    Cancel,
    /// Removes each job that is finished.
    Delete,
    /// Changes the fields given in `alter` of each job.
    Alter,
}

impl<'de> Deserialize<'de> for ActionWord {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_word(deserializer, ACTIONS)
    }
}

impl PartialSchema for ActionWord {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(ACTIONS.iter().map(|(word, _)| *word)))
            .into()
    }
}

impl ToSchema for ActionWord {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("OperationAction")
    }
}

/// An action on all jobs that match a filter, done in the background.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "an object such as {\"action\": \"retry\", \"filter\": {\"group\": \"timeout\"}}"
)]
#[schema(as = NewOperation)]
pub struct OperationIn {
    /// What to do with each job.
    pub action: ActionWord,
    /// Conditions on the jobs to act on; at least one must be given.
    pub filter: FilterIn,
    /// Only jobs that were enqueued before this time, such as `as_of` of a dry run; jobs that are enqueued after the
    /// start are left out in any case.
    pub created_before: Option<Moment>,
    /// Maximum number of jobs to change; no limit if absent.
    pub at_most: Option<u64>,
    /// Time over which to spread the changes, at most 7 days; as soon as possible if absent.
    pub spread_over: Option<Span>,
    /// Reason, for people and for the audit log.
    pub reason: Option<String>,
    /// With `retry` or `alter`: queue that the jobs enter; their own if absent.
    pub queue: Option<QueueName>,
    /// With `alter`: new priority; smaller runs first.
    pub priority: Option<Rank>,
    /// With `alter`: new start as a delay from the change of each job, for jobs that are scheduled or ready.
    pub delay: Option<Span>,
    /// With `alter`: new start as a time, for jobs that are scheduled or ready.
    pub run_at: Option<Moment>,
    /// With `alter`: tags that the jobs get.
    #[serde(default)]
    pub tags_add: Vec<TagName>,
    /// With `alter`: tags that the jobs lose.
    #[serde(default)]
    pub tags_remove: Vec<TagName>,
    /// With `alter`: labels to set; null removes one.
    #[serde(default)]
    pub labels: LabelChanges,
}

impl OperationIn {
    /// Whether the action takes no more than the right to cancel.
    pub fn is_cancellation(&self) -> bool {
        self.action == ActionWord::Cancel
    }

    /// The command that starts the operation on behalf of `by`.
    ///
    /// # Errors
    /// If the filter has no condition, or a field does not go with the action; the error names the field.
    pub fn convert(
        self,
        namespace: Namespace,
        by: String,
    ) -> Result<StartOperation, DocumentError> {
        self.refuse_foreign_fields()?;
        let filter = JobFilter::of(self.filter.convert(namespace.clone())?);
        let queue = self.queue.map(|queue| queue.0);
        let action = match self.action {
            ActionWord::Retry => OperationAction::Retry { queue },
            ActionWord::Cancel => OperationAction::Cancel,
            ActionWord::Delete => OperationAction::Delete,
            ActionWord::Alter => {
                let tags = |tags: Vec<TagName>| tags.into_iter().map(|tag| tag.0).collect();
                let has_start = self.delay.is_some() || self.run_at.is_some();
                let start = start(self.delay, self.run_at, "")?;
                let fields = AlteredFields {
                    priority: self.priority.map(|rank| rank.0),
                    queue,
                    start: has_start.then_some(start),
                    tags_added: tags(self.tags_add),
                    tags_removed: tags(self.tags_remove),
                    labels_set: self.labels.set,
                    labels_removed: self.labels.removed,
                };
                if fields == AlteredFields::default() {
                    let detail = "/action: nothing to alter: give queue, priority, delay, run_at, tags_add, tags_remove or \
                                  labels";
                    return Err(DocumentError::new("invalid_value", detail).at("/action"));
                }
                OperationAction::Alter(fields)
            }
        };
        Ok(StartOperation {
            namespace,
            action,
            filter,
            created_before: self.created_before.map(|moment| moment.0),
            at_most: self.at_most,
            spread_over: self.spread_over.map(|span| span.0),
            reason: self.reason.unwrap_or_default(),
            by,
        })
    }

    /// Refuses fields that have no meaning for the action.
    fn refuse_foreign_fields(&self) -> Result<(), DocumentError> {
        let is_alter = self.action == ActionWord::Alter;
        let takes_queue = is_alter || self.action == ActionWord::Retry;
        let has_labels = !(self.labels.set.is_empty() && self.labels.removed.is_empty());
        for (is_given, field, of) in [
            (
                self.queue.is_some() && !takes_queue,
                "queue",
                "retry and alter",
            ),
            (self.priority.is_some() && !is_alter, "priority", "alter"),
            (self.delay.is_some() && !is_alter, "delay", "alter"),
            (self.run_at.is_some() && !is_alter, "run_at", "alter"),
            (!self.tags_add.is_empty() && !is_alter, "tags_add", "alter"),
            (
                !self.tags_remove.is_empty() && !is_alter,
                "tags_remove",
                "alter",
            ),
            (has_labels && !is_alter, "labels", "alter"),
        ] {
            if is_given {
                let detail = format!("/{field}: goes only with {of}");
                return Err(DocumentError::new("unknown_field", detail).at(format!("/{field}")));
            }
        }
        Ok(())
    }
}
