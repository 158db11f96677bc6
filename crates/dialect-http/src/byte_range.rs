//! The header `Range`: one part of an answer in bytes (RFC 9110, section 14).

use std::ops::Range;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// The part of an answer that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it: there is no range, or one that this server does not serve.
    All,
    /// These bytes; not empty.
    Bytes(Range<u64>),
    /// The range begins behind the end.
    BehindTheEnd,
}

/// Reads the header, for an answer of `total` bytes. Several ranges, and other units, are ignored, as the standard
/// allows.
pub(crate) fn part(headers: &HeaderMap, total: u64) -> Part {
    let value = headers.get(header::RANGE);
    let text = value.and_then(|value| value.to_str().ok());
    let range = text
        .and_then(|text| text.trim().strip_prefix("bytes="))
        .and_then(|range| range.trim().split_once('-'));
    let Some((first, last)) = range else {
        return Part::All;
    };
    let number = |text: &str| text.parse::<u64>();
    let wanted = match (first, last) {
        ("", last) => number(last).map(|count| total.saturating_sub(count)..total),
        (first, "") => number(first).map(|first| first..total),
        (first, last) => match (number(first), number(last)) {
            (Ok(first), Ok(last)) if first <= last => Ok(first..last.saturating_add(1).min(total)),
            (Err(error), _) | (_, Err(error)) => Err(error),
            _ => return Part::All,
        },
    };
    match wanted {
        Err(_) => Part::All,
        Ok(range) if range.start >= range.end => Part::BehindTheEnd,
        Ok(range) => Part::Bytes(range),
    }
}

/// The header `Content-Range` of a part.
pub(crate) fn content_range(range: &Range<u64>, total: u64) -> HeaderValue {
    let text = format!("bytes {}-{}/{total}", range.start, range.end - 1);
    HeaderValue::try_from(text).expect("it is plain text")
}

/// The answer to a range that begins behind the end.
pub(crate) fn behind_the_end(total: u64) -> Response {
    let text = format!("bytes */{total}");
    let range = HeaderValue::try_from(text).expect("it is plain text");
    let headers = [(header::CONTENT_RANGE, range)];
    (StatusCode::RANGE_NOT_SATISFIABLE, headers, Body::empty()).into_response()
}

/// The part of `bytes` that a request asks for, with the headers that all answers with these bytes have.
pub(crate) fn answer<const N: usize>(
    headers: &HeaderMap,
    own: [(http::HeaderName, HeaderValue); N],
    bytes: Bytes,
) -> Response {
    let total = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let accepts = [(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"))];
    match part(headers, total) {
        Part::All => (own, accepts, bytes).into_response(),
        Part::BehindTheEnd => behind_the_end(total),
        Part::Bytes(range) => {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            let slice = bytes.slice(place(range.start)..place(range.end));
            let content = [(header::CONTENT_RANGE, content_range(&range, total))];
            (StatusCode::PARTIAL_CONTENT, own, accepts, content, slice).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_the_standard_says() {
        let read = |text: &'static str| {
            let value = HeaderValue::from_static(text);
            part(&HeaderMap::from_iter([(header::RANGE, value)]), 10)
        };
        assert_eq!(read("bytes=2-4"), Part::Bytes(2..5));
        assert_eq!(read("bytes=7-99"), Part::Bytes(7..10));
        assert_eq!(read("bytes=7-"), Part::Bytes(7..10));
        assert_eq!(read("bytes=-3"), Part::Bytes(7..10));
        assert_eq!(read("bytes=-99"), Part::Bytes(0..10));
        assert_eq!(read("bytes=10-"), Part::BehindTheEnd);
        assert_eq!(read("bytes=-0"), Part::BehindTheEnd);
        for ignored in ["lines=1-2", "bytes=4-2", "bytes=1-2,4-5", "bytes=a-b", ""] {
            assert_eq!(read(ignored), Part::All, "{ignored}");
        }
        assert_eq!(part(&HeaderMap::new(), 10), Part::All);
    }
}
