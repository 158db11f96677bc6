//! Counts the rows of qless. The engine's audit checks their content by the rules of qless.

use ganger_store::Loaded;

use super::AuditReport;

/// Adds a row; returns false if the row is of another kind.
pub(super) fn add(report: &mut AuditReport, row: &Loaded) -> bool {
    let is_ours = matches!(row, Loaded::Qless(..));
    report.qless_rows += u64::from(is_ours);
    is_ours
}
