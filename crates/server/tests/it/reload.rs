//! Changes while the server runs: revoked certificates, replaced files, revoked tokens. They apply to open
//! connections and streams too.

use std::path::PathBuf;
use std::time::Duration;

use crate::kit::{
    Authority, CertificateSpec, WithMetadata, add_token, config, start_server, write,
};
use ganger_access::NewSecret;
use ganger_client::{Client, EventFilter, NewJob, Options, Retry, Trust};
use ganger_proto::v1;
use ganger_proto::v1::jobs_client::JobsClient;
use ganger_proto::v1::leases_client::LeasesClient;
use ganger_server::{Config, Secret, Tls};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

const FIRST: &str = "the-first-token-of-the-server";
const SECOND: &str = "the-second-token-of-the-server";

/// Returns options of a client that retries for 30 seconds.
fn options(url: &str, trust: Trust) -> Options {
    Options {
        trust,
        retry: Retry {
            total_max: Duration::from_secs(30),
            ..Retry::default()
        },
        ..Options::new(url.to_owned())
    }
}

fn trust_of(authority: &Authority) -> Trust {
    Trust {
        ca: Some(authority.ca()),
        ..Trust::default()
    }
}

/// Returns trust in the authority, with a client certificate of this serial number.
fn trust_with_certificate(authority: &Authority, name: &str, serial: u64) -> Trust {
    let wanted = CertificateSpec {
        name,
        serial: Some(serial),
        ..CertificateSpec::default()
    };
    let (certificate, key) = authority.sign(name, &wanted);
    Trust {
        certificate: Some(certificate),
        key: Some(key),
        ..trust_of(authority)
    }
}

