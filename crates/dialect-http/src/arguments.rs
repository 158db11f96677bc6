//! Query parameters: strict and typed; each error names the parameter.

use std::time::Duration;

use ganger_document::names::{self, JobReference, Name};
use ganger_document::time::{read_moment, read_span};
use ganger_types::Timestamp;
use ganger_types::limits::NAME_BYTES_MAX;
use ganger_types::size::read_size;
use percent_encoding::percent_decode;

use crate::problem::Problem;

/// Parameters that may be repeated: a job must match any of the states, and all tags and labels.
const REPEATABLE: [&str; 3] = ["state", "tag", "label"];

/// The parameters of one request, as bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arguments(Vec<(String, Vec<u8>)>);

impl Arguments {
    /// Parses a query string. Only `known` names are allowed, each once except those in [`REPEATABLE`].
    pub(crate) fn read(query: &str, known: &[&str]) -> Result<Self, Problem> {
        let mut all: Vec<(String, Vec<u8>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = String::from_utf8_lossy(&decode(name)).into_owned();
            if !known.contains(&name.as_str()) {
                return Err(unknown(&name, known));
            }
            let is_double = all.iter().any(|(earlier, _)| *earlier == name);
            if is_double && !REPEATABLE.contains(&name.as_str()) {
                return Err(refused(&name, "is given twice: give it once"));
            }
            all.push((name, decode(value)));
        }
        Ok(Self(all))
    }

    /// The bytes of the argument of this name; `None` if it is absent.
    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_slice())
    }

    /// The argument of this name as text; `None` if it is absent.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        self.bytes(name)
            .map(|value| std::str::from_utf8(value).map_err(|_| refused(name, "is not UTF-8")))
            .transpose()
    }

    /// Whether an argument of this name is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.bytes(name).is_some()
    }

    /// The argument of this name as a number of bytes, such as `64KiB`; `None` if it is absent.
    pub(crate) fn size(&self, name: &str) -> Result<Option<u64>, Problem> {
        self.parsed(name, |text| {
            read_size(text).map_err(|error| error.to_string())
        })
    }

    /// All values of a parameter that may be repeated, as bytes.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let given = self.0.iter().filter(move |(known, _)| known == name);
        given.map(|(_, value)| value.as_slice())
    }

    /// The argument of this name as the first bytes of names; `None` if it is absent.
    pub(crate) fn prefix(&self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        let Some(value) = self.bytes(name) else {
            return Ok(None);
        };
        let prefix = names::read(value);
        if prefix.len() > NAME_BYTES_MAX {
            let reason = format!("is longer than a name, which has at most {NAME_BYTES_MAX} bytes");
            return Err(refused(name, &reason));
        }
        Ok(Some(prefix))
    }

    /// All values of a parameter that may be repeated.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<&str>, Problem> {
        let given = self.0.iter().filter(|(known, _)| known == name);
        given
            .map(|(_, value)| std::str::from_utf8(value).map_err(|_| refused(name, "is not UTF-8")))
            .collect()
    }

    /// The argument of this name as a name of the engine; `None` if it is absent.
    pub(crate) fn name<T: Name>(&self, name: &str) -> Result<Option<T>, Problem> {
        self.bytes(name)
            .map(|value| {
                T::from_bytes(&names::read(value))
                    .map_err(|error| refused(name, &error.to_string()))
            })
            .transpose()
    }

    /// The argument of this name as a job, by id or `shard/id`; `None` if it is absent.
    pub(crate) fn job(&self, name: &str) -> Option<JobReference> {
        self.bytes(name)
            .map(|value| JobReference(names::read(value)))
    }

    /// The argument of this name as a duration; `None` if it is absent.
    pub(crate) fn span(&self, name: &str) -> Result<Option<Duration>, Problem> {
        self.parsed(name, read_span)
    }

    /// The argument of this name as a calendar time; `None` if it is absent.
    pub(crate) fn moment(&self, name: &str) -> Result<Option<Timestamp>, Problem> {
        self.parsed(name, read_moment)
    }

    /// The argument of this name as a whole number from `least` to `most`; `None` if it is absent.
    pub(crate) fn number(&self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Problem> {
        self.parsed(name, |text| {
            text.parse()
                .ok()
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| {
                    format!("must be a whole number from {least} to {most}, not {text:?}")
                })
        })
    }

    /// The argument of this name as a boolean: `true` or `false`; the name alone is `true`, absence `false`.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Problem> {
        let flag = self.parsed(name, |text| match text {
            "" | "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(format!("must be true or false, not {text:?}")),
        })?;
        Ok(flag.unwrap_or(false))
    }

    /// The argument of this name as one of a few words.
    pub(crate) fn word<T: Copy>(
        &self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Problem> {
        self.parsed(name, |text| {
            words
                .iter()
                .find(|known| known.0 == text)
                .map(|known| known.1)
                .ok_or_else(|| {
                    let known: Vec<_> = words.iter().map(|known| known.0).collect();
                    format!("must be one of {}, not {text:?}", known.join(", "))
                })
        })
    }

    fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Problem> {
        self.text(name)?
            .map(|text| parse(text).map_err(|reason| refused(name, &reason)))
            .transpose()
    }
}

/// Decodes percent escapes; `+` is a space, as in forms.
fn decode(text: &str) -> Vec<u8> {
    let spaced: Vec<u8> = text
        .bytes()
        .map(|byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    percent_decode(&spaced).collect()
}

/// The error about the query parameter `name`.
pub(crate) fn refused(name: &str, reason: &str) -> Problem {
    Problem::new("invalid_value", format!("query parameter {name}: {reason}"))
}

fn unknown(name: &str, known: &[&str]) -> Problem {
    Problem::new(
        "unknown_parameter",
        format!(
            "query parameter {name:?} is not known here: this operation takes {}",
            known.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::Queue;

    const KNOWN: &[&str] = &["queue", "limit", "wait", "follow"];

    #[test]
    fn parameters_are_typed_and_decoded() {
        let read = Arguments::read("queue=a%2Fb%ff+c&limit=7&wait=1m&follow", KNOWN).expect("good");
        let queue: Queue = read.name("queue").expect("a name").expect("given");
        assert_eq!(queue.as_bytes(), b"a/b\xff c");
        assert_eq!(read.number("limit", 1, 10), Ok(Some(7)));
        assert_eq!(read.span("wait"), Ok(Some(Duration::from_secs(60))));
        assert_eq!(read.flag("follow"), Ok(true));
    }

    #[test]
    fn what_is_unknown_double_or_out_of_range_is_refused() {
        let code = |query| Arguments::read(query, KNOWN).expect_err("refused").code;
        assert_eq!(code("colour=red"), "unknown_parameter");
        assert_eq!(code("limit=1&limit=2"), "invalid_value");
        let read =
            Arguments::read("limit=11&wait=soon&follow=perhaps", KNOWN).expect("names are known");
        assert!(read.number("limit", 1, 10).is_err());
        assert!(read.span("wait").is_err());
        assert!(read.flag("follow").is_err());
    }
}
