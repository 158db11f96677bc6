//! Every page by its headings, columns and words.

use std::time::Duration;

use ganger_types::command::{Complete, ConfigureQueue, LeaseRef, QueueChange, Start};
use ganger_types::{
    Bytes, Command, JobId, LabelKey, LabelValue, Namespace, Priority, Queue, QueueSettings, Tag,
};

use crate::kit::{Answer, Setup, Site, enqueue_on, select};

#[tokio::test]
async fn the_frame_has_its_landmarks_and_names_the_page() {
    let site = Site::open().await;
    let page = site.browser().page("/ui/queues").await;
    assert_eq!(page.only("title"), "Queues \u{b7} default \u{b7} ganger");
    assert_eq!(page.only("h1"), "Queues");
    for landmark in ["header.banner", "nav[aria-label=Main]", "main", "footer"] {
        assert_eq!(page.texts(landmark).len(), 1, "{landmark}");
    }
    let current = page.texts("nav[aria-label=Main] .side a[aria-current=page]");
    assert_eq!(current, ["Queues"]);
    assert_eq!(page.only("nav[aria-label=Main] summary"), "Menu");
    assert_eq!(page.only("[role=status]"), "Not live");
    assert!(page.only("footer").contains("shard 1 ready"));
    assert!(
        page.only("header.banner")
            .contains("Open: anyone on this machine may act")
    );
    assert_eq!(page.link("Skip to content"), "#main");
}

#[tokio::test]
async fn the_overview_of_an_empty_server_says_how_to_begin() {
    let site = Site::open().await;
    let page = site.browser().page("/ui/").await;
    assert_eq!(page.only("h1"), "Overview");
    assert_eq!(page.texts("h2"), ["Needs attention", "No jobs yet."]);
    let main = page.main();
    assert!(main.contains("Nothing needs attention."), "{main}");
    for line in ["ganger submit", "curl -X POST", "ganger worker"] {
        assert!(main.contains(line), "{line}");
    }
}

#[tokio::test]
async fn the_overview_shows_what_is_wrong_what_is_busy_what_failed_and_what_runs_longest() {
    let site = Site::open().await;
    for _ in 0..3 {
        site.enqueue("mail", "send", |_| {}).await;
    }
    site.enqueue("img", "resize", |_| {}).await;
    site.enqueue("img", "resize", |_| {}).await;
    site.fail_one("img", "exit-1", "no such file").await;
    site.lease("img", 1).await;
    let page = site.browser().page("/ui/?window=24h").await;
    assert_eq!(
        page.texts("nav[aria-label=Time] a[aria-current]"),
        ["24 hours"]
    );
    let failed: u64 = page
        .rows("Rates")
        .iter()
        .filter_map(|row| row[3].parse::<u64>().ok())
        .sum();
    assert_eq!(failed, 1, "the chart has its numbers as a table");
    let headings = [
        "Needs attention",
        "Now",
        "Rates",
        "Busiest queues",
        "Recent failures",
        "Running longest",
    ];
    assert_eq!(page.texts("h2"), headings);
    let attention = page.only(".attention");
    assert!(
        attention.contains("Queue mail: 3 ready, no worker has asked since the server started."),
        "{attention}"
    );
    let now = page.only(".counts");
    assert!(
        now.contains("Ready3") && now.contains("Running1") && now.contains("Failed (kept)1"),
        "{now}"
    );
    assert_eq!(
        page.columns("Busiest queues"),
        [
            "Queue",
            "State",
            "Ready",
            "Running",
            "Oldest",
            "Done/min",
            "Failed/min",
            "Last hour"
        ]
    );
    let busiest = page.rows("Busiest queues");
    assert_eq!(busiest[0][..4], ["mail", "No worker", "3", "0"]);
    assert_eq!(busiest[1][..4], ["img", "Active", "0", "1"]);
    assert_eq!(
        page.columns("Recent failures"),
        ["Group", "Kind", "Queue", "Jobs", "Last"]
    );
    assert_eq!(
        page.rows("Recent failures")[0][..4],
        ["exit-1", "resize", "img", "1"]
    );
    assert_eq!(
        page.columns("Running longest"),
        ["Job", "Kind", "Queue", "Worker", "For", "Progress"]
    );
    assert_eq!(page.rows("Running longest")[0][3], "w-1");
}

