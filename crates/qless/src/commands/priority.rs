//! `priority jid priority`: changes a job's priority, and its position if it is ready.

use ganger_types::qless::{QlessAnswer, QlessReply, QlessSet, QlessTime};

use crate::call::{Arguments, Call, refuse};
use crate::number;
use crate::state::Qless;

/// Changes the priority and returns it as a whole number, rounded towards 0.
pub(super) fn priority(
    state: &mut Qless,
    _: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let jid = arguments.job(0)?;
    let complaint = "Priority(): Arg \"priority\" missing or not a number: ";
    let priority = arguments.number(1, complaint)?;
    let Some(job) = state.job(jid) else {
        return Err(refuse(&[b"Priority(): Job ", jid, b" does not exist"]));
    };
    let ready = job.place.clone().filter(|it| it.set == QlessSet::Work);

    state.edit(jid, |job| *job.priority = priority);
    if let Some(place) = ready {
        // At time 0, so that it runs before all other jobs of that priority.
        state.make_ready(jid, &place.queue, QlessTime::default());
    }
    Ok(QlessReply::Number(number::truncate(priority)))
}
