//! The error of writing samples.

use std::path::PathBuf;

/// Samples could not be written. The buffered ones are lost; later ones are not affected.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path} for telemetry, samples are lost: {reason}", path = path.display())]
pub struct TelemetryError {
    /// The action that failed, as a verb.
    pub action: &'static str,
    /// The path of the file or directory.
    pub path: PathBuf,
    /// The error of the operating system.
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
