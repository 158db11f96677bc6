//! TLS on the main port: which clients are accepted, what rejected clients read, and certificates that change.

use std::time::Duration;

use crate::kit::{Authority, CertificateSpec, config, response_head, start_server, write};
use ganger_client::{Client, NewJob, Options, Retry, Trust};
use ganger_server::{Config, Require, Secret};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TOKEN: &str = "a-token-for-tests-only";

fn options(url: String, trust: Trust) -> Options {
    Options {
        trust,
        retry: Retry {
            total_max: Duration::ZERO,
            ..Retry::default()
        },
        ..Options::new(url)
    }
}

fn trust_of(authority: &Authority) -> Trust {
    Trust {
        ca: Some(authority.ca()),
        ..Trust::default()
    }
}

fn trust_with_certificate(
    authority: &Authority,
    file: &str,
    wanted: &CertificateSpec<'_>,
) -> Trust {
    let (certificate, key) = authority.sign(file, wanted);
    Trust {
        certificate: Some(certificate),
        key: Some(key),
        ..trust_of(authority)
    }
}

fn named(name: &str) -> CertificateSpec<'_> {
    CertificateSpec {
        name,
        ..CertificateSpec::default()
    }
}

/// Connects, which must fail; returns the error's code and message.
async fn connect_error(options: Options) -> String {
    let error = Client::connect(options).await.err();
    let error = error.expect("it must fail");
    format!("{}: {error}", error.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_accepted_over_tls_with_a_token() {
    let authority = Authority::new();
    let running = start_server(Config {
        tls: authority.tls(false),
        token: Secret::new(TOKEN).ok(),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let client = Client::connect(options(url.clone(), trust_of(&authority)).token(TOKEN))
        .await
        .expect("let in");
    client.enqueue(NewJob::new("a")).await.expect("taken");
    let words = connect_error(options(url, trust_of(&authority))).await;
    assert!(
        words.starts_with("unauthorized: a token is needed"),
        "{words}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_certificate_is_reported_with_the_reason() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = authority.tls(false);
    let running = start_server(Config {
        tls: tls.clone(),
        ..config()
    })
    .await;
    let port = running.addr().port();
    let url = |host: &str| format!("https://{host}:{port}");
    let words = connect_error(options(url("127.0.0.1"), trust_of(&other))).await;
    assert!(
        words.contains("not signed by an authority that is trusted here"),
        "{words}"
    );
    let words = connect_error(options(url("127.0.0.2"), trust_of(&authority))).await;
    assert!(
        words.contains("unreachable") || words.contains("another name"),
        "{words}"
    );
    running.stop().await;
    // Another server has a certificate for another name.
    let (cert, key) = authority.sign(
        "elsewhere",
        &CertificateSpec {
            hosts: &["elsewhere.example"],
            ..named("server")
        },
    );
    let tls = ganger_server::Tls {
        cert: Some(cert),
        key: Some(key),
        ..tls
    };
    let running = start_server(Config { tls, ..config() }).await;
    let words = connect_error(options(
        format!("https://{}", running.addr()),
        trust_of(&authority),
    ))
    .await;
    assert!(
        words.contains("another name") && words.contains("elsewhere.example"),
        "{words}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_list_that_cannot_be_read_is_named() {
    let authority = Authority::new();
    let list = authority.ca().with_file_name("list.pem");
    let text = "-----BEGIN X509 CRL-----\nMAMCAQE=\n-----END X509 CRL-----\n";
    std::fs::write(&list, text).expect("written");
    let tls = ganger_server::Tls {
        client_crl: Some(list.clone()),
        ..authority.tls(true)
    };
    let error = ganger_server::start(Config { tls, ..config() })
        .await
        .err()
        .expect("unreadable");
    let words = error.to_string();
    let named = format!("revocation list {}", list.display());
    assert!(words.contains(&named), "{words}");
    assert_eq!(error.exit_code(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_certificate_is_refused_on_both_sides() {
    let authority = Authority::new();
    let expired = CertificateSpec {
        is_expired: true,
        hosts: &["127.0.0.1"],
        ..named("old")
    };
    let (cert, key) = authority.sign("old", &expired);
    let tls = ganger_server::Tls {
        cert: Some(cert),
        key: Some(key),
        ..authority.tls(true)
    };
    let error = ganger_server::start(Config { tls, ..config() })
        .await
        .err()
        .expect("expired");
    assert!(
        error
            .to_string()
            .contains("expired at 2021-01-01T00:00:00Z"),
        "{error}"
    );
    assert_eq!(error.exit_code(), 2);
    let running = start_server(Config {
        tls: authority.tls(true),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let words = connect_error(options(
        url,
        trust_with_certificate(&authority, "old-client", &expired),
    ))
    .await;
    assert!(words.contains("expired at 2021-01-01T00:00:00Z"), "{words}");
    running.stop().await;
}

/// With TLS 1.3 a client completes its part of the handshake before it can be refused, and sends its request at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_client_reads_the_reason_even_after_it_has_sent_more() {
    let (authority, other) = (Authority::new(), Authority::new());
    let running = start_server(Config {
        tls: authority.tls(true),
        ..config()
    })
    .await;
    let (certificate, key) = other.sign("stranger", &named("stranger"));
    let connector = ganger_tls::Connector::new(Trust {
        certificate: Some(certificate),
        key: Some(key),
        ..trust_of(&authority)
    });
    let uri = format!("https://{}", running.addr());
    let uri = uri.parse().expect("an address");
    let mut stream = connector
        .connect(&uri)
        .await
        .expect("the handshake completes");
    for _ in 0..3 {
        stream.write_all(b"GET / ").await.expect("still open");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = stream.read(&mut [0]).await;
    let words = answer.expect_err("refused").to_string();
    assert!(words.contains("refuses our certificate"), "{words}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_clients_of_a_tls_port_and_tls_clients_of_a_plain_port_read_the_reason() {
    let authority = Authority::new();
    let secure = start_server(Config {
        tls: authority.tls(false),
        ..config()
    })
    .await;
    let plain = start_server(config()).await;
    let words = connect_error(options(
        format!("http://{}", secure.addr()),
        Trust::default(),
    ))
    .await;
    assert!(words.contains("https://"), "{words}");
    let answer = response_head(secure.addr(), b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let words = connect_error(options(
        format!("https://{}", plain.addr()),
        trust_of(&authority),
    ))
    .await;
    assert!(words.contains("does not speak TLS"), "{words}");
    secure.stop().await;
    plain.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_has_the_rights_of_its_name_in_the_access_file() {
    let authority = Authority::new();
    let access = authority.directory.path().join("access");
    write(&access, "certificate name=boss grants=admin@*\n");
    let audit = authority.directory.path().join("audit.log");
    let running = start_server(Config {
        tls: authority.tls(true),
        access_file: Some(access.clone()),
        audit_log: Some(audit.clone()),
        require: Some(Require::ClientCert),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let boss = trust_with_certificate(&authority, "boss", &named("boss"));
    let client = Client::connect(options(url.clone(), boss))
        .await
        .expect("let in");
    client.enqueue(NewJob::new("a")).await.expect("taken");

    let words = connect_error(options(url.clone(), trust_of(&authority))).await;
    assert!(words.contains("wants a client certificate"), "{words}");
    let other = Authority::new();
    let stranger = Trust {
        ca: Some(authority.ca()),
        ..trust_with_certificate(&other, "stranger", &named("boss"))
    };
    let words = connect_error(options(url.clone(), stranger)).await;
    assert!(words.contains("refuses our certificate"), "{words}");

    let unlisted = trust_with_certificate(&authority, "intern", &named("intern"));
    let intern = Client::connect(options(url.clone(), unlisted))
        .await
        .expect("known");
    let error = intern.enqueue(NewJob::new("a")).await.expect_err("no role");
    assert_eq!(error.code(), "permission_denied");
    assert!(
        error.message().contains("certificate \"intern\""),
        "{error}"
    );

    // Roles are added and removed without a restart or a new connection.
    write(&access, "certificate name=intern grants=producer@default\n");
    running.reload();
    intern.enqueue(NewJob::new("a")).await.expect("taken");
    let error = client
        .enqueue(NewJob::new("a"))
        .await
        .expect_err("no role any more");
    assert_eq!(error.code(), "permission_denied");
    write(&access, "nonsense");
    running.reload();
    intern
        .enqueue(NewJob::new("a"))
        .await
        .expect("the old file stays in use");
    running.stop().await;
    let audit_text = std::fs::read_to_string(audit).expect("written");
    for wanted in [
        "added certificate \\\"intern\\\"",
        "removed certificate \\\"boss\\\"",
        "\"outcome\":\"refused\"",
    ] {
        assert!(audit_text.contains(wanted), "{wanted}: {audit_text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_requires_token_and_certificate_and_each_protocol_may_differ() {
    let authority = Authority::new();
    let running = start_server(Config {
        tls: authority.tls(true),
        token: Secret::new(TOKEN).ok(),
        require_grpc: Some(Require::Both),
        require_http: Some(Require::Token),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let worker = trust_with_certificate(&authority, "w", &named("w"));
    let words = connect_error(options(url.clone(), worker.clone())).await;
    assert!(words.contains("a token is needed beside"), "{words}");
    let words = connect_error(options(url.clone(), trust_of(&authority)).token(TOKEN)).await;
    assert!(words.contains("a client certificate is needed"), "{words}");
    Client::connect(options(url, worker).token(TOKEN))
        .await
        .expect("let in with both");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_used_from_the_next_connection_and_a_bad_one_never() {
    let (authority, next) = (Authority::new(), Authority::new());
    let tls = authority.tls(false);
    let (cert, key) = (
        tls.cert.clone().expect("set"),
        tls.key.clone().expect("set"),
    );
    let running = start_server(Config { tls, ..config() }).await;
    let url = format!("https://{}", running.addr());
    let before = Client::connect(options(url.clone(), trust_of(&authority)))
        .await
        .expect("let in");

    write(&cert, "this is no certificate");
    running.reload();
    Client::connect(options(url.clone(), trust_of(&authority)))
        .await
        .expect("the old one stays in use");

    let fresh = next.tls(false);
    std::fs::copy(fresh.cert.expect("set"), &cert).expect("copied");
    running.reload();
    Client::connect(options(url.clone(), trust_of(&authority)))
        .await
        .expect("a key that does not fit is refused");
    std::fs::copy(fresh.key.expect("set"), &key).expect("copied");
    running.reload();
    Client::connect(options(url.clone(), trust_of(&next)))
        .await
        .expect("the new one is used");
    let words = connect_error(options(url, trust_of(&authority))).await;
    assert!(words.contains("not signed by an authority"), "{words}");
    before.info().await.expect("open connections continue");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_token_is_revoked() {
    let authority = Authority::new();
    let access = authority.directory.path().join("access");
    let secret = ganger_access::NewSecret::make().expect("random");
    write(
        &access,
        &format!(
            "token name=r hash={} grants=reader@default\n",
            secret.hash()
        ),
    );
    let running = start_server(Config {
        access_file: Some(access.clone()),
        ..config()
    })
    .await;
    let url = format!("http://{}", running.addr());
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        secret.reveal()
    );
    let mut stream = tokio::net::TcpStream::connect(running.addr())
        .await
        .expect("it listens");
    {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut first = [0; 12];
        stream.read_exact(&mut first).await.expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200");
        ganger_access::revoke(&access, "r").expect("revoked");
        running.reload();
        let mut rest = Vec::new();
        // The server has cut the stream, perhaps with an error.
        let _ = stream.read_to_end(&mut rest).await;
    }
    let words = connect_error(options(url, Trust::default()).token(secret.reveal())).await;
    assert!(words.contains("revoked"), "{words}");
    running.stop().await;
}
