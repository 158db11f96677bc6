//! What the cancellation of a job would lead to.

use ganger_document::view::change::{AffectedJobs, CancelEffects};

use super::{At, FieldError, known_state};
use crate::v1;

/// The consequences that the cancellation of a job would have.
///
/// # Errors
/// If the state of the job is unknown or missing.
pub fn cancel_effects(wire: v1::CancelEffectsReply) -> Result<CancelEffects, FieldError> {
    let state = known_state(At::top("state"), wire.state)?;
    Ok(CancelEffects {
        would_change: !state.is_terminal(),
        state: state.as_str(),
        cancelled: affected(wire.cancelled),
        failed: affected(wire.failed),
        waiting: affected(wire.waiting),
        continuing: affected(wire.continuing),
        elsewhere: wire.elsewhere,
        complete: wire.complete,
    })
}

fn affected(wire: Option<v1::AffectedJobs>) -> AffectedJobs {
    let wire = wire.unwrap_or_default();
    AffectedJobs {
        count: wire.count,
        jobs: wire.jobs,
    }
}
