//! Leases, reports, cancellation, deletion and retries of jobs of qless. Only qless has such jobs among the external
//! systems: items of raw keys are moved by their own clients only.

mod change;
mod lease;
mod report;
