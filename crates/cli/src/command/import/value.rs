//! Replies of a Redis.

use ganger_client::Bytes;

/// A value of a Redis reply.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// No value: the null reply.
    Nil,
    /// A whole number, with sign.
    Number(i64),
    /// A status, or bytes.
    Bytes(Bytes),
    /// A list of values, in order.
    List(Vec<Value>),
    /// An error, as the server words it.
    Error(String),
}

impl Value {
    /// The bytes; `None` for anything else.
    pub(super) fn bytes(self) -> Option<Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number; 0 for anything else.
    pub(super) fn number(&self) -> i64 {
        match self {
            Self::Number(number) => *number,
            _ => 0,
        }
    }

    /// A size; 0 for anything else.
    pub(super) fn size(&self) -> usize {
        usize::try_from(self.number()).unwrap_or(0)
    }

    /// The bytes of a list; none for anything else.
    pub(super) fn list(self) -> Vec<Bytes> {
        match self {
            Self::List(values) => values.into_iter().filter_map(Self::bytes).collect(),
            _ => Vec::new(),
        }
    }

    /// The bytes of each element of a list; no bytes for anything else in it.
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

    /// The bytes of a list, two and two.
    pub(super) fn pairs(self) -> Vec<(Bytes, Bytes)> {
        let mut list = self.list().into_iter();
        let mut pairs = Vec::with_capacity(list.len() / 2);
        while let (Some(name), Some(value)) = (list.next(), list.next()) {
            pairs.push((name, value));
        }
        pairs
    }

    /// A score of a sorted set, if it is one. It may be infinite.
    pub(super) fn score(self) -> Option<f64> {
        score(&self.bytes()?)
    }

    /// Members of a sorted set with their scores.
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
