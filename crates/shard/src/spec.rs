//! Checks the spec of a schedule before the shard's thread does, since a search for runs that never come takes long.

use ganger_engine::{check_spec, spec_times};
use ganger_types::{Rejection, ScheduleSpec, Timestamp};
use tokio::sync::Semaphore;

use crate::{CallError, Handle};

/// Limits searches to one at a time: a client that sends many of them waits for its own.
static SEARCHES: Semaphore = Semaphore::const_new(1);

impl Handle {
    /// Refuses the spec of a schedule that cannot be parsed, or whose runs would come too often or never. Call it
    /// before the command that puts the schedule. That command checks again, which for specs refused here takes up to
    /// some hundred milliseconds of the shard's thread.
    ///
    /// # Errors
    /// The refusal.
    pub async fn check_schedule(&self, spec: &ScheduleSpec) -> Result<(), CallError> {
        self.search(spec, check_spec).await
    }

    /// Returns the next times of a spec, at most `count`.
    ///
    /// # Errors
    /// If the spec is refused as by [`Handle::check_schedule`].
    pub async fn preview_schedule(
        &self,
        spec: &ScheduleSpec,
        count: usize,
    ) -> Result<Vec<Timestamp>, CallError> {
        self.search(spec, move |spec, now| spec_times(spec, now, count))
            .await
    }

    async fn search<T: Send + 'static>(
        &self,
        spec: &ScheduleSpec,
        search: impl FnOnce(&ScheduleSpec, Timestamp) -> Result<T, Rejection> + Send + 'static,
    ) -> Result<T, CallError> {
        let now = self.shared.clock.wall();
        let spec = spec.clone();
        let gone = |_| CallError::unavailable(self.id(), "the search for the next run was cut off");
        let turn = SEARCHES.acquire().await;
        let searched = tokio::task::spawn_blocking(move || search(&spec, now)).await;
        drop(turn);
        Ok(searched.map_err(gone)??)
    }
}
