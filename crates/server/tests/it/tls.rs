//! TLS on the one port: who is let in, what the others are told, and new certificates while it runs.

use std::time::Duration;

use crate::kit::{Authority, Wanted, config, head, started, write};
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

fn trusting(authority: &Authority) -> Trust {
    Trust {
        ca: Some(authority.ca()),
        ..Trust::default()
    }
}

fn showing(authority: &Authority, file: &str, wanted: &Wanted<'_>) -> Trust {
    let (certificate, key) = authority.sign(file, wanted);
    Trust {
        certificate: Some(certificate),
        key: Some(key),
        ..trusting(authority)
    }
}

fn named(name: &str) -> Wanted<'_> {
    Wanted {
        name,
        ..Wanted::default()
    }
}

/// The words of a connection that must fail.
async fn refused(options: Options) -> String {
    let error = Client::connect(options).await.err();
    let error = error.expect("it must fail");
    format!("{}: {error}", error.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_through_over_tls_with_a_token() {
    let authority = Authority::new();
    let running = started(Config {
        tls: authority.tls(false),
        token: Secret::new(TOKEN).ok(),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let client = Client::connect(options(url.clone(), trusting(&authority)).token(TOKEN))
        .await
        .expect("let in");
    client.enqueue(NewJob::new("a")).await.expect("taken");
    let words = refused(options(url, trusting(&authority))).await;
    assert!(
        words.starts_with("unauthorized: a token is needed"),
        "{words}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_certificate_is_said() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = authority.tls(false);
    let running = started(Config {
        tls: tls.clone(),
        ..config()
    })
    .await;
    let port = running.addr().port();
    let url = |host: &str| format!("https://{host}:{port}");
    let words = refused(options(url("127.0.0.1"), trusting(&other))).await;
    assert!(
        words.contains("not signed by an authority that is trusted here"),
        "{words}"
    );
    let words = refused(options(url("127.0.0.2"), trusting(&authority))).await;
    assert!(
        words.contains("unreachable") || words.contains("another name"),
        "{words}"
    );
    running.stop().await;
    // The same port bears a certificate for another name.
    let (cert, key) = authority.sign(
        "elsewhere",
        &Wanted {
            hosts: &["elsewhere.example"],
            ..named("server")
        },
    );
    let tls = ganger_server::Tls {
        cert: Some(cert),
        key: Some(key),
        ..tls
    };
    let running = started(Config { tls, ..config() }).await;
    let words = refused(options(
        format!("https://{}", running.addr()),
        trusting(&authority),
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
    let expired = Wanted {
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
    let running = started(Config {
        tls: authority.tls(true),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let words = refused(options(url, showing(&authority, "old-client", &expired))).await;
    assert!(words.contains("expired at 2021-01-01T00:00:00Z"), "{words}");
    running.stop().await;
}

/// With TLS 1.3 a client has done its part of the handshake before it can be refused, and sends its request at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_client_reads_why_also_after_it_has_sent_more() {
    let (authority, other) = (Authority::new(), Authority::new());
    let running = started(Config {
        tls: authority.tls(true),
        ..config()
    })
    .await;
    let (certificate, key) = other.sign("stranger", &named("stranger"));
    let connector = ganger_tls::Connector::new(Trust {
        certificate: Some(certificate),
        key: Some(key),
        ..trusting(&authority)
    });
    let uri = format!("https://{}", running.addr());
    let uri = uri.parse().expect("an address");
    let mut stream = connector.connect(&uri).await.expect("so far");
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
async fn plain_to_tls_and_tls_to_plain_are_told_apart() {
    let authority = Authority::new();
    let secure = started(Config {
        tls: authority.tls(false),
        ..config()
    })
    .await;
    let plain = started(config()).await;
    let words = refused(options(
        format!("http://{}", secure.addr()),
        Trust::default(),
    ))
    .await;
    assert!(words.contains("https://"), "{words}");
    let answer = head(secure.addr(), b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let words = refused(options(
        format!("https://{}", plain.addr()),
        trusting(&authority),
    ))
    .await;
    assert!(words.contains("does not speak TLS"), "{words}");
    secure.stop().await;
    plain.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_lets_in_by_its_name_and_the_access_file() {
    let authority = Authority::new();
    let access = authority.directory.path().join("access");
    write(&access, "certificate name=boss grants=admin@*\n");
    let audit = authority.directory.path().join("audit.log");
    let running = started(Config {
        tls: authority.tls(true),
        access_file: Some(access.clone()),
        audit_log: Some(audit.clone()),
        require: Some(Require::ClientCert),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let boss = showing(&authority, "boss", &named("boss"));
    let client = Client::connect(options(url.clone(), boss))
        .await
        .expect("let in");
    client.enqueue(NewJob::new("a")).await.expect("taken");

    let words = refused(options(url.clone(), trusting(&authority))).await;
    assert!(words.contains("wants a client certificate"), "{words}");
    let other = Authority::new();
    let stranger = Trust {
        ca: Some(authority.ca()),
        ..showing(&other, "stranger", &named("boss"))
    };
    let words = refused(options(url.clone(), stranger)).await;
    assert!(words.contains("refuses our certificate"), "{words}");

    let unlisted = showing(&authority, "intern", &named("intern"));
    let intern = Client::connect(options(url.clone(), unlisted))
        .await
        .expect("known");
    let error = intern.enqueue(NewJob::new("a")).await.expect_err("no role");
    assert_eq!(error.code(), "permission_denied");
    assert!(
        error.message().contains("certificate \"intern\""),
        "{error}"
    );

    // The role comes, and goes, without a restart or a new connection.
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
        .expect("the old file goes on");
    running.stop().await;
    let told = std::fs::read_to_string(audit).expect("written");
    for wanted in [
        "added certificate \\\"intern\\\"",
        "removed certificate \\\"boss\\\"",
        "\"outcome\":\"refused\"",
    ] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn both_means_both_and_a_door_may_ask_for_something_else() {
    let authority = Authority::new();
    let running = started(Config {
        tls: authority.tls(true),
        token: Secret::new(TOKEN).ok(),
        require_grpc: Some(Require::Both),
        require_http: Some(Require::Token),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let worker = showing(&authority, "w", &named("w"));
    let words = refused(options(url.clone(), worker.clone())).await;
    assert!(words.contains("a token is needed beside"), "{words}");
    let words = refused(options(url.clone(), trusting(&authority)).token(TOKEN)).await;
    assert!(words.contains("a client certificate is needed"), "{words}");
    Client::connect(options(url, worker).token(TOKEN))
        .await
        .expect("let in with both");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_counts_from_the_next_connection_and_a_bad_one_never() {
    let (authority, next) = (Authority::new(), Authority::new());
    let tls = authority.tls(false);
    let (cert, key) = (
        tls.cert.clone().expect("set"),
        tls.key.clone().expect("set"),
    );
    let running = started(Config { tls, ..config() }).await;
    let url = format!("https://{}", running.addr());
    let before = Client::connect(options(url.clone(), trusting(&authority)))
        .await
        .expect("let in");

    write(&cert, "this is no certificate");
    running.reload();
    Client::connect(options(url.clone(), trusting(&authority)))
        .await
        .expect("the old one goes on");

    let fresh = next.tls(false);
    std::fs::copy(fresh.cert.expect("set"), &cert).expect("copied");
    running.reload();
    Client::connect(options(url.clone(), trusting(&authority)))
        .await
        .expect("a key that does not fit is refused");
    std::fs::copy(fresh.key.expect("set"), &key).expect("copied");
    running.reload();
    Client::connect(options(url.clone(), trusting(&next)))
        .await
        .expect("the new one counts");
    let words = refused(options(url, trusting(&authority))).await;
    assert!(words.contains("not signed by an authority"), "{words}");
    before.info().await.expect("connections that stand go on");
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
    let running = started(Config {
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
        // Ends, be it with an error: the server has cut it.
        let _ = stream.read_to_end(&mut rest).await;
    }
    let words = refused(options(url, Trust::default()).token(secret.reveal())).await;
    assert!(words.contains("revoked"), "{words}");
    running.stop().await;
}
