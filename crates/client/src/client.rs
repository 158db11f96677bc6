//! The client: one connection, and the retry loop of every call.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ganger_proto::v1;
use ganger_tls::{Connector, Fault};
use ganger_types::ShardId;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::Options;
use crate::addresses::Addresses;
use crate::error::{Error, code};
use crate::model::NewJob;
use crate::pause::Pauses;

/// A connection to a server. Cheap to clone; all clones share one connection, which is re-established automatically.
#[derive(Clone)]
pub struct Client {
    pub(crate) options: Arc<Options>,
    channel: Channel,
    headers: RequestHeaders,
    connector: Connector,
}

/// Value of the metadata that names the shard of a call, for the lists of all shards.
const ALL_SHARDS: &str = "all";

/// Whether a call may be repeated after a failure that leaves its outcome unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The call is idempotent.
    Safe,
    /// The call may be repeated only if it certainly changed nothing.
    IfNothingChanged,
}

/// Interceptor that adds the token to every request, and the shard that it is for if that is known.
#[derive(Clone, Default)]
pub(crate) struct RequestHeaders {
    token: Option<MetadataValue<Ascii>>,
    shard: Option<MetadataValue<Ascii>>,
}

impl RequestHeaders {
    fn new(token: Option<&str>) -> Result<Self, Error> {
        let Some(token) = token else {
            return Ok(Self::default());
        };
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            let message = "the token has characters that a request header cannot carry: is a line break in it?";
            Error::local(code::BAD_TOKEN, message)
        })?;
        value.set_sensitive(true);
        Ok(Self {
            token: Some(value),
            shard: None,
        })
    }
}

impl Interceptor for RequestHeaders {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        if let Some(value) = &self.token {
            metadata.insert("authorization", value.clone());
        }
        if let Some(value) = &self.shard {
            metadata.insert(ganger_proto::metadata::SHARD, value.clone());
        }
        Ok(request)
    }
}

/// Returns the shard of a global id `shard/id`; `None` for a plain id.
fn shard_of(job: &str) -> Option<ShardId> {
    let (shard, id) = job.split_once('/')?;
    ShardId::new(shard).filter(|_| !id.is_empty())
}

pub(crate) type Wire = InterceptedService<Channel, RequestHeaders>;

/// Maximum bytes of a reply. A job with very many inputs makes a large message; the server has its own limits.
const REPLY_BYTES_MAX: usize = 1 << 30;

macro_rules! services {
    ($($name:ident = $client:ident in $module:ident;)*) => {$(
        pub(crate) fn $name(&self) -> v1::$module::$client<Wire> {
            v1::$module::$client::with_interceptor(self.channel.clone(), self.headers.clone())
                .max_decoding_message_size(REPLY_BYTES_MAX)
        }
    )*};
}

