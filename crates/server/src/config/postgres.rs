//! The settings of a store in PostgreSQL.

use std::path::PathBuf;
use std::time::Duration;

use ganger_store_postgres::{
    OWNERSHIP_LEASE, OWNERSHIP_LEASE_MAX, OWNERSHIP_LEASE_MIN, PasswordSource, Settings,
};

use super::keys::{Key, count, flag, path, span};
use super::{Config, ConfigError};

/// The environment variable with the password of the database.
const PASSWORD_VARIABLE: &str = "GANGER_STORE_PASSWORD";

/// A store in PostgreSQL, instead of one in a file.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own, named like the setting"
)]
pub struct PostgresStore {
    /// Address of the database, without a password: `postgres://USER@HOST:PORT/DATABASE`; `None` for a store in a file.
    pub address: Option<String>,
    /// Name of the cluster that this process joins as one of several nodes; `None` for a process that serves all shards
    /// of the database alone.
    pub cluster: Option<String>,
    /// Name of this process among those of the cluster; `None` for the name of the machine.
    pub node: Option<String>,
    /// Address at which other nodes of the cluster reach this one, `HOST:PORT`; `None` for the address that it listens on.
    pub advertise: Option<String>,
    /// Time without a beat after which other nodes take this one's shards over. Default 6 s, 2 s to 60 s.
    pub ownership_lease: Duration,
    /// Longest time for which a stopping node hands its shards over to others. Default 30 s.
    pub drain_for: Duration,
    /// File with the password, which is read for each connection.
    pub password_file: Option<PathBuf>,
    /// Whether the password is in the environment. Its text is read from there for each connection.
    pub has_password: bool,
    /// Largest number of connections that read. Default 4.
    pub readers: usize,
    /// Whether statements are prepared. Default yes.
    pub prepares: bool,
    /// Whether the storage of the database itself survives the loss of a machine. Default no.
    pub has_replicated_storage: bool,
    /// Whether a database that may lose acknowledged jobs is used. Default no.
    pub accepts_loss: bool,
}

impl Default for PostgresStore {
    fn default() -> Self {
        Self {
            address: None,
            cluster: None,
            node: None,
            advertise: None,
            ownership_lease: OWNERSHIP_LEASE,
            drain_for: Duration::from_secs(30),
            password_file: None,
            has_password: false,
            readers: 4,
            prepares: true,
            has_replicated_storage: false,
            accepts_loss: false,
        }
    }
}

/// All settings of the store in PostgreSQL.
pub(super) const KEYS: &[Key] = &[
    Key::new(
        "store",
        "",
        "PostgreSQL with the shards, instead of db: postgres://USER@HOST:PORT/DATABASE",
        |config, value| {
            let settings = Settings::from_url(value);
            let settings = settings.map_err(|error| format!("cannot be used: {error}"))?;
            if settings.has_password() {
                return Err(format!(
                    "has a password, which others can read in the list of processes: put it into {PASSWORD_VARIABLE} or store_password_file"
                ));
            }
            config.postgres.address = Some(value.to_owned());
            Ok(())
        },
    ),
    Key::new(
        "cluster",
        "",
        "name of the cluster that this process joins as one of several nodes; alone if absent",
        |config, value| {
            config.postgres.cluster = Some(value.to_owned());
            Ok(())
        },
    ),
    Key::new(
        "node",
        "",
        "name of this process among those of the cluster; that of the machine if absent",
        |config, value| {
            let is_name = (1..=64).contains(&value.len())
                && value
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
            if !is_name {
                return Err("must be 1 to 64 characters of A-Z a-z 0-9 . _ -".to_owned());
            }
            config.postgres.node = Some(value.to_owned());
            Ok(())
        },
    ),
    Key::new(
        "advertise",
        "",
        "address at which other nodes reach this one: HOST:PORT; that of addr if absent",
        |config, value| {
            let (host, port) = value.rsplit_once(':').unwrap_or_default();
            let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
            if host.is_empty() || host.contains(['/', ' ', '@', '?', '#']) || !is_port {
                return Err("must be HOST:PORT".to_owned());
            }
            config.postgres.advertise = Some(value.to_owned());
            Ok(())
        },
    ),
    Key::new(
        "ownership_lease",
        "6s",
        "time without a beat after which other nodes take the shards of this one over, 2s to 60s",
        |config, value| {
            let lease = span(value)?;
            if !(OWNERSHIP_LEASE_MIN..=OWNERSHIP_LEASE_MAX).contains(&lease) {
                return Err("must be 2s to 60s".to_owned());
            }
            config.postgres.ownership_lease = lease;
            Ok(())
        },
    ),
    Key::new(
        "drain_for",
        "30s",
        "longest time for which a stopping node hands its shards over to other nodes",
        |config, value| {
            config.postgres.drain_for = span(value)?;
            Ok(())
        },
    ),
    Key::new(
        "store_password",
        "",
        "password of the database's role",
        |config, _| {
            config.postgres.has_password = true;
            Ok(())
        },
    )
    .secret(),
    Key::new(
        "store_password_file",
        "",
        "file with that password, read for each connection",
        |config, value| {
            config.postgres.password_file = Some(path(value)?);
            Ok(())
        },
    ),
    Key::new(
        "store_readers",
        "4",
        "largest number of connections that read, for all shards",
        |config, value| count(value, &mut config.postgres.readers),
    ),
    Key::new(
        "store_prepared",
        "true",
        "whether statements are prepared; false for pgbouncer before 1.21 in transaction mode",
        |config, value| {
            config.postgres.prepares = flag(value)?;
            Ok(())
        },
    ),
    Key::new(
        "store_replicated_storage",
        "false",
        "whether the database's storage survives the loss of a machine, as that of Aurora, Neon and AlloyDB",
        |config, value| {
            config.postgres.has_replicated_storage = flag(value)?;
            Ok(())
        },
    ),
    Key::new(
        "store_loss_window",
        "false",
        "use a database that may lose acknowledged jobs in a crash, such as one with fsync = off",
        |config, value| {
            config.postgres.accepts_loss = flag(value)?;
            Ok(())
        },
    ),
];

