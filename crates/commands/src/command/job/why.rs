//! `ganger job why`: the reasons why a job does not run, with the next step.

use std::time::SystemTime;

use clap::Args;
use ganger_client::{Explanation, Job, Reason};

use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::show::{Palette, escape, time};

/// Explains why a job is not running, or says that it is.
#[derive(Args, Debug)]
pub(crate) struct WhyArgs {
    /// Id of the job.
    pub(super) job: String,
}

pub(crate) async fn run(context: &Context, args: &WhyArgs) -> Outcome {
    let client = context.client().await?;
    let why = client.why(&args.job).await?;
    if context.is_json() {
        context.json(&why)?;
        return Ok(Exit::Done);
    }
    let job = client.job(&args.job).await?;
    let is_ours = job.kept_by.is_none();
    let (palette, now) = (context.palette(), SystemTime::now());
    context.line(explain(&why, &job.queue, is_ours, palette, now))?;
    Ok(Exit::Done)
}

/// The first reason why a job does not run.
pub(crate) struct FirstReason {
    /// Key of the reason, equal for the same reason at a later time.
    pub(crate) key: String,
    /// Stable code of the reason, for programs.
    pub(crate) code: String,
    /// The reason as a sentence.
    pub(crate) text: String,
    /// What the user can do about it; `None` if nothing is known to help.
    pub(crate) step: Option<String>,
}

/// Returns the first reason; `None` if the job runs or has ended.
pub(crate) fn first_reason(why: &Explanation, job: &Job, now: SystemTime) -> Option<FirstReason> {
    let reason = why.reasons.first()?;
    let key = match &*reason.code {
        "runs" | "locked" | "ended" => return None,
        "released" => format!("released {}", reason.text),
        "not_before" => format!("not_before {}", reason.attempt.unwrap_or_default()),
        code => code.to_owned(),
    };
    let may_help = job.kept_by.is_none() || is_for_all(reason);
    let step = next_step(reason, &why.job, &job.queue).filter(|_| may_help);
    Some(FirstReason {
        key,
        code: reason.code.to_string(),
        text: sentence(reason, now),
        step,
    })
}

fn explain(
    why: &Explanation,
    queue: &str,
    is_ours: bool,
    palette: Palette,
    now: SystemTime,
) -> String {
    let mut out = vec![format!(
        "{} is {}.",
        escape::line(&why.job),
        palette.state(why.state)
    )];
    for reason in &why.reasons {
        out.push(format!("  {}", sentence(reason, now)));
        if let Some(step) = next_step(reason, &why.job, queue)
            && (is_ours || is_for_all(reason))
        {
            out.push(format!("    {}", palette.dim(&format!("-> {step}"))));
        }
    }
    out.join("\n")
}

/// Returns the server's sentence with examples of jobs, and times in the local time zone.
fn sentence(reason: &Reason, now: SystemTime) -> String {
    let text = escape::text(reason.text.trim_end()).replace('\n', "\n  ");
    let at = reason.at.map(|at| time::both(at, now));
    let when = match (&*reason.code, at) {
        (_, None) => String::new(),
        ("waits_elsewhere", Some(at)) => format!("; this shard last asked about them at {at}"),
        ("not_before", Some(at)) => format!(", at {at}"),
        (_, Some(at)) => format!(", until {at}"),
    };
    format!("{}{}{when}.", in_capital(&text), examples(reason))
}

/// Returns some of the jobs that the reason concerns, after a colon; empty if there are none.
fn examples(reason: &Reason) -> String {
    let shown = reason.jobs.iter().map(|one| match one.state {
        Some(state) => format!("{} ({state})", escape::line(&one.job)),
        None => escape::line(&one.job),
    });
    let some: Vec<String> = shown.collect();
    let is_all = reason
        .count
        .is_none_or(|count| u64::try_from(some.len()).is_ok_and(|shown| shown >= count));
    match (some.is_empty(), is_all) {
        (true, _) => String::new(),
        (false, true) => format!(": {}", some.join(", ")),
        (false, false) => format!(": {}, ...", some.join(", ")),
    }
}