impl Client {
    /// Connects to a server and waits for its first answer.
    ///
    /// # Errors
    /// If the address cannot be parsed, or no server answers within [`crate::Retry::total_max`].
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let client = Self::new(options)?;
        client.info().await?;
        Ok(client)
    }

    /// Creates a client that connects at its first call, and again after the connection has broken. Needs a running
    /// Tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be parsed, the token cannot be sent, or a certificate cannot be used.
    pub fn new(options: Options) -> Result<Self, Error> {
        let connector = Connector::new(options.trust.clone());
        let addresses = options.addresses()?;
        let addresses = Addresses::new(addresses, options.connect_for, connector.clone());
        let channel = options.endpoint()?.connect_with_connector_lazy(addresses);
        let headers = RequestHeaders::new(options.token.as_deref())?;
        Ok(Self {
            options: Arc::new(options),
            channel,
            headers,
            connector,
        })
    }

    /// Returns the connection, for a program that uses the schema without this SDK. Its calls carry the token only if the
    /// program adds it.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns a client for another namespace over the same connection.
    #[must_use]
    pub fn in_namespace(&self, namespace: impl Into<String>) -> Self {
        let options = Options::clone(&self.options).namespace(namespace);
        Self {
            options: Arc::new(options),
            ..self.clone()
        }
    }

    /// Returns a client for a shard over the same connection: the server forwards calls to the server of that shard.
    /// Not needed for calls about a job with a global id `shard/id`, which are always sent to its shard.
    #[must_use]
    pub fn at_shard(&self, shard: &ShardId) -> Self {
        let mut client = self.clone();
        // The name of a shard is always a valid header value.
        client.headers.shard = shard.as_str().parse().ok();
        client
    }

    /// Returns a client for the lists of all shards over the same connection: the server asks all shards, and merges their
    /// answers. For `list`, `count`, `list_queues`, `list_schedules`, `list_workers` and
    /// `list_failure_groups`; the server refuses others.
    #[must_use]
    pub fn at_all_shards(&self) -> Self {
        let mut client = self.clone();
        client.headers.shard = Some(MetadataValue::from_static(ALL_SHARDS));
        client
    }

    /// Returns the client for a job or graph: that of its shard, if the id is global.
    pub(crate) fn for_job(&self, job: &str) -> Self {
        match shard_of(job) {
            Some(shard) => self.at_shard(&shard),
            None => self.clone(),
        }
    }

    /// Groups jobs by shard; returns a client for each shard with the ids of its jobs, at least one.
    pub(crate) fn by_shard(&self, jobs: &[&str]) -> Vec<(Self, Vec<String>)> {
        let mut groups: BTreeMap<Option<ShardId>, Vec<String>> = BTreeMap::new();
        for job in jobs {
            groups
                .entry(shard_of(job))
                .or_default()
                .push((*job).to_owned());
        }
        if groups.is_empty() {
            groups.insert(None, Vec::new());
        }
        let each = groups.into_iter().map(|(shard, jobs)| match shard {
            Some(shard) => (self.at_shard(&shard), jobs),
            None => (self.clone(), jobs),
        });
        each.collect()
    }

    /// Returns the client for new jobs: that of their shard, if all name the same one.
    pub(crate) fn for_new_jobs(&self, jobs: &[NewJob]) -> Self {
        let mut shards = jobs.iter().map(|job| job.shard.as_deref());
        let first = shards.next().flatten();
        match first.and_then(ShardId::new) {
            Some(shard) if shards.all(|other| other == first) => self.at_shard(&shard),
            _ => self.clone(),
        }
    }

    /// Opens a worker's stream, which connects and reconnects in the background. Needs a Tokio runtime.
    pub fn work(&self, options: crate::WorkOptions) -> crate::WorkStream {
        crate::WorkStream::open(self.clone(), options)
    }

    /// Returns the options of this client.
    pub fn options(&self) -> &Options {
        &self.options
    }

    services! {
        jobs_wire = JobsClient in jobs_client;
        leases_wire = LeasesClient in leases_client;
        queues_wire = QueuesClient in queues_client;
        schedules_wire = SchedulesClient in schedules_client;
        operations_wire = OperationsClient in operations_client;
        insight_wire = InsightClient in insight_client;
        graphs_wire = GraphsClient in graphs_client;
        admin_wire = AdminClient in admin_client;
    }

    pub(crate) fn namespace(&self) -> String {
        self.options.namespace.clone()
    }

    /// Calls `once`, and again after retryable errors as far as `repeat` allows. `waits_for` is the time that the
    /// server may wait before it answers, in addition to the timeout of a call.
    pub(crate) async fn call<T, F>(
        &self,
        repeat: Repeat,
        waits_for: Duration,
        mut once: impl FnMut() -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut pauses = Pauses::new(self.options.retry);
        loop {
            let error = match self.in_time(waits_for, once()).await {
                Ok(reply) => return Ok(reply.into_inner()),
                Err(error) => error,
            };
            let is_safe = repeat == Repeat::Safe || error.has_changed_nothing();
            match pauses.next(error.retry_after()) {
                Some(pause) if is_safe && error.is_retryable() => tokio::time::sleep(pause).await,
                _ => return Err(error),
            }
        }
    }

    /// Converts the status of a failed call; if the connection was closed, into the reason why the server closed it.
    fn explain(&self, status: &Status) -> Error {
        let error = Error::from_status(status);
        if status.metadata().contains_key(ganger_proto::metadata::CODE) {
            return error;
        }
        let is_lost = matches!(error.code(), code::UNREACHABLE | code::TIMED_OUT);
        match self.connector.last_fault() {
            Some(Fault::Refused(words)) if is_lost => Error::unreachable(words),
            Some(Fault::SpeaksTls) => Error::speaks_tls(&self.options.url),
            Some(Fault::NotHttp2) => Error::wrong_port(&self.options.url),
            _ => error,
        }
    }

    /// Waits for one try of a call, at most for the timeout of a call and `waits_for`.
    pub(crate) async fn in_time<T>(
        &self,
        waits_for: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Error> {
        let limit = self.options.call_for.saturating_add(waits_for);
        match tokio::time::timeout(limit, call).await {
            Ok(answer) => answer.map_err(|status| self.explain(&status)),
            Err(_) => {
                let message = format!("{} did not answer within {limit:?}", self.options.url);
                Err(Error::timed_out(message))
            }
        }
    }
}
