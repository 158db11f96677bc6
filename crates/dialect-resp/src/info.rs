//! The commands `INFO` and `CONFIG`.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use ganger_shard::Health;

use crate::command::{Command, family};
use crate::plan::is;
use crate::rights::Right;
use crate::session::Session;
use crate::value::Value;

/// Version of Redis that clients see; libraries decide by it which commands they send.
pub(crate) const VERSION: &str = "7.0.15";

pub(crate) const COMMANDS: &[Command] = &[family(
    "config",
    -2,
    Right::Known,
    &[("get", -3, |_, _| Value::Map(Vec::new()))],
)];

/// The text of `INFO` without the counts of keys, which come last.
pub(crate) struct InfoHead {
    text: String,
    /// Whether the command asks for these counts.
    pub(crate) has_keyspace: bool,
}

impl InfoHead {
    /// The whole text, with the number and key count of each database.
    pub(crate) fn with_counts(self, counts: impl IntoIterator<Item = (usize, i64)>) -> Value {
        let mut text = self.text;
        if self.has_keyspace {
            begin(&mut text, "Keyspace");
            for (database, count) in counts {
                if count > 0 {
                    write!(text, "db{database}:keys={count},expires=0,avg_ttl=0\r\n")
                        .expect("strings take everything");
                }
            }
        }
        Value::Text(text)
    }
}

fn begin(text: &mut String, section: &str) {
    if !text.is_empty() {
        text.push_str("\r\n");
    }
    write!(text, "# {section}\r\n").expect("strings take everything");
}

/// The requested sections; all if none is named.
pub(crate) fn head(session: &Session, sections: &[Bytes]) -> InfoHead {
    let wants = |section: &str| {
        let is_wanted = |word: &Bytes| {
            is(word, section)
                || ["all", "everything", "default"]
                    .iter()
                    .any(|all| is(word, all))
        };
        sections.is_empty() || sections.iter().any(is_wanted)
    };
    let mut text = String::new();
    for (section, rows) in [
        ("Server", server(session)),
        ("Clients", clients(session)),
        ("Persistence", persistence(session)),
        ("Stats", stats(session)),
        (
            "Replication",
            vec![
                ("role", "master".to_owned()),
                ("connected_slaves", "0".to_owned()),
            ],
        ),
    ] {
        if wants(section) {
            begin(&mut text, section);
            for (name, value) in rows {
                write!(text, "{name}:{value}\r\n").expect("strings take everything");
            }
        }
    }
    InfoHead {
        text,
        has_keyspace: wants("Keyspace"),
    }
}

type Rows = Vec<(&'static str, String)>;

fn server(session: &Session) -> Rows {
    let uptime = session.shared.since.elapsed().as_secs();
    vec![
        ("redis_version", VERSION.to_owned()),
        ("redis_mode", "standalone".to_owned()),
        ("ganger_version", env!("CARGO_PKG_VERSION").to_owned()),
        ("process_id", std::process::id().to_string()),
        ("tcp_port", session.shared.settings.tcp_port.to_string()),
        ("uptime_in_seconds", uptime.to_string()),
        ("uptime_in_days", (uptime / 86_400).to_string()),
    ]
}

fn read(counter: &AtomicU64) -> String {
    counter.load(Ordering::Relaxed).to_string()
}

fn clients(session: &Session) -> Rows {
    let counters = &session.shared.counters;
    vec![
        ("connected_clients", read(&counters.open)),
        ("blocked_clients", read(&counters.blocked)),
    ]
}

fn persistence(session: &Session) -> Rows {
    let is_loading = matches!(session.shared.handle.health(), Health::Starting { .. });
    vec![("loading", u8::from(is_loading).to_string())]
}

fn stats(session: &Session) -> Rows {
    let counters = &session.shared.counters;
    vec![
        ("total_connections_received", read(&counters.accepted)),
        ("total_commands_processed", read(&counters.commands)),
        (
            "pubsub_channels",
            session.shared.hub.channels_count().to_string(),
        ),
        (
            "pubsub_patterns",
            session.shared.hub.patterns_count().to_string(),
        ),
    ]
}
