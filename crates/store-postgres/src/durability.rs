//! What the settings of a database promise of an acknowledged commit.

use ganger_store::{DurabilityMode, StoreError};

use tokio_postgres::Row;

use crate::fault::Fault;
use crate::newest::{ServerIdentity, ServerRun};
use crate::session::Session;
use crate::settings::Settings;

/// Oldest version of PostgreSQL that is used, as the server reports it.
const SERVER_VERSION_MIN: i64 = 140_000;

const QUESTION: &str = "SELECT current_setting('fsync'), current_setting('full_page_writes'),
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
    current_setting('server_version_num')::int8, current_setting('default_transaction_isolation'),
    pg_is_in_recovery(),
    (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
    (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8,
    (SELECT oid::int8 FROM pg_database WHERE datname = current_database())";

/// What is known of the database at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// What an acknowledged commit survives.
    pub mode: DurabilityMode,
    /// Number of the cluster of databases, which its standbys share.
    pub system_identifier: i64,
    /// Number that every promotion of a standby raises.
    pub timeline: u32,
    /// Which run of the server this is, and which of its databases.
    pub run: ServerRun,
}

impl Durability {
    /// Returns who the server is.
    pub(crate) fn identity(&self) -> ServerIdentity {
        ServerIdentity {
            system_identifier: self.system_identifier,
            timeline: self.timeline,
        }
    }
}

/// Asks a server who it is; [`identity_in`] reads the row.
pub(crate) const SERVER: &str = "SELECT (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(pg_current_wal_lsn()) END,
    (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8,
    (SELECT oid::int8 FROM pg_database WHERE datname = current_database())";

/// Asks the server of a reading connection who it is. What a commit survives there is not asked.
///
/// # Errors
/// If it does not answer.
pub(crate) fn server(session: &mut Session) -> Result<Durability, Fault> {
    let rows = session.run(async |wire| wire.query_once(SERVER, &[]).await)?;
    let row = rows
        .first()
        .ok_or_else(|| Fault::Lost("the server does not tell who it is".to_owned()))?;
    let ServerIdentity {
        system_identifier,
        timeline,
    } = identity_in(row)?;
    Ok(Durability {
        mode: DurabilityMode::None,
        system_identifier,
        timeline,
        run: run_in(row, 2)?,
    })
}

/// Reads the run of a server from two columns.
fn run_in(row: &Row, first: usize) -> Result<ServerRun, Fault> {
    Ok(ServerRun {
        started_at_us: row.try_get(first)?,
        database_oid: row.try_get(first + 1)?,
    })
}

/// Reads the answer to [`SERVER`].
pub(crate) fn identity_in(row: &Row) -> Result<ServerIdentity, Fault> {
    let wal_file: String = row.try_get(1)?;
    Ok(ServerIdentity {
        system_identifier: row.try_get(0)?,
        timeline: timeline_of(&wal_file),
    })
}

/// Returns the timeline in the name of a file of the WAL; 0 if the server does not tell it.
fn timeline_of(wal_file: &str) -> u32 {
    let digits = wal_file.get(..8).unwrap_or_default();
    u32::from_str_radix(digits, 16).unwrap_or(0)
}

/// Settings of the server.
struct Found {
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    standby_names: String,
    version: i64,
    isolation: String,
    is_standby: bool,
    standbys: i64,
    system_identifier: i64,
    wal_file: String,
    run: ServerRun,
}

/// Connects to a database and asks what an acknowledged commit survives there.
///
/// # Errors
/// If the database cannot be reached, or its settings do not allow what the store promises.
pub fn durability(settings: &Settings) -> Result<Durability, StoreError> {
    let label = settings.label();
    let session = Session::connect(settings, "ganger/status");
    let mut session = session.map_err(|fault| fault.at(&label, "used"))?;
    let found = inspect(&mut session, settings, &label);
    found.map_err(|fault| fault.at(&label, "used"))
}

/// Asks the server of a writing connection for its settings. `label` names the store in errors.
///
/// # Errors
/// If they do not allow what the store promises.
pub(crate) fn inspect(
    session: &mut Session,
    settings: &Settings,
    label: &str,
) -> Result<Durability, Fault> {
    let found = session.run(async |wire| {
        let rows = wire.query_once(QUESTION, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::Lost("the server does not tell its settings".to_owned()))?;
        Ok(Found {
            fsync: row.try_get(0)?,
            full_page_writes: row.try_get(1)?,
            synchronous_commit: row.try_get(2)?,
            standby_names: row.try_get(3)?,
            version: row.try_get(4)?,
            isolation: row.try_get(5)?,
            is_standby: row.try_get(6)?,
            standbys: row.try_get(7)?,
            system_identifier: row.try_get(8)?,
            wal_file: row.try_get(9)?,
            run: run_in(row, 10)?,
        })
    })?;
    let mode = judge(&found, settings).map_err(|reason| {
        Fault::Store(StoreError::Io {
            path: label.to_owned(),
            doing: "used",
            reason,
        })
    })?;
    Ok(Durability {
        mode,
        system_identifier: found.system_identifier,
        timeline: timeline_of(&found.wal_file),
        run: found.run,
    })
}

fn judge(found: &Found, settings: &Settings) -> Result<DurabilityMode, String> {
    if found.version < SERVER_VERSION_MIN {
        let (major, least) = (found.version / 10_000, SERVER_VERSION_MIN / 10_000);
        return Err(format!(
            "the server is PostgreSQL {major}, {least} or newer is needed"
        ));
    }
    if found.is_standby {
        return Err("the server is a standby: name the primary, or all hosts".to_owned());
    }
    if found.isolation != "read committed" {
        let isolation = &found.isolation;
        return Err(format!(
            "default_transaction_isolation is '{isolation}', and an epoch is only safe with 'read committed': set it \
             for the role"
        ));
    }
    let is_unsafe = [
        ("fsync", found.fsync.as_str(), "on"),
        ("full_page_writes", found.full_page_writes.as_str(), "on"),
    ]
    .into_iter()
    .find(|(_, value, wanted)| value != wanted);
    let is_late = !matches!(found.synchronous_commit.as_str(), "on" | "remote_apply");
    let weak = is_unsafe
        .map(|(name, value, _)| format!("{name} is '{value}'"))
        .or_else(|| {
            is_late.then(|| format!("synchronous_commit is '{}'", found.synchronous_commit))
        });
    if let Some(weak) = weak {
        if settings.accepts_loss {
            return Ok(DurabilityMode::None);
        }
        return Err(format!(
            "{weak}, so that acknowledged commits may be lost: set it to 'on', or accept the loss with \
             --store-loss-window"
        ));
    }
    Ok(if settings.has_replicated_storage {
        DurabilityMode::Storage
    } else if !found.standby_names.is_empty() && found.standbys > 0 {
        DurabilityMode::Quorum
    } else {
        DurabilityMode::Alone
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found() -> Found {
        Found {
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            standby_names: String::new(),
            version: 150_004,
            isolation: "read committed".to_owned(),
            is_standby: false,
            standbys: 0,
            system_identifier: 1,
            wal_file: "000000020000000000000001".to_owned(),
            run: ServerRun::default(),
        }
    }

    fn settings() -> Settings {
        Settings::from_url("postgres://n@localhost/g").expect("it is whole")
    }

    #[test]
    fn a_commit_survives_what_the_settings_promise() {
        assert_eq!(judge(&found(), &settings()), Ok(DurabilityMode::Alone));
        let mut with_names = found();
        with_names.standby_names = "ANY 1 (a, b)".to_owned();
        assert_eq!(judge(&with_names, &settings()), Ok(DurabilityMode::Alone));
        with_names.standbys = 1;
        assert_eq!(judge(&with_names, &settings()), Ok(DurabilityMode::Quorum));
        let mut storage = settings();
        storage.has_replicated_storage = true;
        assert_eq!(judge(&found(), &storage), Ok(DurabilityMode::Storage));
    }

    #[test]
    fn a_database_that_loses_acknowledged_commits_is_refused_unless_that_is_accepted() {
        type Change = fn(&mut Found);
        let weak: [(Change, &str); 4] = [
            (|found| found.fsync = "off".to_owned(), "fsync is 'off'"),
            (
                |found| found.full_page_writes = "off".to_owned(),
                "full_page_writes is 'off'",
            ),
            (
                |found| found.synchronous_commit = "local".to_owned(),
                "synchronous_commit is 'local'",
            ),
            (
                |found| found.synchronous_commit = "remote_write".to_owned(),
                "synchronous_commit is 'remote_write'",
            ),
        ];
        let mut accepting = settings();
        accepting.accepts_loss = true;
        for (change, words) in weak {
            let mut found = found();
            change(&mut found);
            let refused = judge(&found, &settings()).expect_err(words);
            assert!(refused.contains(words), "{refused}");
            assert_eq!(judge(&found, &accepting), Ok(DurabilityMode::None));
        }
    }

    #[test]
    fn an_old_server_a_standby_and_another_isolation_are_refused() {
        type Change = fn(&mut Found);
        let wrong: [(Change, &str); 3] = [
            (|found| found.version = 130_011, "PostgreSQL 13"),
            (|found| found.is_standby = true, "is a standby"),
            (
                |found| found.isolation = "repeatable read".to_owned(),
                "'repeatable read'",
            ),
        ];
        for (change, words) in wrong {
            let mut found = found();
            change(&mut found);
            let refused = judge(&found, &settings()).expect_err(words);
            assert!(refused.contains(words), "{refused}");
        }
    }
}
