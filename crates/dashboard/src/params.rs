//! Parameters of addresses and fields of forms: strict, typed, each refusal naming the parameter.

use std::str::FromStr;

use ganger_document::names::{self, Name};
use percent_encoding::percent_decode;

use crate::fault::Fault;

/// Parameters that every page takes.
pub(crate) const EVERYWHERE: [&str; 2] = ["ns", "shard"];

/// Parameters that may be given more than once.
const REPEATABLE: [&str; 3] = ["state", "columns", "job"];

/// Pairs of one query or form. Further ones are left out: no page and no form of ours has so many.
const PAIRS_MAX: usize = 1_000;

/// Decoded pairs, in order. Pairs without a value are left out, as forms send fields that nobody filled in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params(Vec<(String, Vec<u8>)>);

impl Params {
    /// Reads a query string or a form. Only `known` names and those of [`EVERYWHERE`] are taken.
    pub(crate) fn read(text: &str, known: &[&str]) -> Result<Self, Fault> {
        let params = Self::read_any(text);
        for (at, (name, _)) in params.0.iter().enumerate() {
            if !known.contains(&name.as_str()) && !EVERYWHERE.contains(&name.as_str()) {
                let known: Vec<&str> = known.iter().copied().chain(EVERYWHERE).collect();
                return Err(Fault::new(
                    "unknown_parameter",
                    "This address cannot be used",
                    format!(
                        "{name:?} is not a parameter of this page: it takes {}",
                        known.join(", ")
                    ),
                ));
            }
            let is_double = params.0[..at].iter().any(|(earlier, _)| earlier == name);
            if is_double && !REPEATABLE.contains(&name.as_str()) {
                return Err(Fault::value(name, "is given twice: give it once"));
            }
        }
        Ok(params)
    }

    /// Reads pairs of any names.
    pub(crate) fn read_any(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .take(PAIRS_MAX);
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = String::from_utf8_lossy(&decode(name)).into_owned();
            (name, decode(value))
        });
        Self(decoded.filter(|(_, value)| !value.is_empty()).collect())
    }

    pub(crate) fn bytes(&self, name: &str) -> Option<&[u8]> {
        let mut pairs = self.0.iter();
        pairs
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_slice())
    }

    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>, Fault> {
        self.bytes(name)
            .map(|value| std::str::from_utf8(value).map_err(|_| Fault::value(name, "is not UTF-8")))
            .transpose()
    }

    /// All values of a parameter that may be repeated.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<&str>, Fault> {
        let given = self.0.iter().filter(|(known, _)| known == name);
        given
            .map(|(_, value)| {
                std::str::from_utf8(value).map_err(|_| Fault::value(name, "is not UTF-8"))
            })
            .collect()
    }

    /// A name of any bytes.
    pub(crate) fn name<T: Name>(&self, name: &str) -> Result<Option<T>, Fault> {
        self.bytes(name)
            .map(|value| {
                T::from_bytes(&names::read(value))
                    .map_err(|error| Fault::value(name, &error.to_string()))
            })
            .transpose()
    }

    /// A name that must be there.
    pub(crate) fn needed<T: Name>(&self, name: &str) -> Result<T, Fault> {
        self.name(name)?
            .ok_or_else(|| Fault::value(name, "is missing from the address"))
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(
        &self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, Fault> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let known = known.join(", ");
            Fault::value(name, &format!("must be one of {known}, not {text:?}"))
        })
    }

    /// A number from `least` to `most`.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "bounds are numbers, and callers write them as such"
    )]
    pub(crate) fn number<T>(&self, name: &str, least: T, most: T) -> Result<Option<T>, Fault>
    where
        T: FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        let number = text.trim().parse().ok();
        number
            .filter(|number| (&least..=&most).contains(&number))
            .map(Some)
            .ok_or_else(|| {
                Fault::value(
                    name,
                    &format!("must be a whole number from {least} to {most}, not {text:?}"),
                )
            })
    }

    /// Whether a parameter is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.bytes(name).is_some()
    }

    /// All parameters in their order, with the bytes of their values.
    pub(crate) fn raw_pairs(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The pairs as text, names decoded.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, String)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value).into_owned()))
    }
}

/// Percent-decodes; `+` is a space, as forms write it.
fn decode(text: &str) -> Vec<u8> {
    let spaced: Vec<u8> = text
        .bytes()
        .map(|byte| if byte == b'+' { b' ' } else { byte })
        .collect();
    percent_decode(&spaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::Queue;

    #[test]
    fn what_is_unknown_or_double_is_refused_and_empty_fields_are_absent() {
        let code = |text| Params::read(text, &["name", "state"]).map_err(|fault| fault.code);
        assert_eq!(code("colour=red").err(), Some("unknown_parameter"));
        assert_eq!(code("name=a&name=b").err(), Some("invalid_value"));
        let read = code("name=&state=ready&state=failed&ns=x").expect("good");
        assert!(!read.has("name"));
        assert_eq!(read.texts("state").expect("text"), ["ready", "failed"]);
    }

    #[test]
    fn names_are_any_bytes() {
        let read = Params::read("name=a%2Fb%5Cxff+c", &["name"]).expect("good");
        let queue: Queue = read.needed("name").expect("a name");
        assert_eq!(queue.as_bytes(), b"a/b\xff c");
        assert!(read.number("name", 1_u32, 2).is_err());
    }
}
