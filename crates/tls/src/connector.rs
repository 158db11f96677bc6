//! The client side: makes connections for an HTTP library, plain or encrypted depending on the URI.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;
use x509_cert::der::Decode as _;

use crate::certificate::CertificateFields;
use crate::error::TlsError;
use crate::explain::explain;
use crate::files::{chain, key, provider, roots};
use crate::names::Names;
use crate::stream::{Fault, Inner, LastFault, Stream};

/// Timeout of a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The authorities that a client trusts, and its own certificate. The files are read for each connection, so a
/// renewed certificate is used from the next one on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// File of the authorities of servers; `None` for those that the system trusts.
    pub ca: Option<PathBuf>,
    /// File of the client's certificate, followed by intermediate certificates; `None` for none.
    pub certificate: Option<PathBuf>,
    /// Private key of the certificate.
    pub key: Option<PathBuf>,
}

impl Trust {
    fn config(&self) -> Result<ClientConfig, TlsError> {
        let roots = match &self.ca {
            Some(path) => roots(path)?,
            None => of_the_system()?,
        };
        let together = |error: rustls::Error| {
            TlsError::Mismatch(match error {
                rustls::Error::InconsistentKeys(_) => {
                    "the client's key is not the key of its certificate".to_owned()
                }
                error => format!("client certificate: {error}"),
            })
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(together)?
            .with_root_certificates(roots);
        let mut config = match (&self.certificate, &self.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(certificate), Some(path)) => builder
                .with_client_auth_cert(chain(certificate)?, key(path)?)
                .map_err(together)?,
            (Some(_), None) => return Err(incomplete("certificate", "--client-key")),
            (None, Some(_)) => return Err(incomplete("key", "--client-cert")),
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// Checks that the files can be used.
    ///
    /// # Errors
    /// If a file cannot be read or parsed, or the files do not match each other.
    pub fn check(&self) -> Result<(), TlsError> {
        self.config().map(|_| ())
    }
}

fn incomplete(has: &str, missing: &str) -> TlsError {
    TlsError::Mismatch(format!(
        "a client {has} is useless without {missing}: give both"
    ))
}

fn of_the_system() -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let reason =
            "this system has no list of trusted authorities: name the server's CA with --ca FILE";
        return Err(TlsError::Mismatch(reason.to_owned()));
    }
    Ok(store)
}

/// Makes connections: encrypted for `https`, plain for `http`.
#[derive(Clone, Debug)]
pub struct Connector {
    trust: Arc<Trust>,
    /// Whether only HTTP/1.1 is offered; otherwise HTTP/2 too.
    is_http1: bool,
    /// Shard that the server's certificate must name; `None` if every server is accepted.
    shard: Option<Arc<str>>,
    /// Cluster whose name in the certificate serves as well.
    cluster: Option<Arc<str>>,
    faults: LastFault,
}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

impl Connector {
    /// Creates a connector with this trust.
    pub fn new(trust: Trust) -> Self {
        Self {
            trust: Arc::new(trust),
            is_http1: false,
            shard: None,
            cluster: None,
            faults: LastFault::default(),
        }
    }

    /// Offers HTTP/1.1 alone, for callers that cannot speak HTTP/2.
    #[must_use]
    pub fn with_http1_only(self) -> Self {
        Self {
            is_http1: true,
            ..self
        }
    }

    /// Accepts only a server certificate for this shard. Plain connections are not affected.
    #[must_use]
    pub fn expecting_shard(mut self, shard: &str) -> Self {
        self.shard = Some(shard.into());
        self
    }

    /// Accepts a server certificate for this cluster too, if one for a shard is expected.
    #[must_use]
    pub fn or_cluster(mut self, cluster: &str) -> Self {
        self.cluster = Some(cluster.into());
        self
    }

    /// Returns the objection of the other side of the last connection, if any: HTTP libraries report only that a
    /// connection has closed.
    pub fn last_fault(&self) -> Option<Fault> {
        self.faults.get()
    }

    /// Connects to the address of a URI.
    ///
    /// # Errors
    /// If the server does not respond, or cannot be trusted; the message says which and what to do.
    pub async fn connect(&self, uri: &Uri) -> io::Result<Stream> {
        let is_secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await?;
        // Small requests must be sent at once.
        stream.set_nodelay(true)?;
        if !is_secure {
            return Ok(self.made(Inner::Plain(stream)));
        }
        let mut config = self.trust.config()?;
        if self.is_http1 {
            config.alpn_protocols = vec![b"http/1.1".to_vec()];
        }
        let config = Arc::new(config);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let handshake = TlsConnector::from(config).connect(name, stream);
        let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
            .await
            .map_err(|_| timed_out())?
            .map_err(|error| with_message(&error))?;
        self.check_shard(stream.get_ref().1.peer_certificates())?;
        Ok(self.made(Inner::Tls(Box::new(stream))))
    }

    fn made(&self, inner: Inner) -> Stream {
        let faults = self.faults.clone();
        faults.set(None);
        Stream {
            inner,
            faults,
            is_fresh: true,
        }
    }

    fn check_shard(
        &self,
        chain: Option<&[rustls::pki_types::CertificateDer<'_>]>,
    ) -> io::Result<()> {
        let Some(wanted) = &self.shard else {
            return Ok(());
        };
        let first = chain.and_then(|chain| chain.first());
        let parsed = first.and_then(|first| CertificateFields::from_der(first).ok());
        let found = parsed.as_ref().map(Names::of).unwrap_or_default();
        let cluster = self.cluster.as_deref();
        if found.shards.iter().any(|shard| **shard == **wanted)
            || found.clusters.iter().any(|name| Some(&**name) == cluster)
        {
            return Ok(());
        }
        let prefix = crate::SHARD_URI_PREFIX;
        let uri_of_cluster = |name: &str| format!("{}{name}", crate::CLUSTER_URI_PREFIX);
        let shards = found.shards.iter().map(|shard| format!("{prefix}{shard}"));
        let clusters = found.clusters.iter().map(|name| uri_of_cluster(name));
        let found: Vec<String> = shards.chain(clusters).collect();
        let or_cluster = cluster.map(|name| format!(" or {}", uri_of_cluster(name)));
        let or_cluster = or_cluster.unwrap_or_default();
        let found = if found.is_empty() {
            "none".to_owned()
        } else {
            found.join(", ")
        };
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "its certificate is not of shard {wanted}: wanted the alternative name {prefix}{wanted}{or_cluster}, it has {found}"
            ),
        ))
    }
}

fn timed_out() -> io::Error {
    let words =
        format!("no TLS handshake within {HANDSHAKE_TIMEOUT:?}: is this a port of a TLS server?");
    io::Error::new(io::ErrorKind::TimedOut, words)
}

fn with_message(error: &io::Error) -> io::Error {
    let words = match explain(error) {
        Some(words) => words,
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the other side closed the connection during the TLS handshake: does it speak TLS there?".to_owned()
        }
        None => error.to_string(),
    };
    io::Error::new(error.kind(), words)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let connector = self.clone();
        Box::pin(async move { connector.connect(&uri).await.map(TokioIo::new) })
    }
}
