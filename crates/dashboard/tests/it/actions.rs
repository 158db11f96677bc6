//! Actions, each by its buttons, with its effect on the shard.

use ganger_types::query::JobQuery;
use ganger_types::{Command, JobState, JobStates, Namespace};

use crate::kit::Site;

async fn count(site: &Site, states: JobStates) -> u64 {
    let query = JobQuery {
        states,
        ..JobQuery::default()
    };
    site.shard.count(query).await.expect("counted")
}

async fn state(site: &Site, id: &ganger_types::JobId) -> Option<JobState> {
    let job = site
        .shard
        .job(&Namespace::default(), id)
        .await
        .expect("read");
    job.map(|job| job.record.state)
}

#[tokio::test]
async fn pausing_a_queue_needs_no_question_and_can_be_undone() {
    let site = Site::closed().await;
    site.enqueue("mail & more", "send", |_| {}).await;
    let browser = site.signed_in("op").await;
    let page = browser.page("/ui/queue?name=mail%20%26%20more").await;
    let paused = browser.press(&page, "Pause queue", &[]).await;
    assert_eq!(
        paused.headers["location"],
        "/ui/queue?name=mail%20%26%20more"
    );
    let page = browser.follow(&paused).await;
    assert!(
        page.only("#notice")
            .starts_with("Paused the queue mail & more."),
        "{}",
        page.only("#notice")
    );
    assert!(page.buttons().contains(&"Resume queue".to_owned()));
    let undone = browser.press(&page, "Undo", &[]).await;
    let page = browser.follow(&undone).await;
    assert!(page.only("#notice").starts_with("Resumed the queue"));
    let again = browser.page("/ui/queue?name=mail%20%26%20more").await;
    assert!(again.texts("#notice").is_empty(), "a notice is shown once");
}

#[tokio::test]
async fn a_form_that_is_sent_twice_acts_once() {
    let site = Site::open().await;
    let browser = site.browser();
    let form = browser.page("/ui/jobs/new?queue=mail").await;
    let (action, mut fields) = form.button("Enqueue job");
    fields.retain(|(name, _)| name != "kind");
    fields.push(("kind".to_owned(), "send".to_owned()));
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let first = browser.post(&action, &fields).await;
    let second = browser.post(&action, &fields).await;
    assert_eq!(first.headers["location"], second.headers["location"]);
    assert_eq!(count(&site, JobStates::ALL).await, 1);
    let notice = browser.follow(&second).await.only("#notice");
    assert!(notice.starts_with("Enqueued 1/"), "{notice}");
    assert!(notice.contains("came twice and was done once"), "{notice}");
}

#[tokio::test]
async fn a_form_from_the_history_is_done_again_if_it_was_changed() {
    let site = Site::open().await;
    let browser = site.browser();
    let form = browser.page("/ui/jobs/new?queue=mail").await;
    let (action, fields) = form.button("Enqueue job");
    let with = |kind: &str| {
        let others = fields.iter().filter(|(name, _)| name != "kind");
        let mut fields: Vec<_> = others.cloned().collect();
        fields.push(("kind".to_owned(), kind.to_owned()));
        fields
    };
    let mut jobs = Vec::new();
    // The key of the form stays the same: the browser goes back to the form as it was filled in.
    for kind in ["send", "resend", "resend"] {
        let fields = with(kind);
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let answer = browser.post(&action, &fields).await;
        jobs.push(answer.headers["location"].clone());
    }
    assert_ne!(jobs[0], jobs[1], "another kind is another job");
    assert_eq!(jobs[1], jobs[2], "the same form is the same job");
    assert_eq!(count(&site, JobStates::ALL).await, 2);
}

