//! The state of a database, with its indexes.

use std::collections::BTreeSet;

use ganger_types::Elapsed;
use ganger_types::qless::{
    QlessAnswer, QlessKey, QlessMessage, QlessReply, QlessRequest, QlessRow,
};

/// All that qless knows in one namespace.
#[derive(Clone, Debug, Default)]
pub struct Qless {
    /// Rows that changed since somebody took them.
    changed: BTreeSet<QlessKey>,
}

impl Qless {
    /// Carries a request out, all of it or nothing. Messages are added in order. `at` is the server's time, by which
    /// nothing but the lives of throttles goes.
    ///
    /// # Errors
    /// If the script would refuse the call; nothing has changed then.
    pub fn call(
        &mut self,
        at: Elapsed,
        request: QlessRequest,
        messages: &mut Vec<QlessMessage>,
    ) -> QlessAnswer {
        let _ = (at, request, messages);
        Ok(QlessReply::Nil)
    }

    /// The rows that changed since the last call, each in its last state; `None` for one that is gone.
    pub fn take_changed(&mut self) -> Vec<(QlessKey, Option<QlessRow>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|key| (key, None)).collect()
    }

    /// Takes a row as it was stored, in any order of rows.
    pub fn load(&mut self, row: QlessRow) {
        drop(row);
    }

    /// Every row, in order of their keys.
    pub fn rows(&self) -> Vec<QlessRow> {
        Vec::new()
    }

    /// Compares the indexes with the rows; each line names what disagrees.
    pub fn check(&self, wrong: &mut Vec<String>) {
        let _ = wrong;
    }
}
