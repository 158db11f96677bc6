//! Workers: their list, their page, and the release of what they hold.

use std::time::Duration;

use ganger_types::command::{Complete, Lease, LeaseRef, Renew, TakeFrom};
use ganger_types::{Command, JobId, JobState, Namespace, Progress, Queue, Worker};

use crate::kit::Site;

async fn state_of(site: &Site, id: &JobId) -> Option<JobState> {
    let job = site
        .shard
        .job(&Namespace::default(), id)
        .await
        .expect("read");
    job.map(|job| job.record.state)
}

/// Leases jobs of a queue for a worker; returns their leases.
async fn lease(site: &Site, worker: &str, queue: &str, jobs: u32) -> Vec<LeaseRef> {
    let from = TakeFrom {
        queue: Queue::new(queue).expect("short"),
        weight: 1,
    };
    let lease = Lease {
        queues: vec![from],
        worker: Some(Worker::new(worker).expect("short")),
        jobs_max: jobs,
        ..Lease::default()
    };
    let leased = site.shard.lease(lease, Duration::ZERO).await;
    let leased = leased.expect("leased").into_iter();
    leased
        .map(|delivery| LeaseRef {
            namespace: delivery.grant.namespace.clone(),
            job: delivery.grant.job.clone(),
            token: delivery.grant.token,
        })
        .collect()
}

async fn complete(site: &Site, held: LeaseRef) {
    let complete = Complete {
        held,
        result: None,
        next: None,
    };
    let done = site.shard.call(Command::Complete(Box::new(complete))).await;
    done.expect("completed");
}

#[tokio::test]
async fn a_worker_is_listed_with_its_slots_its_jobs_and_what_is_known_of_it() {
    let site = Site::open().await;
    for _ in 0..6 {
        site.enqueue("mail", "send", |_| {}).await;
    }
    let held = lease(&site, "w-1", "mail", 8).await;
    let worker = Worker::from_static("w-1");
    let address = "192.0.2.7:41000";
    site.shard
        .introduce(&Namespace::default(), &worker, address, "mailer/1.2");
    for held in held.into_iter().take(2) {
        complete(&site, held).await;
    }
    lease(&site, "w-2", "other", 1).await;
    let browser = site.browser();
    let page = browser.page("/ui/workers").await;
    assert_eq!(
        page.columns("Workers"),
        [
            "Worker",
            "State",
            "Queues",
            "Slots",
            "Holds \u{2193}",
            "Last sign",
            "Address",
            "Version",
            "Done/min",
            "Lost"
        ]
    );
    let rows = page.rows("Workers");
    assert_eq!(rows[0][..4], ["w-1", "Busy", "mail", "4 of 6"]);
    assert!(rows[0][4].ends_with("and 3 more"), "{:?}", rows[0]);
    assert!(rows[0][4].starts_with("1/"), "{:?}", rows[0]);
    assert_eq!(rows[0][6..], [address, "mailer/1.2", "2.0", "0"]);
    assert_eq!(rows[1][..5], ["w-2", "Idle", "other", "0 of 1", ""]);
    assert_eq!(rows[1][6..], ["\u{2013}", "\u{2013}", "0", "0"]);

    let names = |page: &crate::kit::Answer| -> Vec<String> {
        let rows = page.rows("Workers").into_iter();
        rows.map(|row| row[0].clone()).collect()
    };
    let sorted = browser.page("/ui/workers?sort=name&desc=1").await;
    assert_eq!(names(&sorted), ["w-2", "w-1"]);
    for (filter, wanted) in [
        ("state=idle", "w-2"),
        ("queue=mail", "w-1"),
        ("name=-2", "w-2"),
        ("sort=done&state=busy", "w-1"),
    ] {
        let page = browser.page(&format!("/ui/workers?{filter}")).await;
        assert_eq!(names(&page), [wanted], "{filter}");
    }
    let none = browser.page("/ui/workers?state=silent").await;
    assert!(none.main().contains("No worker matches.Clear filter"));
}

