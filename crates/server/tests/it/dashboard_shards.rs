//! Pages of all shards on two servers: both are in every table, and one that is gone is named.

use std::net::SocketAddr;

use crate::dashboard::{ROOT, form_token, get, header, post, sign_in};
use crate::kit::{config, status};
use crate::shards::{fetch, pair, read_until};
use ganger_server::{Config, Running, Secret};
use tokio::io::AsyncWriteExt as _;

/// Two servers, the session of an administrator on the first, and the directory of their files.
struct Pair {
    one: Running,
    two: Running,
    cookie: String,
    audit: std::path::PathBuf,
    _directory: tempfile::TempDir,
}

impl Pair {
    async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let audit = directory.path().join("audit");
        let [one, two] = pair(Config {
            token: Secret::new(ROOT).ok(),
            audit_log: Some(audit.clone()),
            ..config()
        })
        .await;
        let cookie = sign_in(one.addr(), ROOT).await;
        Self {
            one,
            two,
            cookie,
            audit,
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

    /// Sends a form of a page of jobs; returns the notice that follows, or the page that asks.
    async fn act(&self, action: &str, fields: &str) -> String {
        let form = self.page("/ui/jobs").await;
        let body = format!("csrf={}&back=/ui/jobs&{fields}", form_token(&form));
        let path = format!("/ui/do/{action}");
        let done = post(self.addr(), &path, &self.cookie, &body).await;
        if status(&done) != "303" {
            return done;
        }
        let notice = header(&done, "set-cookie").split(';').next();
        let with = format!("; {}\r\n", notice.expect("a cookie"));
        let both = self.cookie.replace("\r\n", &with);
        get(self.addr(), header(&done, "location"), &both).await
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
    ("/ui/jobs?state=failed&count=exact", "2 jobs match"),
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

#[tokio::test(flavor = "multi_thread")]
async fn selected_jobs_and_filters_reach_the_jobs_of_other_servers() {
    let pair = Pair::start().await;
    pair.fill().await;
    let both = |id: &str| format!("job=1/{id}1&job=2/{id}2&with=scope%3Dselected");
    // The question names jobs of both, and nothing is done yet.
    let asked = pair.act("cancelJobs", &both("waits")).await;
    assert!(asked.contains("Cancel 2 jobs"), "{asked}");
    assert!(
        asked.contains("1/waits1") && asked.contains("2/waits2"),
        "{asked}"
    );
    let moved = format!("{}%26ask%3D1&confirmed=1&queue=moved", both("waits"));
    let moved = pair.act("alterJob", &moved).await;
    assert!(moved.contains("Changed 2 jobs."), "{moved}");
    let queues = pair.page("/ui/queues?q=moved").await;
    assert!(
        queues.contains("<span class=\"soft\">(2)</span>"),
        "{queues}"
    );
    let cancelled = format!("{}&confirmed=1", both("waits"));
    let cancelled = pair.act("cancelJobs", &cancelled).await;
    assert!(cancelled.contains("Cancelled 2 jobs."), "{cancelled}");
    let again = format!("{}&confirmed=1&again=1", both("waits"));
    let again = pair.act("cancelJobs", &again).await;
    let skipped = "Cancelled 0 jobs, skipped 2: 1/waits1 is cancelled, 2/waits2 is cancelled.";
    assert!(again.contains(skipped), "{again}");
    let gone = pair
        .act(
            "cancelJobs",
            "job=1/waits1&job=2/none&with=scope%3Dselected",
        )
        .await;
    assert!(
        gone.contains("There is no job 2/none") || gone.contains("job_not_found"),
        "{gone}"
    );
    // A filter is tried on all shards, and an operation starts on each.
    let filter = "with=state%3Dfailed%26scope%3Dall";
    let asked = pair.act("retryJobs", filter).await;
    assert!(asked.contains("Retry 2 jobs"), "{asked}");
    let retried = pair
        .act("retryJobs", &format!("{filter}&confirmed=1"))
        .await;
    assert!(retried.contains("Retried 2 jobs."), "{retried}");
    let operations = pair.page("/ui/operations").await;
    assert!(
        operations.contains("1/op-1") && operations.contains("2/op-1"),
        "{operations}"
    );
    // The store of each server keeps its records within a second; the page has both.
    loop {
        let page = pair.page("/ui/audit?what=cancelJobs").await;
        if page.contains("job=waits2") && page.contains("job=1/waits1") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let audit = std::fs::read_to_string(&pair.audit).expect("a log");
    let at_two = |line: &&str| line.contains("cancelJobs") && line.contains("job=waits2");
    let line = audit.lines().find(at_two);
    let line = line.unwrap_or_else(|| panic!("not audited: {audit}"));
    assert!(line.contains("\"ui\"") && line.contains("done"), "{line}");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_out_on_one_server_ends_the_session_on_all_behind_the_address() {
    let directory = tempfile::tempdir().expect("a directory");
    let key = directory.path().join("key");
    std::fs::write(&key, "07".repeat(32)).expect("written");
    let mut common = Config {
        token: Secret::new(ROOT).ok(),
        ..config()
    };
    common.ui.session_key_file = Some(key);
    let [one, two] = pair(common).await;
    let cookie = sign_in(one.addr(), ROOT).await;
    let page = get(two.addr(), "/ui/queues", &cookie).await;
    assert_eq!(status(&page), "200", "{page}");
    let stream = tokio::spawn({
        let (addr, cookie) = (two.addr(), cookie.clone());
        async move { get(addr, "/ui/live?view=/ui/queues", &cookie).await }
    });
    // A page of the other server, asked for here, has the way out of the session as well.
    let far = get(one.addr(), "/ui/queues?shard=2", &cookie).await;
    let out = far.split("name=\"session_csrf\" value=\"").nth(1);
    let out = out.and_then(|rest| rest.split('"').next());
    let out = out.unwrap_or_else(|| panic!("no button: {far}"));
    let form = format!("csrf={}&session_csrf={out}", form_token(&far));
    let wrong = format!("csrf={}&session_csrf=nobody", form_token(&far));
    let refused = post(one.addr(), "/ui/do/signOut", &cookie, &wrong).await;
    assert_eq!(status(&refused), "403", "{refused}");
    let out = post(one.addr(), "/ui/do/signOut", &cookie, &form).await;
    assert_eq!(status(&out), "303", "{out}");
    for server in [&one, &two] {
        let page = get(server.addr(), "/ui/queues", &cookie).await;
        assert_eq!(status(&page), "303", "{page}");
    }
    let ended = tokio::time::timeout(std::time::Duration::from_secs(60), stream).await;
    ended.expect("the stream ends").expect("no panic");
    one.stop().await;
    two.stop().await;
}
