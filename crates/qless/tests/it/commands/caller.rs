//! A client whose every call is checked: besides what the harness looks at, the rows that were told of as changed must be
//! enough to build the state again.

use std::collections::BTreeMap;

use ganger_qless::Qless;
use ganger_types::qless::{Generation, QlessAnswer, QlessKey, QlessReply, QlessRequest, QlessRow};
use serde_json::Value;

use crate::harness::Database;

/// A client of a database of its own.
pub(crate) struct Caller {
    database: Database,
    /// As a store has them that is given every change.
    stored: BTreeMap<QlessKey, QlessRow>,
    /// What was told since somebody asked.
    messages: Vec<String>,
}

impl Caller {
    /// A client of the second generation, which knows nothing yet.
    pub(crate) fn new() -> Self {
        Self::of(Generation::Two)
    }

    /// A client of that generation.
    pub(crate) fn of(generation: Generation) -> Self {
        Self {
            database: Database::new(generation),
            stored: BTreeMap::new(),
            messages: Vec::new(),
        }
    }

    /// Goes on as a client of another generation.
    pub(crate) fn speak(&mut self, generation: Generation) {
        self.database.generation = generation;
    }

    /// The answer to a call that is not refused: words between spaces, `''` for an empty one.
    pub(crate) fn ask(&mut self, words: &str) -> QlessReply {
        self.call(words)
            .unwrap_or_else(|refusal| panic!("{words}: {refusal:?}"))
    }

    /// The text that a call answers.
    pub(crate) fn text(&mut self, words: &str) -> String {
        match self.ask(words) {
            QlessReply::Text(text) => lossy(&text),
            other => panic!("{words}: {other:?}"),
        }
    }

    /// The JSON that a call answers.
    pub(crate) fn json(&mut self, words: &str) -> Value {
        serde_json::from_str(&self.text(words)).expect("an answer is JSON")
    }

    /// The list that a call answers, with spaces between.
    pub(crate) fn list(&mut self, words: &str) -> String {
        match self.ask(words) {
            QlessReply::List(list) => {
                let texts: Vec<String> = list.iter().map(|it| lossy(it)).collect();
                texts.join(" ")
            }
            other => panic!("{words}: {other:?}"),
        }
    }

    /// The number that a call answers.
    pub(crate) fn number(&mut self, words: &str) -> i64 {
        match self.ask(words) {
            QlessReply::Number(number) => number,
            other => panic!("{words}: {other:?}"),
        }
    }

    /// Makes a call that answers nil.
    pub(crate) fn nil(&mut self, words: &str) {
        assert_eq!(self.ask(words), QlessReply::Nil, "{words}");
    }

    /// The words in which a call is refused.
    pub(crate) fn refused(&mut self, words: &str) -> String {
        match self.call(words) {
            Err(refusal) => lossy(&refusal.0),
            Ok(reply) => panic!("{words}: {reply:?}"),
        }
    }

    /// The messages since the last time, as `channel payload`.
    pub(crate) fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    /// A row as it is stored.
    pub(crate) fn stored(&self, key: &QlessKey) -> Option<&QlessRow> {
        self.stored.get(key)
    }

    /// Another request than those of the script.
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

    /// Stores what changed; how many rows.
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
        // Any order of rows will do.
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
