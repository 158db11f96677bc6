//! The worker's stream: deliveries out as jobs become ready, reports in, both many at a time.
//!
//! One task per stream (`session`). Its bounds: credits, reports in flight, messages made ahead; when
//! one is reached, the task stops reading, and flow control stops the worker. A stream takes no lease with it:
//! what could not be sent is released uncounted (`outgoing`), all else lives until it is reported
//! or runs out. Lost leases are noticed by one watcher for all streams (`holders`).

mod holders;
mod outgoing;
mod relay;
mod reports;
mod session;

use std::time::Duration;

use ganger_access::BytesInProcess;
use ganger_proto::v1;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

pub(crate) use holders::Holders;
use outgoing::Outgoing;
pub use relay::{WORK, WorkerRelay};
use session::Session;

use crate::ServiceContext;
use crate::decode;
use crate::problem::Problem;
use crate::sender::Sender;

/// Number of messages made before the worker took them.
const MESSAGES_MAX: usize = 16;
/// Maximum number of jobs that one lease request of a stream takes.
const BATCH_JOBS_MAX: u32 = 1_024;
/// Bytes of deliveries in one message; a single larger job still fits.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of jobs of earlier streams that a stream remembers.
const ADOPTED_MAX: usize = 10_000;
/// Unused credits that a worker may hold.
const CREDITS_MAX: u32 = 10_000;
/// Reports in one message.
const REPORTS_MAX: usize = 4_096;
/// Reports in the shard without an answer; beyond it nothing more is read.
const REPORTS_IN_FLIGHT_MAX: usize = 8_192;
/// Time within which a stream must send its hello; after it the stream is closed (`rel S13`).
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// Longest wait of one lease request, because leases are counted from the messages that arrived before it.
const LEASE_WAIT_MAX: Duration = Duration::from_secs(5);
/// Interval at which an idle stream sends an empty message.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(10);
/// Time without a message after which a worker counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Time after which a stream ends whose worker reads nothing (`rel B6`).
const SLOW_MAX: Duration = Duration::from_secs(30);

/// Waits for the hello and begins the stream of the worker that sends it.
pub(crate) async fn open(
    context: ServiceContext,
    mut incoming: Streaming<v1::WorkerMessage>,
    in_process: BytesInProcess,
    sender: &Sender,
) -> Result<Outgoing, Status> {
    let silent = || {
        Problem::new(
            "stream_silent",
            format!("no hello came within {HELLO_WITHIN:?}"),
        )
    };
    let first = tokio::time::timeout(HELLO_WITHIN, incoming.message())
        .await
        .map_err(|_| silent())??;
    let mut first = first.unwrap_or_default();
    let hello = first.hello.take().ok_or_else(|| {
        Problem::missing(
            "hello",
            "the first message of a stream says who works and what it takes",
        )
    })?;
    let settings = decode::hello(hello)?;
    sender.introduce(&context.handle, &settings.lease);
    let (says, receiver) = mpsc::channel(MESSAGES_MAX);
    let outgoing = Outgoing::new(
        receiver,
        context.handle.clone(),
        settings.lease.namespace.clone(),
    );
    let workers = context.options.workers.clone();
    in_process.set(0);
    let session = Session::new(context, settings, says, in_process);
    workers.spawn(session.run(first, incoming));
    Ok(outgoing)
}
