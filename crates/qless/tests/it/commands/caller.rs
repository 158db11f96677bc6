//! A client whose every call is checked: in addition to the checks of the harness, the rows that were reported as
//! changed must be enough to rebuild the state.

use std::collections::BTreeMap;

use ganger_qless::Qless;
use ganger_types::qless::{Generation, QlessAnswer, QlessKey, QlessReply, QlessRequest, QlessRow};
use serde_json::Value;

use crate::harness::Database;

/// A client with a database of its own.
pub(crate) struct Caller {
    database: Database,
    /// The rows in a store that gets every change.
    stored: BTreeMap<QlessKey, QlessRow>,
    /// Messages since the last call of [`Caller::messages`].
    messages: Vec<String>,
}

impl Caller {
    /// Creates a client of the second generation with an empty database.
    pub(crate) fn new() -> Self {
        Self::of(Generation::Two)
    }

    /// Creates a client of that generation with an empty database.
    pub(crate) fn of(generation: Generation) -> Self {
        Self {
            database: Database::new(generation),
            stored: BTreeMap::new(),
            messages: Vec::new(),
        }
    }

    /// Makes later calls with another generation.
    pub(crate) fn speak(&mut self, generation: Generation) {
        self.database.generation = generation;
    }

    /// Makes a call that must not be refused, and returns its reply. The words are separated by spaces; `''` is an
    /// empty word.
    pub(crate) fn ask(&mut self, words: &str) -> QlessReply {
        self.call(words)
            .unwrap_or_else(|refusal| panic!("{words}: {refusal:?}"))
    }

    /// Makes a call that returns a text, and returns the text.
    pub(crate) fn text(&mut self, words: &str) -> String {
        match self.ask(words) {
            QlessReply::Text(text) => lossy(&text),
            other => panic!("{words}: {other:?}"),
        }
    }

    /// Makes a call that returns JSON, and returns the value.
    pub(crate) fn json(&mut self, words: &str) -> Value {
        serde_json::from_str(&self.text(words)).expect("an answer is JSON")
    }

    /// Makes a call that returns a list, and returns its elements separated by spaces.
    pub(crate) fn list(&mut self, words: &str) -> String {
        match self.ask(words) {
            QlessReply::List(list) => {
                let texts: Vec<String> = list.iter().map(|it| lossy(it)).collect();
                texts.join(" ")
            }
            other => panic!("{words}: {other:?}"),
        }
    }

    /// Makes a call that returns a number, and returns the number.
    pub(crate) fn number(&mut self, words: &str) -> i64 {
        match self.ask(words) {
            QlessReply::Number(number) => number,
            other => panic!("{words}: {other:?}"),
        }
    }

    /// Makes a call that must return nil.
    pub(crate) fn nil(&mut self, words: &str) {
        assert_eq!(self.ask(words), QlessReply::Nil, "{words}");
    }

    /// Makes a call that must be refused, and returns the text of the refusal.
    pub(crate) fn refused(&mut self, words: &str) -> String {
        match self.call(words) {
            Err(refusal) => lossy(&refusal.0),
            Ok(reply) => panic!("{words}: {reply:?}"),
        }
    }

    /// Returns the messages since its last call, each as `channel payload`.
    pub(crate) fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// Returns a row from the store; `None` if there is none.
    pub(crate) fn stored(&self, key: &QlessKey) -> Option<&QlessRow> {
        self.stored.get(key)
    }

    /// Makes a request that is not a call of the script.
    pub(crate) fn request(&mut self, request: QlessRequest) -> QlessReply {
        let at = self.database.at;
        let answer = self.database.qless.call(at, request, &mut Vec::new());
        self.store();
        answer.expect("such a request is not refused")
    }

    fn call(&mut self, words: &str) -> QlessAnswer {
        let words: Vec<&[u8]> = words
            .split(' ')
            .map(|it| if it == "''" { b"" } else { it.as_bytes() })
            .collect();
        let answer = self.database.words(&words);
        self.messages.append(&mut self.database.messages);
        let changed = self.store();
        assert!(
            answer.is_ok() || changed == 0,
            "a refused call changed rows"
        );
        answer
    }

    /// Stores the changed rows, checks them, and returns their number.
    fn store(&mut self) -> usize {
        let changed = self.database.qless.take_changed();
        let count = changed.len();
        for (key, row) in changed {
            match row {
                Some(row) => self.stored.insert(key, row),
                None => self.stored.remove(&key),
            };
        }
        let rows = self.database.qless.rows();
        assert!(
            self.stored.values().eq(&rows),
            "the changes that were told of do not make the rows"
        );
        let mut again = Qless::default();
        // Rows may be loaded in any order.
        for row in rows.into_iter().rev() {
            again.load(row);
        }
        let mut wrong = Vec::new();
        again.check(&mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
        count
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