impl Config {
    /// Returns the settings of the database with the shards; `None` if the store is a file.
    ///
    /// # Errors
    /// If settings contradict each other.
    pub(crate) fn database(&self) -> Result<Option<Settings>, ConfigError> {
        let postgres = &self.postgres;
        let Some(address) = &postgres.address else {
            return Ok(None);
        };
        let fault = |place: &str, reason: String| ConfigError {
            place: place.to_owned(),
            reason,
        };
        if !self.shards.is_empty() || self.shard != Config::default().shard {
            return Err(fault(
                "shards",
                "the cluster in the database says which shards there are: remove shard and shards"
                    .to_owned(),
            ));
        }
        let settings = Settings::from_url(address);
        let mut settings = settings.map_err(|error| fault("store", error.to_string()))?;
        settings.password = match (&postgres.password_file, postgres.has_password) {
            (Some(_), true) => {
                let reason = format!("{PASSWORD_VARIABLE} is set too: give one of them");
                return Err(fault("store_password_file", reason));
            }
            (Some(file), false) => PasswordSource::File(file.clone()),
            (None, true) => PasswordSource::Environment(PASSWORD_VARIABLE.to_owned()),
            (None, false) => PasswordSource::Url,
        };
        settings.readers = postgres.readers;
        settings.prepared = postgres.prepares;
        settings.has_replicated_storage = postgres.has_replicated_storage;
        settings.accepts_loss = postgres.accepts_loss;
        // The shard itself tries again, and answers meanwhile.
        settings.outage_max = std::time::Duration::ZERO;
        Ok(Some(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(settings: &[(&str, &str)]) -> Result<Config, String> {
        let mut config = Config::default();
        for (name, value) in settings {
            let key = KEYS.iter().find(|key| key.name == *name);
            key.expect("it is a setting").apply(&mut config, value)?;
        }
        Ok(config)
    }

    #[test]
    fn a_password_in_the_address_is_refused_and_not_repeated() {
        let refused = config(&[("store", "postgres://n:geheim@localhost/g")]);
        let reason = refused.expect_err("it has a password");
        assert!(reason.contains(PASSWORD_VARIABLE), "{reason}");
        assert!(!reason.contains("geheim"), "{reason}");
    }

    #[test]
    fn the_cluster_says_which_shards_there_are() {
        let mut config = config(&[("store", "postgres://n@localhost/g")]).expect("it is whole");
        assert!(config.database().is_ok_and(|settings| settings.is_some()));
        config.shards = super::super::shards::read("2").expect("it is a number");
        let refused = config.database().err().expect("it contradicts the cluster");
        assert!(refused.reason.contains("remove shard"), "{refused}");
    }

    #[test]
    fn the_password_has_one_source() {
        let both = config(&[
            ("store", "postgres://n@localhost/g"),
            ("store_password", "x"),
            ("store_password_file", "/run/secret"),
        ]);
        let refused = both.expect("each is possible").database();
        let refused = refused.err().expect("both are given");
        assert!(refused.reason.contains("one of them"), "{refused}");
    }

    #[test]
    fn the_lease_and_the_address_of_a_node_are_checked() {
        let whole = config(&[("ownership_lease", "2s"), ("advertise", "n1.example:3733")]);
        let whole = whole.expect("both are possible").postgres;
        assert_eq!(whole.ownership_lease, Duration::from_secs(2));
        for (name, value) in [
            ("ownership_lease", "1s"),
            ("ownership_lease", "61s"),
            ("advertise", "n1.example"),
            ("advertise", "http://n1:1"),
            ("advertise", ":3733"),
        ] {
            assert!(config(&[(name, value)]).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn without_an_address_the_store_is_a_file() {
        let config = config(&[("store_readers", "9")]).expect("it is possible");
        assert!(config.database().is_ok_and(|settings| settings.is_none()));
    }
}
