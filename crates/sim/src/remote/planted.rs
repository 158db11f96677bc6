//! Planted bugs of the owner of a shard in a database that others reach too. A run has at most one, to prove that the
//! oracle finds it. They change statements, answers and reports on their way; the product's code does not change.

/// Every planted bug of level 4. Numbers are stable.
pub(crate) const BUGS: &[(u32, u8, &str)] = &[
    (
        401,
        4,
        "the fence is read in a statement of its own before a record is appended",
    ),
    (
        402,
        4,
        "an unknown outcome is settled by reading, without a claim",
    ),
    (403, 4, "a shard is taken back from anybody"),
    (404, 4, "the epoch is not raised when a shard is taken back"),
    (405, 4, "a shard is loaded before its claim is confirmed"),
    (406, 4, "a warning in a commit is taken for success"),
    (408, 4, "nodes do not tell each other of confirmed commits"),
    (409, 4, "the log is cut at a gap in silence"),
    (
        410,
        4,
        "log tables are emptied before their rows are written",
    ),
    (411, 4, "a former primary is used again"),
    (412, 4, "rows are written twice after an unknown outcome"),
    (414, 4, "a record is sent again after its answer was lost"),
    (416, 4, "a lost answer is taken for a refusal"),
    (417, 4, "a claim looks at the log before it has the lock"),
    (420, 4, "time goes on by the wall clock of the new owner"),
    (421, 4, "an answer goes out before its commit is confirmed"),
    (422, 4, "the lock of a commit does not stop a claim"),
    (423, 4, "leases get no grace after a pause of their owner"),
    (
        424,
        4,
        "rows that a failover has lost are not missed until the next commit",
    ),
    (425, 4, "rows are written of commits that the log has lost"),
];

/// The planted bug of a run, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlantedBug(pub(crate) u32);

impl PlantedBug {
    pub(crate) fn is(self, bug: u32) -> bool {
        self.0 == bug
    }
}
