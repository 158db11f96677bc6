//! The server and its audit log over gRPC.

use ganger_proto::v1;
use ganger_types::audit::AuditRecord;
use ganger_types::command::KeepAudit;
use ganger_types::{Command, Timestamp};

use crate::support::Server;

fn record(who: &str, what: &str, outcome: &str) -> AuditRecord {
    AuditRecord {
        at: Timestamp(7),
        who: who.to_owned(),
        what: what.to_owned(),
        on: Some("op-1".to_owned()),
        outcome: outcome.to_owned(),
        ..AuditRecord::default()
    }
}

/// A server whose audit log has three records.
async fn audited() -> Server {
    let server = Server::start().await;
    let records = vec![
        record("token \"a\"", "cancelJob", "done"),
        record("token \"b\"", "cancelJob", "denied"),
        record("token \"a\"", "pauseQueue", "done"),
    ];
    let keep = Command::KeepAudit(KeepAudit { records });
    server.handle.call(keep).await.expect("kept");
    server
}

async fn listed(server: &Server, request: v1::ListAuditLogRequest) -> (Vec<String>, String) {
    let reply = server.admin().list_audit_log(request).await.expect("shown");
    let reply = reply.into_inner();
    let lines = reply.records.iter().map(|record| {
        assert_eq!((record.at_us, record.on.as_deref()), (7, Some("op-1")));
        assert_eq!((&record.namespace, &record.via), (&None, &None));
        format!("{} {} {}", record.who, record.what, record.outcome)
    });
    (lines.collect(), reply.next)
}

/// A change of a request for records of the audit log.
type Change = fn(&mut v1::ListAuditLogRequest);

#[tokio::test]
async fn the_audit_log_is_read_page_by_page_newest_first() {
    let server = audited().await;
    let mut request = v1::ListAuditLogRequest {
        limit: 2,
        ..v1::ListAuditLogRequest::default()
    };
    let (first, next) = listed(&server, request.clone()).await;
    let expected = [
        "token \"a\" pauseQueue done",
        "token \"b\" cancelJob denied",
    ];
    assert_eq!(first, expected);
    request.after = next;
    let last = (vec!["token \"a\" cancelJob done".to_owned()], String::new());
    assert_eq!(listed(&server, request).await, last);
}

#[tokio::test]
async fn records_of_the_audit_log_are_selected() {
    let server = audited().await;
    let cases: [(Change, usize); 4] = [
        (|request| request.who = "\"a\"".into(), 2),
        (|request| request.what = "cancelJob".into(), 2),
        (|request| request.outcome = "denied".into(), 1),
        (|request| request.outcome = "refused".into(), 0),
    ];
    for (condition, expected) in cases {
        let mut request = v1::ListAuditLogRequest::default();
        condition(&mut request);
        let (records, next) = listed(&server, request.clone()).await;
        assert_eq!((records.len(), &*next), (expected, ""), "{request:?}");
    }
    let wrong: [(Change, &str); 3] = [
        (|request| request.outcome = "good".into(), "outcome"),
        (|request| request.after = "x".into(), "after"),
        (|request| request.limit = 1_001, "limit"),
    ];
    for (change, field) in wrong {
        let mut request = v1::ListAuditLogRequest::default();
        change(&mut request);
        let refused = server.admin().list_audit_log(request).await;
        let status = refused.expect_err("refused");
        assert!(status.message().starts_with(field), "{status}");
    }
}

#[tokio::test]
async fn the_server_is_shown_with_its_shard_and_its_settings() {
    let server = Server::start().await;
    let job = v1::NewJob {
        kind: "a".into(),
        ..v1::NewJob::default()
    };
    let request = v1::EnqueueRequest {
        jobs: vec![job],
        ..v1::EnqueueRequest::default()
    };
    server.jobs().enqueue(request).await.expect("accepted");
    let shown = server.admin().get_server(v1::GetServerRequest {}).await;
    let shown = shown.expect("shown").into_inner();
    let setting = shown.settings.get("listen").map(String::as_str);
    assert_eq!(setting, Some("127.0.0.1:1"));
    assert!(!shown.version.is_empty());
    let [shard] = shown.shards.as_slice() else {
        panic!("{shown:?}");
    };
    assert_eq!((&*shard.shard, &*shard.health), ("1", "ready"));
    assert_eq!((&*shard.reason, shard.live_jobs), ("", 1));
    assert!(shard.commit_p99_us.is_some(), "{shard:?}");
}
