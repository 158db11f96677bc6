//! Looks at the spec of a schedule before the shard's thread does: a search for runs that never come takes long.

use ganger_engine::check_spec;
use ganger_types::ScheduleSpec;
use tokio::sync::Semaphore;

use crate::{CallError, Handle};

/// One search at a time: a client that sends many of them waits for its own.
static SEARCHES: Semaphore = Semaphore::const_new(1);

impl Handle {
    /// Refuses the spec of a schedule that cannot be read, or whose runs would come too often or never. To be called
    /// before the command that puts the schedule, which trusts nobody and looks again: at specs that were refused here
    /// that takes the shard's thread up to some hundred milliseconds.
    ///
    /// # Errors
    /// The refusal.
    pub async fn check_schedule(&self, spec: &ScheduleSpec) -> Result<(), CallError> {
        let now = self.shared.clock.wall();
        let spec = spec.clone();
        let gone = |_| CallError::unavailable(self.id(), "the search for the next run was cut off");
        let turn = SEARCHES.acquire().await;
        let searched = tokio::task::spawn_blocking(move || check_spec(&spec, now)).await;
        drop(turn);
        Ok(searched.map_err(gone)??)
    }
}
