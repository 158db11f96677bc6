//! Whatever the text is that comes from outside, it comes out as text, and the structure of a page stays the same.

use std::time::Duration;

use ganger_types::command::{Lease, PutSchedule, TakeFrom};
use ganger_types::{
    Bytes, Command, JobName, Kind, LabelKey, LabelValue, Namespace, Queue, ScheduleRecord, Tag,
    Worker,
};
use proptest::prelude::*;
use scraper::{ElementRef, Html};

use crate::graphs::submit_on;
use crate::kit::{Setup, Site, select};
use ganger_dashboard::Options;

/// Pieces that could end a text, an attribute or an element, or turn a line around.
const PIECES: &[&str] = &[
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'",
    "\"",
    "&amp;",
    "</pre>",
    "<!--",
    "]]>",
    "javascript:alert(1)",
    "\u{202e}",
    "\u{200b}",
    "\u{0}",
    "\u{1b}[31m",
    "\n",
    "\r\n",
    "\\",
    "{{x}}",
    "%3Cscript%3E",
    "https://evil.example/",
    "//evil",
    "?a=b&c=d#e",
    "\u{e4}",
    "\u{65e5}\u{672c}",
    "\u{1f642}",
    "a",
    " ",
];

fn hostile() -> impl Strategy<Value = String> {
    proptest::collection::vec(0..PIECES.len(), 1..5).prop_map(|picks| {
        let text: String = picks.into_iter().map(|at| PIECES[at]).collect();
        // Names have at most 255 bytes.
        let text: String = text.chars().take(50).collect();
        // Search leaves out what is around a name.
        format!("a{text}z")
    })
}

/// The names of all elements in order, with the names of their attributes.
fn structure(html: &Html) -> Vec<String> {
    let every = select("*");
    let elements = html
        .select(&every)
        .filter(|it| !is_shown_character(*it) && !is_part_of_text(*it) && !is_later_step(*it));
    elements
        .map(|element| {
            let mut names: Vec<&str> = element.value().attrs().map(|(name, _)| name).collect();
            names.sort_unstable();
            format!("{} {}", element.value().name(), names.join(" "))
        })
        .collect()
}

/// A character that is made visible is an element of its own.
fn is_shown_character(element: ElementRef<'_>) -> bool {
    element.value().attr("class") == Some("hidden-character")
}

/// The table below a chart has a row for each step of time that has passed.
fn is_later_step(element: ElementRef<'_>) -> bool {
    let is_named = |element: &ElementRef<'_>, name: &str| element.value().name() == name;
    let around = element.ancestors().filter_map(ElementRef::wrap);
    let mut rows = std::iter::once(element)
        .chain(around)
        .filter(|it| is_named(it, "tr"));
    rows.any(|row| {
        let mut around = row.ancestors().filter_map(ElementRef::wrap);
        let mut before = row.prev_siblings().filter_map(ElementRef::wrap);
        around.any(|it| is_named(&it, "details")) && before.any(|it| is_named(&it, "tr"))
    })
}

/// Lines of a log and their colours depend on what was written.
fn is_part_of_text(element: ElementRef<'_>) -> bool {
    element
        .ancestors()
        .filter_map(ElementRef::wrap)
        .any(|it| it.value().attr("aria-label") == Some("Log"))
}

/// A worker of this name that asks a queue of this name, from an address and with a program of this name.
async fn asking_worker(site: &Site, text: &str) {
    let worker = Worker::new(text).expect("short");
    let from = TakeFrom {
        queue: Queue::new(text).expect("short"),
        weight: 1,
    };
    let lease = Lease {
        queues: vec![from],
        worker: Some(worker.clone()),
        jobs_max: 1,
        ..Lease::default()
    };
    let leased = site.shard.lease(lease, Duration::ZERO).await;
    assert!(leased.expect("asked").is_empty());
    let namespace = Namespace::default();
    site.shard.introduce(&namespace, &worker, text, text);
}

/// A schedule with this text in every field that takes one.
async fn put_schedule(site: &Site, text: &str) {
    let schedule = ScheduleRecord {
        queue: Queue::new(text).expect("short"),
        kind: Kind::new(text).expect("short"),
        payload: Bytes::copy_from_slice(text.as_bytes()),
        tags: vec![Tag::new(text).expect("short")],
        labels: vec![(
            LabelKey::new(text).expect("short"),
            LabelValue::new(text).expect("short"),
        )],
        ..crate::schedules::schedule(text)
    };
    let put = Command::PutSchedule(Box::new(PutSchedule { schedule }));
    site.shard.call(put).await.expect("put");
}

