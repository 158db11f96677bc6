//! Errors in documents, with their position.

use std::fmt;

use ganger_document::DocumentError;

/// An error in a document, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    what: String,
    /// Line and column, from 1; `None` if unknown.
    place: Option<(usize, usize)>,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            place: None,
        }
    }

    /// Sets the line and column.
    pub(super) fn at(mut self, place: (usize, usize)) -> Self {
        self.place = Some(place);
        self
    }

    /// Sets the line, for a document that is one line of a stream.
    pub(super) fn at_line(mut self, line: usize) -> Self {
        let column = self.place.map_or(1, |(_, column)| column);
        self.place = Some((line, column));
        self
    }

    /// Returns line and column, from 1; `None` if unknown.
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
