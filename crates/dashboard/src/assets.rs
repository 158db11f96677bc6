//! Style, module and icon: embedded, named by their hash, compressed when the program was built.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

/// A file that pages load, embedded in the program.
pub(crate) struct Asset {
    /// Its name below `/ui/assets/`, with the hash of its content.
    pub(crate) file: &'static str,
    media_type: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// The file of that name, in the smallest form that the client takes; `None` if there is none.
pub(crate) fn answer(file: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let asset = ALL.iter().find(|asset| asset.file == file)?;
    let (encoding, bytes) = if accepts(headers, "br") {
        (Some("br"), asset.brotli)
    } else if accepts(headers, "gzip") {
        (Some("gzip"), asset.gzip)
    } else {
        (None, asset.plain)
    };
    let mut response = Response::new(Body::from(Bytes::from_static(bytes)));
    *response.status_mut() = StatusCode::OK;
    let out = response.headers_mut();
    out.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(asset.media_type),
    );
    out.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("public, max-age=31536000, immutable"),
    );
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    if let Some(encoding) = encoding {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static(encoding));
    }
    Some(response)
}

/// Whether the client takes a content encoding. One with a weight of 0 is refused.
pub(crate) fn accepts(headers: &HeaderMap, encoding: &str) -> bool {
    let given = headers.get_all(header::ACCEPT_ENCODING).iter();
    given
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|item| {
            let (name, weight) = item.split_once(';').unwrap_or((item, ""));
            let weight = weight.trim().trim_start_matches("q=");
            name.trim().eq_ignore_ascii_case(encoding)
                && weight.parse::<f32>().is_ok_and(|weight| weight > 0.0) | weight.is_empty()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    #[test]
    fn each_form_of_a_file_is_the_same_file_and_within_its_limit() {
        for asset in ALL {
            let mut unpacked = Vec::new();
            flate2::read::GzDecoder::new(asset.gzip)
                .read_to_end(&mut unpacked)
                .expect("it is gzip");
            assert_eq!(unpacked, asset.plain, "{}", asset.file);
            assert!(asset.brotli.len() < asset.plain.len(), "{}", asset.file);
        }
        assert!(STYLE.plain.len() <= 24 << 10, "{}", STYLE.plain.len());
        assert!(LIVE.gzip.len() <= 12 << 10, "{}", LIVE.gzip.len());
        let lines = LIVE.plain.split(|byte| *byte == b'\n').count();
        assert!(lines <= 400, "{lines}");
    }

    #[test]
    fn nothing_of_ours_comes_from_elsewhere() {
        for asset in [&STYLE, &LIVE, &ICON] {
            let text = std::str::from_utf8(asset.plain).expect("text");
            let text = text.replace("http://www.w3.org/2000/svg", "");
            for outside in ["http:", "https:", "@import", "eval(", ".innerHTML"] {
                assert!(!text.contains(outside), "{}: {outside}", asset.file);
            }
        }
    }

    #[test]
    fn the_smallest_form_that_the_client_takes_is_sent() {
        let encoding = |accepted: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            let response = answer(STYLE.file, &headers).expect("it is there");
            let encoding = response.headers().get(header::CONTENT_ENCODING);
            encoding.map(|value| value.to_str().expect("text").to_owned())
        };
        assert_eq!(encoding("gzip, br").as_deref(), Some("br"));
        assert_eq!(encoding("gzip;q=1.0, br;q=0").as_deref(), Some("gzip"));
        assert_eq!(encoding("identity"), None);
        assert!(answer("nothing.css", &HeaderMap::new()).is_none());
    }
}
