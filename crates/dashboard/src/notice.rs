//! Notices after an action: kept here until the next page shows them, under a random name that a cookie brings back.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::session::Nonce;

/// Name of the cookie.
pub(crate) const COOKIE: &str = "ganger_notice";
/// Seconds for which a browser keeps it.
pub(crate) const COOKIE_SECONDS: u64 = 60;
/// Notices that wait for their page. The oldest are dropped beyond it.
const WAITING_MAX: usize = 1_000;

/// Characters of a notice.
const CHARACTERS_MAX: usize = 2_000;

/// What the next page says of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    /// Whether the action was done; else it was refused.
    pub(crate) is_done: bool,
    /// What was done, or why not.
    pub(crate) text: String,
    /// Words and address of a link to what it was done to.
    pub(crate) link: Option<(String, String)>,
    /// Words, action and fields of an action that takes this one back.
    pub(crate) undo: Option<(String, &'static str, String)>,
}

impl Notice {
    pub(crate) fn done(text: impl Into<String>) -> Self {
        Self {
            is_done: true,
            text: text.into(),
            link: None,
            undo: None,
        }
    }

    pub(crate) fn refused(text: impl Into<String>) -> Self {
        Self {
            is_done: false,
            ..Self::done(text)
        }
    }
}

/// Notices that wait for their page.
#[derive(Default)]
pub(crate) struct Notices(Mutex<VecDeque<(String, Notice)>>);

impl Notices {
    /// Keeps a notice; returns its name.
    pub(crate) fn put(&self, mut notice: Notice) -> String {
        notice.text = crate::text::cut(&notice.text, CHARACTERS_MAX);
        let name = Nonce::random().to_string();
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
        }
        waiting.push_back((name.clone(), notice));
        name
    }

    /// The notice of that name, once.
    pub(crate) fn take(&self, name: &str) -> Option<Notice> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = waiting.iter().position(|(known, _)| known == name)?;
        waiting.remove(at).map(|(_, notice)| notice)
    }
}
