//! Changes to the jobs that are selected: their queue and their priority.

use ganger_types::{Priority, Queue};
use maud::html;

use crate::fault::Fault;
use crate::format::plural;
use crate::links::job_name;
use crate::text::isolated;
use crate::view::View;

use super::bulk::{Chosen, chosen_jobs, list_of, notice_of, on_each};
use super::changes;
use super::{ASK_FORM, Done, Form, Question};

/// What becomes of each selected job.
struct Changes {
    queue: Option<Queue>,
    priority: Option<Priority>,
}

impl Changes {
    /// Reads the fields of the form; an empty one changes nothing.
    fn read(form: &Form) -> Result<Self, Fault> {
        let most = Priority::WHOLE_MAX;
        let priority: Option<i64> = form.fields.number("priority", -most, most)?;
        let changes = Self {
            queue: form.fields.name("queue")?,
            priority: priority.and_then(Priority::whole),
        };
        if changes.queue.is_none() && changes.priority.is_none() {
            return Err(Fault::value("queue", "and priority are both empty"));
        }
        Ok(changes)
    }
}

/// Changes the queue or priority of the selected jobs, after a question with both fields.
pub(super) async fn selected(view: &View, form: &Form) -> Result<Done, Fault> {
    let jobs = chosen_jobs(view, form).await?;
    if !form.is_confirmed() {
        return Ok(question(view, form, &jobs, None));
    }
    let wanted = match Changes::read(form) {
        Ok(changes) => changes,
        Err(fault) => return Ok(question(view, form, &jobs, Some(&fault))),
    };
    let change = |jobs| changes::Move {
        queue: wanted.queue.clone(),
        priority: wanted.priority,
        jobs,
    };
    let changed = on_each(view, jobs, change).await?;
    Ok(notice_of("Changed", &changed))
}

fn question(view: &View, form: &Form, jobs: &[Chosen], refusal: Option<&Fault>) -> Done {
    let number = plural(u64::try_from(jobs.len()).unwrap_or(u64::MAX), "job");
    let names: Vec<String> = jobs
        .iter()
        .map(|(shard, id, _)| job_name(shard, id))
        .collect();
    let mut pairs: Vec<(&str, &str)> = names.iter().map(|name| ("job", name.as_str())).collect();
    pairs.extend([("scope", "selected"), ("ask", "1")]);
    let given = |name: &str| form.fields.text(name).ok().flatten().unwrap_or_default();
    let content = html! {
        (list_of(jobs))
        @if let Some(fault) = refusal { div.alert role="alert" { p { (isolated(&fault.detail)) } } }
        div.fields {
            label { "Queue" input name="queue" form=(ASK_FORM) maxlength="512" placeholder="empty: no change" value=(given("queue")); }
            label { "Priority" input name="priority" form=(ASK_FORM) inputmode="numeric" placeholder="empty: no change" value=(given("priority")); }
        }
    };
    let question = Question {
        heading: format!("Change {number}?"),
        content,
        button: format!("Change {number}"),
        action: "alterJob",
        pairs: &pairs,
        is_danger: false,
    };
    question.again(view, form, refusal)
}
