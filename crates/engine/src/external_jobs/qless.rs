//! Workers of ours run jobs of qless, and commands of ours cancel, delete and retry them. Of the external systems only qless
//! has such jobs: items of raw keys are moved by their own clients alone.

mod change;
mod lease;
mod report;
