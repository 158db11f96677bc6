//! The context of a request: identity, namespace, path, and parameters.

use std::net::SocketAddr;
use std::str::FromStr;

use axum::extract::FromRequestParts;
use ganger_access::{CONTINUE, Identity, Owner};
use ganger_document::names::{self, JobReference, Name};
use ganger_document::time::read_moment;
use ganger_shard::{CallError, Handle};
use ganger_types::{Command, IdempotencyKey, JobId, Namespace, Reply, ShardId, Timestamp};
use http::request::Parts;
use http::{HeaderMap, Uri};
use percent_encoding::percent_decode;

use crate::api::Api;
use crate::arguments::Arguments;
use crate::problem::Problem;
use crate::request_extensions::{PathNames, Peer, QueryParameterNames};

/// Header with the namespace.
pub(crate) const NAMESPACE_HEADER: &str = "ganger-namespace";
/// Header with the caller's time, for namespaces on their callers' clocks.
pub(crate) const NOW_HEADER: &str = "ganger-now";
/// Header with the idempotency key of a submission.
pub(crate) const IDEMPOTENCY_HEADER: &str = "idempotency-key";

/// Number of segments of the path before the first name: `api`, `v1`, and the resource.
const FIRST_NAME: usize = 3;

/// What a handler needs from a request besides its body.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(crate) api: Api,
    pub(crate) namespace: Namespace,
    pub(crate) arguments: Arguments,
    pub(crate) headers: HeaderMap,
    /// The caller, whose rights have been checked.
    pub(crate) identity: Identity,
    /// Owner of the share of streams that the request uses.
    pub(crate) owner: Owner,
    pub(crate) now: Option<Timestamp>,
    /// Address of the caller; `None` if it is not known.
    pub(crate) from: Option<SocketAddr>,
    path: Vec<Vec<u8>>,
}

impl FromRequestParts<Api> for RequestContext {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let known = parts
            .extensions
            .get::<QueryParameterNames>()
            .map_or(&[][..], |known| &known.0);
        let arguments = Arguments::read(parts.uri.query().unwrap_or_default(), known)?;
        let namespace = namespace(&arguments, &parts.headers)?;
        let now = header_text(&parts.headers, NOW_HEADER)?
            .map(|text| read_moment(text).map_err(|reason| bad_header(NOW_HEADER, &reason)))
            .transpose()?;
        let mut path: Vec<Vec<u8>> = parts
            .uri
            .path()
            .split('/')
            .skip(1)
            .map(decode_segment)
            .collect();
        if let Some(names) = parts.extensions.get::<PathNames>() {
            put_names(&mut path, names, &arguments);
        }
        Ok(Self {
            api: api.clone(),
            namespace,
            arguments,
            headers: parts.headers.clone(),
            identity: parts
                .extensions
                .get::<Identity>()
                .cloned()
                .unwrap_or(Identity::Anonymous),
            owner: owner(parts),
            now,
            from: parts.extensions.get::<Peer>().map(|peer| peer.0),
            path,
        })
    }
}

impl RequestContext {
    /// The shard that serves the request.
    pub(crate) fn shard(&self) -> &Handle {
        self.api.shard()
    }

