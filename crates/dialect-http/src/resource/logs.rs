//! The log of a job, as raw bytes or as NDJSON of chunks, once or as it grows.

use std::fmt::{self, Display, Formatter};
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use ganger_document::raw_json::Base64;
use ganger_document::time::Moment;
use ganger_shard::LogChunk;
use ganger_shard::{CallError, Subscription};
use ganger_types::{Happening, JobKey};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

use crate::arguments::refused;
use crate::byte_range::{self, Part};
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::resource::jobs::find;
use crate::stream::{self, Pieces, ReaderGone};

/// Header with the length of the attempt's log in bytes.
const LOG_BYTES: HeaderName = HeaderName::from_static("ganger-log-bytes");
/// Number of log bytes that are read at once.
const READ_BYTES: usize = 64 << 10;
/// Interval at which a follower reads the log even without an event, in case it missed one.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Text,
    Ndjson,
}

/// A chunk of a log.
#[derive(Serialize)]
struct ChunkView<'a> {
    attempt: u32,
    offset: u64,
    at: Moment,
    /// Text of the chunk, if it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    /// Bytes of the chunk in base64, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<Base64>,
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let attempt = context
        .arguments
        .number("attempt", 1, u64::from(u32::MAX))?;
    let formats = [("text", Format::Text), ("ndjson", Format::Ndjson)];
    let format = context
        .arguments
        .word("format", &formats)?
        .unwrap_or(Format::Text);
    let follow = context.arguments.flag("follow")?;
    // Subscribe before the first read, so that no event is missed in between.
    let events = if follow {
        Some(context.shard().events(None)?)
    } else {
        None
    };
    let job = find(&context).await?;
    let attempt = attempt.and_then(|number| u32::try_from(number).ok());
    let resumed: Option<Place> = context.continue_at()?;
    let is_partial = wants_part(&context, format, follow);
    // A part is of one attempt: the last, if the request names none.
    let attempt = attempt.or_else(|| is_partial.then_some(job.record.attempt.max(1)));
    let total = match attempt {
        Some(attempt) => Some(context.shard().log_bytes(job.record.key, attempt).await?),
        None => None,
    };
    let wanted = wanted(&context, total.unwrap_or(0), is_partial)?;
    let Some(wanted) = wanted else {
        return Ok(byte_range::behind_the_end(total.unwrap_or(0)));
    };
    let (pieces, body) = stream::open(&context)?;
    let reader = LogReader {
        key: job.record.key,
        attempt,
        place: resumed.unwrap_or(Place {
            attempt: attempt.unwrap_or(0),
            offset: wanted.from,
            left: wanted.length,
        }),
        format,
        pieces,
        context,
    };
    tokio::spawn(reader.run(events));
    let mut response = body.into_response();
    let headers = response.headers_mut();
    let media_type = match format {
        Format::Text => "text/plain; charset=utf-8",
        Format::Ndjson => "application/x-ndjson",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    if let Some(total) = total {
        headers.insert(LOG_BYTES, HeaderValue::from(total));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(range) = wanted.content_range {
            headers.insert(header::CONTENT_RANGE, range);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
    }
    Ok(response)
}

/// The part of an attempt's log that a request wants.
struct Wanted {
    /// Offset of its first byte.
    from: u64,
    /// Maximum number of bytes; `None`: to the end.
    length: Option<u64>,
    /// Header of the answer to a request with `Range`.
    content_range: Option<HeaderValue>,
}

/// Whether the request wants a part: by its parameters, or by `Range`, which a stream does not serve.
fn wants_part(context: &RequestContext, format: Format, follow: bool) -> bool {
    let names = ["tail", "from", "length"];
    let is_ranged = context.headers.contains_key(header::RANGE);
    names.into_iter().any(|name| context.arguments.has(name))
        || is_ranged && format == Format::Text && !follow
}

/// The part of a log of `total` bytes; `None` if a `Range` begins behind its end.
fn wanted(
    context: &RequestContext,
    total: u64,
    is_partial: bool,
) -> Result<Option<Wanted>, Problem> {
    let arguments = &context.arguments;
    let (tail, from) = (arguments.size("tail")?, arguments.size("from")?);
    let length = arguments.size("length")?;
    if tail.is_some() && (from.is_some() || length.is_some()) {
        let reason = "is the end of the log: leave out from and length";
        return Err(refused("tail", reason));
    }
    let plain = |from, length| Wanted {
        from,
        length,
        content_range: None,
    };
    if let Some(tail) = tail {
        return Ok(Some(plain(total.saturating_sub(tail), None)));
    }
    if from.is_some() || length.is_some() || !is_partial {
        return Ok(Some(plain(from.unwrap_or(0), length)));
    }
    Ok(match byte_range::part(&context.headers, total) {
        Part::All => Some(plain(0, None)),
        Part::BehindTheEnd => None,
        Part::Bytes(range) => Some(Wanted {
            from: range.start,
            length: Some(range.end - range.start),
            content_range: Some(byte_range::content_range(&range, total)),
        }),
    })
}

struct LogReader {
    context: RequestContext,
    key: JobKey,
    /// Attempt to read; `None` reads the log of every attempt.
    attempt: Option<u32>,
    place: Place,
    format: Format,
    pieces: Pieces,
}

/// How far a log was read.
#[derive(Clone, Copy)]
struct Place {
    attempt: u32,
    /// Offset up to which the log of this attempt was read.
    offset: u64,
    /// Number of bytes that are still wanted; `None`: all.
    left: Option<u64>,
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self {
            attempt,
            offset,
            left,
        } = self;
        write!(f, "{attempt}.{offset}")?;
        left.map_or(Ok(()), |left| write!(f, ".{left}"))
    }
}

