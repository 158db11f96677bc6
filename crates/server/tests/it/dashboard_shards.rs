//! Pages of all shards on two servers: both are in every table, and one that is gone is named.

use std::net::SocketAddr;

use crate::dashboard::{ROOT, get, sign_in};
use crate::kit::{config, status};
use crate::shards::{fetch, pair, read_until};
use ganger_server::{Config, Running, Secret};
use tokio::io::AsyncWriteExt as _;

/// Two servers, the session of an administrator on the first, and the directory of their files.
struct Pair {
    one: Running,
    two: Running,
    cookie: String,
    _directory: tempfile::TempDir,
}

impl Pair {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let [one, two] = pair(Config {
            token: Secret::new(ROOT).ok(),
            audit_log: Some(directory.path().join("audit")),
            ..config()
        })
        .await;
        let cookie = sign_in(one.addr(), ROOT).await;
        Self {
            one,
            two,
            cookie,
            _directory: directory,
        }
    }

    fn addr(&self) -> SocketAddr {
        self.one.addr()
    }

    /// Sends a request of the API; it must succeed.
    async fn api(&self, line: &str, body: &str) -> String {
        let root = format!("Authorization: Bearer {ROOT}\r\n");
        let answer = fetch(self.addr(), line, &root, body).await;
        assert!(status(&answer).starts_with('2'), "{line}: {answer}");
        answer
    }

    async fn page(&self, path: &str) -> String {
        let page = get(self.addr(), path, &self.cookie).await;
        assert_eq!(status(&page), "200", "{path}: {page}");
        page
    }

    /// On each shard one job of each kind of end, a schedule and a worker.
    async fn fill(&self) {
        for shard in ["1", "2"] {
            let at = format!("?shard={shard}");
            for (id, queue) in [("runs", "work"), ("fails", "bad"), ("waits", "idle")] {
                let job = format!(
                    r#"{{"kind":"kind{shard}","id":"{id}{shard}","queue":"{queue}{shard}","tags":["tag{shard}"],"retry":{{"max":0}}}}"#
                );
                self.api(&format!("POST /api/v1/jobs{at}"), &job).await;
            }
            for queue in ["work", "bad"] {
                let lease = format!(r#"{{"worker":"worker{shard}","queues":["{queue}{shard}"]}}"#);
                let answer = self.api(&format!("POST /api/v1/leases{at}"), &lease).await;
                let body = answer.split("\r\n\r\n").nth(1).expect("a body");
                let lease: serde_json::Value = serde_json::from_str(body).expect("JSON");
                if queue == "bad" {
                    let report = format!(
                        r#"{{"job":"fails{shard}","token":{},"group":"group{shard}","message":"broken{shard}"}}"#,
                        lease["jobs"][0]["token"]
                    );
                    self.api(&format!("POST /api/v1/leases/fail{at}"), &report)
                        .await;
                }
            }
            let schedule = format!(r#"{{"every":"1h","kind":"kind{shard}"}}"#);
            let put = format!("PUT /api/v1/schedules/nightly{shard}{at}");
            self.api(&put, &schedule).await;
        }
    }

    async fn stop(self) {
        self.one.stop().await;
        self.two.stop().await;
    }
}

/// Pages of all shards, each with what it shows of a shard: `#` stands for its name.
const PAGES: &[(&str, &str)] = &[
    ("/ui/", "work#"),
    ("/ui/?ns=*", "idle#"),
    ("/ui/", "group#"),
    ("/ui/queues", "idle#"),
    ("/ui/jobs", "waits#"),
    ("/ui/jobs?state=failed", "broken#"),
    ("/ui/jobs?kind=kind#", "runs#"),
    ("/ui/failures", "group#"),
    ("/ui/failure?group=group#", "fails#"),
    ("/ui/schedules", "nightly#"),
    ("/ui/workers", "worker#"),
    ("/ui/stats", "kind#"),
    ("/ui/events", "waits#"),
    ("/ui/shards", "Shard #"),
    ("/ui/search?q=tag#", "tag#"),
    ("/ui/search?q=idle#", "idle#"),
];

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_all_shards_have_the_rows_of_other_servers() {
    let pair = Pair::start().await;
    pair.fill().await;
    for (path, text) in PAGES {
        for shard in ["1", "2"] {
            let path = path.replace('#', shard);
            let page = pair.page(&path).await;
            let text = text.replace('#', shard);
            assert!(page.contains(&text), "{path} lacks {text}: {page}");
            assert!(!page.contains("cannot be reached"), "{path}: {page}");
        }
    }
    // Numbers are added up.
    let overview = pair.page("/ui/").await;
    // The schedules made a job each.
    for sum in ["4 Ready", "2 Running", "2 Failed"] {
        assert!(
            overview.contains(&format!("aria-label=\"{sum}\"")),
            "{sum}: {overview}"
        );
    }
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_all_shards_follows_another_server_and_names_it_once_it_is_gone() {
    let pair = Pair::start().await;
    pair.fill().await;
    let (addr, cookie) = (pair.addr(), pair.cookie.clone());
    // A stream has no end, so it is read until the change is there.
    let request = format!("GET /ui/live?view=/ui/queues HTTP/1.1\r\nHost: {addr}\r\n{cookie}\r\n");
    let mut stream = tokio::net::TcpStream::connect(addr)
        .await
        .expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("sent");
    read_until(&mut stream, "idle2").await;
    let job = r#"{"kind":"a","queue":"later"}"#;
    pair.api("POST /api/v1/jobs?shard=2", job).await;
    read_until(&mut stream, "later").await;
    drop(stream);
    let Pair { one, two, .. } = pair;
    two.stop().await;
    for path in [
        "/ui/",
        "/ui/queues",
        "/ui/jobs",
        "/ui/workers",
        "/ui/events",
        "/ui/shards",
    ] {
        let page = get(addr, path, &cookie).await;
        assert_eq!(status(&page), "200", "{path}: {page}");
        let words = "Shard 2 cannot be reached; its jobs are not in these numbers.";
        assert!(page.contains(words), "{path}: {page}");
    }
    let jobs = get(addr, "/ui/jobs", &cookie).await;
    assert!(
        jobs.contains("waits1") && !jobs.contains("waits2"),
        "{jobs}"
    );
    one.stop().await;
}
