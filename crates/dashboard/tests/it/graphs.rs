//! The pages Graphs and Graph, the tab of a job, and actions on graphs.

use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput};
use ganger_types::query::JobQuery;
use ganger_types::{Command, FailurePolicy, JobName, JobState, Kind, Queue, Reply};

use crate::kit::{Answer, Setup, Site, select};

/// Submits a graph of jobs with these kinds and names; each edge leads from one job to another by their places.
async fn submit(site: &Site, jobs: &[(&str, &str)], edges: &[(u32, u32)]) -> String {
    submit_on(&site.shard, "default", jobs, edges).await
}

pub(crate) async fn submit_on(
    shard: &ganger_shard::Handle,
    queue: &str,
    jobs: &[(&str, &str)],
    edges: &[(u32, u32)],
) -> String {
    let mut new: Vec<_> = jobs
        .iter()
        .map(|(kind, name)| ganger_types::command::NewJob {
            queue: Queue::new(queue).expect("short"),
            kind: Kind::new(kind).expect("short"),
            name: JobName::new(name).ok().filter(|_| !name.is_empty()),
            ..Default::default()
        })
        .collect();
    for (from, to) in edges {
        let to = usize::try_from(*to).expect("small");
        new[to].inputs.push(NewInput::Result(NewEdge {
            dependency: Dependency::Member(*from),
            policy: FailurePolicy::Wait,
        }));
    }
    let enqueue = Enqueue {
        jobs: new,
        graph: true,
        ..Enqueue::default()
    };
    match shard.call(Command::Enqueue(Box::new(enqueue))).await {
        Ok(Reply::Enqueued { graph, .. }) => graph.expect("a graph").to_text().into_owned(),
        other => panic!("{other:?}"),
    }
}

/// One job, `width` that wait for it, and one that waits for these.
async fn diamond(site: &Site, width: usize) -> String {
    let mut jobs = vec![("split", "first")];
    jobs.extend(std::iter::repeat_n(("resize", ""), width));
    jobs.push(("join", "last"));
    let last = u32::try_from(width + 1).expect("small");
    let edges: Vec<_> = (1..last).flat_map(|at| [(0, at), (at, last)]).collect();
    submit(site, &jobs, &edges).await
}