/// Returns the text with its first letter in upper case.
fn in_capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Whether the next step helps with external jobs too, which ganger's own settings do not affect.
fn is_for_all(reason: &Reason) -> bool {
    matches!(&*reason.code, "waits_for" | "ended")
}

fn next_step(reason: &Reason, job: &str, queue: &str) -> Option<String> {
    let (job, queue) = (escape::line(job), escape::line(queue));
    let step = match &*reason.code {
        "waits_for" => {
            let first = reason
                .jobs
                .first()
                .map_or(job, |one| escape::line(&one.job));
            format!("ganger job why {first}")
        }
        "waits_elsewhere" => format!("ganger job why {}", escape::line(&reason.jobs.first()?.job)),
        "not_before" => format!("ganger job set {job} --delay 0   runs it now"),
        "queue_paused" => format!("ganger queue resume {queue}"),
        "queue_limit" => format!("ganger queue set {queue} --running-max N   allows more"),
        "behind" => {
            format!("more workers; or ganger job set {job} --priority -1   lets it go first")
        }
        "no_worker" => {
            format!(
                "ganger worker --queue {queue} --dir DIR   starts one that runs DIR/KIND for each job"
            )
        }
        "runs" => format!("ganger job logs -f {job}"),
        "ended" => {
            format!("ganger job get {job}   tells more; ganger job retry {job}   runs it again")
        }
        _ => return None,
    };
    Some(step)
}

#[cfg(test)]
mod tests {
    use ganger_client::{JobAndState, JobState};

    use super::*;

    fn reason(code: &str) -> Reason {
        Reason {
            code: code.to_owned().into(),
            ..Reason::default()
        }
    }

    #[test]
    fn each_reason_is_a_sentence_with_a_next_step() {
        let why = Explanation {
            job: "j1".to_owned(),
            state: JobState::Blocked,
            queue: "mail".to_owned(),
            reasons: vec![
                Reason {
                    count: Some(2),
                    text: "the job waits for 2 other jobs".to_owned(),
                    jobs: vec![JobAndState {
                        job: "u\x1b1".to_owned(),
                        state: Some(JobState::Running),
                    }],
                    ..reason("waits_for")
                },
                Reason {
                    count: Some(1),
                    text: "the job waits for a job of another shard".to_owned(),
                    jobs: vec![JobAndState {
                        job: "2/v1".to_owned(),
                        state: None,
                    }],
                    ..reason("waits_elsewhere")
                },
                Reason {
                    text: "the queue mail is paused".to_owned(),
                    ..reason("queue_paused")
                },
            ],
        };
        let told = |is_ours| {
            let palette = Palette::new(false);
            explain(&why, "mail", is_ours, palette, SystemTime::UNIX_EPOCH)
        };
        let text = told(true);
        assert_eq!(
            text,
            "j1 is blocked.\n  \
             The job waits for 2 other jobs: u\\x1b1 (running), ....\n    \
             -> ganger job why u\\x1b1\n  \
             The job waits for a job of another shard: 2/v1.\n    \
             -> ganger job why 2/v1\n  \
             The queue mail is paused.\n    \
             -> ganger queue resume mail"
        );
        // ganger's own settings do not affect external jobs.
        let of_others = told(false);
        assert!(of_others.contains("-> ganger job why u"));
        assert!(!of_others.contains("-> ganger queue resume"));
    }

    #[test]
    fn an_unknown_reason_is_shown_with_the_servers_text() {
        let unknown = Reason {
            text: "the moon is wrong".to_owned(),
            ..reason("moon")
        };
        assert_eq!(
            sentence(&unknown, SystemTime::UNIX_EPOCH),
            "The moon is wrong."
        );
        assert_eq!(next_step(&unknown, "j", "q"), None);
    }
}
