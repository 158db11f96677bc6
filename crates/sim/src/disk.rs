//! The store of level 2: the memory store, and what may happen to its next commit.

use std::sync::Arc;

use ganger_store::memory::MemoryReader;
use ganger_store::{CommitError, Loaded, MemoryStore, Opened, Store, StoreError};
use ganger_types::Commit;

/// How a commit ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum End {
    /// The commit succeeds and is written.
    #[default]
    Well,
    /// The commit fails and nothing is written.
    Refused,
    /// Likewise, for lack of space.
    Full,
    /// It is written, and the answer is lost.
    UnknownApplied,
    /// It is not written, and the answer is lost.
    UnknownLost,
    /// Another process has opened the store since.
    Fenced,
}

/// See the module. Clones of the inner store share the rows.
pub(crate) struct Disk {
    inner: MemoryStore,
    /// Of the next commit.
    pub(crate) end: End,
    /// A planted mistake: an unknown outcome is reported as a refusal.
    pub(crate) hides_unknown: bool,
}

impl Disk {
    pub(crate) fn new(inner: MemoryStore, hides_unknown: bool) -> Self {
        Self {
            inner,
            end: End::Well,
            hides_unknown,
        }
    }

    fn unknown(&self, reason: &str) -> CommitError {
        if self.hides_unknown {
            return CommitError::NotApplied {
                reason: reason.to_owned(),
                is_full: false,
            };
        }
        CommitError::Unknown(reason.to_owned())
    }
}

impl Store for Disk {
    type Reader = MemoryReader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        self.inner.open()
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        self.inner.load(each)
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        let refused = |is_full| CommitError::NotApplied {
            reason: "the device refuses".to_owned(),
            is_full,
        };
        match std::mem::take(&mut self.end) {
            End::Well => self.inner.commit(commit),
            End::Refused => Err(refused(false)),
            End::Full => Err(refused(true)),
            End::UnknownApplied => {
                self.inner.commit(commit)?;
                Err(self.unknown("the answer was lost"))
            }
            End::UnknownLost => Err(self.unknown("the write was lost")),
            End::Fenced => {
                let other = self.inner.clone().open();
                other.map_err(|error| CommitError::Unknown(error.to_string()))?;
                self.inner.commit(commit)
            }
        }
    }

    fn reader(&self) -> Result<MemoryReader, StoreError> {
        self.inner.reader()
    }
}