    /// The caller's time, if the request carries one.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.now
    }

    /// Whether the answer can go on at another node when its shard moves: from the place in the result, if it is not
    /// empty.
    pub(crate) fn continued(&self) -> Option<&str> {
        self.headers.get(CONTINUE)?.to_str().ok()
    }

    /// The place from which the answer goes on that another node began; `None` if it begins here.
    pub(crate) fn continue_at<T: FromStr>(&self) -> Result<Option<T>, Problem> {
        let place = self.continued().filter(|place| !place.is_empty());
        let read = |place: &str| {
            let reason = "is not a place at which an answer goes on";
            place.parse().map_err(|_| bad_header(CONTINUE, reason))
        };
        place.map(read).transpose()
    }

    /// Applies a command, at the caller's time if the request carries one.
    pub(crate) async fn call(&self, command: Command) -> Result<Reply, CallError> {
        match self.now {
            Some(now) => self.shard().call_at(command, now).await,
            None => self.shard().call(command).await,
        }
    }

    /// Applies commands in order and returns an answer for each. They share a turn, unless the request carries the
    /// caller's time.
    pub(crate) async fn call_all(
        &self,
        commands: Vec<Command>,
    ) -> Result<Vec<Result<Reply, CallError>>, CallError> {
        if self.now.is_none() {
            return self.shard().call_all(commands).await;
        }
        // Send all commands before the first answer arrives.
        let calls = commands.into_iter().map(|command| self.call(command));
        Ok(futures::future::join_all(calls).await)
    }

    /// The name in the path.
    pub(crate) fn name<T: Name>(&self) -> Result<T, Problem> {
        self.name_at(0)
    }

    /// The name in the path at this number of segments after the resource.
    pub(crate) fn name_at<T: Name>(&self, place: usize) -> Result<T, Problem> {
        T::from_bytes(self.segment(place))
            .map_err(|error| Problem::new("invalid_value", format!("path: {error}")))
    }

    /// The segment of the path at this number of segments after the resource; empty if there is none.
    pub(crate) fn segment(&self, place: usize) -> &[u8] {
        self.path
            .get(FIRST_NAME + place)
            .map_or(&[][..], Vec::as_slice)
    }

    /// The shard in the path.
    pub(crate) fn peer(&self) -> Result<ShardId, Problem> {
        let bytes = self.path.get(FIRST_NAME).map_or(&[][..], Vec::as_slice);
        let shard = std::str::from_utf8(bytes).ok().and_then(ShardId::new);
        shard.ok_or_else(|| {
            let what = "path: a shard has 1 to 64 characters of A-Z a-z 0-9 . _ -";
            Problem::new("invalid_value", what)
        })
    }

    /// The job in the path.
    pub(crate) fn job(&self) -> Result<JobId, Problem> {
        let text = self.path.get(FIRST_NAME).cloned().unwrap_or_default();
        self.api.resolve(&JobReference(text), || "path".to_owned())
    }

    /// The idempotency key; `None` if the request has none.
    pub(crate) fn idempotency_key(&self) -> Result<Option<IdempotencyKey>, Problem> {
        self.headers
            .get(IDEMPOTENCY_HEADER)
            .map(|value| {
                IdempotencyKey::new(value.as_bytes())
                    .map_err(|error| bad_header(IDEMPOTENCY_HEADER, &error.to_string()))
            })
            .transpose()
    }
}

/// Puts names from the query into the path where it has `-` in their place. Clients that follow the URL standard cannot
/// send `.` and `..` as a segment.
fn put_names(path: &mut [Vec<u8>], names: &PathNames, arguments: &Arguments) {
    for (place, name) in names.0.iter() {
        let segment = path.get_mut(*place).filter(|segment| *segment == b"-");
        if let (Some(segment), Some(given)) = (segment, arguments.bytes(name)) {
            *segment = names::read(given);
        }
    }
}

fn owner(parts: &Parts) -> Owner {
    let identity = parts.extensions.get::<Identity>();
    let address = parts.extensions.get::<Peer>().map(|peer| peer.0.ip());
    Owner::of(identity.unwrap_or(&Identity::Anonymous), address)
}

/// The namespace of a request, read before anything else.
pub(crate) fn namespace_of(
    uri: &Uri,
    headers: &HeaderMap,
    known: &[&str],
) -> Result<Namespace, Problem> {
    let arguments = Arguments::read(uri.query().unwrap_or_default(), known)?;
    namespace(&arguments, headers)
}

/// The namespace in the path.
pub(crate) fn namespace_in_path(uri: &Uri) -> Result<Namespace, Problem> {
    let segment = uri.path().split('/').skip(1).nth(FIRST_NAME);
    Namespace::from_bytes(&decode_segment(segment.unwrap_or_default()))
        .map_err(|error| Problem::new("invalid_value", format!("path: {error}")))
}

fn namespace(arguments: &Arguments, headers: &HeaderMap) -> Result<Namespace, Problem> {
    if let Some(namespace) = arguments.name("namespace")? {
        return Ok(namespace);
    }
    let Some(value) = headers.get(NAMESPACE_HEADER) else {
        return Ok(Namespace::default());
    };
    Namespace::new(names::read(value.as_bytes()))
        .map_err(|error| bad_header(NAMESPACE_HEADER, &error.to_string()))
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    headers
        .get(name)
        .map(|value| {
            value
                .to_str()
                .map_err(|_| bad_header(name, "is not plain text"))
        })
        .transpose()
}

/// The problem for an invalid header.
pub(crate) fn bad_header(name: &str, reason: &str) -> Problem {
    Problem::new("invalid_value", format!("header {name}: {reason}"))
}

fn decode_segment(segment: &str) -> Vec<u8> {
    names::read(&percent_decode(segment.as_bytes()).collect::<Vec<_>>())
}
