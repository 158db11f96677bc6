//! A page: a heading and parts. The frame surrounds it; the stream of a view sends its parts again when they change.

use std::hash::{Hash as _, Hasher as _};

use http::StatusCode;
use maud::Markup;

use crate::fault::Fault;

/// A part of a page that is replaced as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The id of its element.
    pub(crate) id: &'static str,
    pub(crate) html: Markup,
}

/// A page without its frame.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// The text of the heading, for the title of the document.
    pub(crate) title: String,
    /// The entry of the navigation that the page belongs to; empty if to none.
    pub(crate) section: &'static str,
    pub(crate) status: StatusCode,
    /// The parts, the one with the heading first, or behind the line of what needs attention.
    pub(crate) parts: Vec<Part>,
    /// Whether parts are sent again when they change.
    pub(crate) is_live: bool,
    /// A parameter that the stream of this page has beside those of its address.
    pub(crate) live_with: Option<(&'static str, String)>,
    /// Where a question goes back to, if the page is one.
    pub(crate) asks_at: Option<String>,
    /// After so many seconds the browser asks again, without any module.
    pub(crate) refresh_after: Option<u64>,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stop {
    Fault(Fault),
    /// The same is at another address.
    Elsewhere(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Page {
    pub(crate) fn new(title: impl Into<String>, section: &'static str, head: Markup) -> Self {
        Self {
            title: title.into(),
            section,
            status: StatusCode::OK,
            parts: vec![Part {
                id: "part-head",
                html: head,
            }],
            is_live: true,
            live_with: None,
            asks_at: None,
            refresh_after: None,
        }
    }

    pub(crate) fn part(mut self, id: &'static str, html: Markup) -> Self {
        self.parts.push(Part { id, html });
        self
    }

    /// Puts a part before all others.
    pub(crate) fn first(mut self, id: &'static str, html: Markup) -> Self {
        self.parts.insert(0, Part { id, html });
        self
    }

    /// A page whose content does not change by itself.
    pub(crate) fn still(self) -> Self {
        Self {
            is_live: false,
            ..self
        }
    }

    /// A page with a question, whose answer goes back there.
    pub(crate) fn asks(self, back: String) -> Self {
        Self {
            asks_at: Some(back),
            ..self
        }
    }

    pub(crate) fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl Part {
    /// A number that changes with the content.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        self.html.0.hash(&mut hasher);
        hasher.finish()
    }
}
