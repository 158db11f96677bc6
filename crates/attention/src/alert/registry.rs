//! The state of all alerts, and what changes it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ganger_document::time::calendar;
use ganger_document::view::alert::Alert as Document;
use ganger_document::view::attention::Item;
use ganger_types::{Namespace, Timestamp};

use super::{Alert, Verdict};
use crate::rules;

/// What a message reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The alert begins to fire.
    Firing,
    /// The alert does not fire any more.
    Resolved,
    /// Nothing: somebody tries whether messages arrive.
    Test,
}

impl What {
    /// Returns the word of messages and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Resolved => "resolved",
            Self::Test => "test",
        }
    }
}

/// The state of an alert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Time since which the alert fires; `None`: it does not.
    pub firing_since: Option<Timestamp>,
    /// What was found last while it fired; empty before.
    pub text: String,
    /// Time since which the condition differs from the state; `None`: it does not.
    differs_since: Option<Timestamp>,
    /// Number of messages that were delivered since the start.
    pub delivered: u64,
    /// Number of tries of messages that failed since the start.
    pub failed: u64,
    /// Why the last try failed; `None` after one that did not.
    pub last_error: Option<String>,
}

/// A change that is reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whether the alert fires now, or not any more.
    pub what: What,
    /// What was found, for people.
    pub text: String,
    /// Time since which it fires, or did.
    pub since: Timestamp,
    /// Time of the change.
    pub at: Timestamp,
}

/// All alerts of the configuration with their states.
#[derive(Debug, Default)]
pub struct Alerts {
    all: Vec<Alert>,
    states: Mutex<Vec<Status>>,
}

impl Alerts {
    /// Creates the alerts; none fires.
    pub fn new(all: Vec<Alert>) -> Self {
        let states = vec![Status::default(); all.len()];
        Self {
            all,
            states: Mutex::new(states),
        }
    }

    fn states(&self) -> MutexGuard<'_, Vec<Status>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all alerts, in the order of the configuration.
    pub fn all(&self) -> &[Alert] {
        &self.all
    }

    /// Returns the alert of this name.
    pub fn find(&self, name: &str) -> Option<&Alert> {
        self.all.iter().find(|alert| alert.name == name)
    }

    /// Returns all alerts with their states.
    pub fn list(&self) -> Vec<(&Alert, Status)> {
        self.all.iter().zip(self.states().iter().cloned()).collect()
    }

    /// Returns all alerts with their states, as documents.
    pub fn documents(&self) -> Vec<Document> {
        let all = self.list().into_iter();
        all.map(|(alert, state)| Document {
            name: alert.name.clone(),
            condition: alert.words(),
            gravity: alert.gravity,
            firing: state.firing_since.is_some(),
            since: state.firing_since.map(calendar),
            text: state.text,
            webhook: alert.webhook.is_some(),
            delivered: state.delivered,
            failed: state.failed,
            last_error: state.last_error,
        })
        .collect()
    }

    /// Takes over that an alert fired when the server stopped.
    pub fn restore(&self, name: &str, since: Timestamp, text: String) {
        self.change(name, |state| {
            state.firing_since = Some(since);
            state.text = text;
        });
    }

    /// Takes a verdict into account; returns the change to report, if there is one.
    pub fn observe(&self, name: &str, verdict: Verdict, now: Timestamp) -> Option<Change> {
        let hold_for = self.find(name)?.hold_for;
        let mut change = None;
        self.change(name, |state| change = state.observe(verdict, now, hold_for));
        change
    }

    /// Takes back a change that could not be stored, so that it is found again.
    pub fn undo(&self, name: &str, change: &Change) {
        self.change(name, |state| {
            state.firing_since = match change.what {
                What::Firing => None,
                What::Resolved | What::Test => Some(change.since),
            };
            state.differs_since = Some(change.at);
        });
    }

    /// Counts a try to deliver a message.
    pub fn tried(&self, name: &str, result: Result<(), String>) {
        self.change(name, |state| match result {
            Ok(()) => {
                state.delivered += 1;
                state.last_error = None;
            }
            Err(error) => {
                state.failed += 1;
                state.last_error = Some(error);
            }
        });
    }

