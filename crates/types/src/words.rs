//! Words for the values of enumerations.
//!
//! JSON, the command line and error messages all take the words from [`Words::WORDS`].

/// An enumeration with a word for each value, such as `fail`, `wait`, `ignore`.
pub trait Words: Copy + PartialEq + 'static {
    /// Name of the enumeration in published schemas.
    const NAME: &'static str;
    /// Each value with its word, in the order in which messages list them.
    const WORDS: &'static [(&'static str, Self)];

    /// The word of a value.
    fn word(self) -> &'static str;

    /// The value with this word; `None` if there is none.
    fn from_word(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|known| known.0 == word);
        found.map(|known| known.1)
    }
}

/// Implements [`Words`] and a method `as_str` for an enumeration of plain values.
macro_rules! words {
    ($type:ident { $($word:literal => $value:ident),+ $(,)? }) => {
        impl $type {
            /// The word for the value in documents.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl $crate::words::Words for $type {
            const NAME: &'static str = stringify!($type);
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];

            fn word(self) -> &'static str {
                self.as_str()
            }
        }
    };
}
pub(crate) use words;

#[cfg(test)]
mod tests {
    use super::Words;
    use crate::command::TakeMode;
    use crate::{CatchUp, Clock, DueOrder, FailurePolicy, JobState, Overlap};

    fn read_back<T: Words + std::fmt::Debug>() {
        for (word, value) in T::WORDS {
            assert_eq!(T::from_word(word), Some(*value));
            assert_eq!(value.word(), *word);
        }
        assert_eq!(T::from_word("no such word"), None);
    }

    #[test]
    fn every_value_reads_back_from_its_word() {
        read_back::<FailurePolicy>();
        read_back::<JobState>();
        read_back::<DueOrder>();
        read_back::<Clock>();
        read_back::<Overlap>();
        read_back::<CatchUp>();
        read_back::<TakeMode>();
    }
}
