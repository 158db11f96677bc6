//! Conversions between messages of the schema and the types of `ganger-types`, both directions beside each other.
//!
//! Outward a message is made [`From`] a type. Inward every field is checked, and an error names the field by its path
//! ([`At`]). The server reads requests by these rules, the client reads answers by the same ones.

mod explanation;
mod policy;
mod settings;

use std::fmt;
use std::time::Duration;

pub use explanation::{calendar, explanation, us};
pub use policy::{
    catch_up, check_progress, check_retry, failure_policy, job_state, overlap, priority,
    priority_millionths, retry, take_mode,
};
pub use settings::{namespace_settings, queue_counts, queue_settings, retention};

/// A field of a message, for errors. Costs nothing until it is shown.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    parent: Option<&'a At<'a>>,
    field: &'a str,
    index: Option<usize>,
}

impl<'a> At<'a> {
    /// A field of the message itself.
    pub fn top(field: &'a str) -> Self {
        Self {
            parent: None,
            field,
            index: None,
        }
    }

    /// A field below this place.
    #[must_use]
    pub fn field(&'a self, field: &'a str) -> Self {
        Self {
            parent: Some(self),
            field,
            index: None,
        }
    }

    /// An entry of the list at this place.
    #[must_use]
    pub fn entry(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}.")?;
        }
        f.write_str(self.field)?;
        self.index.map_or(Ok(()), |index| write!(f, "[{index}]"))
    }
}

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `invalid_value`, `missing_field` or `too_large`, as `docs/errors.md` lists them.
    pub code: &'static str,
    /// The field, its value, the limit, and the next step.
    pub message: String,
}

impl FieldError {
    /// A field with a value that it cannot have.
    pub fn invalid(field: impl fmt::Display, reason: impl fmt::Display) -> Self {
        Self {
            code: "invalid_value",
            message: format!("{field}: {reason}"),
        }
    }

    /// A field that must be there.
    pub fn missing(field: impl fmt::Display, what: &str) -> Self {
        Self {
            code: "missing_field",
            message: format!("{field} is missing: {what}"),
        }
    }

    /// A list or number beyond its limit.
    pub fn too_large(field: impl fmt::Display, actual: usize, limit: usize) -> Self {
        Self {
            code: "too_large",
            message: format!("{field} is {actual}, the limit is {limit}: send less"),
        }
    }
}

/// Whole milliseconds, rounded up: a time that is not zero must not read as zero.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Refuses a list or text that is longer than its limit.
///
/// # Errors
/// If it is.
pub fn at_most(at: At<'_>, actual: usize, limit: usize) -> Result<(), FieldError> {
    if actual > limit {
        Err(FieldError::too_large(at, actual, limit))
    } else {
        Ok(())
    }
}

/// A number with a default for 0 and an upper limit.
///
/// # Errors
/// If it is beyond the limit.
pub fn bounded(at: At<'_>, value: u32, default: u32, limit: u32) -> Result<u32, FieldError> {
    match value {
        0 => Ok(default),
        _ if value > limit => Err(FieldError::invalid(
            at,
            format_args!("{value} is out of range: 1 to {limit}"),
        )),
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests;
