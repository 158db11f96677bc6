//! Messages on their way out; what nobody takes any more is given back.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use ganger_proto::v1;
use ganger_shard::Handle;
use ganger_types::command::{LeaseRef, Release};
use ganger_types::{Command, JobId, LeaseToken, Namespace};
use tokio::sync::mpsc;
use tonic::Status;

/// Message to the worker, or the status that ends the stream.
pub(crate) type Message = Result<v1::ServerMessage, Status>;

/// The stream that the transport reads.
pub(crate) struct Outgoing {
    messages: mpsc::Receiver<Message>,
    handle: Handle,
    namespace: Namespace,
}

impl Outgoing {
    pub(crate) fn new(
        messages: mpsc::Receiver<Message>,
        handle: Handle,
        namespace: Namespace,
    ) -> Self {
        Self {
            messages,
            handle,
            namespace,
        }
    }
}

impl Stream for Outgoing {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        self.messages.poll_recv(cx)
    }
}

impl Drop for Outgoing {
    /// The connection is gone: jobs that were not even handed to it did not start anywhere.
    fn drop(&mut self) {
        self.messages.close();
        let mut unsent = Vec::new();
        while let Ok(message) = self.messages.try_recv() {
            unsent.extend(message.into_iter().flat_map(|message| message.deliveries));
        }
        give_back(&self.handle, &self.namespace, &unsent);
    }
}

/// Releases deliveries that did not reach their worker: uncounted, at their old places.
pub(crate) fn give_back(handle: &Handle, namespace: &Namespace, unsent: &[v1::Delivery]) {
    let release = |delivery: &v1::Delivery| {
        let held = LeaseRef {
            namespace: namespace.clone(),
            job: JobId::new(&delivery.job).ok()?,
            token: LeaseToken::from_bytes(&delivery.token)?,
        };
        Some(Command::Release(Box::new(Release {
            held,
            delay: std::time::Duration::ZERO,
            counted: false,
            by_server: false,
            keep_place: true,
            reason: "the worker's stream ended before the job was sent".to_owned(),
        })))
    };
    let commands: Vec<_> = unsent.iter().filter_map(release).collect();
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };
    if commands.is_empty() {
        return;
    }
    let handle = handle.clone();
    runtime.spawn(async move {
        if let Err(error) = handle.call_all(commands).await {
            // The leases run out by themselves.
            tracing::warn!(%error, "jobs of an ended stream could not be given back");
        }
    });
}
