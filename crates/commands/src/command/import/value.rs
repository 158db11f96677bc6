//! Values in the replies of a Redis.

use ganger_client::Bytes;

/// A value of a Redis reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// No value: the null reply.
    Nil,
    /// A whole number, with sign.
    Number(i64),
    /// A simple string, or bytes.
    Bytes(Bytes),
    /// A list of values, in order.
    List(Vec<Value>),
    /// An error reply with its text.
    Error(String),
}

impl Value {
    /// Returns the bytes; `None` for any other value.
    pub(super) fn bytes(self) -> Option<Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns the number; 0 for any other value.
    pub(super) fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            _ => 0,
        }
    }

    /// Returns a size; 0 for any other value.
    pub(super) fn size(&self) -> usize {
        usize::try_from(self.number()).unwrap_or(0)
    }

    /// Returns the elements of a list that are bytes; empty for any other value.
    pub(super) fn list(self) -> Vec<Bytes> {
        match self {
            Self::List(values) => values.into_iter().filter_map(Self::bytes).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns every element of a list as bytes, empty for elements of other types; an empty list for any other value.
    #[cfg(feature = "quantumleap")]
    pub(super) fn each(self) -> Vec<Bytes> {
        match self {
            Self::List(values) => {
                let each = values.into_iter().map(Self::bytes);
                each.map(Option::unwrap_or_default).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the bytes of a list in pairs, as in the reply to `HGETALL`.
    pub(super) fn pairs(self) -> Vec<(Bytes, Bytes)> {
        let mut list = self.list().into_iter();
        let mut pairs = Vec::with_capacity(list.len() / 2);
        while let (Some(name), Some(value)) = (list.next(), list.next()) {
            pairs.push((name, value));
        }
        pairs
    }

    /// Returns a score of a sorted set, which may be infinite; `None` if there is none.
    pub(super) fn score(self) -> Option<f64> {
        score(&self.bytes()?)
    }

    /// Returns the members of a sorted set with their scores.
    pub(super) fn scores(self) -> Vec<(Bytes, f64)> {
        let pairs = self.pairs().into_iter();
        let scores = pairs.filter_map(|(name, text)| Some((name, score(&text)?)));
        scores.collect()
    }
}

fn score(text: &[u8]) -> Option<f64> {
    let score: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!score.is_nan()).then_some(score)
}