#[tokio::test]
async fn a_page_of_busy_workers_has_a_bounded_number_of_elements() {
    let site = Site::open().await;
    for number in 0..100 {
        for queue in ["mail", "img", "log"] {
            site.enqueue(queue, "send", |_| {}).await;
            lease(&site, &format!("w-{number:03}"), queue, 1).await;
        }
        let worker = Worker::new(format!("w-{number:03}")).expect("short");
        let address = "192.0.2.7:41000";
        site.shard
            .introduce(&Namespace::default(), &worker, address, "mailer/1.2");
    }
    let page = site.browser().page("/ui/workers").await;
    assert_eq!(page.rows("Workers").len(), 100);
    let elements = page.html().select(&crate::kit::select("*")).count();
    assert!(elements <= 3_000, "{elements}");
}

#[tokio::test]
async fn many_workers_are_paged_and_a_page_keeps_its_filter() {
    let site = Site::open().await;
    for number in 0..103 {
        lease(&site, &format!("w-{number:03}"), "mail", 1).await;
    }
    lease(&site, "other", "mail", 1).await;
    let browser = site.browser();
    let first = browser
        .page("/ui/workers?name=w-&state=idle&sort=name")
        .await;
    assert_eq!(first.rows("Workers").len(), 100);
    assert!(first.main().contains("1 to 100 of 103"));
    let second = browser.page(&first.link("Next")).await;
    let last = second.rows("Workers").pop().expect("a row");
    assert_eq!(
        (second.rows("Workers").len(), last[0].as_str()),
        (3, "w-102")
    );
}

#[tokio::test]
async fn the_page_of_a_worker_has_what_it_holds_with_progress_and_what_it_finished_last() {
    let site = Site::open().await;
    for _ in 0..3 {
        site.enqueue("mail", "send", |_| {}).await;
    }
    let mut held = lease(&site, "w-1", "mail", 2).await;
    let renew = Renew {
        held: held[0].clone(),
        lease_for: None,
        payload: None,
        progress: Some(Progress {
            millionths: 400_000,
            message: "page 4 of 10".to_owned(),
        }),
    };
    let renewed = site.shard.call(Command::Renew(Box::new(renew))).await;
    renewed.expect("renewed");
    complete(&site, held.pop().expect("two")).await;
    let other = lease(&site, "w-2", "mail", 1).await.pop().expect("one");
    complete(&site, other).await;
    let browser = site.browser();
    let page = browser.page("/ui/worker?name=w-1").await;
    assert_eq!(page.only("h1"), "Worker w-1");
    assert_eq!(page.texts("h2"), ["Holds", "Finished last"]);
    assert_eq!(
        page.columns("Jobs that it holds"),
        ["Job", "Queue", "Kind", "For", "Progress"]
    );
    let holds = page.rows("Jobs that it holds");
    assert_eq!((holds.len(), holds[0][2].as_str()), (1, "send"));
    assert_eq!(holds[0][4], "40 % page 4 of 10");
    assert_eq!(
        page.columns("Jobs that it finished last"),
        ["Job", "Queue", "Kind", "State", "Ran", "Ended"]
    );
    let finished = page.rows("Jobs that it finished last");
    assert_eq!((finished.len(), finished[0][3].as_str()), (1, "Succeeded"));
    assert!(
        page.only("dl.facts")
            .contains("Done1Done/min1.0Failed0Lost0")
    );
    let gone = browser.get("/ui/worker?name=nobody").await;
    assert_eq!(gone.status, 404);
}

#[tokio::test]
async fn releasing_the_jobs_of_a_worker_asks_first() {
    let site = Site::closed().await;
    let id = site.enqueue("mail", "send", |_| {}).await;
    site.lease("mail", 1).await;
    let browser = site.signed_in("op").await;
    let page = browser.page("/ui/worker?name=w-1").await;
    let question = browser.press(&page, "Release its jobs", &[]).await;
    assert_eq!(question.only("h1"), "Release the jobs of w-1?");
    let words = question.only("#question");
    for part in [
        format!("It holds 1 job: 1/{}.", id.to_text()).as_str(),
        "the attempts do not count",
        "If the worker still runs one of them, that job runs twice.",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert_eq!(state_of(&site, &id).await, Some(JobState::Running));
    let done = browser.press(&question, "Release its jobs", &[]).await;
    let page = browser.follow(&done).await;
    let notice = page.only("#notice");
    assert!(
        notice.starts_with("Released 1 job of the worker w-1."),
        "{notice}"
    );
    assert_eq!(state_of(&site, &id).await, Some(JobState::Ready));
}
