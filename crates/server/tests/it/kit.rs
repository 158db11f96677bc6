//! Shared helpers: certificates, a server, raw requests.

#![allow(unreachable_pub, reason = "each test program uses a part of it")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ganger_access::{Entry, Grants, Kind, NewSecret};
use ganger_server::{Config, DB_IN_MEMORY, Running, Tls, start};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::{Request, Status};

pub fn config() -> Config {
    Config {
        addr: "127.0.0.1:0".to_owned(),
        db: DB_IN_MEMORY.into(),
        reserve_bytes: 0,
        stop_timeout: Duration::from_secs(5),
        ..Config::default()
    }
}

pub async fn start_server(config: Config) -> Running {
    let running = start(config).await.expect("it starts");
    running.ready().await;
    running
}

/// A certificate authority, with a directory for its files.
pub struct Authority {
    pub directory: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// The contents of a certificate to sign.
#[derive(Default)]
pub struct CertificateSpec<'a> {
    pub name: &'a str,
    pub hosts: &'a [&'a str],
    pub uris: &'a [&'a str],
    pub is_expired: bool,
    /// Serial number, by which the certificate can be revoked; `None` for any.
    pub serial: Option<u64>,
}

impl Authority {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        std::fs::write(directory.path().join("ca.pem"), certificate.pem()).expect("writable");
        let issuer = Issuer::new(params, key);
        Self { directory, issuer }
    }

    pub fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Signs a certificate; writes it to `FILE.pem` and its key to `FILE.key`, and returns both paths.
    pub fn sign(&self, file: &str, wanted: &CertificateSpec<'_>) -> (PathBuf, PathBuf) {
        let hosts: Vec<String> = wanted.hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params
            .distinguished_name
            .push(DnType::CommonName, wanted.name);
        for uri in wanted.uris {
            let uri = (*uri).try_into().expect("plain text");
            params.subject_alt_names.push(SanType::URI(uri));
        }
        params.serial_number = wanted.serial.map(SerialNumber::from);
        if wanted.is_expired {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let paths = (
            self.directory.path().join(format!("{file}.pem")),
            self.directory.path().join(format!("{file}.key")),
        );
        write(&paths.0, &certificate.pem());
        write(&paths.1, &key.serialize_pem());
        paths
    }

    /// Writes a revocation list with these serial numbers; returns its path, which is always the same.
    pub fn revoke(&self, serials: &[u64]) -> PathBuf {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).expect("signed");
        let path = self.directory.path().join("revoked.pem");
        write(&path, &list.pem().expect("PEM"));
        path
    }

    /// Returns the settings of a server with a certificate for this machine; `with_clients`: it accepts client
    /// certificates.
    pub fn tls(&self, with_clients: bool) -> Tls {
        let wanted = CertificateSpec {
            name: "server",
            hosts: &["localhost", "127.0.0.1"],
            uris: &["ganger://shard/1"],
            ..CertificateSpec::default()
        };
        let (cert, key) = self.sign("server", &wanted);
        Tls {
            cert: Some(cert),
            key: Some(key),
            client_ca: with_clients.then(|| self.ca()),
            client_crl: None,
            peer_ca: None,
        }
    }
}

pub fn write(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).expect("writable");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("ours");
}

/// Sends raw bytes over a new connection; returns the response as far as its head has been read.
pub async fn response_head(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let _ = stream.write_all(request).await;
    read_head(&mut stream).await
}

/// Reads a response until its head has come; returns what was read.
pub async fn read_head(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count) = stream.read(&mut piece).await {
        answer.extend_from_slice(&piece[..count]);
        if count == 0 || answer.windows(4).any(|window| window == b"\r\n\r\n") {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// Sends a request with `Connection: close` over a new connection; returns the whole response.
pub async fn response_to(addr: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(addr).await.expect("it listens");
    let line_end = request
        .windows(2)
        .position(|pair| pair == b"\r\n")
        .expect("a request")
        + 2;
    let (line, rest) = request.split_at(line_end);
    let request = [line, b"Connection: close\r\n", rest].concat();
    stream.write_all(&request).await.expect("sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Returns the status code of an HTTP/1.1 response; `none` if there is no response.
pub fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

/// Interceptor that adds these metadata entries to each call.
#[derive(Clone)]
pub struct WithMetadata(pub Vec<(&'static str, String)>);

impl Interceptor for WithMetadata {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        for (name, value) in &self.0 {
            let value = MetadataValue::try_from(value.as_str()).expect("plain text");
            request.metadata_mut().insert(*name, value);
        }
        Ok(request)
    }
}

/// Adds a token with these grants to the access file; returns its secret.
pub fn add_token(access: &Path, name: &str, grants: &str) -> NewSecret {
    let secret = NewSecret::make().expect("random");
    let entry = Entry {
        name: name.to_owned(),
        kind: Kind::Token(secret.hash()),
        grants: grants.parse::<Grants>().expect("readable"),
        expires: None,
        created: None,
    };
    ganger_access::add(access, &entry).expect("added");
    secret
}
