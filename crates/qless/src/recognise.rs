//! Recognises the script of qless and its generation by the script's text.
//!
//! The same script exists with and without comments and with several first lines, so its digest does not identify it.
//! The entries that it puts into the table of its commands do. The text is split into Lua tokens, without comments and
//! spaces, and searched for these assignments.

use ganger_types::qless::Generation;

/// Maximum length of a text that is searched, in bytes; the scripts have about 65 KB.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// The kind of a Lua script, as far as ganger distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptKind {
    /// The script of qless in a generation that ganger serves.
    Served(Generation),
    /// The script of reqless since 0.14, whose commands have other names. ganger does not serve it.
    Later,
    /// A text that is not a script of qless.
    Unknown,
}

/// Returns the kind of the script `text`.
pub fn recognise(text: &[u8]) -> ScriptKind {
    if text.len() > TEXT_BYTES_MAX || !contains(text, b"'ql:'") || !contains(text, b"cjson") {
        return ScriptKind::Unknown;
    }
    let tokens: Vec<Token<'_>> = Tokens { text, at: 0 }.collect();
    let assigns = |table: &'static str, entry: &'static str| {
        (0..tokens.len()).any(|at| assignment(&tokens[at..], table, entry).is_some())
    };
    if assigns("ReqlessAPI", "queue.put") {
        ScriptKind::Later
    } else if assigns("QlessAPI", "throttle.set") {
        ScriptKind::Served(Generation::Three)
    } else {
        (0..tokens.len())
            .find_map(|at| generation_of_put(&tokens[at..]))
            .map_or(ScriptKind::Unknown, ScriptKind::Served)
    }
}

/// Returns the first or the second generation if the tokens begin with an assignment of `put`, `None` otherwise. The
/// second has a worker between the time and the queue.
fn generation_of_put(tokens: &[Token<'_>]) -> Option<Generation> {
    use Token::{Name, Symbol};
    let parameters = match tokens {
        [Name(b"function"), rest @ ..] => entry_name(rest, "QlessAPI", "put")?,
        _ => match assignment(tokens, "QlessAPI", "put")? {
            [Name(b"function"), rest @ ..] => rest,
            _ => return None,
        },
    };
    match parameters {
        [Symbol(b'('), Name(b"now"), Symbol(b','), Name(b"queue"), ..] => Some(Generation::One),
        [
            Symbol(b'('),
            Name(b"now"),
            Symbol(b','),
            Name(_),
            Symbol(b','),
            Name(b"queue"),
            ..,
        ] => Some(Generation::Two),
        _ => None,
    }
}

/// Returns the tokens after the equals sign if the tokens begin with an assignment to that entry of the table; `None`
/// otherwise.
fn assignment<'a, 'b>(
    tokens: &'b [Token<'a>],
    table: &str,
    entry: &str,
) -> Option<&'b [Token<'a>]> {
    match entry_name(tokens, table, entry)? {
        [Token::Symbol(b'='), rest @ ..] => Some(rest),
        _ => None,
    }
}

/// Returns the tokens after the entry of the table, `table.entry` or `table['entry']`, if the tokens begin with it;
/// `None` otherwise.
fn entry_name<'a, 'b>(
    tokens: &'b [Token<'a>],
    table: &str,
    entry: &str,
) -> Option<&'b [Token<'a>]> {
    use Token::{Literal, Name, Symbol};
    match tokens {
        [Name(name), Symbol(b'.'), Name(key), rest @ ..]
        | [
            Name(name),
            Symbol(b'['),
            Literal(key),
            Symbol(b']'),
            rest @ ..,
        ] if *name == table.as_bytes() && *key == entry.as_bytes() => Some(rest),
        _ => None,
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|it| it == part)
}

/// A Lua token, as far as this module distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A name, a keyword, or a number.
    Name(&'a [u8]),
    /// A string: the bytes between its quotes, escapes not decoded.
    Literal(&'a [u8]),
    /// Any other single character.
    Symbol(u8),
    /// A comparison operator of two characters, such as `==`.
    Comparison,
}

/// Iterator over the tokens of a text, in order.
struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        self.skip_comments();
        let begin = self.at;
        let first = *self.text.get(begin)?;
        if let Some(inside) = self.long_bracket() {
            return Some(Token::Literal(inside));
        }
        Some(match first {
            b'\'' | b'"' => Token::Literal(self.quoted(first)),
            _ if is_name_byte(first) => {
                self.skip_while(is_name_byte);
                Token::Name(&self.text[begin..self.at])
            }
            b'=' | b'~' | b'<' | b'>' if self.text.get(begin + 1) == Some(&b'=') => {
                self.at += 2;
                Token::Comparison
            }
            sign => {
                self.at += 1;
                Token::Symbol(sign)
            }
        })
    }
}

impl<'a> Tokens<'a> {
    /// Skips spaces and comments.
    fn skip_comments(&mut self) {
        loop {
            self.skip_while(|it| it.is_ascii_whitespace() || it == 0x0b);
            if !self.rest().starts_with(b"--") {
                return;
            }
            self.at += 2;
            if self.long_bracket().is_none() {
                self.skip_while(|it| it != b'\n');
            }
        }
    }

    /// Skips a long bracket, `[[..]]` or `[=[..]=]`, and returns its content; `None` if none begins here. A bracket
    /// without an end extends to the end of the text.
    fn long_bracket(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest().strip_prefix(b"[")?;
        let level = rest.iter().take_while(|it| **it == b'=').count();
        if rest.get(level) != Some(&b'[') {
            return None;
        }
        let inside = &rest[level + 1..];
        let end = [b"]".as_slice(), &vec![b'='; level], b"]"].concat();
        let length = inside.windows(end.len()).position(|it| it == end);
        let length = length.unwrap_or(inside.len());
        self.at = (self.at + level + 2 + length + end.len()).min(self.text.len());
        Some(&inside[..length])
    }

