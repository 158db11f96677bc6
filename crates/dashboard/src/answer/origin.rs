//! Whether a form was sent from a page of ours: what the browser says of where it comes from.

use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Uri, header};

use crate::settings::Settings;

/// Checks a request that changes something.
///
/// # Errors
/// The reason why it may come from another site.
pub(super) fn check(settings: &Settings, head: &Parts) -> Result<(), &'static str> {
    let own = own_origin(settings, &head.uri, &head.headers);
    check_headers(&head.headers, own.as_deref())
}

fn check_headers(headers: &HeaderMap, own: Option<&str>) -> Result<(), &'static str> {
    if let Some(site) = headers.get("sec-fetch-site") {
        return match site.as_bytes() {
            b"same-origin" => Ok(()),
            _ => Err("the browser says that it comes from another site"),
        };
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Err("neither Sec-Fetch-Site nor Origin says where it comes from");
    };
    let origin = origin.to_str().unwrap_or_default();
    let is_own = own.is_some_and(|own| origin.eq_ignore_ascii_case(own));
    if is_own {
        Ok(())
    } else {
        Err("its origin is not that of this server (behind a proxy, see `ui.origin`)")
    }
}

/// The origin of our pages, as browsers write it.
fn own_origin(settings: &Settings, uri: &Uri, headers: &HeaderMap) -> Option<String> {
    if let Some(origin) = &settings.options.origin {
        return Some(origin.trim_end_matches('/').to_owned());
    }
    let host = match uri.authority() {
        Some(authority) => authority.clone(),
        None => Authority::try_from(headers.get(header::HOST)?.as_bytes()).ok()?,
    };
    let scheme = if settings.is_encrypted {
        "https"
    } else {
        "http"
    };
    let usual = if settings.is_encrypted { ":443" } else { ":80" };
    let host = host.as_str();
    Some(format!(
        "{scheme}://{}",
        host.strip_suffix(usual).unwrap_or(host)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_pages_may_send_forms() {
        let own = "http://127.0.0.1:3733";
        for (site, origin, is_good) in [
            (Some("same-origin"), None, true),
            (Some("same-origin"), Some("https://proxied.example"), true),
            (Some("same-site"), Some(own), false),
            (Some("cross-site"), Some(own), false),
            (Some("none"), None, false),
            (None, Some(own), true),
            (None, Some("http://127.0.0.1:8080"), false),
            (None, Some("https://127.0.0.1:3733"), false),
            (None, Some("null"), false),
            (None, None, false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(site) = site {
                headers.insert("sec-fetch-site", site.parse().expect("text"));
            }
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, origin.parse().expect("text"));
            }
            let checked = check_headers(&headers, Some(own));
            assert_eq!(checked.is_ok(), is_good, "{site:?} {origin:?}");
        }
    }
}
