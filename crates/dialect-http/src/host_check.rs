//! Protects a server on localhost from web pages of other sites.
//!
//! A page in a browser may send requests to loopback addresses. Two checks prevent that. The `Host` must be an
//! address or a configured name, because a page that has rebound its own name to 127.0.0.1 still sends that name. And
//! a request that changes something must not come from another site.

use http::uri::Authority;
use http::{HeaderMap, Method, Uri, header};
use std::net::IpAddr;

use crate::problem::Problem;

/// The host names that requests may carry, against DNS rebinding.
#[derive(Clone, Debug, Default)]
pub struct HostCheck {
    /// Allowed names besides `localhost` and plain addresses; `*`: any name.
    pub hosts: Vec<String>,
    /// Whether a token is required; a page without one can then do nothing, whatever its name is.
    pub is_secured: bool,
}

impl HostCheck {
    /// Refuses requests that a page of another site may have sent.
    ///
    /// # Errors
    /// If the host is not allowed, or the request comes from another site and would change something.
    pub fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let host = host(uri, headers)?;
        self.check_host(&host)?;
        let is_reading = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        if is_reading {
            Ok(())
        } else {
            check_site(&host, headers)
        }
    }

    fn check_host(&self, host: &Authority) -> Result<(), Problem> {
        let name = host.host().trim_start_matches('[').trim_end_matches(']');
        let is_known = self.is_secured
            || name.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self
                .hosts
                .iter()
                .any(|known| known == "*" || known.eq_ignore_ascii_case(name));
        if is_known {
            return Ok(());
        }
        Err(Problem::new(
            "host_refused",
            format!(
                "this server does not answer to the name {name:?}: use its address, set a token, or add the name to the setting `hosts`"
            ),
        ))
    }
}

/// The host of the request: from the URI in HTTP/2, else from the header.
fn host(uri: &Uri, headers: &HeaderMap) -> Result<Authority, Problem> {
    if let Some(authority) = uri.authority() {
        return Ok(authority.clone());
    }
    let mut given = headers.get_all(header::HOST).iter();
    let refused = |reason: &str| Problem::new("host_refused", format!("the header Host {reason}"));
    let first = given
        .next()
        .ok_or_else(|| refused("is missing: every request must name the host"))?;
    if given.next().is_some() {
        return Err(refused("stands twice"));
    }
    Authority::try_from(first.as_bytes()).map_err(|_| refused("cannot be read"))
}

fn check_site(host: &Authority, headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |from: &str| {
        Err(Problem::new(
            "cross_site_refused",
            format!(
                "this request comes from a page of another site ({from}): only pages of this server may change something"
            ),
        ))
    };
    let text = |name: &str| {
        headers
            .get(name)
            .map(|value| String::from_utf8_lossy(value.as_bytes()))
    };
    if let Some(site) = text("sec-fetch-site")
        && !matches!(&*site, "same-origin" | "none")
    {
        return refused(&site);
    }
    let Some(origin) = text("origin") else {
        return Ok(());
    };
    let is_ours = origin
        .split_once("://")
        .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(host.as_str()));
    if is_ours { Ok(()) } else { refused(&origin) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(
        guard: &HostCheck,
        method: &Method,
        pairs: &[(&'static str, &str)],
    ) -> Option<&'static str> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).expect("a header"));
        }
        guard
            .check(method, &Uri::from_static("/api/v1/jobs"), &headers)
            .err()
            .map(|it| it.code)
    }

    #[test]
    fn only_hosts_that_are_meant_for_us_pass() {
        let open = HostCheck {
            hosts: vec!["queue.local".to_owned()],
            is_secured: false,
        };
        for host in [
            "localhost",
            "localhost:3733",
            "127.0.0.1:3733",
            "[::1]:3733",
            "10.1.2.3",
            "Queue.Local:1",
        ] {
            assert_eq!(
                check(&open, &Method::GET, &[("host", host)]),
                None,
                "{host}"
            );
        }
        for host in [
            "evil.example",
            "localhost.evil.example:3733",
            "",
            "127.0.0.1.evil.example",
        ] {
            assert_eq!(
                check(&open, &Method::GET, &[("host", host)]),
                Some("host_refused"),
                "{host}"
            );
        }
        assert_eq!(check(&open, &Method::GET, &[]), Some("host_refused"));
        let secured = HostCheck {
            hosts: Vec::new(),
            is_secured: true,
        };
        assert_eq!(
            check(&secured, &Method::GET, &[("host", "queue.example")]),
            None
        );
    }

    #[test]
    fn pages_of_other_sites_may_not_write() {
        let guard = HostCheck::default();
        let host = ("host", "127.0.0.1:3733");
        let code = |method, header| check(&guard, &method, &[host, header]);
        let refused = Some("cross_site_refused");
        assert_eq!(
            code(Method::POST, ("origin", "https://evil.example")),
            refused
        );
        assert_eq!(code(Method::POST, ("origin", "null")), refused);
        assert_eq!(
            code(Method::POST, ("origin", "http://127.0.0.1:8080")),
            refused
        );
        assert_eq!(
            code(Method::DELETE, ("sec-fetch-site", "cross-site")),
            refused
        );
        assert_eq!(code(Method::PUT, ("sec-fetch-site", "same-site")), refused);
        assert_eq!(
            code(Method::POST, ("origin", "http://127.0.0.1:3733")),
            None
        );
        assert_eq!(code(Method::POST, ("sec-fetch-site", "same-origin")), None);
        assert_eq!(code(Method::GET, ("origin", "https://evil.example")), None);
    }
}