impl FromStr for Place {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let mut parts = text.splitn(3, '.');
        let mut next = || parts.next().unwrap_or_default();
        Ok(Self {
            attempt: next().parse()?,
            offset: next().parse()?,
            left: parts.next().map(str::parse).transpose()?,
        })
    }
}

/// Why the answer ends.
enum End {
    ReaderGone,
    Failed,
    /// The server stops, or the shard moves to another node.
    Stopped,
}

impl From<ReaderGone> for End {
    fn from(_: ReaderGone) -> Self {
        Self::ReaderGone
    }
}

impl From<CallError> for End {
    fn from(error: CallError) -> Self {
        tracing::warn!(%error, "a log could not be read to its end");
        Self::Failed
    }
}

impl LogReader {
    async fn run(mut self, events: Option<Subscription>) {
        let stopping = self.context.api.settings().stopping.clone();
        let read = async {
            self.read_all().await?;
            if let Some(events) = events {
                self.follow(events).await?;
            }
            Ok::<_, End>(())
        };
        let end = tokio::select! {
            end = read => end,
            () = stopping.cancelled() => Err(End::Stopped),
        };
        match end {
            Ok(()) | Err(End::ReaderGone) => {}
            Err(End::Stopped) if self.context.continued().is_some() => {
                let place = self.place.to_string();
                self.pieces.continue_at(&place).await;
            }
            Err(End::Stopped | End::Failed) => self.pieces.cut().await,
        }
    }

    /// Writes the log as far as it exists.
    async fn read_all(&mut self) -> Result<(), End> {
        loop {
            let chunks = self
                .context
                .shard()
                .log(
                    self.key,
                    (self.place.attempt, self.place.offset),
                    READ_BYTES,
                )
                .await?;
            if chunks.is_empty() {
                return Ok(());
            }
            for mut chunk in chunks {
                if self.attempt.is_some_and(|attempt| attempt < chunk.attempt) {
                    return Ok(());
                }
                if let Some(left) = self.place.left {
                    let end = usize::try_from(left).unwrap_or(usize::MAX);
                    chunk.bytes.truncate(end);
                }
                self.write(&chunk).await?;
                // What was not written is read again where the answer goes on.
                self.place = Place {
                    attempt: chunk.attempt,
                    offset: chunk.offset + length(&chunk),
                    left: self.place.left.map(|left| left - length(&chunk)),
                };
                if self.place.left == Some(0) {
                    return Ok(());
                }
            }
        }
    }

    async fn write(&self, chunk: &LogChunk) -> Result<(), ReaderGone> {
        if self.format == Format::Text {
            return self.pieces.send(chunk.bytes.clone()).await;
        }
        let text = std::str::from_utf8(&chunk.bytes).ok();
        let view = ChunkView {
            attempt: chunk.attempt,
            offset: chunk.offset,
            at: Moment(chunk.at),
            text,
            data_base64: text.is_none().then(|| Base64(chunk.bytes.clone())),
        };
        let mut line = serde_json::to_vec(&view).expect("our documents are plain data");
        line.push(b'\n');
        self.pieces.send(line).await
    }

    /// Writes new chunks until the job has ended or was removed.
    async fn follow(&mut self, mut events: Subscription) -> Result<(), End> {
        loop {
            let job = self.context.shard().job_by_key(self.key).await?;
            self.read_all().await?;
            let is_over = self.place.left == Some(0)
                || job.is_none_or(|job| {
                    let is_later = self
                        .attempt
                        .is_some_and(|attempt| job.record.attempt > attempt);
                    job.record.state.is_terminal() || is_later
                });
            if is_over {
                return Ok(());
            }
            tokio::select! {
                () = self.pieces.closed() => return Err(End::ReaderGone),
                () = tokio::time::sleep(LOOK_EVERY) => {}
                seen = wait_for(&mut events, self.key) => {
                    // A follower that fell behind subscribes again from the present.
                    if seen.is_err() {
                        events = self.context.shard().events(None)?;
                    }
                }
            }
        }
    }
}

/// Waits for an event that concerns the job's log.
async fn wait_for(events: &mut Subscription, job: JobKey) -> Result<(), CallError> {
    loop {
        match events.next().await?.happening {
            Happening::LogAppended { key, .. }
            | Happening::JobMoved { key, .. }
            | Happening::JobRemoved { key, .. }
                if key == job =>
            {
                return Ok(());
            }
            _ => {}
        }
    }
}

fn length(chunk: &LogChunk) -> u64 {
    u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        for text in ["1.0", "3.18446744073709551615", "2.9.40"] {
            let place: Place = text.parse().expect(text);
            assert_eq!(place.to_string(), text);
        }
        for text in ["", "1", "1.", "1.2.", "1.2.3.4", "-1.2"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
