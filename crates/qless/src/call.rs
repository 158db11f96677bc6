//! The context of a command, the reading of its arguments, and its refusals.
//!
//! An argument that is missing (the list is too short) and one that is empty are two things: an empty job id is valid.

use bytes::Bytes;
use ganger_types::Elapsed;
use ganger_types::qless::{Generation, QlessMessage, QlessRefusal, QlessTag, QlessTime};

use crate::json::{self, Kind};
use crate::number;

/// The context of a call.
pub(crate) struct Call<'a> {
    /// The caller's time, finite.
    pub(crate) now: f64,
    /// The server's time, used only for the lifetimes of throttles.
    pub(crate) server: Elapsed,
    /// The generation of the script that the caller uses.
    pub(crate) generation: Generation,
    /// Messages to publish, in order. None may be added before the command's last check has passed.
    pub(crate) messages: &'a mut Vec<QlessMessage>,
}

impl Call<'_> {
    /// Returns the caller's time, as records and orders store it.
    pub(crate) fn at(&self) -> QlessTime {
        QlessTime::new(self.now)
    }

    /// Returns the time `seconds` after the caller's.
    pub(crate) fn after(&self, seconds: f64) -> QlessTime {
        QlessTime::new(number::sum(self.now, seconds))
    }

    /// Whether the caller's generation has throttles.
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

/// The arguments of a command: what follows its name and the time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arguments<'a>(pub(crate) &'a [Bytes]);

impl<'a> Arguments<'a> {
    /// The argument at `index`, if the list is that long.
    pub(crate) fn get(self, index: usize) -> Option<&'a Bytes> {
        self.0.get(index)
    }

    /// The argument at `index`; if it is missing, the refusal `otherwise`.
    pub(crate) fn required(self, index: usize, otherwise: &str) -> Result<&'a Bytes, QlessRefusal> {
        self.get(index)
            .ok_or_else(|| refuse(&[otherwise.as_bytes()]))
    }

    /// The argument at `index` as the name of a queue.
    pub(crate) fn queue(self, index: usize) -> Result<&'a Bytes, QlessRefusal> {
        self.required(index, "Queue(): no queue name provided")
    }

    /// The argument at `index` as the id of a job.
    pub(crate) fn job(self, index: usize) -> Result<&'a Bytes, QlessRefusal> {
        self.required(index, "Job(): no jid provided")
    }

    /// The argument at `index` as the id of a recurring job.
    pub(crate) fn recurring(self, index: usize) -> Result<&'a Bytes, QlessRefusal> {
        self.required(index, "Recurring(): no jid provided")
    }

    /// The argument at `index` as a number. If it is missing or none: `complaint`, then the argument, `nil` if missing.
    pub(crate) fn number(self, index: usize, complaint: &str) -> Result<f64, QlessRefusal> {
        match self.get(index) {
            Some(text) => number_of(text, complaint),
            None => Err(refuse(&[complaint.as_bytes(), b"nil"])),
        }
    }

    /// The same, with a value for a missing argument.
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

    /// The argument at `index` as a whole number, with a value for a missing one.
    pub(crate) fn whole_or(
        self,
        index: usize,
        default: f64,
        complaint: &str,
    ) -> Result<i64, QlessRefusal> {
        whole(self.number_or(index, default, complaint)?)
    }

    /// The arguments from `index` on; none if the list is shorter.
    pub(crate) fn from(self, index: usize) -> &'a [Bytes] {
        self.0.get(index..).unwrap_or(&[])
    }

    /// The arguments from `index` on in pairs of option and value.
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

/// Arguments in pairs of option and value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pairs<'a>(pub(crate) &'a [Bytes]);

impl<'a> Pairs<'a> {
    /// The value of `option`; of a repeated option the last. A last word without a value counts as absent.
    pub(crate) fn get(self, option: &str) -> Option<&'a Bytes> {
        let pairs = self.0.chunks_exact(2);
        pairs
            .rev()
            .find(|pair| pair[0] == option)
            .map(|pair| &pair[1])
    }

    /// The value of `option` as a number, if it is given. If it is none: `complaint`, then the value.
    pub(crate) fn number(self, option: &str, complaint: &str) -> Result<Option<f64>, QlessRefusal> {
        self.get(option)
            .map(|text| number_of(text, complaint))
            .transpose()
    }
}

/// The number that `text` is; if it is none, the refusal `complaint` followed by the text.
pub(crate) fn number_of(text: &Bytes, complaint: &str) -> Result<f64, QlessRefusal> {
    number::parse(text).ok_or_else(|| refuse(&[complaint.as_bytes(), text]))
}

/// The argument as JSON text, which stays as it is; `complaint`, then the argument, if it is missing or `false`.
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

/// What kind of JSON an argument is; if it is none, the reader's own words.
pub(crate) fn json_of(text: &Bytes) -> Result<Kind, QlessRefusal> {
    json::kind(text).map_err(|wrong| refuse(&[wrong.to_string().as_bytes()]))
}

/// A list of tags or jids that is sent as JSON.
pub(crate) fn list_of(text: &Bytes) -> Result<Vec<QlessTag>, QlessRefusal> {
    json::list(text).map_err(|wrong| refuse(&[wrong.to_string().as_bytes()]))
}

/// A whole number, as pages and counts must be.
pub(crate) fn whole(number: f64) -> Result<i64, QlessRefusal> {
    number::whole(number).ok_or_else(|| refuse(&[b"value is not an integer or out of range"]))
}

/// How many to take at most, of a count that may be below 0 (none).
pub(crate) fn at_most(count: i64) -> usize {
    usize::try_from(count.max(0)).unwrap_or(usize::MAX)
}

/// A refusal in the script's words, of these parts. Parts that came from a caller may be any bytes.
pub(crate) fn refuse(parts: &[&[u8]]) -> QlessRefusal {
    QlessRefusal(parts.concat().into())
}
