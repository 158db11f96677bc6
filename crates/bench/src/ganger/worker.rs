//! A worker of the SDK, which connects again by itself: for measurements in which servers are killed.

use std::time::Duration;

use ganger_client::{Client, Report, TakeFrom, TakeMode, WorkEvent, WorkOptions};

use crate::Error;

/// The server delivers a job again after this time if it was killed while the job was held.
const LEASE_FOR: Duration = Duration::from_secs(5);

/// Takes from a queue and completes at once whatever comes, until it is stopped.
pub(super) async fn complete_all(
    client: Client,
    number: usize,
    queue: &str,
    credits: u32,
) -> Result<(), Error> {
    let mut stream = client.work(WorkOptions {
        worker: format!("bench-{number}"),
        queues: vec![TakeFrom::new(queue)],
        mode: TakeMode::Ordered,
        lease_for: Some(LEASE_FOR),
        credits,
    });
    let reporter = stream.reporter();
    while let Some(event) = stream.next().await {
        let WorkEvent::Jobs(jobs) = event else {
            continue;
        };
        let done = Report::Complete {
            result: Some("null".into()),
            next: None,
        };
        let reports: Vec<_> = jobs
            .into_iter()
            .map(|job| (job.lease, done.clone()))
            .collect();
        let reporter = reporter.clone();
        tokio::spawn(async move {
            let count = u32::try_from(reports.len()).unwrap_or(0);
            reporter.report_all(reports).await;
            reporter.grant(count);
        });
    }
    Ok(())
}
