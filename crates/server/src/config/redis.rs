//! The settings of the Redis port.

use std::time::Duration;

use ganger_types::Namespace;

use super::keys::{Key, flag, span};
use crate::security::Require;

/// Settings of the Redis port.
#[derive(Clone, Debug)]
pub struct RedisPort {
    /// Address to listen on for Redis clients; `None` (default) for no such port.
    pub addr: Option<String>,
    /// Credentials that its clients must present; `None` for the value of `require`.
    pub require: Option<Require>,
    /// Whether `FLUSHDB` and `FLUSHALL` remove anything. Default no.
    pub allow_flush: bool,
    /// Namespaces of the databases, from 0 on. Default `default`, `db1` to `db15`.
    pub databases: Vec<Namespace>,
}

impl Default for RedisPort {
    fn default() -> Self {
        Self {
            addr: None,
            require: None,
            allow_flush: false,
            databases: ganger_dialect_resp::Settings::usual_databases(),
        }
    }
}

/// Every setting of the port.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "resp_require",
        "",
        "credentials that clients of the Redis port must present; require if absent",
        |config, value| {
            config.redis.require = Some(value.parse()?);
            Ok(())
        },
    ),
    Key::new(
        "resp",
        "",
        "address to listen on for Redis clients, such as 127.0.0.1:6379; :PORT is loopback",
        |config, value| {
            config.redis.addr = Some(value.to_owned());
            Ok(())
        },
    ),
    Key::new(
        "resp_allow_flush",
        "false",
        "let FLUSHDB and FLUSHALL remove all keys",
        |config, value| {
            config.redis.allow_flush = flag(value)?;
            Ok(())
        },
    ),
    Key::new(
        "resp_databases",
        "",
        "namespaces of the databases 0, 1, 2, ... separated by commas; default, db1 to db15 if absent",
        |config, value| {
            config.redis.databases = namespaces(value)?;
            Ok(())
        },
    ),
    Key::new(
        "resp_put_back_after",
        "10s",
        "time after which an item of a Redis queue in processing without a lease returns to its queue, or off",
        |config, value| {
            config.key_upkeep.put_back_after = grace(value)?;
            Ok(())
        },
    ),
    Key::new(
        "resp_rescue_after",
        "60s",
        "time after which an item of a Redis queue that is in no list is put on its queue, or off",
        |config, value| {
            config.key_upkeep.rescue_after = grace(value)?;
            Ok(())
        },
    ),
];

fn namespaces(value: &str) -> Result<Vec<Namespace>, String> {
    let names = value.split(',').map(str::trim);
    let read = |name| Namespace::new(name).map_err(|error| format!("{name:?}: {error}"));
    names.map(read).collect()
}

/// Parses a duration, or `off`.
fn grace(value: &str) -> Result<Option<Duration>, String> {
    if value == "off" {
        return Ok(None);
    }
    let or_off = |reason| format!("{reason}, nor `off`");
    span(value).map(Some).map_err(or_off)
}