async fn configure(site: &Site, queue: &str, settings: QueueSettings) {
    let command = ConfigureQueue {
        namespace: Namespace::default(),
        queue: Queue::new(queue).expect("short"),
        change: QueueChange::All(settings),
    };
    let applied = site
        .shard
        .call(Command::ConfigureQueue(Box::new(command)))
        .await;
    applied.expect("configured");
}

#[tokio::test]
async fn queues_are_listed_sorted_and_filtered_with_the_state_of_each() {
    let site = Site::open().await;
    site.enqueue("mail", "send", |_| {}).await;
    site.enqueue("billing", "bill", |_| {}).await;
    site.enqueue("img", "resize", |_| {}).await;
    site.enqueue("img", "resize", |_| {}).await;
    let limited = QueueSettings {
        running_max: Some(1),
        ..QueueSettings::default()
    };
    configure(&site, "img", limited).await;
    let paused = QueueSettings {
        paused: true,
        ..QueueSettings::default()
    };
    configure(&site, "billing", paused).await;
    site.lease("img", 1).await;
    let browser = site.browser();
    let page = browser.page("/ui/queues").await;
    let columns = [
        "Queue \u{2191}",
        "State",
        "Ready",
        "Running",
        "Scheduled",
        "Blocked",
        "Failed",
        "Oldest",
        "Done/min",
        "Time to empty",
        "Last hour",
        "Actions",
    ];
    assert_eq!(page.columns("Queues"), columns);
    let rows = page.rows("Queues");
    let named: Vec<(&str, &str)> = rows
        .iter()
        .map(|row| (row[0].as_str(), row[1].as_str()))
        .collect();
    assert_eq!(
        named,
        [
            ("billing", "Paused"),
            ("img", "At limit"),
            ("mail", "No worker")
        ]
    );
    assert_eq!(rows[1][2..4], ["1", "1 of 1"]);
    assert_eq!(rows[0].last().map(String::as_str), Some("Resume"));
    let turned = browser.page("/ui/queues?sort=name&desc=1").await;
    assert_eq!(turned.rows("Queues")[0][0], "mail");
    let filtered = browser.page("/ui/queues?q=ai").await;
    assert_eq!(filtered.rows("Queues").len(), 1);
    let none = browser.page("/ui/queues?q=nothing").await;
    assert!(none.main().contains("No queue matches.Clear filter"));
}

#[tokio::test]
async fn many_queues_are_paged() {
    let site = Site::open().await;
    for number in 0..120 {
        site.enqueue(&format!("q{number:03}"), "k", |_| {}).await;
    }
    let browser = site.browser();
    let first = browser.page("/ui/queues").await;
    assert_eq!(first.rows("Queues").len(), 100);
    assert!(first.main().contains("1 to 100 of 120"));
    let second = browser.page(&first.link("Next")).await;
    assert_eq!(second.rows("Queues").len(), 20);
    assert_eq!(second.rows("Queues")[0][0], "q100");
    let back = browser.page(&second.link("Previous")).await;
    assert_eq!(back.rows("Queues")[0][0], "q000");
}

#[tokio::test]
async fn a_page_of_busy_queues_has_a_bounded_number_of_elements() {
    let site = Site::open().await;
    for number in 0..100 {
        let queue = format!("q{number:03}");
        for _ in 0..2 {
            site.enqueue(&queue, "k", |_| {}).await;
        }
        site.fail_one(&queue, "io", "no such file").await;
    }
    let page = site.browser().page("/ui/queues").await;
    assert_eq!(page.rows("Queues").len(), 100);
    let elements = page.html().select(&select("*")).count();
    assert!(elements <= 3_000, "{elements}");
}

