//! The client: one connection, and the way every call goes.

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
use crate::error::{Error, code};
use crate::model::NewJob;
use crate::pause::Pauses;

/// A connection to a server. Cheap to clone; all clones share one connection, which is made again by
/// itself when it breaks.
#[derive(Clone)]
pub struct Client {
    pub(crate) options: Arc<Options>,
    channel: Channel,
    head: Head,
    connector: Connector,
}

/// Whether a call may be repeated when nobody knows what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// A repeat has the same effect as the first.
    Safe,
    /// Only if the first surely changed nothing.
    IfNothingChanged,
}

/// Puts the token on every request, and the shard that it is for, if it is known.
#[derive(Clone, Default)]
pub(crate) struct Head {
    token: Option<MetadataValue<Ascii>>,
    shard: Option<MetadataValue<Ascii>>,
}

impl Head {
    fn new(token: Option<&str>) -> Result<Self, Error> {
        let Some(token) = token else {
            return Ok(Self::default());
        };
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().map_err(|_| {
            let message = "the token has characters that a request header cannot carry: is a line break in it?";
            Error::here(code::BAD_TOKEN, message)
        })?;
        value.set_sensitive(true);
        Ok(Self {
            token: Some(value),
            shard: None,
        })
    }
}

impl Interceptor for Head {
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

/// The shard in `shard/id`.
fn shard_of(job: &str) -> Option<ShardId> {
    let (shard, id) = job.split_once('/')?;
    ShardId::new(shard).filter(|_| !id.is_empty())
}

pub(crate) type Wire = InterceptedService<Channel, Head>;

/// A job with very many inputs makes a large message; its sender has checked it against its own limits.
const REPLY_BYTES_MAX: usize = 1 << 30;

macro_rules! services {
    ($($name:ident = $client:ident in $module:ident;)*) => {$(
        pub(crate) fn $name(&self) -> v1::$module::$client<Wire> {
            v1::$module::$client::with_interceptor(self.channel.clone(), self.head.clone())
                .max_decoding_message_size(REPLY_BYTES_MAX)
        }
    )*};
}

impl Client {
    /// Connects, and makes sure that the server answers.
    ///
    /// # Errors
    /// If the address is unreadable, or nobody answers within [`crate::Retry::total_max`].
    pub async fn connect(options: Options) -> Result<Self, Error> {
        let client = Self::new(options)?;
        client.info().await?;
        Ok(client)
    }

    /// A client that connects at its first call, and again whenever it must. To be called within a
    /// Tokio runtime.
    ///
    /// # Errors
    /// If the address is unreadable, the token cannot be sent, or a certificate cannot be used.
    pub fn new(options: Options) -> Result<Self, Error> {
        let connector = Connector::new(options.trust.clone());
        let channel = options
            .endpoint()?
            .connect_with_connector_lazy(connector.clone());
        let head = Head::new(options.token.as_deref())?;
        Ok(Self {
            options: Arc::new(options),
            channel,
            head,
            connector,
        })
    }

    /// The connection itself, for a program that speaks the schema by other code than this SDK. Calls over it carry the
    /// token only if the program adds it.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// The same connection, working in another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: impl Into<String>) -> Self {
        let options = Options::clone(&self.options).namespace(namespace);
        Self {
            options: Arc::new(options),
            ..self.clone()
        }
    }

    /// The same connection, for what concerns a shard: the server passes it on to the one that has it. Calls
    /// about a job that is named `shard/id` go there by themselves.
    #[must_use]
    pub fn at_shard(&self, shard: &ShardId) -> Self {
        let mut client = self.clone();
        // The name of a shard is plain text, which a header can always carry.
        client.head.shard = shard.as_str().parse().ok();
        client
    }

    /// The client for a job, or a graph: that of its shard, if it is named `shard/id`.
    pub(crate) fn at(&self, job: &str) -> Self {
        match shard_of(job) {
            Some(shard) => self.at_shard(&shard),
            None => self.clone(),
        }
    }

    /// Clients for some jobs, by their shards.
    pub(crate) fn at_each(&self, jobs: &[&str]) -> Vec<(Self, Vec<String>)> {
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

    /// The client for new jobs: that of their shard, if all name the same one.
    pub(crate) fn at_home(&self, jobs: &[NewJob]) -> Self {
        let mut shards = jobs.iter().map(|job| job.shard.as_deref());
        let first = shards.next().flatten();
        match first.and_then(ShardId::new) {
            Some(shard) if shards.all(|other| other == first) => self.at_shard(&shard),
            _ => self.clone(),
        }
    }

    /// Opens a worker's stream. Returns at once; the stream connects, and connects again, by itself.
    /// To be called within a Tokio runtime.
    pub fn work(&self, options: crate::WorkOptions) -> crate::WorkStream {
        crate::WorkStream::open(self.clone(), options)
    }

    /// How this client was made.
    pub fn options(&self) -> &Options {
        &self.options
    }

    services! {
        jobs_wire = JobsClient in jobs_client;
        leases_wire = LeasesClient in leases_client;
        queues_wire = QueuesClient in queues_client;
        schedules_wire = SchedulesClient in schedules_client;
        insight_wire = InsightClient in insight_client;
        admin_wire = AdminClient in admin_client;
    }

    pub(crate) fn namespace(&self) -> String {
        self.options.namespace.clone()
    }

    /// Calls, and calls again while that is safe and worth it. `waits_for` is what the server waits on
    /// purpose.
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

    /// The error; of a connection that has closed, what the other side objected to.
    fn explain(&self, status: &Status) -> Error {
        let error = Error::from_status(status);
        if status.metadata().contains_key(ganger_proto::metadata::CODE) {
            return error;
        }
        let is_lost = matches!(error.code(), code::UNREACHABLE | code::TIMED_OUT);
        match self.connector.last_fault() {
            Some(Fault::Refused(words)) if is_lost => Error::lost(words),
            Some(Fault::SpeaksTls) => Error::speaks_tls(&self.options.url),
            Some(Fault::NotHttp2) => Error::no_ganger(&self.options.url),
            _ => error,
        }
    }

    /// One try, within the time that a call may take.
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
                Err(Error::slow(message))
            }
        }
    }
}
