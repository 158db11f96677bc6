//! qless: in each namespace a state machine of its own, on the clocks of its callers.
//!
//! It shares nothing with jobs but the turns and the commits. What is here hands it its calls, writes its rows once a
//! turn, and gives them back after a start.

use std::collections::{BTreeMap, BTreeSet};

use ganger_qless::Qless;
use ganger_types::{Change, Elapsed, Namespace, QlessAnswer, QlessCall, QlessRow};

use crate::Effects;

/// qless in all namespaces.
#[derive(Debug, Default)]
pub(crate) struct QlessSpaces {
    spaces: BTreeMap<Namespace, Qless>,
    /// Namespaces that were called in this turn: rows may have changed only there.
    called: BTreeSet<Namespace>,
}

impl QlessSpaces {
    /// Carries a call out. It runs by the time in it; the server's time counts for the lives of throttles alone.
    pub(crate) fn call(&mut self, at: Elapsed, call: QlessCall, out: &mut Effects) -> QlessAnswer {
        let QlessCall { namespace, request } = call;
        if !self.called.contains(&namespace) {
            self.called.insert(namespace.clone());
        }
        let qless = self.spaces.entry(namespace.clone()).or_default();
        let mut messages = Vec::new();
        let answer = qless.call(at, request, &mut messages);
        let from = |message| (namespace.clone(), message);
        out.messages.extend(messages.into_iter().map(from));
        answer
    }

    /// Whether the end of the turn may have rows to write.
    pub(crate) fn was_called(&self) -> bool {
        !self.called.is_empty()
    }

    /// Writes the rows that changed during the turn, each once.
    pub(crate) fn end_turn(&mut self, out: &mut Effects) {
        for namespace in std::mem::take(&mut self.called) {
            let Some(qless) = self.spaces.get_mut(&namespace) else {
                continue;
            };
            for (key, row) in qless.take_changed() {
                let namespace = namespace.clone();
                out.changes.push(match row {
                    Some(row) => Change::PutQless(namespace, Box::new(row)),
                    None => Change::RemoveQless(namespace, key),
                });
            }
        }
    }

    /// A row as it was stored.
    pub(crate) fn load(&mut self, namespace: Namespace, row: QlessRow) {
        self.spaces.entry(namespace).or_default().load(row);
    }

    /// Every row with its namespace, for comparing.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Namespace, QlessRow)> {
        self.spaces.iter().flat_map(|(namespace, qless)| {
            let rows = qless.rows().into_iter();
            rows.map(move |row| (namespace, row))
        })
    }

    /// Compares the indexes with the rows; each line names what disagrees.
    pub(crate) fn check(&self, wrong: &mut Vec<String>) {
        for (namespace, qless) in &self.spaces {
            let mut found = Vec::new();
            qless.check(&mut found);
            wrong.extend(
                found
                    .into_iter()
                    .map(|line| format!("qless of {namespace}: {line}")),
            );
        }
    }
}
