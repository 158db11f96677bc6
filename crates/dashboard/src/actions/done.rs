//! Actions that were sent twice: the second is not done, and is told what became of the first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Actions that are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// Hash of a form with its key.
type Key = [u8; 32];

/// What became of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// The page that the answer led to.
    pub(crate) to: String,
    /// What the notice said.
    pub(crate) text: String,
}

/// Answers by the key of their form.
#[derive(Default)]
pub(crate) struct Repeats(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// What became of each; `None` while the action is being done.
    answers: HashMap<Key, Option<Answered>>,
    order: VecDeque<Key>,
}

/// Whether an action is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    First,
    /// It was sent before, and this became of it; `None` if it is still being done.
    Again(Option<Answered>),
}

impl Repeats {
    /// Notes that an action is sent.
    pub(crate) fn begin(&self, key: &Key) -> Sent {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = all.answers.get(key) {
            return Sent::Again(answer.clone());
        }
        if all.order.len() >= REMEMBERED_MAX
            && let Some(oldest) = all.order.pop_front()
        {
            all.answers.remove(&oldest);
        }
        all.answers.insert(*key, None);
        all.order.push_back(*key);
        Sent::First
    }

    /// Notes what became of an action.
    pub(crate) fn end(&self, key: &Key, answered: Answered) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = all.answers.get_mut(key) {
            *answer = Some(answered);
        }
    }

    /// Forgets an action that was only asked about or refused: the same form may be sent again.
    pub(crate) fn forget(&self, key: &Key) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.answers.remove(key);
        all.order.retain(|known| known != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_two_actions_learns_what_became_of_the_first() {
        let repeats = Repeats::default();
        let key = [7; 32];
        assert_eq!(repeats.begin(&key), Sent::First);
        assert_eq!(repeats.begin(&key), Sent::Again(None));
        let answered = Answered {
            to: "/ui/".to_owned(),
            text: "Done.".to_owned(),
        };
        repeats.end(&key, answered.clone());
        assert_eq!(repeats.begin(&key), Sent::Again(Some(answered)));
        repeats.forget(&key);
        assert_eq!(repeats.begin(&key), Sent::First);
    }

    #[test]
    fn memory_is_bounded() {
        let repeats = Repeats::default();
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        for number in 0..REMEMBERED_MAX + 5 {
            repeats.begin(&key(number));
        }
        assert_eq!(
            repeats.begin(&key(0)),
            Sent::First,
            "the oldest is forgotten"
        );
        let all = repeats.0.lock().expect("no panic");
        assert_eq!(all.answers.len(), REMEMBERED_MAX);
    }
}