#[tokio::test]
async fn a_queue_says_which_kinds_it_has_how_fast_it_is_and_who_asks() {
    let site = Site::open().await;
    for _ in 0..3 {
        site.enqueue("mail", "send", |_| {}).await;
    }
    site.enqueue("mail", "sort", |_| {}).await;
    site.enqueue("other", "elsewhere", |_| {}).await;
    assert_eq!(site.lease("mail", 2).await.len(), 2);
    let page = site.browser().page("/ui/queue?name=mail").await;
    let kinds = page.rows("By kind");
    assert_eq!(kinds.len(), 2, "{kinds:?}");
    assert_eq!(kinds[0][..4], ["send", "1", "2", "0"]);
    assert_eq!(kinds[1][..4], ["sort", "1", "0", "0"]);
    let workers = page.rows("Workers of this queue");
    assert_eq!(workers[0][..3], ["w-1", "2", "2"]);
    assert_eq!(workers.len(), 1);
    let rates = page.rows("Rates");
    assert_eq!(
        rates[0][1..],
        ["4", "0", "0"],
        "enqueued, succeeded, failed"
    );
    assert!(page.main().contains("Enqueued 4"));
}

#[tokio::test]
async fn a_queue_says_why_its_jobs_wait_and_where_its_settings_come_from() {
    let site = Site::open().await;
    site.enqueue("mail", "send", |job| {
        job.priority = Priority::whole(5).expect("small");
    })
    .await;
    let urgent = site.enqueue("mail", "send", |_| {}).await;
    site.enqueue("mail", "send", |job| {
        job.start = Start::After(Duration::from_secs(3_600));
    })
    .await;
    configure(
        &site,
        "mail",
        QueueSettings {
            running_max: Some(8),
            ..QueueSettings::default()
        },
    )
    .await;
    let page = site.browser().page("/ui/queue?name=mail").await;
    assert_eq!(page.only("h1"), "Queue mail");
    let headings = [
        "Why jobs wait",
        "Rates",
        "Waiting and running time",
        "By kind",
        "Next jobs",
        "Workers",
        "Schedules",
        "Settings",
    ];
    assert_eq!(page.texts("h2"), headings);
    let why = page.rows("Why jobs wait");
    assert_eq!(why[0][0], "2");
    assert!(
        why[0][1].starts_with("No worker has asked since the server started."),
        "{why:?}"
    );
    assert_eq!(why[1], ["1", "Their time has not come."]);
    assert_eq!(
        page.rows("Next jobs")[0][0],
        format!("1/{}", urgent.to_text()),
        "the smaller priority first"
    );
    let settings = page.rows("Settings");
    assert_eq!(settings[0], ["Jobs running at once", "8", "queue"]);
    assert_eq!(settings[2], ["Length of leases", "1 min", "default"]);
    let counts = page.texts("dl.counts dt");
    assert_eq!(
        counts,
        [
            "Ready",
            "Running",
            "Scheduled",
            "Blocked",
            "Succeeded",
            "Failed",
            "Cancelled"
        ]
    );
    assert_eq!(
        page.texts("dl.facts dt"),
        [
            "Oldest",
            "Enqueued ever",
            "Finished ever",
            "Enqueued/min",
            "Done/min",
            "First used"
        ]
    );
}

#[tokio::test]
async fn a_queue_that_is_not_there_is_refused_with_names_that_come_near() {
    let site = Site::open().await;
    site.enqueue("nightly-mail", "send", |_| {}).await;
    let answer = site.browser().get("/ui/queue?name=nightly").await;
    assert_eq!(answer.status, 404);
    assert_eq!(answer.only("h1"), "There is no queue nightly.");
    assert!(answer.main().contains("queue_not_found"));
    assert_eq!(answer.link("nightly-mail"), "/ui/queue?name=nightly-mail");
}

