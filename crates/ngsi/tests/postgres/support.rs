//! Shared parts of the tests: a server with a database for each test, and tasks from notifications.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::LazyLock;

use ganger_ngsi::environment::Database;
use ganger_ngsi::notification;
use ganger_ngsi::postgres::{InsertError, InsertSummary, Inserter, Settings, TaskInsert};
use ganger_ngsi::prepare::prepare;
use ganger_ngsi::task::{Origin, Task};
use ganger_postgres_instance::{Instance, Login, unavailable_reason};
use serde_json::Value;

/// Template of the databases with PostGIS.
const WITH_POSTGIS: &str = "with_postgis";

/// The server of all tests that do not stop it. It ends with the process.
static SHARED: LazyLock<Instance> = LazyLock::new(|| {
    let instance = Instance::start().expect("PostgreSQL starts");
    if instance.has_postgis().expect("the database should respond") {
        instance
            .create_database(WITH_POSTGIS)
            .expect("the database does not exist yet");
        instance
            .add_postgis(WITH_POSTGIS)
            .expect("PostGIS is installed");
    }
    instance
});

/// Records that a test is skipped. CI lists the content of the file that `GANGER_SKIPS` names.
fn note_skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    eprintln!("{line}");
    if let Some(path) = env::var_os("GANGER_SKIPS")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        // A lost note must not fail the test.
        let _ = writeln!(file, "{line}");
    }
}

/// Returns the server of all tests that do not stop it.
pub(crate) fn shared_server() -> &'static Instance {
    &SHARED
}

/// Returns the database of a login, without TLS.
pub(crate) fn database_of(login: Login) -> Database {
    Database {
        host: login.host,
        port: login.port,
        name: login.name,
        user: login.user,
        password: login.password,
        ssl: false,
    }
}

/// Starts a server for one test; `None` if no server can run here.
pub(crate) fn private_server(test: &str) -> Option<Instance> {
    match unavailable_reason() {
        Some(reason) => {
            note_skip(test, &reason);
            None
        }
        None => Some(Instance::start().expect("PostgreSQL starts")),
    }
}

/// A database for one test.
pub(crate) struct TestDatabase {
    pub(crate) address: Database,
}

impl TestDatabase {
    /// Creates a database without PostGIS; `None` if no server can run here.
    pub(crate) fn plain(test: &str) -> Option<Self> {
        if let Some(reason) = unavailable_reason() {
            note_skip(test, &reason);
            return None;
        }
        let login = SHARED
            .create_database(test)
            .expect("each test has its name");
        Some(Self {
            address: database_of(login),
        })
    }

    /// Creates a database with PostGIS; `None` if that is not installed.
    pub(crate) fn with_postgis(test: &str) -> Option<Self> {
        if let Some(reason) = unavailable_reason() {
            note_skip(test, &reason);
            return None;
        }
        if !SHARED.has_postgis().expect("the database should respond") {
            note_skip(test, "PostGIS is not installed");
            return None;
        }
        let login = SHARED.copy_database(WITH_POSTGIS, test);
        Some(Self {
            address: database_of(login.expect("each test has its name")),
        })
    }

    pub(crate) fn inserter(&self) -> Inserter {
        Inserter::new(settings(&self.address))
    }

    /// Runs statements as superuser and returns their rows.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let done = SHARED.sql(&self.address.name, statements);
        done.unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    /// Inserts a notification of tenant `x`, which must succeed; returns the number of rows.
    pub(crate) async fn insert(&self, entities: &str) -> u64 {
        let outcome = self.try_insert(entities).await;
        outcome
            .unwrap_or_else(|error| panic!("{entities}: {error}"))
            .rows
    }

    /// Inserts a notification of tenant `x`.
    pub(crate) async fn try_insert(&self, entities: &str) -> Result<InsertSummary, InsertError> {
        insert_one(&mut self.inserter(), new_insert(task(entities))).await
    }

    /// Returns the given columns of table `"mtx"."ett"` as JSON, in order of insertion.
    pub(crate) fn rows(&self, columns: &str) -> Value {
        let rows = self.sql(&format!(
            "select coalesce(json_agg(json_build_array({columns}) order by ctid), '[]') from mtx.ett"
        ));
        serde_json::from_str(&rows).expect("valid JSON")
    }
}

pub(crate) fn settings(database: &Database) -> Settings {
    Settings {
        database: database.clone(),
        keep_raw: false,
        insert_bytes_max: None,
    }
}

/// Inserts one task in a transaction of its own.
pub(crate) async fn insert_one(
    inserter: &mut Inserter,
    insert: TaskInsert,
) -> Result<InsertSummary, InsertError> {
    let outcomes = inserter.insert(&[insert]).await;
    assert_eq!(outcomes.len(), 1);
    outcomes.into_iter().next().expect("there is one")
}

/// Creates the first insert of a task.
pub(crate) fn new_insert(task: Task) -> TaskInsert {
    TaskInsert {
        task,
        uuid: uuid(),
        is_repeat: false,
        exclusive_until: None,
    }
}

/// Returns 32 digits that differ in each call.
fn uuid() -> String {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{:032x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the task of a notification for tenant `x`.
pub(crate) fn task(entities: &str) -> Task {
    task_from(Some("x"), None, None, entities)
}

/// Returns the task of a notification with these headers that arrives now.
pub(crate) fn task_from(
    tenant: Option<&str>,
    service_path: Option<&str>,
    time_index: Option<&str>,
    entities: &str,
) -> Task {
    let body = format!("{{\"data\": [{entities}]}}");
    let entities = notification::parse(Some("application/json"), body.as_bytes());
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

/// Returns an entity of type `T` with the usual time and these attributes.
pub(crate) fn entity(id: &str, attributes: &str) -> String {
    format!("{{\"id\": \"{id}\", \"type\": \"T\", {TI}, {attributes}}}")
}

/// The attribute that gives entities their time.
pub(crate) const TI: &str =
    r#""TimeInstant": {"type": "DateTime", "value": "2020-01-02T03:04:05Z"}"#;

/// Returns an attribute as JSON.
pub(crate) fn attribute(name: &str, ngsi_type: &str, value: &str) -> String {
    format!("\"{name}\": {{\"type\": \"{ngsi_type}\", \"value\": {value}}}")
}
