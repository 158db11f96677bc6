//! A payload, a result or a log as a download. It never runs in a browser, whatever it holds.

use axum::body::Body;
use bytes::Bytes;
use futures::stream;
use ganger_shard::Handle;
use ganger_types::JobKey;
use http::{HeaderValue, Response, header};

use crate::fault::Fault;
use crate::params::Params;
use crate::view::View;

/// Bytes of a log that are read at once.
const READ_BYTES: usize = 256 << 10;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Payload,
    Result,
    Log,
}

pub(crate) async fn raw(view: &View, query: &str) -> Result<Response<Body>, Fault> {
    let params = Params::read(query, &["id", "part", "attempt"])?;
    let parts = [
        ("payload", Which::Payload),
        ("result", Which::Result),
        ("log", Which::Log),
    ];
    let which = params.word("part", &parts)?.unwrap_or(Which::Payload);
    view.rights.check(match which {
        Which::Payload => "getPayload",
        Which::Result => "getResult",
        Which::Log => "getLog",
    })?;
    if !view.rights.sees_payloads() {
        return Err(Fault::new(
            "permission_denied",
            "Payloads are shown to operators only",
            "The setting ui.payloads hides them from others.",
        ));
    }
    let reference = params
        .bytes("id")
        .ok_or_else(|| Fault::value("id", "is missing from the address"))?;
    let found = super::find(view, &ganger_document::names::read(reference)).await?;
    let record = &found.job.record;
    let body = match which {
        Which::Payload => Body::from(found.shard.payload_of(record).await?.unwrap_or_default()),
        Which::Result => {
            let result = found.shard.result_of(record).await?;
            Body::from(
                result.ok_or_else(|| Fault::missing("result_not_found", "There is no result"))?,
            )
        }
        Which::Log => {
            let attempt: u32 = params
                .number("attempt", 1, u32::MAX)?
                .unwrap_or(record.attempt.max(1));
            log_body(found.shard.clone(), record.key, attempt)
        }
    };
    let word = match which {
        Which::Payload => "payload",
        Which::Result => "result",
        Which::Log => "log",
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox"),
    );
    headers.insert(
        header::CONTENT_DISPOSITION,
        disposition(word, &found.full_name()),
    );
    Ok(response)
}

/// The log of an attempt, read as fast as it is taken.
fn log_body(shard: Handle, job: JobKey, attempt: u32) -> Body {
    let pieces = stream::unfold(Some(0_u64), move |place| {
        let shard = shard.clone();
        async move {
            let place = place?;
            let chunks = match shard.log(job, (attempt, place), READ_BYTES).await {
                Ok(chunks) => chunks,
                Err(error) => return Some((Err(std::io::Error::other(error.to_string())), None)),
            };
            let (mut bytes, mut next) = (Vec::new(), None);
            for chunk in chunks.into_iter().filter(|chunk| chunk.attempt == attempt) {
                let length = u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX);
                next = Some(chunk.offset + length);
                bytes.extend_from_slice(&chunk.bytes);
            }
            next.is_some().then_some((Ok(Bytes::from(bytes)), next))
        }
    });
    Body::from_stream(pieces)
}

/// A file name that no system takes for anything else.
fn disposition(word: &str, job: &str) -> HeaderValue {
    let safe: String = job
        .chars()
        .map(|it| {
            if it.is_ascii_alphanumeric() || it == '-' {
                it
            } else {
                '_'
            }
        })
        .take(80)
        .collect();
    HeaderValue::try_from(format!("attachment; filename=\"{word}-{safe}.bin\""))
        .expect("the name has safe characters only")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_download_is_safe() {
        let header = disposition("log", "1/../\"a\";\nb\u{202e}");
        let text = header.to_str().expect("text");
        assert_eq!(text, "attachment; filename=\"log-1_____a___b_.bin\"");
    }
}
