//! The context of a command, the parsing of its arguments, and its refusals.
//!
//! A missing argument (the list is too short) and an empty one differ: an empty job id is valid.

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{Generation, QlessMessage, QlessRefusal, QlessTag, QlessTime};

use crate::json::{self, Kind};
use crate::number;

/// The context of one call: its times, its generation of the script, and the messages that it publishes.
pub(crate) struct Call<'a> {
    /// The caller's time in seconds since the epoch; always finite.
    pub(crate) now: f64,
    /// The server's time. Only the lifetimes of throttles depend on it.
    pub(crate) server: Elapsed,
    /// The generation of the script that the caller uses.
    pub(crate) generation: Generation,
    /// Messages to publish, in order. A command adds none before its last check has passed.
    pub(crate) messages: &'a mut Vec<QlessMessage>,
}

impl Call<'_> {
    /// Returns the caller's time, in the type that rows and indexes use.
    pub(crate) fn at(&self) -> QlessTime {
        QlessTime::new(self.now)
    }

    /// Returns the time `seconds` after the caller's; a negative number gives an earlier time.
    pub(crate) fn after(&self, seconds: f64) -> QlessTime {
        QlessTime::new(number::sum(self.now, seconds))
    }

    /// Whether the caller's generation has throttles, as only the third has.
    pub(crate) fn has_throttles(&self) -> bool {
        self.generation >= Generation::Three
    }

    /// Publishes `payload` on `channel`.
    pub(crate) fn publish(&mut self, channel: impl Into<Bytes>, payload: impl Into<Bytes>) {
        self.messages.push(QlessMessage {
            channel: channel.into(),
            payload: payload.into(),
        });
    }
}

/// The arguments of a command: the words after its name and the caller's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a>(pub(crate) &'a [Bytes]);

impl<'a> Arguments<'a> {
    /// Returns the argument at `index`, counted from 0; `None` if the list is shorter.
    pub(crate) fn get(self, index: usize) -> Option<&'a Bytes> {
        self.0.get(index)
    }

    /// Returns the argument at `index`; refuses the call with the text `otherwise` if it is missing.
    pub(crate) fn required(self, index: usize, otherwise: &str) -> Result<&'a Bytes, QlessRefusal> {
        self.get(index)
            .ok_or_else(|| refuse(&[otherwise.as_bytes()]))
    }

    /// Returns the argument at `index` as the name of a queue; refuses the call if it is missing.
    pub(crate) fn queue(self, index: usize) -> Result<&'a Bytes, QlessRefusal> {
        self.required(index, "Queue(): no queue name provided")
    }

    /// Returns the argument at `index` as the id of a job; refuses the call if it is missing.
    pub(crate) fn job(self, index: usize) -> Result<&'a Bytes, QlessRefusal> {
        self.required(index, "Job(): no jid provided")
    }

    /// Returns the argument at `index` as the id of a recurring job; refuses the call if it is missing.
    pub(crate) fn recurring(self, index: usize) -> Result<&'a Bytes, QlessRefusal> {
        self.required(index, "Recurring(): no jid provided")
    }

    /// Returns the argument at `index` as a number. If it is missing or not a number, the refusal is `complaint`
    /// followed by the argument, or by `nil` if it is missing.
    pub(crate) fn number(self, index: usize, complaint: &str) -> Result<f64, QlessRefusal> {
        match self.get(index) {
            Some(text) => number_of(text, complaint),
            None => Err(refuse(&[complaint.as_bytes(), b"nil"])),
        }
    }

    /// Returns the argument at `index` as a number, or `default` if it is missing. Refuses it if it is not a number.
    pub(crate) fn number_or(
        self,
        index: usize,
        default: f64,
        complaint: &str,
    ) -> Result<f64, QlessRefusal> {
        match self.get(index) {
            Some(text) => number_of(text, complaint),
            None => Ok(default),
        }
    }

    /// Returns the argument at `index` as a whole number, or `default` if it is missing.
    pub(crate) fn whole_or(
        self,
        index: usize,
        default: f64,
        complaint: &str,
    ) -> Result<i64, QlessRefusal> {
        whole(self.number_or(index, default, complaint)?)
    }

    /// Returns the arguments from `index` to the end; empty if the list is shorter.
    pub(crate) fn from(self, index: usize) -> &'a [Bytes] {
        self.0.get(index..).unwrap_or(&[])
    }

    /// Returns the arguments from `index` to the end as pairs of option and value; refuses an odd number of them.
    pub(crate) fn pairs(self, index: usize) -> Result<Pairs<'a>, QlessRefusal> {
        let words = self.from(index);
        if !words.len().is_multiple_of(2) {
            let mut message = b"Odd number of additional args: ".to_vec();
            message.extend(words.join(&b", "[..]));
            return Err(QlessRefusal(message.into()));
        }
        Ok(Pairs(words))
    }
}

