//! Pages of all namespaces together.

use ganger_types::command::{Enqueue, NewJob};
use ganger_types::{Command, Kind, Namespace, Queue};

use crate::kit::{Setup, Site};

/// Enqueues a job in a namespace.
async fn enqueue(site: &Site, namespace: &'static str, queue: &str) {
    let enqueue = Enqueue {
        namespace: Namespace::from_static(namespace),
        jobs: vec![NewJob {
            queue: Queue::new(queue).expect("short"),
            kind: Kind::new("send").expect("short"),
            ..NewJob::default()
        }],
        ..Enqueue::default()
    };
    let enqueue = Command::Enqueue(Box::new(enqueue));
    site.shard.call(enqueue).await.expect("enqueued");
}

#[tokio::test]
async fn overview_and_queues_show_all_namespaces_together() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("img", "resize", |_| {}).await;
    enqueue(&site, "mail", "out").await;
    enqueue(&site, "mail", "out").await;
    let page = browser.page("/ui/").await;
    assert!(page.texts("option").contains(&"All namespaces".to_owned()));
    let page = browser.page("/ui/?ns=*").await;
    assert_eq!(page.only("h1"), "Overview");
    let rows = page.rows("Namespaces");
    let names: Vec<_> = rows.iter().map(|row| (&*row[0], &*row[1])).collect();
    assert_eq!(names, [("default", "1"), ("mail", "2")]);
    let rows = page.rows("Busiest queues");
    assert_eq!((&*rows[0][0], &*rows[0][1]), ("out", "mail"));
    let page = browser.page("/ui/queues?ns=*").await;
    let rows = page.rows("Queues");
    let names: Vec<_> = rows.iter().map(|row| (&*row[0], &*row[1])).collect();
    assert_eq!(names, [("img", "default"), ("out", "mail")]);
    assert_eq!(page.link("out"), "/ui/queue?ns=mail&name=out");
    let page = browser.page(&page.link("out")).await;
    assert_eq!(page.only("h1"), "Queue out");
    // Other pages are of one namespace.
    let page = browser.page("/ui/queues?ns=*").await;
    assert_eq!(page.link("Jobs"), "/ui/jobs");
    let answer = browser.get("/ui/jobs?ns=*").await;
    assert_eq!(answer.status, 303);
    assert_eq!(answer.headers["location"], "/ui/jobs");
}

#[tokio::test]
async fn all_namespaces_are_shown_to_readers_of_all_only() {
    let site = Site::with(Setup {
        asks_for_tokens: true,
        ..Setup::default()
    })
    .await;
    enqueue(&site, "mail", "out").await;
    site.enqueue("img", "resize", |_| {}).await;
    for (name, may) in [("root", true), ("eyes", false)] {
        let browser = site.signed_in(name).await;
        let page = browser.page("/ui/queues").await;
        let offers = page.texts("option").contains(&"All namespaces".to_owned());
        assert_eq!(offers, may, "{name}");
        let answer = browser.get("/ui/queues?ns=*").await;
        assert_eq!(answer.status, if may { 200 } else { 403 }, "{name}");
    }
}
