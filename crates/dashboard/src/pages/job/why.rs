//! The answer to "why does it not run", each reason with its one remedy.

use ganger_document::names::show;
use ganger_types::why::{Explanation, Reason};
use maud::{Markup, html};

use crate::format::{count, span, whole};
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::{button, command, job_link};

use super::Found;

/// A sentence with a capital and a full stop, as the explanation's sentences have neither.
fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(char::to_uppercase);
    let capital: String = first.into_iter().flatten().chain(characters).collect();
    let end = if text.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    format!("{capital}{end}")
}

/// The reasons as a list, the most important first.
pub(super) fn list(view: &View, found: &Found, explanation: &Explanation) -> Markup {
    html! {
        ol.why {
            @for reason in &explanation.reasons {
                li {
                    (isolated(&sentence(&reason.text(&explanation.queue))))
                    (more(view, found, reason))
                }
            }
        }
    }
}

/// What a reason adds to its sentence: details, and the remedy.
fn more(view: &View, found: &Found, reason: &Reason) -> Markup {
    let queue = show(found.job.record.queue.as_bytes());
    let shard = found.shard.id();
    let on_queue = [("queue", &*queue), ("shard", shard.as_str())];
    let full = found.full_name();
    match reason {
        Reason::QueuePaused => {
            html! { " " (button(view, "Resume queue", "resumeQueue", &on_queue)) }
        }
        Reason::QueueLimit { .. } => html! {
            " " a href={ (view.links.on(shard, "/queue").with("name", &queue)) "#settings" } { "Settings of the queue" }
        },
        Reason::NoWorker { .. } => html! {
            p { "Start one:" } (command(&format!("ganger worker --queue '{}' --dir ./programs", plain(&queue))))
        },
        Reason::NotBefore { at, .. } => html! {
            " Its time is " (view.clock.time(*at)) " (" (view.clock.ago(*at)) "). "
            (button(view, "Run now", "alterJob", &[("job", full.as_str()), ("start", "now")]))
        },
        Reason::WaitsFor { count: all, some } => html! {
            ul {
                @for (id, state) in some { li { (job_link(view, shard, id)) " " (svg::state(*state)) } }
                @if usize::try_from(*all).is_ok_and(|all| all > some.len()) { li { "and more: " a href=(found.address(view).with("view", "graph")) { "Graph" } } }
            }
        },
        Reason::WaitsElsewhere { some, asked_at, .. } => html! {
            ul { @for job in some { li { (job_link(view, &job.shard, &job.id)) } } }
            @if let Some(at) = asked_at { p.soft { "Last asked " (view.clock.ago(*at)) "." } }
        },
        Reason::Runs {
            worker, lease_left, ..
        } => html! {
            @if let Some(lease) = &found.job.lease {
                " It runs on " (name(worker.as_bytes())) " for " (view.clock.since(lease.granted_at)) "; the lease ends in " (span(whole(*lease_left))) "."
            }
        },
        Reason::Behind { jobs, .. } => html! {
            @if *jobs > 0 { " " a href=(view.links.to("/jobs").with("queue", &queue).with("state", "ready").with("order", "oldest")) { "See " (count(*jobs)) " ready" } }
        },
        _ => html! {},
    }
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn reasons_become_sentences() {
        assert_eq!(sentence("the queue is paused"), "The queue is paused.");
        assert_eq!(sentence("\u{e4}ndern?"), "\u{c4}ndern?");
        assert_eq!(sentence(""), ".");
    }
}