#[tokio::test]
async fn cancelling_asks_first_and_keeps_the_reason() {
    let site = Site::closed().await;
    let id = site.enqueue("mail", "send", |_| {}).await;
    let browser = site.signed_in("maker").await;
    let path = format!("/ui/job?id=1/{}", id.to_text());
    let page = browser.page(&path).await;
    let question = browser.press(&page, "Cancel", &[]).await;
    assert_eq!(question.status, 200);
    assert_eq!(
        question.only("h1"),
        format!("Cancel job 1/{}?", id.to_text())
    );
    assert_eq!(
        state(&site, &id).await,
        Some(JobState::Ready),
        "a question changes nothing"
    );
    let done = browser
        .press(
            &question,
            "Cancel this job",
            &[("reason", "no longer <needed>")],
        )
        .await;
    assert_eq!(done.headers["location"], path.as_str());
    let page = browser.follow(&done).await;
    assert!(
        page.only("#notice")
            .starts_with(&format!("Cancelled 1/{}.", id.to_text()))
    );
    assert!(page.main().contains("Reason: no longer <needed>"));
    let late = browser
        .press(&question, "Cancel this job", &[("key", "another")])
        .await;
    let page = browser.follow(&late).await;
    let alert = page.only("[role=alert]");
    assert!(
        alert.starts_with("Not cancelled: job 1/") && alert.contains("(wrong_state)"),
        "{alert}"
    );
}

#[tokio::test]
async fn retry_run_now_track_time_out_and_delete_of_one_job() {
    let site = Site::closed().await;
    let browser = site.signed_in("op").await;
    let failed = site.enqueue("img", "resize", |_| {}).await;
    site.fail_one("img", "exit-1", "x").await;
    let page = browser
        .page(&format!("/ui/job?id=1/{}", failed.to_text()))
        .await;
    let page = browser
        .follow(&browser.press(&page, "Retry", &[]).await)
        .await;
    assert!(page.only("#notice").starts_with("Retried 1/"));
    assert_eq!(state(&site, &failed).await, Some(JobState::Ready));
    let page = browser
        .follow(&browser.press(&page, "Track", &[]).await)
        .await;
    assert!(page.buttons().contains(&"Untrack".to_owned()));
    site.lease("img", 1).await;
    let page = browser
        .page(&format!("/ui/job?id=1/{}", failed.to_text()))
        .await;
    assert!(page.texts("h2").contains(&"It runs".to_owned()));
    let question = browser.press(&page, "Time out attempt", &[]).await;
    assert!(question.main().contains("may run twice at the same time"));
    browser
        .follow(&browser.press(&question, "Time out attempt", &[]).await)
        .await;
    assert_eq!(state(&site, &failed).await, Some(JobState::Ready));
    let later = site
        .enqueue("mail", "send", |job| {
            job.start = ganger_types::command::Start::After(std::time::Duration::from_secs(3_600));
        })
        .await;
    let page = browser
        .page(&format!("/ui/job?id=1/{}", later.to_text()))
        .await;
    browser
        .follow(&browser.press(&page, "Run now", &[]).await)
        .await;
    assert_eq!(state(&site, &later).await, Some(JobState::Ready));
    let question = browser.press(&page, "Delete", &[]).await;
    assert!(question.main().contains("This cannot be undone."));
    let done = browser.press(&question, "Delete this job", &[]).await;
    assert_eq!(done.headers["location"], "/ui/jobs");
    assert_eq!(state(&site, &later).await, None);
}

#[tokio::test]
async fn a_job_is_changed_by_its_form_and_a_refusal_keeps_what_was_typed() {
    let site = Site::open().await;
    let id = site
        .enqueue("mail", "send", |job| {
            job.tags = vec![ganger_types::Tag::from_static("old")];
        })
        .await;
    let browser = site.browser();
    let page = browser
        .page(&format!("/ui/job?id=1/{}", id.to_text()))
        .await;
    let form = browser.press(&page, "Change \u{2026}", &[]).await;
    let with = form.button("Change this job").1;
    assert!(with.iter().any(|(name, _)| name == "confirmed"));
    let wrong = browser
        .press(&form, "Change this job", &[("priority", "many")])
        .await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.only("[role=alert]").contains("priority"));
    let good = [
        ("priority", "-5"),
        ("queue", "urgent"),
        ("tags", "new"),
        ("labels", "tenant=acme"),
        ("note", "hurry"),
    ];
    let done = browser.press(&form, "Change this job", &good).await;
    browser.follow(&done).await;
    let job = site
        .shard
        .job(&Namespace::default(), &id)
        .await
        .expect("read")
        .expect("there");
    let record = job.record;
    assert_eq!(record.priority.to_whole(), -5);
    assert_eq!(record.queue.as_bytes(), b"urgent");
    assert_eq!(record.tags, [ganger_types::Tag::from_static("new")]);
    assert_eq!(record.labels.len(), 1);
}

