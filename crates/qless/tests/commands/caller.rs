//! A client whose every call is checked: what is refused changes nothing, indexes agree with rows, and the rows that were
//! told of as changed are enough to build the state again.

use std::collections::BTreeMap;

use bytes::Bytes;
use ganger_qless::Qless;
use ganger_types::Elapsed;
use ganger_types::qless::{Generation, QlessAnswer, QlessKey, QlessReply, QlessRequest, QlessRow};
use serde_json::Value;

/// A client of a state of its own.
pub(crate) struct Caller {
    state: Qless,
    /// As a store has them that is given every change.
    stored: BTreeMap<QlessKey, QlessRow>,
    generation: Generation,
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
            state: Qless::default(),
            stored: BTreeMap::new(),
            generation,
            messages: Vec::new(),
        }
    }

    /// Goes on as a client of another generation.
    pub(crate) fn speak(&mut self, generation: Generation) {
        self.generation = generation;
    }

    /// A call of words between spaces, `''` for an empty one.
    pub(crate) fn call(&mut self, words: &str) -> QlessAnswer {
        let words = words.split(' ');
        let word = |it: &str| Bytes::copy_from_slice(if it == "''" { b"" } else { it.as_bytes() });
        self.call_with(words.map(word).collect())
    }

    /// A call of these words, which may be any bytes.
    pub(crate) fn call_with(&mut self, words: Vec<Bytes>) -> QlessAnswer {
        let mut messages = Vec::new();
        let request = QlessRequest::Script {
            generation: self.generation,
            words,
        };
        let answer = self.state.call(Elapsed::default(), request, &mut messages);
        let changed = self.state.take_changed();
        if answer.is_err() {
            assert!(messages.is_empty(), "a refused call told {messages:?}");
            assert!(changed.is_empty(), "a refused call changed {changed:?}");
        }
        for (key, row) in changed {
            match row {
                Some(row) => self.stored.insert(key, row),
                None => self.stored.remove(&key),
            };
        }
        let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
        let told = messages
            .iter()
            .map(|it| format!("{} {}", text(&it.channel), text(&it.payload)));
        self.messages.extend(told);
        self.check();
        answer
    }

    /// The answer to a call that is not refused.
    pub(crate) fn ask(&mut self, words: &str) -> QlessReply {
        self.call(words)
            .unwrap_or_else(|refusal| panic!("{words}: {refusal:?}"))
    }

    /// The text that a call answers.
    pub(crate) fn text(&mut self, words: &str) -> String {
        match self.ask(words) {
            QlessReply::Text(text) => {
                String::from_utf8(text.to_vec()).expect("the test reads UTF-8")
            }
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
                let texts = list.iter().map(|it| String::from_utf8_lossy(it));
                texts.collect::<Vec<_>>().join(" ")
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
            Err(refusal) => String::from_utf8_lossy(&refusal.0).into_owned(),
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

    /// Other requests than those of the script.
    pub(crate) fn request(&mut self, request: QlessRequest) -> QlessReply {
        let answer = self
            .state
            .call(Elapsed::default(), request, &mut Vec::new());
        for (key, row) in self.state.take_changed() {
            match row {
                Some(row) => self.stored.insert(key, row),
                None => self.stored.remove(&key),
            };
        }
        self.check();
        answer.expect("such a request is not refused")
    }

    fn check(&self) {
        let rows = self.state.rows();
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
        self.state.check(&mut wrong);
        again.check(&mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
