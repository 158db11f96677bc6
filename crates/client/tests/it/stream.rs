//! The worker's stream, against a server that is killed and restarted.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::kit::{Server, deliveries, next, work};
use bytes::Bytes;
use ganger_client::{
    FailureReport, JobFilter, JobState, NewJob, Progress, ReportAnswer, Submission, WorkEvent,
};

fn many(count: usize) -> Submission {
    Submission {
        jobs: (0..count)
            .map(|n| NewJob::new("k").payload(format!("{n}")))
            .collect(),
        ..Submission::default()
    }
}

#[tokio::test]
async fn jobs_are_delivered_in_batches_and_each_ends_once() {
    let server = Server::start();
    let client = server.client().await;
    let wanted: BTreeSet<String> = client
        .enqueue_all(many(2_000))
        .await
        .expect("accepted")
        .jobs
        .into_iter()
        .map(|job| job.id)
        .collect();
    let mut stream = client.work(work("w", 512));
    let reporter = stream.reporter();
    let mut done = BTreeSet::new();
    while done.len() < wanted.len() {
        let WorkEvent::Jobs(jobs) = next(&mut stream).await else {
            panic!("only jobs are expected")
        };
        let count = u32::try_from(jobs.len()).expect("few");
        let reports = jobs
            .into_iter()
            .map(|job| {
                assert!(done.insert(job.lease.job.clone()), "no job comes twice");
                let result = Some(job.payload);
                (
                    job.lease,
                    ganger_client::Report::Complete { result, next: None },
                )
            })
            .collect();
        for answer in reporter.report_all(reports).await {
            assert!(
                matches!(
                    answer,
                    Ok(ReportAnswer::Ended {
                        state: JobState::Succeeded,
                        ..
                    })
                ),
                "{answer:?}"
            );
        }
        reporter.grant(count);
    }
    assert_eq!(done, wanted);
    let counts = client.queue("default").await.expect("shown").counts;
    assert_eq!(
        (counts.succeeded, counts.running, counts.ready),
        (2_000, 0, 0)
    );
    reporter
        .deregister(Duration::from_secs(10))
        .await
        .expect("deregistered");
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn no_more_jobs_are_delivered_than_credits_were_granted() {
    let server = Server::start();
    let client = server.client().await;
    client.enqueue_all(many(20)).await.expect("accepted");
    let mut stream = client.work(work("w", 5));
    let reporter = stream.reporter();
    let first = deliveries(&mut stream, 5).await;
    // The answer to a report arrives after everything that was sent before it.
    reporter
        .progress(
            &first[0].lease,
            Progress {
                millionths: 1,
                message: String::new(),
            },
        )
        .await
        .expect("taken");
    assert_eq!(
        client.queue("default").await.expect("shown").counts.running,
        5
    );
    reporter.grant(3);
    deliveries(&mut stream, 3).await;
    reporter
        .complete(&first[0].lease, None)
        .await
        .expect("taken");
    assert_eq!(
        client.queue("default").await.expect("shown").counts.running,
        7
    );
    reporter.drop_credits();
}

#[tokio::test]
async fn a_worker_is_notified_of_a_cancellation_at_once() {
    let server = Server::start();
    let client = server.client().await;
    let id = client.enqueue(NewJob::new("k")).await.expect("accepted").id;
    let mut stream = client.work(work("w", 1));
    let job = deliveries(&mut stream, 1).await.remove(0);
    client
        .cancel(&[&id], "not wanted")
        .await
        .expect("cancelled");
    let WorkEvent::LeaseLost(lost) = next(&mut stream).await else {
        panic!("a lost lease is expected")
    };
    assert!(lost.is_cancelled(), "{lost:?}");
    assert_eq!(lost.lease, job.lease);
    let late = stream
        .reporter()
        .complete(&job.lease, None)
        .await
        .expect_err("it is too late");
    assert_eq!(late.code(), "lease_lost");
    assert_eq!(stream.reporter().expires_at(&job.lease), None);
}

#[tokio::test]
async fn a_report_made_while_the_server_is_away_is_delivered_when_it_is_back() {
    let server = Server::start();
    let client = server.client().await;
    let ids = client.enqueue_all(many(3)).await.expect("accepted").jobs;
    let mut stream = client.work(work("w", 2));
    let reporter = stream.reporter();
    let jobs = deliveries(&mut stream, 2).await;
    let stopped = server.kill().await;
    loop {
        if let Some(WorkEvent::Disconnected { .. }) = stream.next().await {
            break;
        }
    }
    let reporting = {
        let (reporter, lease) = (reporter.clone(), jobs[0].lease.clone());
        tokio::spawn(async move {
            reporter
                .complete(&lease, Some(Bytes::from_static(b"1")))
                .await
        })
    };
    let server = stopped.restart();
    let answer = reporting.await.expect("no panic").expect("taken");
    assert!(matches!(
        answer,
        ReportAnswer::Ended {
            state: JobState::Succeeded,
            ..
        }
    ));
    // The other lease is still valid after the restart, and a new credit brings the next job.
    reporter
        .fail(
            &jobs[1].lease,
            FailureReport {
                group: "g".into(),
                permanent: true,
                ..FailureReport::default()
            },
        )
        .await
        .expect("taken");
    reporter.grant(1);
    let last = deliveries(&mut stream, 1).await.remove(0);
    assert_eq!(last.lease.job, ids[2].id);
    assert_eq!(
        client.result(&ids[0].id).await.expect("shown").1,
        Some(Bytes::from_static(b"1"))
    );
    drop(server);
}

#[tokio::test]
async fn a_stream_that_is_dropped_loses_no_job() {
    let server = Server::start();
    let client = server.client().await;
    client.enqueue_all(many(300)).await.expect("accepted");
    // Leases all jobs, reports one, and drops the stream.
    let mut first = client.work(work("gone", 300));
    let WorkEvent::Jobs(jobs) = next(&mut first).await else {
        panic!("jobs are expected")
    };
    first
        .reporter()
        .complete(&jobs[0].lease, None)
        .await
        .expect("taken");
    drop(first);
    // Deregisters the worker by its name, as a restart script would; its jobs are ready again.
    client.deregister("gone").await.expect("deregistered");
    let mut stream = client.work(work("w", 1_000));
    let reporter = stream.reporter();
    let mut done = 1;
    while done < 300 {
        let WorkEvent::Jobs(jobs) = next(&mut stream).await else {
            panic!("jobs are expected")
        };
        done += jobs.len();
        for job in jobs {
            reporter.complete(&job.lease, None).await.expect("taken");
        }
    }
    let left = client.list(JobFilter {
        states: vec![JobState::Succeeded],
        limit: 1_000,
        ..JobFilter::default()
    });
    assert_eq!(left.await.expect("listed").jobs.len(), 300);
}

#[tokio::test]
async fn leases_are_renewed_until_they_are_reported() {
    let server = Server::start();
    let client = server.client().await;
    let id = client.enqueue(NewJob::new("k")).await.expect("accepted").id;
    let mut stream = client.work(ganger_client::WorkOptions {
        lease_for: Some(Duration::from_millis(400)),
        ..work("w", 1)
    });
    let job = deliveries(&mut stream, 1).await.remove(0);
    let reporter = stream.reporter();
    let first = reporter.expires_at(&job.lease).expect("held");
    // Much longer than the lease, so only renewals can have extended it.
    while reporter
        .expires_at(&job.lease)
        .is_some_and(|end| end < first + Duration::from_secs(1))
    {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    reporter
        .complete(&job.lease, None)
        .await
        .expect("still held");
    assert_eq!(client.job(&id).await.expect("shown").attempt, 1);
}

#[tokio::test]
async fn a_draining_server_announces_it_and_delivers_no_more_jobs() {
    let server = Server::start();
    let client = server.client().await;
    client.enqueue(NewJob::new("k")).await.expect("accepted");
    let mut stream = client.work(work("w", 1));
    let reporter = stream.reporter();
    let job = deliveries(&mut stream, 1).await.remove(0);
    server.draining.send(true).expect("the server listens");
    assert_eq!(next(&mut stream).await, WorkEvent::Draining);
    client.enqueue(NewJob::new("k")).await.expect("accepted");
    reporter.grant(1);
    reporter
        .complete(&job.lease, None)
        .await
        .expect("reports still go");
    let counts = client.queue("default").await.expect("shown").counts;
    assert_eq!((counts.ready, counts.running), (1, 0));
}

#[tokio::test]
async fn a_report_on_a_closed_stream_fails_with_closed() {
    let server = Server::start();
    let client = server.client().await;
    client.enqueue(NewJob::new("k")).await.expect("accepted");
    let mut stream = client.work(work("w", 1));
    let reporter = stream.reporter();
    let job = deliveries(&mut stream, 1).await.remove(0);
    reporter.close();
    assert_eq!(stream.next().await, None);
    let error = reporter
        .complete(&job.lease, None)
        .await
        .expect_err("closed");
    assert_eq!(error.code(), "closed");
}

#[tokio::test]
async fn a_deregistration_does_not_wait_for_a_server_that_is_away() {
    let server = Server::start();
    let client = server.client().await;
    let mut stream = client.work(work("w", 1));
    while !matches!(stream.next().await, Some(WorkEvent::Connected { .. })) {}
    let stopped = server.kill().await;
    while !matches!(stream.next().await, Some(WorkEvent::Disconnected { .. })) {}
    // With its retries the call alone would take a minute.
    let reporter = stream.reporter();
    let deregister = reporter.deregister(Duration::from_secs(3_600));
    let result = tokio::time::timeout(Duration::from_secs(30), deregister).await;
    assert!(
        result.expect("no wait").is_err(),
        "there is no server to deregister from"
    );
    assert_eq!(stream.next().await, None);
    drop(stopped);
}

#[tokio::test]
async fn a_worker_that_holds_nothing_leaves_a_draining_server() {
    let server = Server::start();
    let client = server.client().await;
    let mut stream = client.work(work("w", 1));
    while !matches!(stream.next().await, Some(WorkEvent::Connected { .. })) {}
    server.draining.send(true).expect("the server listens");
    while !matches!(stream.next().await, Some(WorkEvent::Draining)) {}
    let end = tokio::time::timeout(Duration::from_secs(30), stream.next()).await;
    assert!(
        matches!(end, Ok(Some(WorkEvent::Disconnected { .. }))),
        "{end:?}"
    );
}
