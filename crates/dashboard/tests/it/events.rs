//! Events: the newest ones, those behind a position, and what is summed.

use ganger_dashboard::Options;
use ganger_types::command::{Enqueue, NewJob};
use ganger_types::{Command, Kind, Queue};

use crate::kit::{Answer, Setup, Site, select};

/// Enqueues so many jobs in one turn.
async fn enqueue_many(site: &Site, queue: &str, jobs: usize) {
    let job = NewJob {
        queue: Queue::new(queue).expect("short"),
        kind: Kind::from_static("send"),
        ..NewJob::default()
    };
    let enqueue = Enqueue {
        jobs: vec![job; jobs],
        ..Enqueue::default()
    };
    let enqueued = site.shard.call(Command::Enqueue(Box::new(enqueue))).await;
    enqueued.expect("enqueued");
}

/// The ids of the rows of the list, the newest first.
fn ids(page: &Answer) -> Vec<String> {
    let html = page.html();
    let rows = select("main tbody tr");
    let rows = html.select(&rows);
    rows.map(|row| row.value().attr("id").expect("each has one").to_owned())
        .collect()
}

#[tokio::test]
async fn events_are_listed_with_their_change_and_filtered() {
    let site = Site::open().await;
    let id = site.enqueue("mail", "send", |_| {}).await;
    site.enqueue("img", "resize", |_| {}).await;
    site.fail_one("mail", "exit-1", "no").await;
    let browser = site.browser();
    let page = browser.page("/ui/events").await;
    assert_eq!(
        page.columns("Events"),
        [
            "Time", "Event", "Job", "Queue", "Change", "Worker", "Reason"
        ]
    );
    let name = format!("1/{}", id.to_text());
    let failed = page.rows("Events").remove(0);
    assert_eq!(
        failed[1..],
        [
            "job moved",
            name.as_str(),
            "mail",
            "Running \u{2192} Failed",
            "w-1",
            "exit-1"
        ]
    );
    let newest = site.shard.events(None).expect("open").position();
    let newest = newest.expect("there are events").0;
    assert_eq!(
        page.only("#part-position"),
        format!("Shard 1 is at position {newest}.")
    );
    assert_eq!(ids(&page)[0], format!("event-1-{newest}"));
    for (filter, rows) in [
        ("queue=img", 1),
        ("kind=send", 3),
        ("event=worker_seen", 1),
        (&format!("job={name}"), 3),
        (&format!("job={}", id.to_text()), 3),
    ] {
        let page = browser.page(&format!("/ui/events?{filter}")).await;
        assert_eq!(page.rows("Events").len(), rows, "{filter}");
    }
    let none = browser.page("/ui/events?queue=none").await;
    assert!(none.main().contains("No such event is kept."));
    assert_eq!(browser.get("/ui/events?event=x").await.status, 400);
}

#[tokio::test]
async fn a_second_with_many_events_is_summed() {
    let site = Site::open().await;
    enqueue_many(&site, "mail", 1_254).await;
    let page = site.browser().page("/ui/events").await;
    let rows = page.rows("Events");
    assert_eq!(rows.len(), 51);
    assert_eq!(rows[0][1], "1,204 more in this second");
    assert!(ids(&page)[1..].iter().all(|id| id.starts_with("event-1-")));
    let past = site.browser().page("/ui/events?after=start").await;
    assert_eq!(
        past.rows("Events"),
        rows,
        "the same, whichever way they are read"
    );
}

