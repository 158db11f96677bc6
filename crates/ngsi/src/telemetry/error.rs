//! Why samples could not be written.

use std::path::PathBuf;

/// Samples could not be written; those that had gathered are lost, later ones are not.
#[derive(Debug, thiserror::Error)]
#[error("telemetry cannot {doing} {path}: {reason}", path = path.display())]
pub struct TelemetryError {
    /// Action that failed, as a verb.
    pub doing: &'static str,
    /// Path that the action was for.
    pub path: PathBuf,
    /// Error text of the operating system.
    pub reason: String,
}

impl TelemetryError {
    pub(crate) fn new(
        doing: &'static str,
        path: impl Into<PathBuf>,
        reason: &dyn std::fmt::Display,
    ) -> Self {
        Self {
            doing,
            path: path.into(),
            reason: reason.to_string(),
        }
    }
}
