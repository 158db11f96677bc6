//! Glob patterns over bytes, as in Redis: `*`, `?`, `[a-z]`, `[^x]`, and a backslash before a literal character.
//!
//! A pattern is compiled once into an automaton. Matching follows all its states at the same time, one bit each, so
//! the cost does not depend on the contents of pattern and text.

use ganger_types::limits::KEY_PATTERN_MAX;

/// Bits of a word.
const WORD_BITS: usize = 64;

/// A set of bytes.
type ByteSet = [u64; 4];

/// A compiled pattern.
///
/// State `n` means that the first `n` parts of the pattern have matched. A part matches one byte. A star is not a
/// part: it lets the state before the next part stay on any byte.
#[derive(Debug)]
pub struct Glob {
    /// Number of words in a set of states.
    words: usize,
    /// For each byte, the set of states that it advances.
    steps: Vec<u64>,
    /// States with a star.
    staying: Vec<u64>,
    /// The final state: the whole pattern has matched.
    last: usize,
    /// Bytes with which every match begins.
    prefix: Vec<u8>,
}

impl Glob {
    /// Compiles a pattern; `None` if it is longer than [`KEY_PATTERN_MAX`].
    pub fn new(pattern: &[u8]) -> Option<Self> {
        if pattern.len() > KEY_PATTERN_MAX {
            return None;
        }
        let (parts, stars) = read(pattern);
        let last = parts.len();
        let words = last / WORD_BITS + 1;
        let mut steps = vec![0; 256 * words];
        for (state, set) in parts.iter().enumerate() {
            for byte in 0..=u8::MAX {
                if has(set, byte) {
                    put(&mut steps[usize::from(byte) * words..], state);
                }
            }
        }
        let mut staying = vec![0; words];
        for state in stars {
            put(&mut staying, state);
        }
        Some(Self {
            words,
            steps,
            staying,
            last,
            prefix: literal_prefix(pattern),
        })
    }

    /// Whether the whole text matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        if !text.starts_with(&self.prefix) {
            return false;
        }
        if self.words == 1 {
            return self.matches_short(text);
        }
        let mut states = vec![0; self.words];
        states[0] = 1;
        for byte in text {
            let at = usize::from(*byte) * self.words;
            let steps = &self.steps[at..at + self.words];
            let mut carried = 0;
            let mut is_alive = false;
            for ((state, step), stay) in states.iter_mut().zip(steps).zip(&self.staying) {
                let on = *state & step;
                *state = (on << 1) | carried | (*state & stay);
                carried = on >> (WORD_BITS - 1);
                is_alive |= *state != 0;
            }
            if !is_alive {
                return false;
            }
        }
        (states[self.last / WORD_BITS] >> (self.last % WORD_BITS)) & 1 == 1
    }

    /// [`Glob::matches`] for patterns whose sets of states are one word.
    fn matches_short(&self, text: &[u8]) -> bool {
        let (mut states, stays) = (1_u64, self.staying[0]);
        for byte in text {
            states = ((states & self.steps[usize::from(*byte)]) << 1) | (states & stays);
            if states == 0 {
                return false;
            }
        }
        (states >> self.last) & 1 == 1
    }

    /// The maximum cost of matching a text of this length, in steps of about a nanosecond.
    pub fn cost(&self, text_bytes: usize) -> usize {
        self.words.saturating_mul(text_bytes).saturating_add(1)
    }

    /// The size of the pattern in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let words = self.steps.len() + self.staying.len();
        size_of::<Self>() + words * size_of::<u64>() + self.prefix.len()
    }

    /// Bytes with which every match begins, to limit the search.
    pub(crate) fn prefix(&self) -> &[u8] {
        &self.prefix
    }
}

fn put(words: &mut [u64], at: usize) {
    words[at / WORD_BITS] |= 1 << (at % WORD_BITS);
}

fn has(set: &ByteSet, byte: u8) -> bool {
    let at = usize::from(byte);
    (set[at / WORD_BITS] >> (at % WORD_BITS)) & 1 == 1
}

fn only(byte: u8) -> ByteSet {
    let mut set = ByteSet::default();
    put(&mut set, usize::from(byte));
    set
}

/// The parts of a pattern, and the states that have a star.
fn read(pattern: &[u8]) -> (Vec<ByteSet>, Vec<usize>) {
    let (mut parts, mut stars) = (Vec::new(), Vec::new());
    let mut rest = pattern;
    loop {
        rest = match rest {
            [] => return (parts, stars),
            [b'*', rest @ ..] => {
                stars.push(parts.len());
                rest
            }
            [b'?', rest @ ..] => {
                parts.push([u64::MAX; 4]);
                rest
            }
            [b'[', ..] => {
                let (set, length) = class(rest);
                parts.push(set);
                &rest[length..]
            }
            [b'\\', next, rest @ ..] | [next, rest @ ..] => {
                parts.push(only(*next));
                rest
            }
        };
    }
}

