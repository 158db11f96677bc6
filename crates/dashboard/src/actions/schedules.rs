//! Actions on schedules.

use ganger_document::names::text;
use ganger_shard::Handle;
use ganger_types::command::{PauseSchedule, PutSchedule, RemoveSchedule, RunSchedule};
use ganger_types::{Command, Reply, ScheduleId, ScheduleRecord};
use maud::html;

use crate::fault::Fault;
use crate::frame::Hidden;
use crate::notice::Notice;
use crate::pages::schedule_form::{self, About, Refused, Reply as Shown, Values};
use crate::pages::{SCHEDULE_TIMES, schedule_address, schedule_on};
use crate::text::plain;
use crate::view::View;
use crate::widgets::fields;

use super::{Done, Form, Question, apply};

pub(super) async fn run(view: &View, form: &Form) -> Result<Done, Fault> {
    let id: ScheduleId = form.name("id")?;
    let shard = form.shard(view)?;
    let command = RunSchedule {
        namespace: view.namespace().clone(),
        id: id.clone(),
    };
    let reply = apply(shard, Command::RunSchedule(command)).await?;
    let mut notice = Notice::done(format!(
        "Made a job of the schedule {}.",
        plain(&text(id.as_bytes()))
    ));
    if let Reply::Schedule(schedule) = &reply
        && let Some(job) = &schedule.last_job
    {
        let address = view.links.job(shard.id(), job).as_str().to_owned();
        notice.link = Some(("Show the job".to_owned(), address));
    }
    Ok(Done::Notice { notice, to: None })
}

pub(super) async fn pause(view: &View, form: &Form, is_paused: bool) -> Result<Done, Fault> {
    let id: ScheduleId = form.name("id")?;
    let shard = form.shard(view)?;
    let command = PauseSchedule {
        namespace: view.namespace().clone(),
        id: id.clone(),
        is_paused,
    };
    apply(shard, Command::PauseSchedule(command)).await?;
    let shown = text(id.as_bytes());
    let (words, undo) = if is_paused {
        ("Paused", "resumeSchedule")
    } else {
        ("Resumed", "pauseSchedule")
    };
    let mut notice = Notice::done(format!("{words} the schedule {}.", plain(&shown)));
    let pairs = [("id", shown.as_str()), ("shard", shard.id().as_str())];
    notice.undo = Some(("Undo".to_owned(), undo, fields(view, &pairs)));
    Ok(Done::Notice { notice, to: None })
}

pub(super) async fn delete(view: &View, form: &Form) -> Result<Done, Fault> {
    let id: ScheduleId = form.name("id")?;
    let shard = form.shard(view)?;
    let shown = text(id.as_bytes());
    if !form.is_confirmed() {
        let question = Question {
            heading: format!("Delete the schedule {}?", plain(&shown)),
            content: html! { p { "It makes no more jobs. Jobs that it has made stay. This cannot be undone." } },
            button: "Delete this schedule".to_owned(),
            action: "deleteSchedule",
            pairs: &[("id", &shown), ("shard", shard.id().as_str())],
            is_danger: true,
        };
        return Ok(question.page(view, form));
    }
    let command = RemoveSchedule {
        namespace: view.namespace().clone(),
        id,
    };
    apply(shard, Command::RemoveSchedule(command)).await?;
    Ok(Done::Notice {
        notice: Notice::done(format!("Deleted the schedule {}.", plain(&shown))),
        to: Some(view.links.to("/schedules").as_str().to_owned()),
    })
}