#[tokio::test]
async fn a_new_job_is_refused_beside_its_form_until_it_is_right() {
    let site = Site::open().await;
    let browser = site.browser();
    let form = browser.page("/ui/jobs/new").await;
    let wrong = browser
        .press(
            &form,
            "Enqueue job",
            &[("kind", "send"), ("payload", "{\n \"a\": }")],
        )
        .await;
    assert_eq!(wrong.status, 400);
    let alert = wrong.only("[role=alert]");
    assert!(alert.contains("line 2, column 7"), "{alert}");
    assert!(wrong.only("textarea[name=payload]").contains("\"a\": }"));
    let done = browser
        .press(
            &wrong,
            "Enqueue job",
            &[("payload", "{\"a\": 1}"), ("tags", "x y")],
        )
        .await;
    let page = browser.follow(&done).await;
    assert!(
        page.only("#notice").starts_with("Enqueued 1/"),
        "{}",
        page.main()
    );
    let again = browser.page(&page.link("Enqueue again")).await;
    assert_eq!(again.only("textarea[name=payload]"), "{\"a\": 1}");
}

#[tokio::test]
async fn selected_jobs_are_retried_and_those_left_out_are_named() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("img", "a", |_| {}).await;
    site.enqueue("img", "b", |_| {}).await;
    site.fail_one("img", "exit-1", "x").await;
    site.fail_one("img", "exit-1", "x").await;
    let runs = site.enqueue("img", "c", |_| {}).await;
    site.lease("img", 1).await;
    let page = browser.page("/ui/jobs").await;
    let names: Vec<String> = page
        .rows("Jobs")
        .into_iter()
        .map(|row| row[1].clone())
        .collect();
    let jobs: Vec<(&str, &str)> = names.iter().map(|name| ("job", name.as_str())).collect();
    let question = browser.press(&page, "Retry", &jobs).await;
    assert_eq!(question.only("h1"), "Retry 3 jobs?");
    let done = browser.press(&question, "Retry 3 jobs", &[]).await;
    let page = browser.follow(&done).await;
    let notice = page.only("#notice");
    assert!(
        notice.starts_with(&format!(
            "Retried 2 jobs, skipped 1: 1/{} runs.",
            runs.to_text()
        )),
        "{notice}"
    );
    let none = browser.press(&page, "Delete", &[]).await;
    let page = browser.follow(&none).await;
    assert!(page.only("[role=alert]").contains("no job is selected"));
}

#[tokio::test]
async fn selected_jobs_get_another_queue_and_priority() {
    let site = Site::open().await;
    let browser = site.browser();
    for kind in ["a", "b"] {
        site.enqueue("slow", kind, |_| {}).await;
    }
    let page = browser.page("/ui/jobs").await;
    let names: Vec<String> = page
        .rows("Jobs")
        .into_iter()
        .map(|row| row[1].clone())
        .collect();
    let jobs: Vec<(&str, &str)> = names.iter().map(|name| ("job", name.as_str())).collect();
    let change = "Change queue or priority";
    let question = browser.press(&page, change, &jobs).await;
    assert_eq!(question.only("h1"), "Change 2 jobs?");
    let refused = browser.press(&question, "Change 2 jobs", &[]).await;
    assert_eq!(refused.status, 400);
    assert!(refused.only("[role=alert]").contains("both empty"));
    let fields = [("queue", "fast"), ("priority", "7")];
    let done = browser.press(&refused, "Change 2 jobs", &fields).await;
    let page = browser.follow(&done).await;
    assert!(page.only("#notice").starts_with("Changed 2 jobs."));
    let page = browser.page("/ui/jobs?queue=fast&columns=priority").await;
    let rows = page.rows("Jobs");
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.contains(&"7".to_owned())));
    // One that has ended meanwhile is left out, and named.
    site.fail_one("fast", "exit-1", "x").await;
    let question = browser.press(&page, change, &jobs).await;
    let done = browser.press(&question, "Change 2 jobs", &fields).await;
    let notice = browser.follow(&done).await.only("#notice");
    assert!(
        notice.starts_with("Changed 1 job, skipped 1: 1/"),
        "{notice}"
    );
}

#[tokio::test]
async fn the_store_of_a_shard_is_checked() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("mail", "send", |_| {}).await;
    let page = browser.page("/ui/shards").await;
    let done = browser.press(&page, "Check store", &[]).await;
    let notice = browser.follow(&done).await.only("#notice");
    let sound = "Checked the store of shard 1: nothing was found.";
    assert!(notice.starts_with(sound), "{notice}");
}

