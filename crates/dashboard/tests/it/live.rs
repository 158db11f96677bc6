//! Streams of pages: what changes is sent, what does not is not.

use std::time::Duration;

use axum::body::Body;
use ganger_dashboard::Options;
use http::{Method, Response};
use http_body_util::BodyExt as _;
use serde_json::Value;

use crate::kit::{Answer, Browser, Setup, Site, enqueue_on, select, start_shard};

/// The address of the stream of a page, with what the page has shown already.
fn stream_of(page: &Answer) -> String {
    let html = page.html();
    let body = html.select(&select("body")).next().expect("a body");
    let live = body
        .value()
        .attr("data-live")
        .expect("a page that is followed")
        .to_owned();
    let seen: Vec<String> = html
        .select(&select(".part"))
        .map(|part| {
            let attr = |name: &str| part.value().attr(name).expect("it is there").to_owned();
            format!("{}.{}", attr("id"), attr("data-print"))
        })
        .collect();
    format!("{live}&seen={}", seen.join(","))
}

/// A stream that is being read.
struct Reader {
    response: Response<Body>,
    text: String,
}

impl Reader {
    async fn open(browser: &Browser<'_>, path: &str) -> Self {
        let response = browser.send(Method::GET, path, String::new()).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Self {
            response,
            text: String::new(),
        }
    }