/// The names of the links in the drawing.
fn boxes(page: &Answer) -> Vec<String> {
    let html = page.html();
    let selector = select("svg a[aria-label]");
    let links = html.select(&selector);
    links
        .map(|link| {
            link.value()
                .attr("aria-label")
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

/// Where the box with this name leads.
fn target(page: &Answer, name: &str) -> String {
    let html = page.html();
    let selector = select("svg a[aria-label]");
    let mut links = html.select(&selector);
    let link = links.find(|link| {
        let label = link.value().attr("aria-label").unwrap_or_default();
        label.starts_with(name)
    });
    let link = link.unwrap_or_else(|| panic!("no box {name:?} in {:?}", boxes(page)));
    link.value().attr("href").expect("an address").to_owned()
}

#[tokio::test]
async fn graphs_are_listed_with_their_progress() {
    let site = Site::open().await;
    let browser = site.browser();
    let page = browser.page("/ui/graphs").await;
    assert_eq!(page.only("h1"), "Graphs");
    assert!(page.main().contains("No graphs are kept."));
    let name = diamond(&site, 2).await;
    site.fail_one("default", "exit-1", "no").await;
    let page = browser.page("/ui/graphs").await;
    let columns = [
        "Graph",
        "Jobs",
        "Progress",
        "Submitted",
        "Running for",
        "Failed",
        "State",
    ];
    assert_eq!(page.columns("Graphs"), columns);
    let row = &page.rows("Graphs")[0];
    assert_eq!(
        (row[0].as_str(), row[1].as_str(), row[5].as_str()),
        (name.as_str(), "4", "1")
    );
    assert!(row[2].starts_with("1 of 4 ended"), "{row:?}");
    assert_eq!(row[6], "Running");
    assert_eq!(page.link(&name), format!("/ui/graph?name={name}"));
}

#[tokio::test]
async fn a_graph_shows_its_counts_its_critical_path_and_what_holds_it_up() {
    let site = Site::open().await;
    let name = diamond(&site, 3).await;
    site.fail_one("default", "exit-1", "no").await;
    let page = site.browser().page(&format!("/ui/graph?name={name}")).await;
    assert_eq!(page.only("h1"), format!("Graph {name}"));
    assert_eq!(page.texts("h2"), ["Critical path", "Holding it up"]);
    let main = page.main();
    assert!(
        main.contains("The longest chain of unfinished jobs has 2 jobs"),
        "{main}"
    );
    assert!(
        main.contains("first Failed: 4 unfinished jobs behind it"),
        "{main}"
    );
    assert!(page.buttons().contains(&"Retry failed jobs".to_owned()));
    assert!(page.buttons().contains(&"Cancel graph".to_owned()));
    let expected = ["split first, failed", "join last, blocked"];
    for label in expected {
        assert!(
            boxes(&page).iter().any(|it| it == label),
            "{:?}",
            boxes(&page)
        );
    }
    assert_eq!(boxes(&page).len(), 5);
    // The table comes before the drawing.
    let table = main.find("Show as table").expect("a link");
    assert!(table < main.find("Solid lines").expect("a legend"));
    let tabs = ["Drawing", "Levels", "List"];
    for tab in tabs {
        page.link(tab);
    }
    let missing = site.browser().get("/ui/graph?name=none").await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.only("h1"), "There is no graph none");
}

#[tokio::test]
async fn a_large_graph_is_collapsed_and_opens() {
    let site = Site::open().await;
    let name = diamond(&site, 1_200).await;
    let browser = site.browser();
    let page = browser.page(&format!("/ui/graph?name={name}")).await;
    assert_eq!(boxes(&page).len(), 3);
    assert!(
        boxes(&page).contains(&"resize \u{d7} 1,200, 1,200 (blocked)".to_owned()),
        "{:?}",
        boxes(&page)
    );
    let opened = browser.page(&target(&page, "resize \u{d7} 1,200")).await;
    assert_eq!(boxes(&opened).len(), 53);
    assert!(
        boxes(&opened)
            .iter()
            .any(|it| it.starts_with("and 1,150 more resize"))
    );
    let closed = browser.page(&opened.link("Close all")).await;
    assert_eq!(boxes(&closed).len(), 3);
    let larger = browser.page(&page.link("Zoom in")).await;
    assert!(larger.link("Zoom out").ends_with("zoom=100"));
    let levels = browser.page(&page.link("Show as table")).await;
    let rows = levels.rows("Levels");
    assert_eq!(rows[1][..3], ["1", "resize", "1,200"]);
    assert_eq!(levels.columns("Levels").len(), 10);
    let list = browser.page(&page.link("List")).await;
    assert_eq!(
        list.link("All jobs of the graph"),
        format!("/ui/jobs?graph={name}")
    );
}

#[tokio::test]
async fn a_job_shows_what_is_around_it_in_its_graph() {
    let site = Site::open().await;
    diamond(&site, 400).await;
    let delivery = site.lease("default", 1).await.pop().expect("a job");
    let id = delivery.grant.job.to_text().into_owned();
    let page = site
        .browser()
        .page(&format!("/ui/job?id=1/{id}&view=graph"))
        .await;
    assert!(boxes(&page).len() <= 150, "{}", boxes(&page).len());
    assert!(boxes(&page).contains(&"split first, running".to_owned()));
    assert!(
        boxes(&page).iter().any(|it| it.contains(" more resize")),
        "{:?}",
        boxes(&page)
    );
}

#[tokio::test]
async fn a_graph_is_cancelled_after_a_question_and_retried() {
    let site = Site::closed().await;
    let name = diamond(&site, 3).await;
    let browser = site.signed_in("op").await;
    let path = format!("/ui/graph?name={name}");
    let page = browser.page(&path).await;
    let question = browser.press(&page, "Cancel graph", &[]).await;
    assert_eq!(question.only("h1"), format!("Cancel the graph {name}?"));
    assert!(
        question.main().contains("5 jobs of 5 have not ended"),
        "{}",
        question.main()
    );
    let done = browser
        .press(&question, "Cancel this graph", &[("reason", "no need")])
        .await;
    let page = browser.follow(&done).await;
    assert!(
        page.only("#notice")
            .starts_with("Cancelled 5 jobs of the graph")
    );
    assert_eq!(cancelled(&site).await, 5);
    let done = browser.press(&page, "Retry failed jobs", &[]).await;
    let page = browser.follow(&done).await;
    assert!(
        page.only("#notice").starts_with("Retried 5 jobs"),
        "{}",
        page.only("#notice")
    );
    assert_eq!(cancelled(&site).await, 0);
    let reader = site.signed_in("eyes").await;
    let page = reader.page(&path).await;
    assert!(!page.buttons().contains(&"Cancel graph".to_owned()));
}

#[tokio::test]
async fn a_large_graph_is_cancelled_and_retried_by_operations() {
    let site = Site::open().await;
    let name = diamond(&site, 1_200).await;
    let browser = site.browser();
    let path = format!("/ui/graph?name={name}");
    let page = browser.page(&path).await;
    let question = browser.press(&page, "Cancel graph", &[]).await;
    let main = question.main();
    assert!(
        main.contains("1,202 jobs of 1,202 have not ended"),
        "{main}"
    );
    assert!(main.contains("1,201 Blocked"), "{main}");
    let wrong = browser
        .press(&question, "Cancel this graph", &[("number", "7")])
        .await;
    assert!(wrong.only("[role=alert]").contains("number"));
    assert_eq!(cancelled(&site).await, 0);
    let done = browser
        .press(&question, "Cancel this graph", &[("number", "1,202")])
        .await;
    let page = browser.follow(&done).await;
    assert_eq!(page.only("h1"), "Operation 1/op-1");
    site.operation_ends(1).await;
    assert_eq!(cancelled(&site).await, 1_202);

    let page = browser.page(&path).await;
    let question = browser.press(&page, "Retry failed jobs", &[]).await;
    assert_eq!(question.only("h1"), format!("Retry the graph {name}?"));
    let answers = [("number", "1202"), ("spread_over", "")];
    let done = browser.press(&question, "Retry 1,202 jobs", &answers).await;
    let page = browser.follow(&done).await;
    assert_eq!(page.only("h1"), "Operation 1/op-2");
    site.operation_ends(2).await;
    assert_eq!(cancelled(&site).await, 0);
}

async fn cancelled(site: &Site) -> u64 {
    let query = JobQuery {
        states: JobState::Cancelled.into(),
        ..JobQuery::default()
    };
    site.shard.count(query).await.expect("counted")
}

#[tokio::test]
async fn graphs_of_all_shards_are_in_one_list() {
    let site = Site::with(Setup {
        shards: 2,
        ..Setup::default()
    })
    .await;
    for shard in &site.shards {
        submit_on(shard, "default", &[("a", ""), ("b", "")], &[(0, 1)]).await;
    }
    let page = site.browser().page("/ui/graphs").await;
    assert_eq!(page.rows("Graphs").len(), 2, "{}", page.main());
}

#[tokio::test]
async fn the_question_before_a_cancellation_says_what_becomes_of_the_jobs_behind_it() {
    let site = Site::open().await;
    let first = diamond(&site, 3).await;
    let browser = site.browser();
    let page = browser.page(&format!("/ui/job?id=1/{first}")).await;
    let question = browser.press(&page, "Cancel", &[]).await;
    let text = question.main();
    assert!(text.contains("3 jobs behind it will wait."), "{text}");
}
