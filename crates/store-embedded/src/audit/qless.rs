//! Counts the rows of qless. What they say of each other is for its own rules to judge, which an engine asks when it is
//! audited.

use ganger_store::Loaded;

use super::AuditReport;

/// Takes a row; false if it is of another kind.
pub(super) fn add(report: &mut AuditReport, row: &Loaded) -> bool {
    let is_ours = matches!(row, Loaded::Qless(..));
    report.qless_rows += u64::from(is_ours);
    is_ours
}
