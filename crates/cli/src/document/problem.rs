//! What is wrong with a document, and where.

use std::fmt;

use ganger_document::DocumentError;

/// What is wrong with a document, and where.
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

    /// Names the line and column.
    pub(super) fn at(mut self, place: (usize, usize)) -> Self {
        self.place = Some(place);
        self
    }

    /// Names the line of a stream that the document is.
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

impl From<DocumentError> for Problem {
    fn from(error: DocumentError) -> Self {
        let mut what = error.detail;
        if what.starts_with("there is more after the end") {
            what.push_str("; for a stream of jobs, one in each line, give --stream");
        }
        let place = error.place.map(|(line, column)| (line, column.max(1)));
        Self { what, place }
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
