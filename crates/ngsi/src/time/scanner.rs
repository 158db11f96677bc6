//! A scanner that reads the fields of a time from an ASCII text.

use jiff::tz::Offset;

/// The unread rest of a text.
#[derive(Clone, Copy)]
pub(super) struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner at the start of a text; `None` if the text is not ASCII, as all forms of a time are.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        text.is_ascii().then_some(Self { rest: text })
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    pub(super) fn is_at_digit(&self) -> bool {
        self.peek().is_some_and(|it| it.is_ascii_digit())
    }

    /// Consumes and returns the next character.
    pub(super) fn next_char(&mut self) -> Option<char> {
        let first = self.peek()?;
        self.rest = &self.rest[1..];
        Some(first)
    }

    /// Consumes this character if it is next; returns whether it was.
    pub(super) fn eat(&mut self, character: char) -> bool {
        let is_next = self.peek() == Some(character);
        if is_next {
            self.next_char();
        }
        is_next
    }

    /// Consumes blanks; returns whether there were any.
    pub(super) fn skip_blanks(&mut self) -> bool {
        !self.take_while(|it| it == ' ').is_empty()
    }

    /// Consumes the next letters and returns them in lower case; empty if there are none.
    pub(super) fn word(&mut self) -> String {
        self.take_while(|it| it.is_ascii_alphabetic())
            .to_ascii_lowercase()
    }

    /// Reads a number of exactly this many digits. More digits may follow.
    pub(super) fn fixed_digits(&mut self, digits: usize) -> Option<u32> {
        let (field, rest) = self.rest.split_at_checked(digits)?;
        if !field.bytes().all(|it| it.is_ascii_digit()) {
            return None;
        }
        self.rest = rest;
        field.parse().ok()
    }

    /// Reads a number with its number of digits; `None` if it has more than `digits_max`.
    pub(super) fn number(&mut self, digits_max: usize) -> Option<(u32, usize)> {
        let field = self.take_while(|it| it.is_ascii_digit());
        if field.len() > digits_max {
            return None;
        }
        Some((field.parse().ok()?, field.len()))
    }

    /// Reads a fraction after a point or comma as microseconds, truncated after six digits; 0 if there is none.
    pub(super) fn fraction(&mut self) -> Option<u32> {
        if !(self.eat('.') || self.eat(',')) {
            return Some(0);
        }
        let digits = self.take_while(|it| it.is_ascii_digit());
        let kept = &digits[..digits.len().min(6)];
        format!("{kept:0<6}")
            .parse()
            .ok()
            .filter(|_| !kept.is_empty())
    }

    /// Reads an offset: `Z`, `+hh`, `+hhmm`, `+hh:mm`, or the same with a minus.
    pub(super) fn offset(&mut self) -> Option<Offset> {
        let sign = match self.next_char()? {
            'Z' | 'z' => return Some(Offset::UTC),
            '+' => 1,
            '-' => -1,
            _ => return None,
        };
        let hours = self.fixed_digits(2)?;
        let minutes = if self.eat(':') || self.is_at_digit() {
            self.fixed_digits(2)?
        } else {
            0
        };
        if hours > 23 || minutes > 59 {
            return None;
        }
        let seconds = i32::try_from(hours * 3_600 + minutes * 60).ok()?;
        Offset::from_seconds(sign * seconds).ok()
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|it| !belongs(it)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}