#[tokio::test]
async fn jobs_are_filtered_paged_and_counted() {
    let site = Site::open().await;
    for number in 0..60 {
        site.enqueue(
            "mail",
            if number % 2 == 0 { "send" } else { "bounce" },
            |job| {
                job.tags = vec![Tag::from_static("nightly")];
                job.labels = vec![(
                    LabelKey::from_static("tenant"),
                    LabelValue::from_static("acme"),
                )];
            },
        )
        .await;
    }
    site.enqueue("img", "resize", |_| {}).await;
    let browser = site.browser();
    let page = browser.page("/ui/jobs?queue=mail").await;
    assert_eq!(page.only("h1"), "Jobs");
    assert!(page.main().contains("60 jobs match"), "{}", page.main());
    let columns = [
        "Select",
        "Job",
        "State",
        "Kind",
        "Queue",
        "Attempt",
        "Age",
        "Next or ended",
        "Tags, labels",
        "Message",
    ];
    assert_eq!(page.columns("Jobs"), columns);
    let rows = page.rows("Jobs");
    assert_eq!(rows.len(), 50);
    assert_eq!(rows[0][2..6], ["Ready", "bounce", "mail", "0 of 4"]);
    assert_eq!(rows[0][8], "nightly tenant=acme");
    let older = browser.page(&page.link("Older")).await;
    assert_eq!(older.rows("Jobs").len(), 10);
    let newer = browser.page(&older.link("Newer")).await;
    // The ages of the jobs differ between the two pages.
    let jobs = |page: &Answer| -> Vec<String> {
        let rows = page.rows("Jobs").into_iter();
        rows.map(|row| row[1].clone()).collect()
    };
    assert_eq!(jobs(&newer), jobs(&page));
    let kind = browser.page("/ui/jobs?kind=send&limit=25").await;
    assert_eq!(kind.rows("Jobs").len(), 25);
    assert!(
        kind.main().contains("more than 25 match"),
        "{}",
        kind.main()
    );
    let exact = browser.page(&kind.link("Count exactly")).await;
    assert!(exact.main().contains("30 jobs match"));
    let second = browser.page(&kind.link("Older")).await;
    assert_eq!(second.rows("Jobs").len(), 5);
    let label = browser
        .page("/ui/jobs?label=tenant%3Dacme&state=ready,running&columns=priority,payload")
        .await;
    assert!(
        label
            .columns("Jobs")
            .ends_with(&["Priority".to_owned(), "Payload".to_owned()])
    );
    let chips = label.texts(".chips li");
    assert_eq!(
        chips,
        [
            "State: ready,running \u{2715}",
            "Label: tenant=acme \u{2715}"
        ]
    );
    let none = browser.page("/ui/jobs?tag=weekly").await;
    assert!(none.main().contains("No job matches.Clear filters"));
}

#[tokio::test]
async fn the_fields_of_a_label_become_its_parameter() {
    let site = Site::open().await;
    let answer = site
        .browser()
        .get("/ui/jobs?queue=&label_key=tenant&label_value=a+b&order=oldest")
        .await;
    assert_eq!(answer.status, 303);
    assert_eq!(
        answer.headers["location"],
        "/ui/jobs?label=tenant%3Da%20b&order=oldest"
    );
}

