//! Why samples could not be written.

use std::path::PathBuf;

/// Samples could not be written; those that had gathered are lost, later ones are not.
#[derive(Debug, thiserror::Error)]
#[error("telemetry cannot {action} {path}: {reason}", path = path.display())]
pub struct TelemetryError {
    /// Action that failed, as a verb.
    pub action: &'static str,
    /// Path that the action was for.
    pub path: PathBuf,
    /// Error text of the operating system.
    pub reason: String,
}

impl TelemetryError {
    pub(crate) fn new(
        action: &'static str,
        path: impl Into<PathBuf>,
        reason: &dyn std::fmt::Display,
    ) -> Self {
        Self {
            action,
            path: path.into(),
            reason: reason.to_string(),
        }
    }
}