/// Makes or changes a schedule, once the next times of its rule have been looked at. The form comes again with what is
/// wrong, and with the next times.
pub(super) async fn set(view: &View, form: &Form) -> Result<Done, Fault> {
    let shard = form.shard(view)?.clone();
    let edited = match form.with.name::<ScheduleId>("id")? {
        None => None,
        Some(id) => Some(schedule_on(view, &shard, &id).await?.ok_or_else(|| {
            let shown = plain(&text(id.as_bytes()));
            let detail = format!("there is no schedule {shown} any more");
            Fault::new("schedule_not_found", "There is no such schedule", detail)
        })?),
    };
    let values = Values::sent(&form.fields);
    let about = About {
        shard: &shard,
        edited: edited.as_ref(),
    };
    let again = |reply: &Shown| {
        let hidden = Hidden::again(view, form);
        let code = match (&reply.fault, reply.refused.is_empty()) {
            (Some(fault), _) => Some(fault.code),
            (None, false) => Some("invalid_value"),
            (None, true) => None,
        };
        let page = schedule_form::show_page(view, about, &values, reply, &hidden);
        Done::Page(match code {
            Some(code) => page.status((view.site.settings.status_of)(code)),
            None => page,
        })
    };
    let now = view.home().wall_time();
    let read = schedule_form::read(&form.fields, view.namespace(), edited.as_ref(), now);
    let schedule = match read {
        Ok(schedule) => schedule,
        Err(refused) => {
            return Ok(again(&Shown {
                refused,
                ..Shown::default()
            }));
        }
    };
    let times = shard.preview_schedule(&schedule.spec, SCHEDULE_TIMES).await;
    let times = match times {
        Ok(times) => times,
        Err(error) => return Ok(again(&blame(error.into(), &schedule))),
    };
    let preview = Some((schedule.spec.clone(), times));
    let refused = match &edited {
        Some(edited) => changed_meanwhile(form, edited)?,
        None => is_taken(view, &shard, &schedule.id).await?,
    };
    if let Some(refused) = refused {
        return Ok(again(&Shown { preview, ..refused }));
    }
    let is_saved = form.fields.text("step")? != Some("preview");
    let was_looked_at = form.fields.text("previewed")? == Some(values.rule().as_str());
    if !(is_saved && was_looked_at) {
        return Ok(again(&Shown {
            preview,
            asks_to_look: is_saved,
            ..Shown::default()
        }));
    }
    let shown = plain(&text(schedule.id.as_bytes()));
    let to = schedule_address(view, shard.id(), &schedule.id)
        .as_str()
        .to_owned();
    let command = PutSchedule {
        schedule: schedule.clone(),
    };
    if let Err(fault) = apply(&shard, Command::PutSchedule(Box::new(command))).await {
        return Ok(again(&Shown {
            preview,
            ..blame(fault, &schedule)
        }));
    }
    let words = if edited.is_some() { "Changed" } else { "Made" };
    Ok(Done::Notice {
        notice: Notice::done(format!("{words} the schedule {shown}.")),
        to: Some(to),
    })
}

/// A refusal by the engine, at its field if one is to blame.
fn blame(fault: Fault, schedule: &ScheduleRecord) -> Shown {
    match schedule_form::field_of(&fault, &schedule.spec) {
        Some(field) => Shown {
            refused: vec![Refused {
                field,
                reason: fault.detail,
            }],
            ..Shown::default()
        },
        None => Shown {
            fault: Some(fault),
            ..Shown::default()
        },
    }
}

/// The refusal of a form that was made from another state of the schedule.
fn changed_meanwhile(form: &Form, edited: &ScheduleRecord) -> Result<Option<Shown>, Fault> {
    if form.fields.text("before")? == Some(schedule_form::version(edited).as_str()) {
        return Ok(None);
    }
    let fault = Fault::new(
        "wrong_state",
        "Changed meanwhile",
        "somebody has changed the schedule since this form was made. Look at what you changed, then save again.",
    );
    Ok(Some(Shown {
        fault: Some(fault),
        ..Shown::default()
    }))
}

/// The refusal of a new schedule whose name another one has.
async fn is_taken(view: &View, shard: &Handle, id: &ScheduleId) -> Result<Option<Shown>, Fault> {
    let taken = schedule_on(view, shard, id).await?;
    Ok(taken.map(|_| Shown {
        refused: vec![Refused {
            field: "id",
            reason:
                "there is a schedule of this name already: edit that one, or choose another name"
                    .to_owned(),
        }],
        ..Shown::default()
    }))
}
