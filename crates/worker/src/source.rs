//! The source of jobs and the destination of reports: the client's stream, or a test's script.

use std::future::Future;
use std::time::{Duration, Instant};

use ganger_client::{Error, LeaseRef, Report, ReportResult, Reporter, WorkEvent, WorkStream};

/// A source of jobs.
pub trait Deliveries: Send {
    /// Returns the next event; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<WorkEvent>> + Send;
}

/// The destination of reports, which also renews the leases of running jobs. Methods behave as those of [`Reporter`].
pub trait Reports: Clone + Send + Sync + 'static {
    /// Allows `credits` more deliveries.
    fn grant(&self, credits: u32);
    /// Takes unused credits back.
    fn drop_credits(&self);
    /// Sends reports in order; resolves once all are answered, however long the server is away.
    fn report_all(
        &self,
        reports: Vec<(LeaseRef, Report)>,
    ) -> impl Future<Output = Vec<ReportResult>> + Send;
    /// Returns the time until which a lease surely lasts.
    fn expires_at(&self, lease: &LeaseRef) -> Option<Instant>;
    /// Stops renewing a lease.
    fn abandon(&self, lease: &LeaseRef);
    /// Deregisters the worker and ends the stream.
    fn deregister(&self, patience: Duration) -> impl Future<Output = Result<(), Error>> + Send;
}

impl Deliveries for WorkStream {
    async fn next(&mut self) -> Option<WorkEvent> {
        Self::next(self).await
    }
}

impl Reports for Reporter {
    fn grant(&self, credits: u32) {
        Self::grant(self, credits);
    }

    fn drop_credits(&self) {
        Self::drop_credits(self);
    }

    async fn report_all(&self, reports: Vec<(LeaseRef, Report)>) -> Vec<ReportResult> {
        Self::report_all(self, reports).await
    }

    fn expires_at(&self, lease: &LeaseRef) -> Option<Instant> {
        Self::expires_at(self, lease)
    }

    fn abandon(&self, lease: &LeaseRef) {
        Self::abandon(self, lease);
    }

    async fn deregister(&self, patience: Duration) -> Result<(), Error> {
        Self::deregister(self, patience).await
    }
}
