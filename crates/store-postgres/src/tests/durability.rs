//! A database whose settings change under its nodes: what an acknowledged commit survives is another thing then.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use ganger_store::Store as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::support::{Ground, commit};
use ganger_store::DurabilityMode;

/// A subscriber of the log that keeps the fields of each warning, as text.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("nobody panics"))
    }
}

/// The fields of an event, as text.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?};").expect("a string takes any text");
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text::default();
        event.record(&mut text);
        self.0.lock().expect("nobody panics").push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Names the standbys that commits wait for, and waits until the server says that there are so many.
fn wait_for_standbys(ground: &Ground, names: &str, count: &str) {
    ground.sql(&format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{names}'"
    ));
    ground.sql("SELECT pg_reload_conf()");
    let standbys = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'";
    while ground.sql(standbys) != count {
        std::thread::yield_now();
    }
}

#[test]
fn a_mode_that_a_new_connection_finds_changed_is_logged_once() {
    let Some(mut ground) = Ground::start("a_mode_that_a_new_connection_finds_changed") else {
        return;
    };
    let number = ground.add_shard();
    let _standby = ground.instance.standby("one").expect("it starts");
    let mut settings = ground.settings();
    // Only this thread connects, and only its warnings are kept.
    settings.limits.has_row_thread = false;
    let mut store = super::support::store(settings, number);
    let warnings = Warnings::default();
    tracing::subscriber::with_default(warnings.clone(), || {
        let epoch = store.open().expect("it opens").epoch;
        let mut sequence = 0;
        let mut commit_on_new_connection = || {
            let ended = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
                WHERE usename = 'ganger_node'";
            ground.sql(ended);
            sequence += 1;
            let committed = store.commit(&commit(epoch, sequence));
            committed.expect("nothing was sent on the old one");
            let durability = store.durability().expect("it is open");
            (durability.mode, warnings.take())
        };
        let (mode, logged) = commit_on_new_connection();
        assert_eq!(
            (mode, logged.len()),
            (DurabilityMode::Alone, 0),
            "{logged:?}"
        );

        wait_for_standbys(&ground, "ANY 1 (one)", "1");
        let (mode, logged) = commit_on_new_connection();
        assert_eq!(
            (mode, logged.len()),
            (DurabilityMode::Quorum, 1),
            "{logged:?}"
        );
        let (before, now) = (DurabilityMode::Alone, DurabilityMode::Quorum);
        let words = format!("before={before};now={now};");
        assert!(logged[0].contains(&words), "{logged:?}");
        let (_, logged) = commit_on_new_connection();
        assert_eq!(logged.len(), 0, "{logged:?}");

        wait_for_standbys(&ground, "", "0");
        let (mode, logged) = commit_on_new_connection();
        assert_eq!(
            (mode, logged.len()),
            (DurabilityMode::Alone, 1),
            "{logged:?}"
        );
    });
}