    /// The next message: its event and its data; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let (message, rest) = (message.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| {
                    message
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .unwrap_or_default()
                        .to_owned()
                };
                let data = serde_json::from_str(&field("data: ")).expect("JSON");
                return Some((field("event: "), data));
            }
            let frame = self.response.body_mut().frame().await?.expect("no fault");
            self.text
                .push_str(std::str::from_utf8(frame.data_ref().expect("data")).expect("text"));
        }
    }

    /// Reads until the part of this id says that.
    async fn until(&mut self, id: &str, words: &str) {
        loop {
            let (event, data) = self.next().await.expect("it goes on");
            let html = data["html"].as_str().unwrap_or_default();
            if event == "part" && data["id"] == id && html.contains(words) {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_page_gets_the_parts_that_change_and_no_others_at_first() {
    let site = Site::open().await;
    site.enqueue("mail", "send", |_| {}).await;
    let browser = site.browser();
    let page = browser.page("/ui/queues").await;
    let mut reader = Reader::open(&browser, &stream_of(&page)).await;
    let (event, hello) = reader.next().await.expect("it begins");
    assert_eq!(event, "hello");
    assert!(hello["now"].as_str().is_some_and(|now| now.ends_with('Z')));
    site.enqueue("img", "resize", |_| {}).await;
    let (event, part) = reader.next().await.expect("it goes on");
    assert_eq!(event, "part");
    assert!(
        part["html"]
            .as_str()
            .is_some_and(|html| html.contains("img") || html.contains("Queues"))
    );
    reader.until("part-queues", "img").await;
}

#[tokio::test]
async fn a_page_follows_shards_that_come_and_go_while_it_is_open() {
    let site = Site::open().await;
    site.enqueue("mail", "send", |_| {}).await;
    let browser = site.browser();
    let page = browser.page("/ui/queues").await;
    let mut reader = Reader::open(&browser, &stream_of(&page)).await;
    let second = start_shard("2").await;
    enqueue_on(&second, "far", "send", |_| {}).await;
    site.set.put(second.clone());
    site.enqueue("img", "send", |_| {}).await;
    reader.until("part-queues", "far").await;
    // From now on its events are heard too.
    enqueue_on(&second, "later", "send", |_| {}).await;
    reader.until("part-queues", "later").await;
    site.set.remove(second.id());
    site.enqueue("more", "send", |_| {}).await;
    loop {
        let (event, data) = reader.next().await.expect("it goes on");
        let html = data["html"].as_str().unwrap_or_default();
        if event == "part" && data["id"] == "part-queues" && html.contains("more") {
            assert!(!html.contains("later"), "{html}");
            break;
        }
    }
}

#[tokio::test]
async fn a_stream_without_anything_seen_sends_all_parts() {
    let site = Site::open().await;
    let id = site.enqueue("mail", "send", |_| {}).await;
    let browser = site.browser();
    let path = format!("/ui/live?view=/ui/job%3Fid%3D1/{}", id.to_text());
    let mut reader = Reader::open(&browser, &path).await;
    let mut ids = Vec::new();
    while ids.len() < 5 {
        let (event, data) = reader.next().await.expect("it goes on");
        if event == "part" {
            ids.push(data["id"].as_str().expect("an id").to_owned());
        }
    }
    assert_eq!(
        ids,
        [
            "part-attention-line",
            "part-head",
            "part-why",
            "part-timeline",
            "part-attempts"
        ]
    );
    site.lease("mail", 1).await;
    reader.until("part-why", "It runs").await;
}

#[tokio::test]
async fn rows_of_the_newest_page_stay_and_new_ones_are_counted() {
    let site = Site::open().await;
    let first = site.enqueue("mail", "send", |_| {}).await;
    let browser = site.browser();
    let page = browser.page("/ui/jobs").await;
    let mut reader = Reader::open(&browser, &stream_of(&page)).await;
    site.enqueue("mail", "send", |_| {}).await;
    site.enqueue("mail", "send", |_| {}).await;
    reader.until("part-new", "2 new jobs: show").await;
    let once = browser
        .page(&format!(
            "{}&once=1",
            stream_of(&page).split("&seen").next().expect("an address")
        ))
        .await;
    let parts: Value = serde_json::from_str(&once.text).expect("JSON");
    let jobs = parts["parts"]
        .as_array()
        .expect("parts")
        .iter()
        .find(|part| part["id"] == "part-jobs");
    let html = jobs.expect("the rows")["html"]
        .as_str()
        .expect("html")
        .to_owned();
    assert_eq!(html.matches("<tr data-row").count(), 1);
    assert!(html.contains(&*first.to_text()));
}

#[tokio::test]
async fn too_many_viewers_are_told_so() {
    let options = Options {
        viewers_max: 1,
        ..Options::default()
    };
    let site = Site::with(Setup {
        options,
        ..Setup::default()
    })
    .await;
    let browser = site.browser();
    let path = "/ui/live?view=/ui/";
    let mut first = Reader::open(&browser, path).await;
    first.next().await.expect("it begins");
    let mut second = Reader::open(&browser, path).await;
    assert_eq!(second.next().await.expect("a word").0, "full");
    assert!(second.next().await.is_none());
}

#[tokio::test]
async fn a_stream_ends_with_the_server_and_with_its_session() {
    let site = Site::closed().await;
    let browser = site.signed_in("eyes").await;
    let mut reader = Reader::open(&browser, "/ui/live?view=/ui/").await;
    assert_eq!(reader.next().await.expect("it begins").0, "hello");
    let page = browser.page("/ui/").await;
    browser.press(&page, "Sign out", &[]).await;
    loop {
        let (event, _) = reader.next().await.expect("it says why");
        if event == "signed-out" {
            break;
        }
    }
    assert!(reader.next().await.is_none());
    let mut stranger = Reader::open(&site.browser(), "/ui/live?view=/ui/").await;
    assert_eq!(stranger.next().await.expect("a word").0, "signed-out");
    let other = site.signed_in("eyes").await;
    let mut reader = Reader::open(&other, "/ui/live?view=/ui/").await;
    assert_eq!(reader.next().await.expect("it begins").0, "hello");
    site.stopping.cancel();
    while reader.next().await.is_some() {}
}

#[tokio::test]
async fn only_pages_of_ours_are_followed_and_only_with_the_right_to_see_them() {
    let site = Site::closed().await;
    let browser = site.signed_in("mailer").await;
    for path in [
        "/ui/live",
        "/ui/live?view=/etc/passwd",
        "/ui/live?view=/ui/live",
    ] {
        let mut reader = Reader::open(&browser, path).await;
        assert_eq!(reader.next().await.expect("a word").0, "fault", "{path}");
    }
    let mut reader = Reader::open(&browser, "/ui/live?view=/ui/queues%3Fns%3Ddefault").await;
    assert_eq!(reader.next().await.expect("it begins").0, "hello");
    assert_eq!(reader.next().await.expect("a word").0, "fault");
}

#[tokio::test]
async fn a_stream_ends_when_its_session_expires() {
    let options = Options {
        session_max: Duration::from_secs(2),
        ..Options::default()
    };
    let site = Site::with(Setup {
        asks_for_tokens: true,
        options,
        ..Setup::default()
    })
    .await;
    let browser = site.signed_in("eyes").await;
    let mut reader = Reader::open(&browser, "/ui/live?view=/ui/").await;
    assert_eq!(reader.next().await.expect("it begins").0, "hello");
    while let Some((event, _)) = reader.next().await {
        assert_eq!(event, "part");
    }
    let mut again = Reader::open(&browser, "/ui/live?view=/ui/").await;
    assert_eq!(again.next().await.expect("a word").0, "signed-out");
}

#[tokio::test]
async fn opening_a_stream_renews_its_session_as_a_page_does() {
    let options = Options {
        session_idle: Duration::from_secs(40),
        ..Options::default()
    };
    let site = Site::with(Setup {
        asks_for_tokens: true,
        options,
        ..Setup::default()
    })
    .await;
    let browser = site.signed_in("eyes").await;
    let first = browser.cookie("ganger_session").expect("it is signed in");
    // Due after a second.
    while browser.cookie("ganger_session").as_ref() == Some(&first) {
        let mut reader = Reader::open(&browser, "/ui/live?view=/ui/").await;
        assert_eq!(reader.next().await.expect("it begins").0, "hello");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
