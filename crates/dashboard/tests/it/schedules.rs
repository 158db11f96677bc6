//! Schedules: their list, their page, their actions, and the form that shows the next times before it saves.

use ganger_types::command::PutSchedule;
use ganger_types::query::{JobQuery, Query};
use ganger_types::{
    Bytes, CatchUp, Command, JobStates, Kind, LabelKey, LabelValue, Namespace, Overlap, Priority,
    Queue, Reply, RetryPolicy, ScheduleId, ScheduleRecord, ScheduleSpec, Tag, Timestamp,
};

use crate::kit::{Answer, Setup, Site, select};

/// A schedule of the kind `report` at 02:30 in Vienna.
pub(crate) fn schedule(id: &str) -> ScheduleRecord {
    ScheduleRecord {
        namespace: Namespace::default(),
        id: ScheduleId::new(id).expect("short"),
        spec: ScheduleSpec::Cron {
            expression: "30 2 * * *".to_owned(),
            time_zone: "Europe/Vienna".to_owned(),
        },
        catch_up: CatchUp::default(),
        overlap: Overlap::default(),
        paused: false,
        queue: Queue::from_static("mail"),
        kind: Kind::from_static("report"),
        payload: Bytes::from_static(b"{}"),
        priority: Priority::default(),
        retry: None,
        timeout: None,
        tags: Vec::new(),
        labels: Vec::new(),
        created_at: Timestamp::default(),
        next_at: None,
        runs: 0,
        last_job: None,
    }
}

async fn put(site: &Site, schedule: ScheduleRecord) {
    let put = Command::PutSchedule(Box::new(PutSchedule { schedule }));
    site.shard.call(put).await.expect("put");
}