#[tokio::test]
async fn older_events_are_behind_links_as_far_as_they_are_kept() {
    let site = Site::open().await;
    // Fewer than are listed of one second.
    enqueue_many(&site, "mail", 40).await;
    let browser = site.browser();
    let newest = browser.page("/ui/events").await;
    let wanted = ids(&newest);
    let half = wanted.len() / 2;
    assert!(
        !newest.buttons().contains(&"Older".to_owned()),
        "all are shown"
    );
    let middle = wanted[half]
        .rsplit('-')
        .next()
        .expect("a position")
        .to_owned();
    let page = browser.page(&format!("/ui/events?after={middle}")).await;
    assert_eq!(ids(&page), wanted[..half], "those behind the position");
    assert!(
        page.only("#part-position")
            .contains(&format!("These are its events after position {middle}."))
    );
    let older = browser.page(&page.link("Older")).await;
    assert_eq!(ids(&older), wanted);
    assert_eq!(
        browser
            .page(&page.link("Oldest that is kept"))
            .await
            .only("h1"),
        "Events"
    );
    assert_eq!(ids(&browser.page(&page.link("Newest")).await), wanted);
    let ahead = browser.page("/ui/events?after=9999").await;
    assert!(
        ahead
            .only("#part-position")
            .contains("Position 9999 of shard 1 has not been reached.")
    );
    let all = browser.page("/ui/events?after=0").await;
    assert_eq!(ids(&all), wanted, "the first event has the position 1");
    for wrong in ["x", "1=2,3", "2=7"] {
        let answer = browser.get(&format!("/ui/events?after={wrong}")).await;
        assert_eq!(answer.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn what_is_no_longer_kept_is_said() {
    let site = Site::keeping(100).await;
    enqueue_many(&site, "mail", 150).await;
    let browser = site.browser();
    let page = browser.page("/ui/events?after=3").await;
    let lines = page.only("#part-position");
    let oldest = site
        .shard
        .past_events(None, 0, 1, |_| false)
        .expect("owned")
        .oldest
        .0;
    assert!(oldest > 4, "{oldest}");
    assert!(
        lines.contains(&format!(
            "Events of shard 1 before position {oldest} are not kept any more: these begin there."
        )),
        "{lines}"
    );
    let first = ids(&page).pop().expect("a row");
    assert_eq!(first, format!("event-1-{oldest}"));
}

#[tokio::test]
async fn positions_of_several_shards_are_given_one_by_one() {
    let site = Site::with(Setup {
        shards: 2,
        options: Options::default(),
        ..Setup::default()
    })
    .await;
    for shard in &site.shards {
        for _ in 0..3 {
            crate::kit::enqueue_on(shard, "mail", "send", |_| {}).await;
        }
    }
    let newest = |at: usize| {
        let shard: &ganger_shard::Handle = &site.shards[at];
        shard
            .events(None)
            .expect("open")
            .position()
            .expect("some")
            .0
    };
    let browser = site.browser();
    let after = format!("/ui/events?after=1={},2={}", newest(0) - 1, newest(1) - 2);
    let page = browser.page(&after).await;
    let mut shown = ids(&page);
    shown.sort();
    let wanted = [
        format!("event-1-{}", newest(0)),
        format!("event-2-{}", newest(1) - 1),
        format!("event-2-{}", newest(1)),
    ];
    assert_eq!(shown, wanted);
    let missing = browser.get("/ui/events?after=1=4").await;
    assert!(missing.main().contains("has no position for shard 2"));
}

#[tokio::test]
async fn an_open_page_is_sent_the_newest_rows_only_and_keeps_five_hundred() {
    let site = Site::open().await;
    enqueue_many(&site, "mail", 130).await;
    let browser = site.browser();
    let page = browser.page("/ui/events").await;
    let html = page.html();
    let body = html.select(&select("body")).next().expect("a body");
    let live = body.value().attr("data-live").expect("it is followed");
    assert!(live.ends_with("fresh%3D1"), "{live}");
    let kept = html.select(&select("tbody[data-keep='500']")).count();
    assert_eq!(kept, 1);
    let past = browser.page("/ui/events?after=start").await;
    assert!(!past.text.contains("data-keep"), "the past is no tail");
    let once = browser.page(&format!("{live}&once=1")).await;
    let rows = once.text.matches("<tr ").count();
    assert!((50..=200).contains(&rows), "{rows}");
}