#[tokio::test]
async fn all_that_match_are_counted_first_and_above_a_thousand_the_number_is_typed() {
    let site = Site::open().await;
    let browser = site.browser();
    for _ in 0..1_001 {
        site.enqueue("mail", "send", |_| {}).await;
    }
    site.enqueue("img", "resize", |_| {}).await;
    let page = browser.page("/ui/jobs?queue=mail&state=ready").await;
    let question = browser.press(&page, "Cancel all \u{2026}", &[]).await;
    assert_eq!(question.only("h1"), "Cancel 1,001 jobs?");
    assert!(
        question.main().contains("1,001 in the queue mail"),
        "{}",
        question.main()
    );
    assert_eq!(
        count(&site, JobStates::LIVE).await,
        1_002,
        "a trial changes nothing"
    );
    // What comes after the question is left out.
    site.enqueue("mail", "send", |_| {}).await;
    let wrong = browser
        .press(&question, "Cancel 1,001 jobs", &[("number", "100")])
        .await;
    assert!(wrong.only("[role=alert]").contains("number"));
    let done = browser
        .press(&question, "Cancel 1,001 jobs", &[("number", "1,001")])
        .await;
    let page = browser.follow(&done).await;
    assert!(
        page.only("#notice").starts_with("Started 1/op-1"),
        "{}",
        page.only("#notice")
    );
    assert_eq!(page.only("h1"), "Operation 1/op-1");
    site.operation_ends(1).await;
    assert_eq!(count(&site, JobStates::LIVE).await, 2);
    let page = browser.page("/ui/operations").await;
    let row = &page.rows("Operations")[0];
    assert_eq!(row[0], "1/op-1");
    assert!(row[4].starts_with("1,001 of 1,001"), "{row:?}");
    assert_eq!(row[5], "Done");
    let page = browser.page("/ui/operation?id=1/op-1").await;
    assert!(!page.buttons().contains(&"Stop".to_owned()));
}

#[tokio::test]
async fn an_operation_on_few_jobs_is_reported_with_its_numbers() {
    let site = Site::open().await;
    let browser = site.browser();
    for _ in 0..3 {
        site.enqueue("mail", "send", |_| {}).await;
    }
    let page = browser.page("/ui/jobs?queue=mail&state=ready").await;
    let question = browser.press(&page, "Cancel all \u{2026}", &[]).await;
    let done = browser.press(&question, "Cancel 3 jobs", &[]).await;
    let page = browser.follow(&done).await;
    assert!(
        page.only("#notice").starts_with("Cancelled 3 jobs."),
        "{}",
        page.only("#notice")
    );
}

#[tokio::test]
async fn a_retry_that_is_spread_over_a_time_runs_until_somebody_stops_it() {
    let site = Site::open().await;
    let browser = site.browser();
    for _ in 0..3 {
        site.enqueue("img", "a", |_| {}).await;
        site.fail_one("img", "exit-1", "x").await;
    }
    let page = browser.page("/ui/jobs?state=failed").await;
    let question = browser.press(&page, "Retry all \u{2026}", &[]).await;
    let done = browser
        .press(&question, "Retry 3 jobs", &[("spread_over", "1 h")])
        .await;
    let page = browser.follow(&done).await;
    assert_eq!(page.only("h1"), "Operation 1/op-1");
    assert!(page.main().contains("Running"), "{}", page.main());
    let stopped = browser.press(&page, "Stop", &[]).await;
    let page = browser.follow(&stopped).await;
    assert!(
        page.only("#notice").starts_with("Stopped 1/op-1"),
        "{}",
        page.only("#notice")
    );
    let again = browser
        .post("/ui/do/stopOperation", &[("with", "id=1/op-1")])
        .await;
    let page = browser.follow(&again).await;
    assert!(page.only("[role=alert]").contains("stopped already"));
}

