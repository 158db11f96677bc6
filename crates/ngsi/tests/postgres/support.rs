//! What the tests share: one server with a database for each, notifications made into tasks, and a proxy.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::LazyLock;

use ganger_ngsi::environment::Database;
use ganger_ngsi::notification;
use ganger_ngsi::postgres::{Insert, InsertError, Inserted, Inserter, Settings};
use ganger_ngsi::prepare::prepare;
use ganger_ngsi::task::{Origin, Task};
use ganger_postgres_instance::{Instance, Login, missing};
use serde_json::Value;

/// The database from which those with PostGIS are copied.
const WITH_POSTGIS: &str = "with_postgis";

/// The server for all tests that leave it alone. It ends with the process.
static SHARED: LazyLock<Instance> = LazyLock::new(|| {
    let instance = Instance::start().expect("PostgreSQL starts");
    if instance.has_postgis().expect("it answers") {
        instance.create_database(WITH_POSTGIS).expect("it is new");
        instance.add_postgis(WITH_POSTGIS).expect("it can be had");
    }
    instance
});

/// Notes that a test does not run here; CI lists what is in the file that `GANGER_SKIPS` names.
fn skipped(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(path) = env::var_os("GANGER_SKIPS")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        // Losing the note must not fail a test that has nothing to say.
        let _ = writeln!(file, "{line}");
    }
}

/// The server for all tests that leave it alone.
pub(crate) fn instance() -> &'static Instance {
    &SHARED
}

/// The database of a login, without TLS.
pub(crate) fn database(login: Login) -> Database {
    Database {
        host: login.host,
        port: login.port,
        name: login.name,
        user: login.user,
        password: login.password,
        ssl: false,
    }
}

/// A server of a test's own; `None` if there cannot be one here.
pub(crate) fn own_instance(test: &str) -> Option<Instance> {
    match missing() {
        Some(reason) => {
            skipped(test, &reason);
            None
        }
        None => Some(Instance::start().expect("PostgreSQL starts")),
    }
}

/// A database of a test's own.
pub(crate) struct Ground {
    pub(crate) database: Database,
}

impl Ground {
    /// Without PostGIS; `None` if there cannot be one here.
    pub(crate) fn plain(test: &str) -> Option<Self> {
        if let Some(reason) = missing() {
            skipped(test, &reason);
            return None;
        }
        let login = SHARED
            .create_database(test)
            .expect("each test has its name");
        Some(Self {
            database: database(login),
        })
    }

    /// A database with the extension PostGIS; `None` if that is not installed.
    pub(crate) fn with_postgis(test: &str) -> Option<Self> {
        if let Some(reason) = missing() {
            skipped(test, &reason);
            return None;
        }
        if !SHARED.has_postgis().expect("it answers") {
            skipped(test, "PostGIS is not installed");
            return None;
        }
        let login = SHARED.copy_database(WITH_POSTGIS, test);
        Some(Self {
            database: database(login.expect("each test has its name")),
        })
    }

    pub(crate) fn inserter(&self) -> Inserter {
        Inserter::new(settings(&self.database))
    }

    /// What statements give, run by the superuser.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let done = SHARED.sql(&self.database.name, statements);
        done.unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// Inserts a notification of tenant `x` that must go well; gives the rows.
    pub(crate) async fn insert(&self, entities: &str) -> u64 {
        let outcome = self.try_insert(entities).await;
        outcome
            .unwrap_or_else(|error| panic!("{entities}: {error}"))
            .rows
    }

    /// Inserts a notification of tenant `x`.
    pub(crate) async fn try_insert(&self, entities: &str) -> Result<Inserted, InsertError> {
        one(&mut self.inserter(), insert(task(entities))).await
    }

    /// The rows of table `"mtx"."ett"` in the order in which they came, as JSON: the columns that are asked for.
    pub(crate) fn rows(&self, columns: &str) -> Value {
        let rows = self.sql(&format!(
            "select coalesce(json_agg(json_build_array({columns}) order by ctid), '[]') from mtx.ett"
        ));
        serde_json::from_str(&rows).expect("it is JSON")
    }
}

pub(crate) fn settings(database: &Database) -> Settings {
    Settings {
        database: database.clone(),
        keep_raw: false,
        insert_bytes_max: None,
    }
}

/// The outcome of one task.
pub(crate) async fn one(inserter: &mut Inserter, insert: Insert) -> Result<Inserted, InsertError> {
    let outcomes = inserter.insert(&[insert]).await;
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().next().expect("there is one")
}

/// A new insert of a task.
pub(crate) fn insert(task: Task) -> Insert {
    Insert {
        task,
        uuid: uuid(),
        is_repeat: false,
        sole_until: None,
    }
}

/// 32 digits that no other call gives.
fn uuid() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The task of a notification for tenant `x`.
pub(crate) fn task(entities: &str) -> Task {
    task_from(Some("x"), None, None, entities)
}

/// The task of a notification with these headers, made as on its arrival.
pub(crate) fn task_from(
    tenant: Option<&str>,
    service_path: Option<&str>,
    time_index: Option<&str>,
    entities: &str,
) -> Task {
    let body = format!("{{\"data\": [{entities}]}}");
    let entities = notification::read(Some("application/json"), body.as_bytes());
    let entities = entities.unwrap_or_else(|error| panic!("{body}: {error}"));
    let payload = prepare(entities, time_index, jiff::Timestamp::now());
    Task {
        origin: Origin {
            tenant: tenant.map(str::to_owned),
            service_path: service_path.map(str::to_owned),
            correlator: None,
        },
        payload: payload.unwrap_or_else(|error| panic!("{body}: {error}")),
    }
}

/// An entity of type `T` with the usual time and these attributes.
pub(crate) fn entity(id: &str, attributes: &str) -> String {
    format!("{{\"id\": \"{id}\", \"type\": \"T\", {TI}, {attributes}}}")
}

/// The attribute that gives entities their time.
pub(crate) const TI: &str =
    r#""TimeInstant": {"type": "DateTime", "value": "2020-01-02T03:04:05Z"}"#;

/// An attribute of an entity as NGSI writes it.
pub(crate) fn attribute(name: &str, ngsi_type: &str, value: &str) -> String {
    format!("\"{name}\": {{\"type\": \"{ngsi_type}\", \"value\": {value}}}")
}