/// Arguments as pairs: an option, then its value. The order of the pairs is free.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs<'a>(pub(crate) &'a [Bytes]);

impl<'a> Pairs<'a> {
    /// Returns the value of `option`, the last one if it is repeated; `None` if it is absent. A last word without a
    /// value is ignored.
    pub(crate) fn get(self, option: &str) -> Option<&'a Bytes> {
        let pairs = self.0.chunks_exact(2);
        pairs
            .rev()
            .find(|pair| pair[0] == option)
            .map(|pair| &pair[1])
    }

    /// Returns the value of `option` as a number; `None` if it is absent. If it is not a number, the refusal is
    /// `complaint` followed by the value.
    pub(crate) fn number(self, option: &str, complaint: &str) -> Result<Option<f64>, QlessRefusal> {
        self.get(option)
            .map(|text| number_of(text, complaint))
            .transpose()
    }
}

/// Parses `text` as a number. If it is not one, the refusal is `complaint` followed by the text.
pub(crate) fn number_of(text: &Bytes, complaint: &str) -> Result<f64, QlessRefusal> {
    number::parse(text).ok_or_else(|| refuse(&[complaint.as_bytes(), text]))
}

/// Returns the argument unchanged after checking that it is JSON. If it is missing or `false`, the refusal is
/// `complaint` followed by the argument, or by `nil` if it is missing.
pub(crate) fn data_of<'a>(
    argument: Option<&'a Bytes>,
    complaint: &str,
) -> Result<&'a Bytes, QlessRefusal> {
    let Some(text) = argument else {
        return Err(refuse(&[complaint.as_bytes(), b"nil"]));
    };
    match json_of(text)? {
        Kind::False => Err(refuse(&[complaint.as_bytes(), text])),
        _ => Ok(text),
    }
}

/// Returns the kind of JSON value in an argument. If it is not JSON, the refusal is the parser's error text.
pub(crate) fn json_of(text: &Bytes) -> Result<Kind, QlessRefusal> {
    json::kind(text).map_err(|wrong| refuse(&[wrong.to_string().as_bytes()]))
}

/// Parses a list of tags or jids that a client sent as JSON.
pub(crate) fn list_of(text: &Bytes) -> Result<Vec<QlessTag>, QlessRefusal> {
    json::list(text).map_err(|wrong| refuse(&[wrong.to_string().as_bytes()]))
}

/// Converts to a whole number, as offsets and counts need it; refuses a fraction or a number beyond 2^53.
pub(crate) fn whole(number: f64) -> Result<i64, QlessRefusal> {
    number::whole(number).ok_or_else(|| refuse(&[b"value is not an integer or out of range"]))
}

/// Converts a count to a limit; a negative count becomes 0.
pub(crate) fn limit_of_count(count: i64) -> usize {
    usize::try_from(count.max(0)).unwrap_or(usize::MAX)
}

/// Builds a refusal from the concatenated parts, in the script's words. Parts that came from a caller may be any bytes.
pub(crate) fn refuse(parts: &[&[u8]]) -> QlessRefusal {
    QlessRefusal(parts.concat().into())
}
