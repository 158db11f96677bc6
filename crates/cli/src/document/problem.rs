//! What is wrong with a document, and where.

use std::fmt;

use serde::de::DeserializeOwned;

use super::relax::string_end;

/// Levels of nesting taken, as over HTTP.
const DEPTH_MAX: usize = 128;

/// Why a document cannot be submitted. Its `Display` names the offender and the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    what: String,
    /// Line and column, from 1.
    place: Option<(usize, usize)>,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            place: None,
        }
    }

    /// Puts the offender before the message.
    pub(super) fn of(mut self, offender: impl fmt::Display) -> Self {
        self.what = format!("{offender}: {}", self.what);
        self
    }

    /// Says that it stands at byte `at` of `text`.
    pub(super) fn locate(mut self, text: &[u8], at: usize) -> Self {
        self.place = Some(place_of(text, at));
        self
    }

    /// Moves the place of a problem found in a part of `text` that begins at byte `start`.
    pub(super) fn within(mut self, text: &[u8], start: usize) -> Self {
        let (line, column) = place_of(text, start);
        self.place = Some(match self.place {
            None => (line, column),
            Some((1, inner)) => (line, column + inner.saturating_sub(1)),
            Some((inner_line, inner)) => (line + inner_line - 1, inner),
        });
        self
    }

    /// Puts it at a line of a stream.
    pub(super) fn at_line(mut self, line: usize) -> Self {
        let column = self.place.map_or(1, |(_, column)| column);
        self.place = Some((line, column));
        self
    }

    /// Line and column, from 1, if known.
    #[cfg(test)]
    pub(crate) fn place(&self) -> Option<(usize, usize)> {
        self.place
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some((line, column)) => write!(f, "line {line}, column {column}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for Problem {}

/// Line and column, from 1, of byte `at`. Columns count characters.
fn place_of(text: &[u8], at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = before.split(|byte| *byte == b'\n').count();
    let start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let column = String::from_utf8_lossy(&before[start..]).chars().count() + 1;
    (line, column)
}

/// Parses a JSON document strictly.
pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    check_depth(text)?;
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let problem = explain(error.inner());
        match field(error.path()) {
            // The message names the field itself.
            Some(_) if problem.what.starts_with("unknown field") => problem,
            Some(field) if error.inner().is_data() => problem.of(field),
            _ => problem,
        }
    })?;
    reader.end().map_err(|error| explain(&error))?;
    Ok(value)
}

/// The field that a problem is about, such as `retry.max` or `tags[2]`; `None`: the document as a whole.
fn field(path: &serde_path_to_error::Path) -> Option<String> {
    // Within an alternative the reader loses the way, and says so by a question mark.
    let known = path.to_string();
    let known = known.split(['?']).next()?.trim_end_matches('.');
    (!known.is_empty()).then(|| known.to_owned())
}

/// Refuses what is nested too deeply: the server would, and readers of our output would fall over it.
pub(super) fn check_depth(text: &[u8]) -> Result<(), Problem> {
    let (mut level, mut at) = (0_usize, 0);
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string_end(text, at);
                continue;
            }
            b'[' | b'{' => {
                level += 1;
                if level > DEPTH_MAX {
                    let what =
                        format!("the JSON is nested more than {DEPTH_MAX} levels deep: flatten it");
                    return Err(Problem::new(what).locate(text, at));
                }
            }
            b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(())
}

/// The parser's words without its own way to tell the place.
fn explain(error: &serde_json::Error) -> Problem {
    use serde_json::error::Category;
    let text = error.to_string();
    let message = text
        .rsplit_once(" at line ")
        .map_or(text.as_str(), |(message, _)| message);
    let what = match error.classify() {
        Category::Eof => format!("the JSON ends too early: {message}"),
        Category::Syntax | Category::Io if message == "trailing characters" => {
            "there is more after the end of the JSON document; \
             for a stream of jobs, one in each line, give --stream"
                .to_owned()
        }
        Category::Syntax | Category::Io => format!("this is not valid JSON: {message}"),
        Category::Data => ganger_types::json_error::in_json_words(message),
    };
    let place = (error.line() > 0).then(|| (error.line(), error.column().max(1)));
    Problem { what, place }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_tells_line_and_column() {
        let problem = parse::<Vec<u32>>(b"[1,\n2 3]").expect_err("no comma");
        assert_eq!(problem.place(), Some((2, 3)));
        assert!(
            problem
                .to_string()
                .starts_with("line 2, column 3: this is not valid JSON")
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_names_its_field() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Outer {
            #[expect(dead_code, reason = "never read: it is wrong each time")]
            list: Vec<u8>,
        }
        for (text, wanted) in [
            ("{\"list\": 5}", "list: expected a list, not 5"),
            (
                "{\"list\": [1, true]}",
                "list[1]: expected a whole number from 0 to 255, not true",
            ),
            ("{\"lst\": []}", "column 6: unknown field `lst`"),
            ("{}", "line 1, column 2: missing field `list`"),
            ("{\"list\": []} 7", "there is more after the end"),
        ] {
            let problem = parse::<Outer>(text.as_bytes())
                .expect_err("wrong")
                .to_string();
            assert!(problem.contains(wanted), "{problem}");
        }
    }

    #[test]
    fn a_place_inside_a_part_becomes_one_of_the_whole() {
        let whole = b"[\n  {\n \"x\": }\n]";
        let part = parse::<serde_json::Value>(b"{\n \"x\": }").expect_err("no value");
        assert_eq!(part.clone().within(whole, 4).place(), Some((3, 7)));
        let first = Problem::new("x").locate(b"abc", 1);
        assert_eq!(first.within(whole, 4).place(), Some((2, 4)));
    }
}