    /// Returns an item for each alert that fires: those about queues of the namespace, and with `sees_server` those
    /// about the server.
    pub fn items(&self, namespace: &Namespace, sees_server: bool) -> Vec<Item> {
        let all = self.list().into_iter();
        let shown = all.filter(|(alert, _)| {
            if alert.condition.is_of_queues() {
                alert.namespace == *namespace
            } else {
                sees_server
            }
        });
        shown
            .filter_map(|(alert, state)| {
                let since = state.firing_since?;
                let text = format!("Alert {}: {}", alert.name, state.text);
                Some(Item {
                    alert: Some(alert.name.clone()),
                    queue: alert
                        .queue
                        .as_ref()
                        .map(|queue| queue.to_text().into_owned()),
                    since: Some(calendar(since)),
                    ..rules::item("alert", alert.gravity, text)
                })
            })
            .collect()
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Status)) {
        let Some(place) = self.all.iter().position(|alert| alert.name == name) else {
            return;
        };
        if let Some(state) = self.states().get_mut(place) {
            change(state);
        }
    }
}

impl Status {
    fn observe(&mut self, verdict: Verdict, now: Timestamp, hold_for: Duration) -> Option<Change> {
        let is_firing = self.firing_since.is_some();
        let holds = match verdict {
            Verdict::Unknown => return None,
            Verdict::Clear => false,
            Verdict::Holds(text) => {
                self.text = text;
                true
            }
        };
        if holds == is_firing {
            self.differs_since = None;
            return None;
        }
        let since = *self.differs_since.get_or_insert(now);
        if now.since(since) < hold_for {
            return None;
        }
        self.differs_since = None;
        let began = self.firing_since.unwrap_or(since);
        self.firing_since = holds.then_some(began);
        Some(Change {
            what: if holds { What::Firing } else { What::Resolved },
            text: self.text.clone(),
            since: began,
            at: now,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alert::Condition;

    fn alerts() -> Alerts {
        Alerts::new(vec![Alert {
            name: "late".to_owned(),
            namespace: Namespace::default(),
            queue: None,
            condition: Condition::OlderThan(Duration::from_secs(60)),
            hold_for: Duration::from_secs(30),
            gravity: crate::Gravity::Error,
            webhook: None,
        }])
    }

    fn at(second: u64) -> Timestamp {
        Timestamp(second * 1_000_000)
    }

    fn holds() -> Verdict {
        Verdict::Holds("queue mail: late".to_owned())
    }

    #[test]
    fn one_change_is_reported_once_the_condition_has_held_long_enough() {
        let alerts = alerts();
        let step = |verdict, second| alerts.observe("late", verdict, at(second));
        assert_eq!(step(holds(), 0), None);
        assert_eq!(step(holds(), 29), None);
        let change = step(holds(), 30).expect("it fires");
        assert_eq!(
            (change.what, change.since, change.at),
            (What::Firing, at(0), at(30))
        );
        for second in 31..100 {
            assert_eq!(step(holds(), second), None, "once");
        }
        assert_eq!(step(Verdict::Clear, 100), None);
        assert_eq!(step(Verdict::Unknown, 140), None, "unknown changes nothing");
        let change = step(Verdict::Clear, 141).expect("it is resolved");
        assert_eq!((change.what, change.since), (What::Resolved, at(0)));
        assert_eq!(step(Verdict::Clear, 500), None);
    }

    #[test]
    fn a_condition_that_flaps_is_not_reported() {
        let alerts = alerts();
        for second in (0..600).step_by(20) {
            assert_eq!(alerts.observe("late", holds(), at(second)), None);
            assert_eq!(
                alerts.observe("late", Verdict::Clear, at(second + 10)),
                None
            );
        }
    }

    #[test]
    fn a_change_that_was_not_stored_is_found_again() {
        let alerts = alerts();
        assert_eq!(alerts.observe("late", holds(), at(0)), None);
        let change = alerts.observe("late", holds(), at(30)).expect("it fires");
        alerts.undo("late", &change);
        assert_eq!(alerts.items(&Namespace::default(), true), []);
        let again = alerts.observe("late", holds(), at(60)).expect("it fires");
        assert_eq!(again.what, What::Firing);
    }

    #[test]
    fn a_firing_alert_is_an_item_of_its_namespace_and_restored_after_a_restart() {
        let alerts = alerts();
        alerts.restore("late", at(5), "queue mail: late".to_owned());
        let items = alerts.items(&Namespace::default(), false);
        assert_eq!(items.len(), 1);
        assert_eq!(items[0].text, "Alert late: queue mail: late");
        assert_eq!(items[0].alert.as_deref(), Some("late"));
        assert_eq!(alerts.items(&Namespace::from_static("other"), true), []);
        assert_eq!(
            alerts.observe("late", holds(), at(9)),
            None,
            "it was reported before"
        );
    }
}
