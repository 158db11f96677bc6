//! ganger over gRPC: its schema over tonic, without the SDK, whose care for retries and renewals would be measured too.

mod messages;
mod streams;
mod unary;

use ganger_client::{Client, Options};
use ganger_proto::metadata::SHARD;
use ganger_proto::v1::{NewJob, TakeFrom};
use prost::Message;
use prost::bytes::Bytes;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::target::Target;
use crate::{Error, Load};

pub(super) use streams::Streams;
pub(super) use unary::Unary;

/// Where a load goes: the server, and the shard if not the one that listens.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) options: Options,
    pub(super) shard: Option<String>,
}

impl Place {
    fn of(target: &Target) -> Self {
        Self {
            options: target.options.clone(),
            shard: None,
        }
    }

    /// Opens a connection of its own, with the headers that each call sends.
    fn connect(&self) -> Result<Wire, Error> {
        let head = |value: &str| {
            let value = MetadataValue::try_from(value);
            value.map_err(|_| Error::failed("a token or shard that no header can carry"))
        };
        let token = self.options.token.as_ref();
        let token = token.map(|token| head(&format!("Bearer {token}")));
        Ok(Wire {
            channel: Client::new(self.options.clone())?.channel(),
            token: token.transpose()?,
            shard: self.shard.as_deref().map(head).transpose()?,
        })
    }
}

/// A connection and what every call on it carries.
#[derive(Clone)]
struct Wire {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    shard: Option<MetadataValue<Ascii>>,
}

impl Wire {
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request
                .metadata_mut()
                .insert("authorization", token.clone());
        }
        if let Some(shard) = &self.shard {
            request.metadata_mut().insert(SHARD, shard.clone());
        }
        request
    }

    async fn ready(&self) -> Result<Grpc<Channel>, Error> {
        let mut grpc = Grpc::new(self.channel.clone());
        let ready = grpc.ready().await;
        ready.map_err(|error| Error::failed(error.to_string()))?;
        Ok(grpc)
    }

    async fn call<M, R>(&self, method: &'static str, message: M) -> Result<R, Error>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static(method);
        let request = self.request(message);
        let answer = grpc.unary(request, path, ProstCodec::default()).await;
        Ok(answer.map_err(|status| refusal(&status))?.into_inner())
    }

    /// Begins a stream whose messages are sent through the channel.
    async fn stream<M, R>(
        &self,
        method: &'static str,
        messages: tokio::sync::mpsc::UnboundedReceiver<M>,
    ) -> Result<Streaming<R>, Error>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = self.ready().await?;
        let path = PathAndQuery::from_static(method);
        let request = self.request(messages_of(messages));
        let answer = grpc.streaming(request, path, ProstCodec::default()).await;
        answer
            .map(Response::into_inner)
            .map_err(|status| refusal(&status))
    }
}

/// What arrives at a channel, as a stream.
fn messages_of<M: Send + 'static>(
    mut channel: tokio::sync::mpsc::UnboundedReceiver<M>,
) -> impl futures::Stream<Item = M> + Send + 'static {
    futures::stream::poll_fn(move |context| channel.poll_recv(context))
}

fn refusal(status: &Status) -> Error {
    Error::Refused(status.message().to_owned())
}

/// A job of a load as it is sent, encoded.
fn job(queue: &str, payload: &[u8]) -> Bytes {
    let job = NewJob {
        queue: queue.to_owned(),
        kind: "bench".to_owned(),
        payload: Bytes::copy_from_slice(payload),
        ..NewJob::default()
    };
    job.encode_to_vec().into()
}

fn queues(load: &Load) -> Vec<TakeFrom> {
    let from = TakeFrom {
        queue: load.queue.clone(),
        weight: 0,
    };
    vec![from]
}

/// What completed jobs have as their result.
fn result() -> Bytes {
    Bytes::from_static(b"null")
}
