//! A bare loop that inserts small rows into the database, through whichever server accepts them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use tokio::runtime;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::{Client, Config, NoTls};

use crate::cluster::{DATABASE, PASSWORD, TestCluster};
use crate::history::Elapsed;

/// The role of the nodes, which may write to the table too.
const ROLE: &str = "ganger_node";
/// Makes the table of the loop.
const TABLE: &str = "CREATE TABLE public.bare (id bigserial PRIMARY KEY, payload text NOT NULL);
    GRANT INSERT ON public.bare TO ganger_node;
    GRANT USAGE ON public.bare_id_seq TO ganger_node";
/// The statement that is repeated.
const INSERT: &str = "INSERT INTO public.bare (payload) VALUES ('x')";
/// Pause after each row and each failed try.
const EVERY: Duration = Duration::from_millis(10);
/// Longest time for a connection, and for one row.
const TRY_MAX: Duration = Duration::from_secs(5);

/// A running loop, which ends when it is dropped.
pub(super) struct Probe {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    begun: Instant,
    /// When each row was acknowledged.
    inserted: Mutex<Vec<Elapsed>>,
    is_over: AtomicBool,
}

impl Probe {
    /// Makes the table, and starts the loop over these servers of the database.
    pub(super) fn start(cluster: &TestCluster, servers: &[SocketAddr]) -> Result<Self> {
        cluster.sql(TABLE)?;
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            inserted: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (config, of_thread) = (config(servers), Arc::clone(&shared));
        let thread = thread::spawn(move || runtime.block_on(of_thread.insert(&config)));
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Returns the time since the start of the loop.
    pub(super) fn now(&self) -> Elapsed {
        self.shared.begun.elapsed()
    }

    /// Returns when each row was acknowledged.
    pub(super) fn inserted(&self) -> Vec<Elapsed> {
        self.shared.lock().clone()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to report but the rows.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Elapsed>> {
        self.inserted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn insert(&self, config: &Config) {
        let mut connected = None;
        while !self.is_over.load(Ordering::Relaxed) {
            connected = match timeout(TRY_MAX, insert(config, connected)).await {
                Ok(Ok(client)) => {
                    self.lock().push(self.begun.elapsed());
                    Some(client)
                }
                // Another connection finds the server that accepts rows.
                Ok(Err(_)) | Err(_) => None,
            };
            sleep(EVERY).await;
        }
    }
}

/// Inserts a row, over a new connection if there is none. Returns the connection.
async fn insert(config: &Config, connected: Option<Client>) -> Result<Client> {
    let client = match connected {
        Some(client) => client,
        None => {
            let (client, connection) = config.connect(NoTls).await?;
            // It ends with the client, or with an error that the next statement returns too.
            tokio::spawn(async move { drop(connection.await) });
            client
        }
    };
    match client.execute(INSERT, &[]).await? {
        1 => Ok(client),
        rows => Err(anyhow!("{rows} rows were inserted")),
    }
}

fn config(servers: &[SocketAddr]) -> Config {
    let mut config = Config::new();
    for server in servers {
        config.host(server.ip().to_string()).port(server.port());
    }
    config
        .user(ROLE)
        .password(PASSWORD)
        .dbname(DATABASE)
        .connect_timeout(TRY_MAX)
        .target_session_attrs(TargetSessionAttrs::ReadWrite);
    config
}