async fn stored(site: &Site, id: &str) -> ScheduleRecord {
    let id = ScheduleId::new(id).expect("short");
    let query = Query::Schedule(Namespace::default(), id);
    match site.shard.call(Command::Query(Box::new(query))).await {
        Ok(Reply::Schedule(schedule)) => *schedule,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn schedules_are_listed_with_their_rule_in_words_and_their_last_run() {
    let site = Site::open().await;
    put(&site, schedule("nightly")).await;
    let ended = ScheduleRecord {
        paused: true,
        ..schedule("off")
    };
    put(&site, ended).await;
    let browser = site.browser();
    let page = browser.page("/ui/schedules").await;
    assert_eq!(
        page.columns("Schedules"),
        ["Schedule", "Runs", "Next", "Last", "Kind", "Queue", "State"]
    );
    let row = page.rows("Schedules").remove(0);
    assert_eq!(
        row[1],
        "at 02:30 every day \u{b7} 30 2 * * * \u{b7} Europe/Vienna"
    );
    assert!(row[2].starts_with("in "), "{row:?}");
    assert_eq!(row[3..], ["\u{2013}", "report", "mail", "Active"]);
    let off = page.rows("Schedules").remove(1);
    assert_eq!((off[2].as_str(), off[6].as_str()), ("\u{2013}", "Paused"));

    let one = browser.page(&page.link("nightly")).await;
    browser.press(&one, "Run now", &[]).await;
    site.fail_one("mail", "exit-1", "no").await;
    let page = browser.page("/ui/schedules").await;
    let last = page.rows("Schedules").remove(0)[3].clone();
    assert!(last.starts_with("Failed in "), "{last}");
    browser.press(&one, "Run now", &[("key", "another")]).await;
    site.lease("mail", 1).await;
    let page = browser.page("/ui/schedules").await;
    let last = page.rows("Schedules").remove(0)[3].clone();
    assert!(last.starts_with("Running for "), "{last}");
}

#[tokio::test]
async fn many_schedules_are_paged() {
    let site = Site::open().await;
    for number in 0..101 {
        put(&site, schedule(&format!("s{number:03}"))).await;
    }
    let browser = site.browser();
    let first = browser.page("/ui/schedules").await;
    assert_eq!(first.rows("Schedules").len(), 100);
    assert!(first.main().contains("1 to 100 of 101"));
    let second = browser.page(&first.link("Next")).await;
    assert_eq!(second.rows("Schedules").len(), 1);
}

#[tokio::test]
async fn the_page_of_a_schedule_marks_changes_of_the_clocks_and_shows_all_fields() {
    let site = Site::open().await;
    let twice_a_year = ScheduleRecord {
        spec: ScheduleSpec::Cron {
            expression: "0 12 1 1,7 *".to_owned(),
            time_zone: "Europe/Vienna".to_owned(),
        },
        catch_up: CatchUp::All { max: 7 },
        overlap: Overlap::Skip,
        retry: Some(RetryPolicy::default()),
        timeout: Some(std::time::Duration::from_secs(300)),
        tags: vec![Tag::new("night").expect("short")],
        labels: vec![(
            LabelKey::new("tenant").expect("short"),
            LabelValue::new("acme").expect("short"),
        )],
        ..schedule("halves")
    };
    put(&site, twice_a_year).await;
    let browser = site.browser();
    browser.set_cookie("ganger_zone", "UTC");
    let page = browser.page("/ui/schedule?id=halves").await;
    assert_eq!(page.only("h1"), "Schedule halves");
    assert_eq!(page.texts("h2"), ["Next times", "Last jobs", "Fields"]);
    let times = page.rows("Next times");
    assert_eq!(times.len(), 5);
    for pair in times.windows(2) {
        let cell = &pair[1][2];
        assert!(cell.contains("12:00:00 Europe/Vienna"), "{cell}");
        let way = if cell.contains("-07-") {
            "clocks go forward by 1 h"
        } else {
            "clocks go back by 1 h"
        };
        assert!(cell.ends_with(way), "{cell}");
        assert!(!pair[1][1].contains("clocks"), "UTC has no such changes");
    }
    let facts = page.only("dl.facts");
    for fact in [
        "Cron expression0 12 1 1,7 *",
        "Time zoneEurope/Vienna",
        "Missed runsa job for each, 7 at most",
        "While a job of it is livethe run is skipped",
        "Retries{\"max\":3",
        "Timeout of an attempt5 min",
        "Tagsnight",
        "Labelstenant=acme",
        "Jobs made0",
        "Shard1",
    ] {
        assert!(facts.contains(fact), "{fact}: {facts}");
    }
}

#[tokio::test]
async fn a_schedule_runs_pauses_and_resumes_by_its_buttons() {
    let site = Site::closed().await;
    put(&site, schedule("nightly")).await;
    let browser = site.signed_in("op").await;
    let page = browser.page("/ui/schedule?id=nightly").await;
    let run = browser.press(&page, "Run now", &[]).await;
    let page = browser.follow(&run).await;
    let notice = page.only("#notice");
    assert!(
        notice.starts_with("Made a job of the schedule nightly."),
        "{notice}"
    );
    assert!(notice.contains("Show the job"), "{notice}");
    let all = JobQuery {
        states: JobStates::ALL,
        ..JobQuery::default()
    };
    assert_eq!(site.shard.count(all).await.expect("counted"), 1);
    let paused = browser.press(&page, "Pause schedule", &[]).await;
    let page = browser.follow(&paused).await;
    assert!(page.only("#notice").starts_with("Paused the schedule"));
    assert!(stored(&site, "nightly").await.paused);
    let undone = browser.press(&page, "Undo", &[]).await;
    let page = browser.follow(&undone).await;
    assert!(page.only("#notice").starts_with("Resumed the schedule"));
    assert!(!stored(&site, "nightly").await.paused);
    let question = browser.press(&page, "Delete schedule", &[]).await;
    assert_eq!(question.only("h1"), "Delete the schedule nightly?");
    let gone = browser.press(&question, "Delete this schedule", &[]).await;
    let page = browser.follow(&gone).await;
    assert!(page.main().contains("No schedules yet."));
    let reader = site.signed_in("eyes").await;
    let list = reader.page("/ui/schedules").await;
    assert!(!list.buttons().contains(&"New schedule".to_owned()));
    assert_eq!(reader.get("/ui/schedules/new").await.status, 403);
}

/// The field of a form with this label, and the reason below it; `None` if there is none.
fn error_at(page: &Answer, name: &str) -> Option<String> {
    let html = page.html();
    let found = format!("[name={name}][aria-invalid=true][aria-describedby~=error-{name}]");
    html.select(&select(&found)).next()?;
    Some(page.only(&format!("#error-{name}")))
}

#[tokio::test]
async fn a_new_schedule_shows_its_next_times_before_it_is_saved() {
    let site = Site::closed().await;
    let browser = site.signed_in("op").await;
    let list = browser.page("/ui/schedules").await;
    let form = browser.page(&list.link("New schedule")).await;
    assert_eq!(form.only("h1"), "New schedule");
    let fields = [
        ("id", "nightly"),
        ("cron", "30 2 * * *"),
        ("time_zone", "Europe/Vienna"),
        ("kind", "report"),
        ("payload", "{\"n\": 18446744073709551615}"),
        ("tags", "a b"),
        ("catch_up", "all"),
    ];
    let asked = browser.press(&form, "Save schedule", &fields).await;
    assert_eq!(asked.status, 200, "{}", asked.text);
    assert!(
        asked
            .only("main [role=status]")
            .starts_with("Not saved yet: these are the next times"),
    );
    assert_eq!(asked.rows("Next times").len(), 5);
    assert!(asked.rows("Next times")[0][2].contains("02:30:00 Europe/Vienna"));
    let other = [("cron", "0 4 * * *"), ("catch_up", "all")];
    let asked = browser.press(&asked, "Save schedule", &other).await;
    assert!(
        asked.rows("Next times")[0][2].contains("04:00:00"),
        "another rule is to be looked at, too"
    );
    let saved = browser
        .press(&asked, "Save schedule", &[("catch_up", "all")])
        .await;
    let page = browser.follow(&saved).await;
    assert!(
        page.only("#notice")
            .starts_with("Made the schedule nightly.")
    );
    assert_eq!(page.only("h1"), "Schedule nightly");
    let stored = stored(&site, "nightly").await;
    let rule = ScheduleSpec::Cron {
        expression: "0 4 * * *".to_owned(),
        time_zone: "Europe/Vienna".to_owned(),
    };
    assert_eq!(stored.spec, rule);
    assert_eq!(stored.payload, "{\"n\": 18446744073709551615}");
    assert_eq!(stored.tags.len(), 2);
    assert_eq!(stored.catch_up, CatchUp::All { max: 10_000 });
    let again = browser.press(&form, "Preview", &fields).await;
    let taken = error_at(&again, "id").expect("refused");
    assert!(
        taken.starts_with("there is a schedule of this name"),
        "{taken}"
    );
}

#[tokio::test]
async fn each_wrong_field_of_a_schedule_has_its_reason_and_keeps_its_text() {
    let site = Site::open().await;
    let browser = site.browser();
    let form = browser.page("/ui/schedules/new").await;
    let fields = [
        ("id", "nightly"),
        ("cron", "61 2 * *"),
        ("payload", "{\n x"),
        ("priority", "first"),
    ];
    let refused = browser.press(&form, "Preview", &fields).await;
    assert_eq!(refused.status, 400);
    let alert = refused.only("[role=alert]");
    assert!(
        alert.starts_with("Not saved: 3 fields cannot be used."),
        "{alert}"
    );
    assert_eq!(refused.link("Priority"), "#field-priority");
    let reason = |name: &str| error_at(&refused, name).unwrap_or_default();
    assert!(reason("kind").starts_with("is missing"));
    assert!(
        reason("payload").contains("line 2, column 2"),
        "{}",
        reason("payload")
    );
    assert!(
        reason("priority").ends_with("not \"first\""),
        "{}",
        reason("priority")
    );
    assert_eq!(error_at(&refused, "id"), None);
    let kept = [("kind", "report"), ("payload", ""), ("priority", "")];
    let refused = browser.press(&refused, "Preview", &kept).await;
    let reason = error_at(&refused, "cron").expect("refused");
    assert!(reason.contains("61 2 * *"), "{reason}");
    let kept = [("cron", "0 2 * * *"), ("time_zone", "Europe/Vieena")];
    let refused = browser.press(&refused, "Preview", &kept).await;
    assert!(error_at(&refused, "time_zone").is_some());
    let kept = [("cron", "0 0 30 2 *"), ("time_zone", "")];
    let refused = browser.press(&refused, "Preview", &kept).await;
    assert!(
        error_at(&refused, "cron").is_some(),
        "a day that never comes"
    );
    let html = refused.html();
    let kind = html.select(&select("[name=kind]")).next().expect("a field");
    assert_eq!(
        kind.value().attr("value"),
        Some("report"),
        "fields keep their text"
    );
}

#[tokio::test]
async fn an_edited_schedule_keeps_what_was_not_changed_and_refuses_what_others_changed() {
    let site = Site::open().await;
    let given = ScheduleRecord {
        payload: Bytes::from_static(b"\xff\x00"),
        retry: Some(RetryPolicy::default()),
        timeout: Some(std::time::Duration::from_millis(1_500)),
        priority: Priority::whole(-4).expect("small"),
        ..schedule("nightly")
    };
    put(&site, given.clone()).await;
    let browser = site.browser();
    let page = browser.page("/ui/schedule?id=nightly").await;
    let form = browser.page(&page.link("Edit")).await;
    assert_eq!(form.only("h1"), "Edit schedule nightly");
    assert_eq!(form.rows("Next times").len(), 5);
    let saved = browser
        .press(&form, "Save schedule", &[("queue", "other")])
        .await;
    let page = browser.follow(&saved).await;
    assert!(
        page.only("#notice")
            .starts_with("Changed the schedule nightly.")
    );
    let now = stored(&site, "nightly").await;
    let wanted = ScheduleRecord {
        queue: Queue::from_static("other"),
        created_at: now.created_at,
        next_at: now.next_at,
        ..given
    };
    assert_eq!(now, wanted);
    let late = browser
        .press(
            &form,
            "Save schedule",
            &[("queue", "third"), ("key", "another")],
        )
        .await;
    assert_eq!(late.status, 409);
    let alert = late.only("[role=alert]");
    assert!(
        alert.contains("somebody has changed the schedule"),
        "{alert}"
    );
    assert_eq!(stored(&site, "nightly").await.queue, now.queue);
    let saved = browser.press(&late, "Save schedule", &[]).await;
    browser.follow(&saved).await;
    assert_eq!(stored(&site, "nightly").await.queue.as_bytes(), b"third");
}

#[tokio::test]
async fn schedules_of_several_shards_are_one_list() {
    let setup = Setup {
        shards: 2,
        ..Setup::default()
    };
    let site = Site::with(setup).await;
    let browser = site.browser();
    for shard in ["1", "2"] {
        let form = browser
            .page(&format!("/ui/schedules/new?shard={shard}"))
            .await;
        let fields = [("id", "hourly"), ("every", "1h"), ("kind", "k")];
        let asked = browser.press(&form, "Preview", &fields).await;
        browser.press(&asked, "Save schedule", &[]).await;
    }
    let page = browser.page("/ui/schedules").await;
    assert_eq!(page.columns("Schedules")[..2], ["Schedule", "Shard"]);
    let mut shards: Vec<String> = page
        .rows("Schedules")
        .into_iter()
        .map(|row| row[1].clone())
        .collect();
    shards.sort();
    assert_eq!(shards, ["1", "2"]);
    let one = browser.page("/ui/schedule?id=hourly&shard=2").await;
    assert!(one.only("dl.facts").contains("Shard2"));
}