/// Connects without retries, which must fail; returns the error's code and message.
async fn connect_error(options: Options) -> String {
    let at_once = Options {
        retry: Retry {
            total_max: Duration::ZERO,
            ..Retry::default()
        },
        ..options
    };
    let error = Client::connect(at_once).await.err().expect("it must fail");
    format!("{}: {error}", error.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_certificate_is_rejected_on_new_connections_and_old_ones() {
    let authority = Authority::new();
    let list = authority.revoke(&[1]);
    let running = start_server(Config {
        tls: Tls {
            client_crl: Some(list),
            ..authority.tls(true)
        },
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let words = connect_error(options(
        &url,
        trust_with_certificate(&authority, "first", 1),
    ))
    .await;
    assert!(words.contains("it was revoked"), "{words}");

    let second = trust_with_certificate(&authority, "second", 2);
    let third = trust_with_certificate(&authority, "third", 3);
    let [revoked, kept] = [&second, &third].map(|trust| {
        let options = options(&url, trust.clone());
        async move { Client::connect(options).await.expect("let in") }
    });
    let (revoked, kept) = (revoked.await, kept.await);
    let mut events = revoked.events(EventFilter::default()).await.expect("open");
    authority.revoke(&[1, 2]);
    running.reload();

    let ended = events.next().await.expect("it ends with words");
    let error = ended.expect_err("cut, and not let in again");
    assert_eq!(error.code(), "unauthorized", "{error}");
    let error = revoked
        .enqueue(NewJob::new("a"))
        .await
        .expect_err("revoked");
    assert!(error.message().contains("revoked"), "{error}");
    let words = connect_error(options(&url, second)).await;
    assert!(words.contains("it was revoked"), "{words}");
    kept.enqueue(NewJob::new("a")).await.expect("still good");

    // An unreadable list changes nothing.
    write(&authority.directory.path().join("revoked.pem"), "nonsense");
    running.reload();
    kept.enqueue(NewJob::new("a")).await.expect("still good");
    let error = revoked.enqueue(NewJob::new("a")).await;
    assert_eq!(error.expect_err("revoked").code(), "unauthorized");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_files_are_reloaded_without_a_signal() {
    let (authority, next) = (Authority::new(), Authority::new());
    let tls = authority.tls(false);
    let paths: (PathBuf, PathBuf) = (
        tls.cert.clone().expect("set"),
        tls.key.clone().expect("set"),
    );
    let shared = authority.directory.path().join("token");
    write(&shared, FIRST);
    let access = authority.directory.path().join("access");
    let reader = add_token(&access, "r", "reader@default");
    let running = start_server(Config {
        tls,
        token_file: Some(shared.clone()),
        access_file: Some(access.clone()),
        ..config()
    })
    .await;
    let url = format!("https://{}", running.addr());
    let client = Client::connect(options(&url, trust_of(&authority)).token(reader.reveal()))
        .await
        .expect("let in");
    let mut events = client.events(EventFilter::default()).await.expect("open");

    // The server gets no signal. The stream ends once the server has seen the last of these changes.
    let fresh = next.tls(false);
    std::fs::copy(fresh.cert.expect("set"), &paths.0).expect("copied");
    std::fs::copy(fresh.key.expect("set"), &paths.1).expect("copied");
    write(&shared, SECOND);
    ganger_access::revoke(&access, "r").expect("revoked");
    let ended = events.next().await.expect("it ends with words");
    let error = ended.expect_err("revoked");
    assert_eq!(error.code(), "unauthorized", "{error}");

    let trust = trust_of(&next);
    Client::connect(options(&url, trust.clone()).token(SECOND))
        .await
        .expect("the new certificate and the new token");
    let words = connect_error(options(&url, trust).token(FIRST)).await;
    assert!(words.starts_with("unauthorized"), "{words}");
    let words = connect_error(options(&url, trust_of(&authority)).token(SECOND)).await;
    assert!(words.contains("not signed by an authority"), "{words}");
    running.stop().await;
}

/// Starts a server whose access file has one token, and opens a channel to it.
async fn server_with_token(
    grants: &str,
) -> (ganger_server::Running, Authority, NewSecret, Channel) {
    let authority = Authority::new();
    let access = authority.directory.path().join("access");
    let secret = add_token(&access, "one", grants);
    let running = start_server(Config {
        access_file: Some(access),
        token: Secret::new(FIRST).ok(),
        ..config()
    })
    .await;
    let url = format!("http://{}", running.addr());
    let channel = Endpoint::from_shared(url).expect("an address");
    let channel = channel.connect().await.expect("it listens");
    (running, authority, secret, channel)
}

fn bearer(secret: &NewSecret) -> WithMetadata {
    WithMetadata(vec![(
        "authorization",
        format!("Bearer {}", secret.reveal()),
    )])
}

fn revoke(authority: &Authority, running: &ganger_server::Running) {
    let access = authority.directory.path().join("access");
    ganger_access::revoke(&access, "one").expect("revoked");
    running.reload();
}

/// Reads a stream until it fails; panics if it ends without an error.
async fn expect_stream_error<T>(stream: &mut tonic::Streaming<T>) {
    while let Some(message) = stream.message().await.transpose() {
        if message.is_err() {
            return;
        }
    }
    panic!("the stream ended without an error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_stream_ends_when_its_token_is_revoked_and_cannot_be_reopened() {
    let (running, authority, secret, channel) = server_with_token("worker@default").await;
    let mut leases = LeasesClient::with_interceptor(channel.clone(), bearer(&secret));
    let hello = v1::WorkerMessage {
        hello: Some(v1::Hello {
            namespace: "default".into(),
            worker: "w".into(),
            queues: vec![v1::TakeFrom {
                queue: "default".into(),
                ..v1::TakeFrom::default()
            }],
            ..v1::Hello::default()
        }),
        credits_added: 1,
        ..v1::WorkerMessage::default()
    };
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    sender.send(hello).await.expect("there is room");
    let receiver = receiver_stream(receiver);
    let mut stream = leases.work(receiver).await.expect("let in").into_inner();
    let welcome = stream.message().await.expect("welcome");
    assert!(welcome.is_some());
    revoke(&authority, &running);
    expect_stream_error(&mut stream).await;
    // The server has closed the other half too.
    sender.closed().await;
    let again = leases.work(futures::stream::empty()).await;
    assert_eq!(again.expect_err("revoked").code(), Code::Unauthenticated);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_submissions_ends_when_its_token_is_revoked() {
    let (running, authority, secret, channel) = server_with_token("producer@default").await;
    let mut jobs = JobsClient::with_interceptor(channel, bearer(&secret));
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    sender
        .send(batch(1, "default"))
        .await
        .expect("there is room");
    let stream = jobs.enqueue_stream(receiver_stream(receiver)).await;
    let mut answers = stream.expect("let in").into_inner();
    let first = answers.message().await.expect("an answer");
    assert!(is_accepted(&first.expect("an answer")));
    revoke(&authority, &running);
    expect_stream_error(&mut answers).await;
    sender.closed().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_batch_of_a_stream_is_authorized_separately() {
    let (running, authority, secret, channel) = server_with_token("producer@mine").await;
    let mut jobs = JobsClient::with_interceptor(channel, bearer(&secret));
    let namespaces = ["mine", "other", "mine", "default", "other"];
    let batches: Vec<_> = (1..)
        .zip(namespaces)
        .map(|(number, namespace)| batch(number, namespace))
        .collect();
    let stream = jobs.enqueue_stream(futures::stream::iter(batches)).await;
    let mut answers = stream.expect("let in").into_inner();
    for namespace in namespaces {
        let answer = answers.message().await.expect("an answer");
        let answer = answer.expect("one for each batch");
        assert_eq!(is_accepted(&answer), namespace == "mine", "{answer:?}");
    }
    assert!(answers.message().await.expect("a good end").is_none());

    // No refused job was stored.
    let root = WithMetadata(vec![("authorization", format!("Bearer {FIRST}"))]);
    let url = format!("http://{}", running.addr());
    let channel = Endpoint::from_shared(url).expect("an address");
    let mut jobs = JobsClient::with_interceptor(channel.connect_lazy(), root);
    for (namespace, count) in [("mine", 2), ("other", 0), ("default", 0)] {
        let request = v1::ListRequest {
            namespace: namespace.into(),
            ..v1::ListRequest::default()
        };
        let listed = jobs.list(request).await.expect("a list").into_inner();
        assert_eq!(listed.jobs.len(), count, "{namespace}");
    }
    running.stop().await;
    drop(authority);
}

fn batch(number: u64, namespace: &str) -> v1::EnqueueBatch {
    let job = v1::NewJob {
        kind: "k".into(),
        ..v1::NewJob::default()
    };
    v1::EnqueueBatch {
        number,
        request: Some(v1::EnqueueRequest {
            namespace: namespace.into(),
            jobs: vec![job],
            ..v1::EnqueueRequest::default()
        }),
    }
}

fn is_accepted(answer: &v1::EnqueueAnswer) -> bool {
    use v1::enqueue_answer::Outcome;
    match &answer.outcome {
        Some(Outcome::Accepted(_)) => true,
        Some(Outcome::Refused(error)) => {
            assert_eq!(error.code, "permission_denied", "{error:?}");
            false
        }
        None => panic!("an answer without an outcome"),
    }
}

/// Returns a stream of what is sent into a channel, for the body of a request.
fn receiver_stream<T>(
    mut receiver: tokio::sync::mpsc::Receiver<T>,
) -> impl futures::Stream<Item = T> {
    futures::stream::poll_fn(move |cx| receiver.poll_recv(cx))
}
