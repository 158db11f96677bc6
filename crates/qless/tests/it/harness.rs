//! A database with a short notation for calls: a line as in the description of the dialect, `command now argument...`,
//! with `''` for an empty argument.

use bytes::Bytes;
use ganger_qless::Qless;
use ganger_types::Elapsed;
use ganger_types::qless::{Generation, QlessAnswer, QlessMessage, QlessReply, QlessRequest};
use serde_json::Value;

/// A database with a client that calls it.
pub(crate) struct Database {
    pub(crate) qless: Qless,
    /// The generation of the script that the client uses.
    pub(crate) generation: Generation,
    /// Current time of the server.
    pub(crate) at: Elapsed,
    /// Messages of the last call, each as the channel, a space, and the payload.
    pub(crate) messages: Vec<String>,
}

impl Database {
    pub(crate) fn new(generation: Generation) -> Self {
        Self {
            qless: Qless::default(),
            generation,
            at: Elapsed(0),
            messages: Vec::new(),
        }
    }

    /// Makes a call with these words. Checks that the state is sound, and that a refused call has changed nothing.
    pub(crate) fn words(&mut self, words: &[&[u8]]) -> QlessAnswer {
        let before = self.qless.rows();
        let mut messages = Vec::new();
        let request = QlessRequest::Script {
            generation: self.generation,
            words: words
                .iter()
                .map(|word| Bytes::copy_from_slice(word))
                .collect(),
        };
        let answer = self.qless.call(self.at, request, &mut messages);
        let mut wrong = Vec::new();
        self.qless.check(&mut wrong);
        assert!(
            wrong.is_empty(),
            "after {}: {wrong:#?}",
            words.concat().escape_ascii()
        );
        if answer.is_err() {
            assert_eq!(self.qless.rows(), before);
            assert!(messages.is_empty());
        }
        self.messages = messages.iter().map(shown).collect();
        answer
    }

    /// Makes a call and returns the reply as text: `nil`, `:1`, the text, or a list separated by spaces.
    pub(crate) fn call(&mut self, line: &str) -> String {
        let answer = self.words(&split(line));
        match answer {
            Ok(QlessReply::Nil) => "nil".to_owned(),
            Ok(QlessReply::Number(number)) => format!(":{number}"),
            Ok(QlessReply::Text(text)) => lossy(&text),
            Ok(QlessReply::List(list)) => {
                let list: Vec<String> = list.iter().map(|it| lossy(it)).collect();
                list.join(" ")
            }
            Ok(QlessReply::Score(score)) => format!(",{score}"),
            Err(refusal) => panic!("{line}: {}", lossy(&refusal.0)),
        }
    }

    /// Makes a call and returns the reply as JSON.
    pub(crate) fn json(&mut self, line: &str) -> Value {
        let text = self.call(line);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{line}: {error}: {text}"))
    }

    /// Makes a call that must be refused, and returns the text of the refusal.
    pub(crate) fn refused(&mut self, line: &str) -> String {
        match self.words(&split(line)) {
            Ok(reply) => panic!("{line} gave {reply:?}"),
            Err(refusal) => lossy(&refusal.0),
        }
    }

    /// Makes a call that returns a list of jobs, and returns their jids.
    pub(crate) fn jids(&mut self, line: &str) -> Vec<String> {
        let list = self.json(line);
        let jobs = list.as_array().cloned().unwrap_or_default();
        jobs.iter()
            .map(|job| job["jid"].as_str().expect("a job has a jid").to_owned())
            .collect()
    }

    /// Returns one field of a job, as JSON text.
    pub(crate) fn of_job(&mut self, jid: &str, key: &str) -> String {
        self.json(&format!("get 0 {jid}"))[key].to_string()
    }

    /// Returns the names of the events in a job's history, in order.
    pub(crate) fn history(&mut self, jid: &str) -> Vec<String> {
        let job = self.json(&format!("get 0 {jid}"));
        let history = job["history"].as_array().expect("a job has a history");
        history
            .iter()
            .map(|it| it["what"].as_str().expect("an entry says what").to_owned())
            .collect()
    }
}

fn split(line: &str) -> Vec<&[u8]> {
    line.split(' ')
        .map(|word| match word {
            "''" => &b""[..],
            word => word.as_bytes(),
        })
        .collect()
}

fn shown(message: &QlessMessage) -> String {
    format!("{} {}", lossy(&message.channel), lossy(&message.payload))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