#[tokio::test]
async fn jobs_of_all_shards_are_one_list() {
    let site = Site::with(Setup {
        shards: 2,
        ..Setup::default()
    })
    .await;
    for number in 0..40 {
        let shard = &site.shards[number % 2];
        enqueue_on(shard, "mail", "send", |job| {
            job.id = Some(JobId::new(format!("j{number:02}")).expect("short"));
        })
        .await;
    }
    let browser = site.browser();
    let mut seen = Vec::new();
    let mut page = browser.page("/ui/jobs?limit=25").await;
    seen.extend(page.rows("Jobs").into_iter().map(|row| row[1].clone()));
    page = browser.page(&page.link("Older")).await;
    seen.extend(page.rows("Jobs").into_iter().map(|row| row[1].clone()));
    assert_eq!(seen.len(), 40, "{seen:?}");
    let wanted: Vec<String> = (0..40)
        .rev()
        .map(|number| format!("{}/j{number:02}", number % 2 + 1))
        .collect();
    assert_eq!(seen, wanted, "the newest first, whichever shard has them");
    let one = browser.page("/ui/jobs?shard=2").await;
    assert_eq!(one.rows("Jobs").len(), 20);
    let queues = browser.page("/ui/queues").await;
    assert_eq!(queues.columns("Queues")[..2], ["Queue \u{2191}", "Shard"]);
    assert_eq!(queues.rows("Queues").len(), 2);
}

#[tokio::test]
async fn a_job_tells_why_it_does_not_run_and_each_reason_has_its_remedy() {
    let site = Site::open().await;
    let id = site
        .enqueue("mail", "send", |job| {
            job.payload = Bytes::from_static(b"{\"n\":18446744073709551615}");
        })
        .await;
    let browser = site.browser();
    let page = browser
        .page(&format!("/ui/job?id=1/{}", id.to_text()))
        .await;
    assert_eq!(page.only("h1"), format!("Job 1/{}", id.to_text()));
    assert_eq!(
        page.texts("h2"),
        ["Why it does not run", "Timeline", "Attempts"]
    );
    let why = page.only("ol.why");
    assert!(
        why.contains("No worker has asked the queue mail since the server started."),
        "{why}"
    );
    assert!(
        why.contains("ganger worker --queue 'mail' --dir ./programs"),
        "{why}"
    );
    let tabs = page.texts("nav[aria-label='Views of the job'] a");
    assert_eq!(tabs, ["Summary", "Data", "Log", "Graph", "History"]);
    let data = browser.page(&page.link("Data")).await;
    assert!(
        data.only("#shown-payload").contains("18446744073709551615"),
        "numbers stay exact"
    );
    let graph = browser.page(&page.link("Graph")).await;
    assert_eq!(graph.texts("h2"), ["Waits for", "Wait for it"]);
    // By its id alone, too.
    let plain = browser.page(&format!("/ui/job?id={}", id.to_text())).await;
    assert_eq!(plain.only("h1"), page.only("h1"));
}

#[tokio::test]
async fn attempts_failures_and_results_are_shown() {
    let site = Site::open().await;
    let id = site.enqueue("img", "resize", |_| {}).await;
    site.fail_one("img", "exit-1", "no such file:\nphoto.jpg")
        .await;
    let browser = site.browser();
    let page = browser
        .page(&format!("/ui/job?id=1/{}", id.to_text()))
        .await;
    assert_eq!(page.texts("h2"), ["How it ended", "Timeline", "Attempts"]);
    assert_eq!(
        page.columns("Attempts"),
        [
            "Attempt", "Began", "Waited", "Ran", "Worker", "End", "Group", "Message", "Log"
        ]
    );
    let attempt = &page.rows("Attempts")[0];
    assert_eq!(
        (
            attempt[0].as_str(),
            attempt[4].as_str(),
            attempt[6].as_str()
        ),
        ("1", "w-1", "exit-1")
    );
    assert!(page.main().contains("photo.jpg"));
    assert!(
        page.buttons().contains(&"Retry".to_owned()),
        "{:?}",
        page.buttons()
    );
    let history = browser.page(&page.link("History")).await;
    assert_eq!(history.columns("History"), ["Time", "What", "Details"]);
    let last = history.rows("History").pop().expect("a row");
    assert_eq!(last[1], "Attempt ended");
    let done = site.enqueue("img", "resize", |_| {}).await;
    let delivery = site.lease("img", 1).await.pop().expect("a job");
    let held = LeaseRef {
        namespace: Namespace::default(),
        job: delivery.grant.job,
        token: delivery.grant.token,
    };
    let complete = Complete {
        held,
        result: Some(Bytes::from_static(b"[1,2]")),
        next: None,
    };
    site.shard
        .call(Command::Complete(Box::new(complete)))
        .await
        .expect("completed");
    let page = browser
        .page(&format!("/ui/job?id=1/{}", done.to_text()))
        .await;
    assert!(page.only("pre.block").contains("1, 2"), "{}", page.main());
    let failures = browser.page("/ui/failures").await;
    assert_eq!(
        failures.columns("Failure groups"),
        [
            "Group",
            "Message",
            "Jobs",
            "Last hour",
            "First",
            "Last",
            "Kinds",
            "Queues"
        ]
    );
    assert_eq!(
        failures.rows("Failure groups")[0][..3],
        ["exit-1", "no such file:", "1"]
    );
    let one = browser.page(&failures.link("exit-1")).await;
    assert_eq!(one.only("h1"), "Failure exit-1");
    assert!(one.buttons().contains(&"Retry all in group".to_owned()));
    assert_eq!(one.rows("By worker")[0], ["w-1", "1"]);
}