#[tokio::test]
async fn the_settings_of_a_namespace_are_saved_unless_somebody_was_faster() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("mail", "send", |_| {}).await;
    let page = browser.page("/ui/namespaces").await;
    let page = browser.page(&page.link("default")).await;
    assert!(page.main().contains("1 of no limit"), "{}", page.main());
    let form = browser.page(&page.link("Edit settings")).await;
    let slower = browser.page(&page.link("Edit settings")).await;
    let wrong = browser
        .press(&form, "Save settings", &[("set-live_max", "many")])
        .await;
    assert_eq!(wrong.status, 400);
    let saved = browser
        .press(&form, "Save settings", &[("set-live_max", "500")])
        .await;
    let page = browser.follow(&saved).await;
    assert!(
        page.only("#notice").contains("live_max from null to 500"),
        "{}",
        page.only("#notice")
    );
    assert!(page.main().contains("1 of 500"), "{}", page.main());
    let late = browser
        .press(&slower, "Save settings", &[("set-live_max", "600")])
        .await;
    assert!(late.only("[role=alert]").contains("Somebody has changed"));
}

#[tokio::test]
async fn the_audit_page_shows_the_newest_records_and_selects() {
    use ganger_types::command::KeepAudit;

    let site = Site::open().await;
    let browser = site.browser();
    let record = |who: &str, outcome: &str| ganger_types::AuditRecord {
        who: who.to_owned(),
        what: "cancelJob".to_owned(),
        outcome: outcome.to_owned(),
        ..ganger_types::AuditRecord::default()
    };
    let mut records = vec![record("token \"ann\"", "done"); 101];
    records.push(record("token \"bob\"", "denied"));
    let keep = Command::KeepAudit(KeepAudit { records });
    site.shard.call(keep).await.expect("kept");
    let page = browser.page("/ui/audit").await;
    let rows = page.rows("Audit log");
    assert_eq!((rows.len(), rows[0][1].as_str()), (100, "token \"bob\""));
    let older = browser.page(&page.link("Older")).await;
    assert_eq!(older.rows("Audit log").len(), 2);
    let page = browser.page("/ui/audit?who=bob&outcome=denied").await;
    assert_eq!(page.rows("Audit log").len(), 1);
    let page = browser.page("/ui/audit?who=nobody").await;
    assert!(page.main().contains("No record matches."));
}

#[tokio::test]
async fn a_bulk_action_without_any_condition_is_refused() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("mail", "send", |_| {}).await;
    let answer = browser
        .post(
            "/ui/do/deleteJobs",
            &[("with", "scope=all"), ("confirmed", "1")],
        )
        .await;
    let page = browser.follow(&answer).await;
    assert!(page.only("[role=alert]").contains("has no condition"));
    assert_eq!(count(&site, JobStates::ALL).await, 1);
}

#[tokio::test]
async fn settings_of_a_queue_are_saved_unless_somebody_was_faster() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("mail", "send", |_| {}).await;
    let page = browser.page("/ui/queue?name=mail").await;
    let form = browser.page(&page.link("Edit settings")).await;
    let wrong = browser
        .press(&form, "Save settings", &[("running_max", "many")])
        .await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.only("[role=alert]").contains("Jobs running at once"));
    let saved = browser
        .press(
            &form,
            "Save settings",
            &[
                ("running_max", "8"),
                ("lease_for", "90s"),
                ("retry", "{\"max\": 2}"),
            ],
        )
        .await;
    let page = browser.follow(&saved).await;
    let settings = page.rows("Settings");
    assert_eq!(settings[0], ["Jobs running at once", "8", "queue"]);
    assert_eq!(settings[2], ["Length of leases", "1 min 30 s", "queue"]);
    assert_eq!(settings[4], ["Retries", "2", "queue"]);
    let late = browser
        .press(
            &form,
            "Save settings",
            &[("running_max", "2"), ("key", "late")],
        )
        .await;
    assert_eq!(late.status, 409);
    assert!(
        late.only("[role=alert]")
            .contains("Somebody has changed the settings")
    );
}

#[tokio::test]
async fn an_empty_queue_is_forgotten_after_a_question() {
    let site = Site::open().await;
    let browser = site.browser();
    let id = site.enqueue("mail", "send", |_| {}).await;
    let delete = ganger_types::command::Delete {
        namespace: Namespace::default(),
        jobs: vec![id],
    };
    site.shard
        .call(ganger_types::Command::Delete(delete))
        .await
        .expect("deleted");
    let page = browser.page("/ui/queue?name=mail").await;
    let question = browser.press(&page, "Forget queue", &[]).await;
    let done = browser.press(&question, "Forget this queue", &[]).await;
    let page = browser.follow(&done).await;
    assert!(page.main().contains("No queues yet."), "{}", page.main());
}