    /// Skips a string in quotes and returns its content. A string without an end extends to the end of the text.
    fn quoted(&mut self, quote: u8) -> &'a [u8] {
        self.at += 1;
        let begin = self.at;
        while let Some(&byte) = self.text.get(self.at) {
            if byte == quote {
                self.at += 1;
                return &self.text[begin..self.at - 1];
            }
            self.at += if byte == b'\\' { 2 } else { 1 };
        }
        self.at = self.text.len();
        &self.text[begin..]
    }

    fn skip_while(&mut self, may_pass: impl Fn(u8) -> bool) {
        self.at += self.rest().iter().take_while(|it| may_pass(**it)).count();
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or(&[])
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use ganger_types::qless::Generation;
    use proptest::prelude::*;

    use super::{ScriptKind, recognise};

    /// Recognises a script that has what every script of qless has, and `rest`.
    fn script(rest: &str) -> ScriptKind {
        let text = format!(
            "-- Current SHA: 0123\nlocal ns = 'ql:' local it = cjson.encode({{}})\n{rest}\n"
        );
        recognise(text.as_bytes())
    }

    #[test]
    fn the_first_generation_puts_without_a_worker() {
        for rest in [
            "QlessAPI.put = function(now, queue, jid, klass, data, delay, ...)",
            "QlessAPI.put=function(now,queue)",
            "QlessAPI\n.\tput\r\n=  function ( now ,\n queue , jid)",
            "QlessAPI['put'] = function(now, queue, jid)",
            "function QlessAPI.put(now, queue, jid)",
            "QlessAPI.put = function(now, --[[ a comment ]] queue, jid)",
            "QlessAPI.put = -- it puts\nfunction(now, queue)",
        ] {
            assert_eq!(script(rest), ScriptKind::Served(Generation::One), "{rest}");
        }
    }

    #[test]
    fn the_second_generation_puts_with_a_worker() {
        for rest in [
            "QlessAPI.put = function(now, me, queue, jid, klass, data, delay, ...)",
            "QlessAPI.put=function(now,worker,queue)",
        ] {
            assert_eq!(script(rest), ScriptKind::Served(Generation::Two), "{rest}");
        }
    }

    #[test]
    fn throttles_make_the_third_generation_and_new_names_the_later_one() {
        let put = "QlessAPI.put = function(now, me, queue)";
        let throttles = "QlessAPI['throttle.set'] = function(now, tid, max)";
        let later = "ReqlessAPI[\"queue.put\"] = function(now, me, queue)";
        let third = ScriptKind::Served(Generation::Three);
        assert_eq!(script(&format!("{put}\n{throttles}")), third);
        assert_eq!(script(&throttles.replace('\'', "\"")), third);
        assert_eq!(
            script(&throttles.replace("['", " [ '").replace("']", "' ] ")),
            third
        );
        assert_eq!(script(later), ScriptKind::Later);
        assert_eq!(
            script(&format!("{put}\n{throttles}\n{later}")),
            ScriptKind::Later
        );
    }

    #[test]
    fn what_does_not_assign_the_entry_is_no_script_of_qless() {
        for rest in [
            "",
            "QlessAPI.put == function(now, queue)",
            "QlessAPI.put(now, queue)",
            "QlessAPI.put = function(queue, now)",
            "QlessAPI.put = function(now)",
            "QlessAPI.put = put",
            "MyQlessAPI.put = function(now, queue)",
            "QlessAPI.putting = function(now, queue)",
            "QlessAPI.throttle.set = function(now, tid)",
            "x = QlessAPI['throttle.set']",
            "-- QlessAPI.put = function(now, queue)",
            "--[==[ ]] QlessAPI.put = function(now, queue) ]==]",
            "x = 'QlessAPI.put = function(now, queue)'",
            "x = [[QlessAPI.put = function(now, queue)]]",
        ] {
            assert_eq!(script(rest), ScriptKind::Unknown, "{rest}");
        }
    }

    #[test]
    fn the_prefix_of_its_keys_and_the_encoder_must_occur() {
        let put = "QlessAPI.put = function(now, queue)";
        assert_eq!(recognise(put.as_bytes()), ScriptKind::Unknown);
        assert_eq!(
            recognise(format!("cjson {put}").as_bytes()),
            ScriptKind::Unknown
        );
        assert_eq!(
            recognise(format!("'ql:' {put}").as_bytes()),
            ScriptKind::Unknown
        );
        let whole = format!("cjson 'ql:' {put}");
        assert_eq!(
            recognise(whole.as_bytes()),
            ScriptKind::Served(Generation::One)
        );
    }

    #[test]
    fn a_text_of_more_than_a_megabyte_is_not_looked_into() {
        let put = "QlessAPI.put = function(now, queue)";
        assert_eq!(
            script(&format!("{put}{}", " ".repeat(1 << 20))),
            ScriptKind::Unknown
        );
    }

    #[test]
    fn strings_and_comments_that_do_not_end_end_with_the_text() {
        for rest in ["'", "\"\\", "[[", "--[[", "--[==[ ]]", "--", "[=", "'\\"] {
            assert_eq!(script(rest), ScriptKind::Unknown, "{rest}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(rest in r#"[\[\]='"\\\n -]{0,40}"#, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            script(&rest);
            recognise(&[b"cjson'ql:' ", &bytes[..]].concat());
        }
    }
}
