//! Options of a client: address, credentials, timeouts, retries.

use std::fmt;
use std::time::Duration;

use ganger_tls::Trust;
use tonic::codegen::http::Uri;
use tonic::transport::Endpoint;

use crate::error::{Error, code};

/// The program that requests come from, as lists of workers show it.
const USER_AGENT: &str = concat!("ganger/", env!("CARGO_PKG_VERSION"));

/// Options of a client.
#[derive(Clone)]
pub struct Options {
    /// Address of the server: `https://host:port`, `http://host:port`, or `host:port` or `:port`, which are not
    /// encrypted. Several addresses, separated by commas, are those of the nodes of a cluster: the client is connected
    /// to one of them, and goes to the next one when that is lost.
    pub url: String,
    /// Trusted authorities and the client's certificate, for addresses with `https://`.
    pub trust: Trust,
    /// Token that authenticates every request; `None` for no token.
    pub token: Option<String>,
    /// Namespace of all calls. Default `default`.
    pub namespace: String,
    /// Longest time to establish a connection. Default 5 s.
    pub connect_for: Duration,
    /// Longest time for the answer to a call, in addition to the wait that the call asks for. Default 30 s.
    pub call_for: Duration,
    /// Retries of failed calls.
    pub retry: Retry,
}

/// The retries of calls that are safe to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Pause after the first failure, which doubles with each retry, with jitter. Default 50 ms.
    pub pause_first: Duration,
    /// Longest pause. Default 2 s.
    pub pause_max: Duration,
    /// Longest time for all tries of one call together. Zero for no retries. Default 15 s.
    pub total_max: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
            total_max: Duration::from_secs(15),
        }
    }
}

impl Default for Options {
    /// Returns the options for a server on this machine at the default port.
    fn default() -> Self {
        Self {
            url: "http://127.0.0.1:3733".into(),
            trust: Trust::default(),
            token: None,
            namespace: "default".into(),
            connect_for: Duration::from_secs(5),
            call_for: Duration::from_secs(30),
            retry: Retry::default(),
        }
    }
}

impl Options {
    /// Returns options for a server at `url`, without a token.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            ..Self::default()
        }
    }

    /// Sets the token that authenticates the calls.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the namespace of the calls.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Returns the complete addresses; one at least.
    pub(crate) fn addresses(&self) -> Result<Vec<Uri>, Error> {
        let urls = self.url.split(',').map(complete_url);
        let urls = urls.collect::<Result<Vec<_>, _>>()?;
        let is_secure = |url: &String| url.starts_with("https://");
        if urls.iter().any(is_secure) != urls.iter().all(is_secure) {
            return Err(bad_url(
                &self.url,
                "some of its parts are encrypted, and some are not",
            ));
        }
        let parsed = urls.iter().map(|url| {
            let uri = url.parse::<Uri>();
            uri.map_err(|error| bad_url(&self.url, &error.to_string()))
        });
        parsed.collect()
    }

    pub(crate) fn endpoint(&self) -> Result<Endpoint, Error> {
        let addresses = self.addresses()?;
        let (first, count) = (addresses[0].clone(), addresses.len());
        if first.scheme_str() == Some("https") {
            let checked = self.trust.check();
            checked.map_err(|error| Error::local(code::BAD_TRUST, error.to_string()))?;
        }
        // Each address has the whole time.
        let connect_for = self.connect_for * u32::try_from(count).unwrap_or(u32::MAX);
        let endpoint = Endpoint::from(first);
        let endpoint = endpoint
            .user_agent(USER_AGENT)
            .map_err(|error| bad_url(&self.url, &error.to_string()))?;
        Ok(endpoint
            .connect_timeout(connect_for)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(15))
            .keep_alive_timeout(Duration::from_secs(20))
            .keep_alive_while_idle(true)
            // The defaults of 64 KiB would make a batch of 256 jobs wait for the other side.
            .initial_stream_window_size(4 << 20)
            .initial_connection_window_size(16 << 20))
    }
}

/// Shows all options but the token.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("url", &self.url)
            .field("token", &self.token.as_ref().map(|_| "hidden"))
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

fn bad_url(url: &str, reason: &str) -> Error {
    let message = format!(
        "the address {url:?} cannot be read: {reason}; write http://host:port or host:port"
    );
    Error::local(code::BAD_URL, message)
}

/// Adds scheme, host and port where they are missing.
fn complete_url(url: &str) -> Result<String, Error> {
    let url = url.trim().trim_end_matches('/');
    if url.is_empty() {
        return Err(bad_url(url, "it is empty"));
    }
    let (scheme, authority) = match url.split_once("://") {
        None => ("http", url),
        Some((scheme @ ("http" | "https"), authority)) => (scheme, authority),
        Some(_) => return Err(bad_url(url, "its scheme is neither http nor https")),
    };
    let authority = match authority.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => authority.to_owned(),
    };
    let parsed: http::uri::Authority = authority
        .parse()
        .map_err(|error: http::uri::InvalidUri| bad_url(url, &error.to_string()))?;
    match parsed.port_u16() {
        Some(_) => Ok(format!("{scheme}://{authority}")),
        None => Ok(format!("{scheme}://{authority}:3733")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_written_short() {
        for (given, wanted) in [
            (":3733", "http://127.0.0.1:3733"),
            ("localhost:9", "http://localhost:9"),
            ("localhost", "http://localhost:3733"),
            ("http://10.0.0.1:80/", "http://10.0.0.1:80"),
            ("https://example.org", "https://example.org:3733"),
            ("[::1]:4000", "http://[::1]:4000"),
        ] {
            assert_eq!(complete_url(given).expect("readable"), wanted);
        }
    }

    #[test]
    fn several_addresses_are_those_of_nodes() {
        let addresses = Options::new("a, b:1,http://c")
            .addresses()
            .expect("readable");
        let wanted = ["http://a:3733/", "http://b:1/", "http://c:3733/"];
        let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, wanted);
    }

    #[test]
    fn a_bad_address_is_said_to_be_one() {
        for given in [
            "",
            "ftp://x:1",
            "https://",
            "a b:3",
            "host:port",
            "a,",
            "a,https://b",
        ] {
            let error = Options::new(given).endpoint().expect_err("not readable");
            assert_eq!(error.code(), code::BAD_URL, "{given}");
        }
    }

    #[test]
    fn the_token_is_not_shown() {
        let shown = format!("{:?}", Options::default().token("secret-word"));
        assert!(!shown.contains("secret-word"));
    }
}