#[tokio::test]
async fn a_log_is_shown_from_its_end_with_earlier_parts_behind_a_link() {
    let site = Site::open().await;
    let id = site.enqueue("img", "resize", |_| {}).await;
    let delivery = site.lease("img", 1).await.pop().expect("a job");
    let held = LeaseRef {
        namespace: Namespace::default(),
        job: delivery.grant.job,
        token: delivery.grant.token,
    };
    let mut offset = 0;
    for number in 0..40 {
        let line = format!("line {number} \u{1b}[31mred\u{1b}[0m\n").repeat(200);
        let bytes = Bytes::from(line);
        let length = u64::try_from(bytes.len()).expect("small");
        let append = ganger_types::command::AppendLog {
            held: held.clone(),
            offset,
            bytes,
        };
        site.shard
            .call(Command::AppendLog(Box::new(append)))
            .await
            .expect("appended");
        offset += length;
    }
    let browser = site.browser();
    let page = browser
        .page(&format!("/ui/job?id=1/{}&view=log", id.to_text()))
        .await;
    let log = page.only("[role=region][aria-label=Log]");
    assert!(log.ends_with("line 39 red"), "{}", &log[log.len() - 40..]);
    assert!(page.main().contains(&format!("of {offset}")));
    let earlier = browser.page(&page.link("Earlier")).await;
    let text = earlier.only("[role=region][aria-label=Log]");
    assert!(!text.contains("line 39 "), "an earlier part");
    let raw = browser
        .get(&format!("/ui/raw?id=1/{}&part=log&attempt=1", id.to_text()))
        .await;
    assert_eq!(u64::try_from(raw.text.len()).expect("small"), offset);
    assert_eq!(raw.headers["content-type"], "application/octet-stream");
    assert_eq!(raw.headers["content-security-policy"], "sandbox");
}

#[tokio::test]
async fn shards_and_the_server_have_their_pages() {
    let site = Site::open().await;
    let browser = site.browser();
    let shards = browser.page("/ui/shards").await;
    assert!(
        shards
            .only("section[aria-label='Shard 1']")
            .contains("ready")
    );
    let about = browser.page("/ui/about").await;
    assert!(about.main().contains("Zero-Clause BSD"));
}

#[tokio::test]
async fn search_opens_a_job_and_offers_names() {
    let site = Site::open().await;
    let id = site.enqueue("mail", "send", |_| {}).await;
    site.enqueue("mailing", "send", |_| {}).await;
    let browser = site.browser();
    let found = browser.get(&format!("/ui/search?q={}", id.to_text())).await;
    assert_eq!(found.status, 303);
    assert_eq!(
        found.headers["location"],
        format!("/ui/job?id=1/{}", id.to_text()).as_str()
    );
    let names = browser.page("/ui/search?q=mail").await;
    assert_eq!(names.texts("main li")[..2], ["mail", "mailing"]);
    let none = browser.page("/ui/search?q=nothing").await;
    assert!(none.main().contains("No job has the id nothing"));
    assert!(none.main().contains("payloads are not"));
}

