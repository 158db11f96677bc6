//! Goals that a campaign of level 4 must reach.

/// All goals. Each must be reached at least once, otherwise the generator is broken.
pub(crate) const GOALS: &[&str] = &[
    "taken-over",
    "taken-back",
    "taken-from-a-live-owner",
    "handed-over",
    "owner-ended",
    "killed",
    "stood-still",
    "isolated",
    "connection-cut",
    "statement-lost",
    "answer-lost",
    "answer-took-too-long",
    "wait-for-the-standby-cancelled",
    "server-crashed",
    "promoted",
    "promoted-with-loss",
    "rewind-noticed",
    "rewind-accepted",
    "two-servers-accept-writes",
    "dumped",
    "lost-record-noticed",
    "restored",
    "restored-under-sessions",
];
