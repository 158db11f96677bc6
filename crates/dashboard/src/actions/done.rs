//! Actions that were sent twice: the second gets the answer of the first.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Actions that are remembered.
const REMEMBERED_MAX: usize = 10_000;

/// Hash of a form with its key.
type Key = [u8; 32];

/// Answers by the key of their form.
#[derive(Default)]
pub(crate) struct Repeats(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    /// Where the answer led; `None` while the action is being done.
    answers: HashMap<Key, Option<String>>,
    order: VecDeque<Key>,
}

/// Whether an action is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    First,
    /// It was sent before, and led there; `None` if it is still being done.
    Again(Option<String>),
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

    /// Notes where the answer led.
    pub(crate) fn end(&self, key: &Key, to: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = all.answers.get_mut(key) {
            *answer = Some(to.to_owned());
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
    fn the_second_of_two_actions_gets_the_answer_of_the_first() {
        let repeats = Repeats::default();
        let key = [7; 32];
        assert_eq!(repeats.begin(&key), Sent::First);
        assert_eq!(repeats.begin(&key), Sent::Again(None));
        repeats.end(&key, "/ui/");
        assert_eq!(repeats.begin(&key), Sent::Again(Some("/ui/".to_owned())));
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