/// The pages with this text in every field that takes one.
async fn pages(text: &str) -> Vec<(String, Html)> {
    let site = Site::with(Setup {
        options: Options::default(),
        ..Setup::default()
    })
    .await;
    asking_worker(&site, text).await;
    put_schedule(&site, text).await;
    let id = site
        .enqueue(text, text, |job| {
            job.name = JobName::new(text).ok();
            job.payload = Bytes::copy_from_slice(text.as_bytes());
            job.tags = vec![Tag::new(text).expect("short")];
            job.labels = vec![(
                LabelKey::new(text).expect("short"),
                LabelValue::new(text).expect("short"),
            )];
        })
        .await;
    site.fail_one(text, text, text).await;
    let graph = submit_on(&site.shard, text, &[(text, text), (text, text)], &[(0, 1)]).await;
    let encoded =
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
    let encoded = encoded.replace("%5C", "%5Cx5c");
    let browser = site.browser();
    let job = id.to_text().into_owned();
    let mut found = Vec::new();
    for path in [
        "/ui/".to_owned(),
        "/ui/queues".to_owned(),
        format!("/ui/queue?name={encoded}"),
        "/ui/jobs".to_owned(),
        format!("/ui/jobs?tag={encoded}"),
        format!("/ui/job?id=1/{job}"),
        format!("/ui/job?id=1/{job}&view=data"),
        format!("/ui/job?id=1/{job}&view=history"),
        format!("/ui/job?id=1/{job}&view=log"),
        format!("/ui/jobs/new?like=1/{job}"),
        "/ui/graphs".to_owned(),
        format!("/ui/graph?name={graph}"),
        format!("/ui/graph?name={graph}&view=levels"),
        format!("/ui/graph?name={graph}&view=list"),
        format!("/ui/job?id=1/{graph}&view=graph"),
        "/ui/failures".to_owned(),
        format!("/ui/failure?group={encoded}"),
        "/ui/events".to_owned(),
        "/ui/schedules".to_owned(),
        format!("/ui/schedule?id={encoded}"),
        format!("/ui/schedule/edit?id={encoded}"),
        format!("/ui/worker?name={encoded}"),
        format!("/ui/search?q={encoded}"),
        format!("/ui/nothing?{encoded}"),
    ] {
        let answer = browser.get(&path).await;
        assert!(
            !answer.text.contains("<script>alert") && !answer.text.contains("onerror=alert(1)>"),
            "{path}"
        );
        let html = answer.html();
        for element in html.select(&select("*")) {
            for (name, value) in element.value().attrs() {
                assert!(!name.starts_with("on"), "{path}: {name}");
                if matches!(name, "href" | "src" | "action" | "formaction") {
                    let is_own = value.starts_with('/') && !value.starts_with("//")
                        || value.starts_with('#');
                    assert!(is_own, "{path}: {name}={value}");
                }
            }
        }
        found.push((path.split('?').next().unwrap_or_default().to_owned(), html));
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_text_changes_no_structure(text in hostile()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        // As long, so that nothing is cut differently, and of one line and valid as little as the other.
        let harmless: String = "x".repeat(text.len());
        let (given, plain) = runtime.block_on(async { (pages(&text).await, pages(&harmless).await) });
        for ((path, given), (_, plain)) in given.iter().zip(&plain) {
            prop_assert_eq!(structure(given), structure(plain), "{}: {:?}", path, &text);
        }
    }
}

#[tokio::test]
async fn what_is_hidden_in_a_name_is_made_visible() {
    let site = Site::open().await;
    site.enqueue("a\u{202e}b\u{200b}", "k", |_| {}).await;
    let page = site.browser().page("/ui/queues").await;
    assert_eq!(page.rows("Queues")[0][0], "a\\u{202e}b\\u{200b}");
    let title = site
        .browser()
        .page("/ui/queue?name=a%E2%80%AEb%E2%80%8B")
        .await
        .only("title");
    assert_eq!(
        title,
        "Queue a\\u{202e}b\\u{200b} \u{b7} default \u{b7} ganger"
    );
}
