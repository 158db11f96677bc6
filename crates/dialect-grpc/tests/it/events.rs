//! Events that are read back, and sums of events.

use ganger_proto::v1;
use tonic::Code;

use crate::support::Server;

/// Enqueues jobs with these ids in a queue.
async fn enqueue(server: &Server, queue: &str, ids: &[&str]) {
    let job = |id: &&str| v1::NewJob {
        kind: "k".into(),
        queue: queue.into(),
        id: Some((*id).to_owned()),
        ..v1::NewJob::default()
    };
    let request = v1::EnqueueRequest {
        jobs: ids.iter().map(job).collect(),
        ..v1::EnqueueRequest::default()
    };
    server.jobs().enqueue(request).await.expect("accepted");
}

/// Ids of the jobs that the events are about.
fn jobs(events: &[v1::Event]) -> Vec<String> {
    let job = |event: &v1::Event| match &event.happening {
        Some(v1::event::Happening::JobMoved(moved)) => Some(moved.job.clone()),
        _ => None,
    };
    events.iter().filter_map(job).collect()
}

#[tokio::test]
async fn events_are_read_back_page_by_page_the_newest_first() {
    let server = Server::start().await;
    enqueue(&server, "q", &["a", "b", "c"]).await;
    enqueue(&server, "other", &["d"]).await;
    let mut request = v1::PastEventsRequest {
        queues: vec!["q".to_owned()],
        limit: 2,
        moves_only: true,
        ..v1::PastEventsRequest::default()
    };
    let page = server.insight().past_events(request.clone()).await;
    let page = page.expect("readable").into_inner();
    assert_eq!(jobs(&page.events), ["1/c", "1/b"]);
    assert!(page.oldest <= page.events[1].position && page.events[0].position < page.end);
    request.before = page.next;
    let page = server.insight().past_events(request.clone()).await;
    assert_eq!(jobs(&page.expect("readable").into_inner().events), ["1/a"]);
    request.limit = 1_001;
    let refused = server.insight().past_events(request).await;
    assert_eq!(refused.expect_err("too many").code(), Code::InvalidArgument);
}

#[tokio::test]
async fn sums_of_events_are_sent_at_an_interval() {
    let server = Server::start().await;
    let asked = |every_ms| v1::EventsRequest {
        queues: vec!["q".to_owned()],
        every_ms: Some(every_ms),
        ..v1::EventsRequest::default()
    };
    let refused = server.insight().events(asked(10)).await;
    let refused = refused.expect_err("too often");
    assert!(refused.message().contains("every_ms"), "{refused}");
    let stream = server.insight().events(asked(1_000)).await;
    let mut stream = stream.expect("a stream").into_inner();
    let first = stream.message().await.expect("no error").expect("a start");
    assert!(first.sums.is_empty() && first.events.is_empty());
    enqueue(&server, "q", &["a", "b", "c"]).await;
    enqueue(&server, "other", &["d"]).await;
    let mut count = 0;
    while count < 3 {
        let message = stream.message().await.expect("no error").expect("sums");
        for sum in message.sums {
            let ready = i32::from(v1::JobState::Ready);
            let of = (&*sum.event, sum.queue.as_deref(), sum.from, sum.to);
            assert_eq!(of, ("job_moved", Some("q"), 0, ready));
            count += sum.count;
        }
    }
    assert_eq!(count, 3);
}
