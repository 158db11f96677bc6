//! The headers of every answer: a page may load and send nothing but to its own origin, and runs no inline code.

use axum::body::Body;
use http::{HeaderName, HeaderValue, Response, header};

/// What a page may load and run.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types ganger";

/// Features of browsers that pages do not use.
const PERMISSIONS: &str = "accelerometer=(), autoplay=(), camera=(), display-capture=(), encrypted-media=(), fullscreen=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), midi=(), payment=(), picture-in-picture=(), publickey-credentials-get=(), screen-wake-lock=(), usb=(), xr-spatial-tracking=()";

/// Adds what the answer does not have itself.
pub(super) fn add(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    let all: [(HeaderName, &'static str); 8] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (HeaderName::from_static("permissions-policy"), PERMISSIONS),
        (HeaderName::from_static("x-robots-tag"), "noindex, nofollow"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in all {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    response
}