#[tokio::test]
async fn statistics_show_rates_times_and_kinds() {
    let site = Site::open().await;
    let browser = site.browser();
    let page = browser.page("/ui/stats").await;
    assert_eq!(page.only("h1"), "Statistics");
    assert!(page.main().contains("No kind was run in this time."));
    for _ in 0..3 {
        site.enqueue("mail", "send", |_| {}).await;
        site.fail_one("mail", "exit-1", "no").await;
    }
    let page = browser.page("/ui/stats?queue=mail&window=24h").await;
    assert_eq!(
        page.columns("By kind"),
        [
            "Kind",
            "Started",
            "Succeeded",
            "Failed",
            "Share failed",
            "p50",
            "p95",
            "p99",
            "Total run time"
        ]
    );
    assert_eq!(
        page.rows("By kind")[0][..5],
        ["send", "3", "0", "3", "100 %"]
    );
    let times = page.rows("Waiting and running time");
    assert_eq!(times[0][..2], ["Waiting", "3"]);
    assert_eq!(times[1][..2], ["Running", "3"]);
    let started: u64 = page
        .rows("Rates")
        .iter()
        .filter_map(|row| row[1].parse::<u64>().ok())
        .sum();
    assert_eq!(started, 3, "the table has the numbers of the chart");
    assert_eq!(
        page.texts("svg .chart-text").len(),
        5,
        "each line has its word"
    );
    assert_eq!(page.rows("Failures by group"), [["exit-1", "3"]]);
    let main = page.main();
    assert!(main.contains("Attempts a success\u{2013}"), "{main}");
    assert!(main.contains("Leases that expired0"), "{main}");
    let other = browser.page("/ui/stats?queue=none").await;
    assert!(other.main().contains("No attempt in this time."));
    assert_eq!(browser.get("/ui/stats?window=2h").await.status, 400);
}

#[tokio::test]
async fn statistics_are_compared_and_downloaded() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("mail", "send", |_| {}).await;
    site.fail_one("mail", "exit-1", "no").await;
    let page = browser.page("/ui/stats?queue=mail&compare=day").await;
    assert!(
        page.main().contains("a day before: Started 0"),
        "{}",
        page.main()
    );
    let words = page.texts("svg .chart-text");
    assert!(
        words.contains(&"Started, a day before".to_owned()),
        "{words:?}"
    );
    let address = page.link("CSV");
    assert_eq!(address, "/ui/stats/csv?window=1h&queue=mail&compare=day");
    let csv = browser.get(&address).await;
    assert_eq!(csv.headers["content-type"], "text/csv; charset=utf-8");
    let lines: Vec<&str> = csv.text.lines().collect();
    let head = "from,started,succeeded,failed,earlier_started,earlier_succeeded,earlier_failed";
    assert_eq!(lines[0], head);
    assert!(lines.len() > 50, "{}", lines.len());
    let failed: u64 = lines[1..]
        .iter()
        .filter_map(|line| line.split(',').nth(3)?.parse::<u64>().ok())
        .sum();
    assert_eq!(failed, 1);
    assert_eq!(browser.get("/ui/stats?compare=year").await.status, 400);
}

#[tokio::test]
async fn a_hostile_kind_is_text_among_the_statistics() {
    let site = Site::open().await;
    let kind = "<script>alert(1)</script>";
    site.enqueue("mail", kind, |_| {}).await;
    site.lease("mail", 1).await;
    let page = site
        .browser()
        .page("/ui/stats?queue=mail&kind=%3Cscript%3Ealert(1)%3C/script%3E")
        .await;
    assert_eq!(page.rows("By kind")[0][..2], [kind, "1"]);
    assert!(!page.text.contains("<script>alert"), "{}", page.text);
}