fn literal_prefix(pattern: &[u8]) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut rest = pattern;
    loop {
        match rest {
            [] | [b'*' | b'?' | b'[', ..] => return prefix,
            [b'\\', next, tail @ ..] | [next, tail @ ..] => {
                prefix.push(*next);
                rest = tail;
            }
        }
    }
}

/// The bytes of a class such as `[^a-c]`, and its length. A class without a closing bracket ends with the pattern.
fn class(pattern: &[u8]) -> (ByteSet, usize) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = if is_negated { 2 } else { 1 };
    let mut set = ByteSet::default();
    while at < pattern.len() {
        match pattern[at..] {
            [b'\\', next, ..] => {
                put(&mut set, usize::from(next));
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [low, b'-', high, ..] => {
                (low.min(high)..=low.max(high)).for_each(|byte| put(&mut set, usize::from(byte)));
                at += 3;
            }
            [next, ..] => {
                put(&mut set, usize::from(next));
                at += 1;
            }
            [] => break,
        }
    }
    if is_negated {
        set = set.map(|word| !word);
    }
    (set, at)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &[u8], text: &[u8]) -> bool {
        Glob::new(pattern).expect("short").matches(text)
    }

    /// The reference implementation: follows the states one by one.
    fn defined(pattern: &[u8], text: &[u8]) -> bool {
        let (parts, stars) = read(pattern);
        let mut states = vec![false; parts.len() + 1];
        states[0] = true;
        for byte in text {
            let led_to = |state: usize| {
                let came = state > 0 && states[state - 1] && has(&parts[state - 1], *byte);
                came || states[state] && stars.contains(&state)
            };
            states = (0..states.len()).map(led_to).collect();
        }
        states[parts.len()]
    }

    proptest! {
        #[test]
        fn all_ways_at_once_are_all_ways_one_by_one(
            pattern in vec(prop::sample::select(&b"ab*?[]^-\\"[..]), 0..12),
            text in vec(prop::sample::select(&b"abc]^-\\"[..]), 0..12),
            pattern_times in prop::sample::select(vec![1, 20]),
            text_times in prop::sample::select(vec![1, 20]),
        ) {
            // Repeated patterns mostly need more than one word.
            let (pattern, text) = (pattern.repeat(pattern_times), text.repeat(text_times));
            prop_assert_eq!(matches(&pattern, &text), defined(&pattern, &text));
        }
    }

    #[test]
    fn a_pattern_of_a_kibibyte_compiles_and_a_longer_one_does_not() {
        let literal = b"ab".repeat(KEY_PATTERN_MAX / 2);
        assert!(matches(&literal, &literal));
        assert!(!matches(&literal, &literal[1..]));
        let mut stars = b"a*".repeat(KEY_PATTERN_MAX / 2);
        assert!(matches(&stars, &vec![b'a'; 64 << 10]));
        assert!(!matches(&stars, &[b'a'; KEY_PATTERN_MAX / 2 - 1]));
        stars.push(b'a');
        assert!(Glob::new(&stars).is_none());
    }

    #[test]
    fn the_cost_depends_on_lengths_only() {
        let cost = |pattern: &[u8]| Glob::new(pattern).expect("short").cost(64 << 10);
        let class = [b"*[", &[b'z'; 1_000][..], b"]"].concat();
        assert_eq!(cost(&class), cost(b"*z"));
        let stars = b"*a".repeat(KEY_PATTERN_MAX / 2);
        assert!(cost(&stars) <= 9 * cost(b"*"));
    }

    #[test]
    fn patterns_match_as_in_redis() {
        let table: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abbbc", true),
            ("a*c", "abbb", false),
            ("a*b*c", "axxbyyc", true),
            ("P:item:*", "P:item:", true),
            ("P:item:*", "P:items", false),
            ("?", "", false),
            ("?", "x", true),
            ("??", "x", false),
            ("[abc]", "b", true),
            ("[abc]", "d", false),
            ("[^abc]", "d", true),
            ("[^abc]", "a", false),
            ("[a-c]x", "bx", true),
            ("[c-a]x", "bx", true),
            ("[a-c]x", "dx", false),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"[\]]", "]", true),
            ("a[1]", "a1", true),
            ("a[1]", "a[1]", false),
            ("[ab", "a", true),
            ("***a", "bca", true),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                *expected,
                "{pattern:?} and {text:?}"
            );
        }
    }

    #[test]
    fn the_literal_prefix_is_what_every_match_begins_with() {
        assert_eq!(literal_prefix(b"P:item:*"), b"P:item:");
        assert_eq!(literal_prefix(br"a\*b?"), b"a*b");
        assert_eq!(literal_prefix(b"[a]b"), b"");
        assert_eq!(literal_prefix(b"plain"), b"plain");
        assert_eq!(literal_prefix(br"end\"), br"end\");
    }
}
