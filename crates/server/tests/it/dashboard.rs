//! The dashboard on the port of a server: where it is, who gets in, and what its sessions are good for.

use std::net::SocketAddr;
use std::time::Duration;

use crate::kit::{add_token, config, response_to, start_server, status};
use crate::shards::{fetch, free_address, pair, shard, topology};
use ganger_server::{Config, Secret};

pub(crate) const ROOT: &str = "a-token-for-tests-only";

pub(crate) async fn get(addr: SocketAddr, path: &str, headers: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n{headers}\r\n");
    response_to(addr, request.as_bytes()).await
}

pub(crate) async fn post(addr: SocketAddr, path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {addr}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\nOrigin: http://{addr}\r\n{headers}\r\n{body}"
    );
    response_to(addr, request.as_bytes()).await
}

pub(crate) fn header<'a>(answer: &'a str, name: &str) -> &'a str {
    let head = answer.split("\r\n\r\n").next().unwrap_or_default();
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map_or("", |(_, value)| value)
}

/// Signs in and returns the header with the cookie.
pub(crate) async fn sign_in(addr: SocketAddr, secret: &str) -> String {
    let answer = post(addr, "/ui/login", "", &format!("token={secret}")).await;
    assert_eq!(status(&answer), "303", "{answer}");
    let cookie = header(&answer, "set-cookie");
    let pair = cookie.split(';').next().expect("a cookie");
    format!("Cookie: {pair}\r\n")
}

#[tokio::test]
async fn a_browser_is_led_to_the_dashboard_and_a_program_is_not() {
    let running = start_server(config()).await;
    let addr = running.addr();
    let browser = get(addr, "/", "Accept: text/html,*/*;q=0.8\r\n").await;
    assert_eq!(
        (status(&browser), header(&browser, "location")),
        ("303", "/ui/")
    );
    let program = get(addr, "/", "Accept: application/json\r\n").await;
    assert_eq!(status(&program), "200");
    let page = get(addr, "/ui/", "").await;
    assert_eq!(status(&page), "200");
    assert!(page.contains("Open: anyone on this machine may act"));
    let foreign = format!(
        "GET /ui/ HTTP/1.1\r\nHost: evil.example:{}\r\n\r\n",
        addr.port()
    );
    assert_eq!(
        status(&response_to(addr, foreign.as_bytes()).await),
        "421",
        "a name that is rebound to loopback"
    );
    running.stop().await;
}

#[tokio::test]
async fn a_session_opens_pages_and_nothing_else() {
    let running = start_server(Config {
        token: Some(Secret::new(ROOT).expect("long enough")),
        ..config()
    })
    .await;
    let addr = running.addr();
    let stranger = get(addr, "/ui/jobs", "").await;
    assert_eq!(
        (status(&stranger), header(&stranger, "location")),
        ("303", "/ui/login?to=/ui/jobs")
    );
    let bearer = get(
        addr,
        "/ui/jobs",
        &format!("Authorization: Bearer {ROOT}\r\n"),
    )
    .await;
    assert_eq!(status(&bearer), "303", "pages take no tokens");
    let wrong = post(addr, "/ui/login", "", "token=not-the-token-at-all").await;
    assert_eq!(status(&wrong), "401");
    let cookie = sign_in(addr, ROOT).await;
    assert_eq!(status(&get(addr, "/ui/jobs", &cookie).await), "200");
    assert_eq!(
        status(&get(addr, "/api/v1/queues", &cookie).await),
        "401",
        "the API takes no sessions"
    );
    let forged = cookie.replace('.', "A.");
    assert_eq!(status(&get(addr, "/ui/jobs", &forged).await), "303");
    running.stop().await;
}

#[tokio::test]
async fn a_token_that_is_revoked_ends_its_sessions() {
    let directory = tempfile::tempdir().expect("a directory");
    let access = directory.path().join("access");
    let secret = add_token(&access, "eyes", "reader@*");
    let running = start_server(Config {
        access_file: Some(access.clone()),
        ..config()
    })
    .await;
    let addr = running.addr();
    let cookie = sign_in(addr, secret.reveal()).await;
    let page = get(addr, "/ui/queues", &cookie).await;
    assert!(page.contains("eyes"), "{page}");
    ganger_access::revoke(&access, "eyes").expect("revoked");
    running.reload();
    assert_eq!(status(&get(addr, "/ui/queues", &cookie).await), "303");
    running.stop().await;
}

#[tokio::test]
async fn sessions_survive_a_restart_of_the_server() {
    let directory = tempfile::tempdir().expect("a directory");
    let with = || Config {
        db: directory.path().join("jobs.db"),
        token: Some(Secret::new(ROOT).expect("long enough")),
        ..config()
    };
    let running = start_server(with()).await;
    let cookie = sign_in(running.addr(), ROOT).await;
    running.stop().await;
    let running = start_server(with()).await;
    assert_eq!(status(&get(running.addr(), "/ui/", &cookie).await), "200");
    running.stop().await;
    assert!(directory.path().join("jobs.db-sessions").exists());
}

#[tokio::test]
async fn a_dashboard_that_is_switched_off_is_not_there() {
    let mut without = config();
    without.ui.is_enabled = false;
    let running = start_server(without).await;
    let addr = running.addr();
    assert_eq!(status(&get(addr, "/ui/", "").await), "404");
    let page = get(addr, "/", "Accept: text/html\r\n").await;
    assert_eq!(status(&page), "200");
    assert!(page.contains("<h1>ganger</h1>"));
    running.stop().await;
}

/// The token of the forms of a page.
pub(crate) fn form_token(page: &str) -> &str {
    let rest = page.split("name=\"csrf\" value=\"").nth(1);
    let token = rest.and_then(|rest| rest.split('"').next());
    token.unwrap_or_else(|| panic!("no form: {page}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_about_a_shard_of_another_server_are_its_pages() {
    let directory = tempfile::tempdir().expect("a directory");
    let (access, audit) = (
        directory.path().join("access"),
        directory.path().join("audit"),
    );
    let operator = add_token(&access, "op", "operator@*");
    let reader = add_token(&access, "eyes", "reader@*");
    let [one, two] = pair(Config {
        token: Secret::new(ROOT).ok(),
        access_file: Some(access),
        audit_log: Some(audit.clone()),
        ..config()
    })
    .await;
    let addr = one.addr();
    let root = format!("Authorization: Bearer {ROOT}\r\n");
    let body = r#"{"kind":"a","id":"x","queue":"beyond"}"#;
    let answer = fetch(addr, "POST /api/v1/jobs?shard=2", &root, body).await;
    assert_eq!(status(&answer), "201", "{answer}");
    let cookie = sign_in(addr, operator.reveal()).await;
    let all = get(addr, "/ui/queues", &cookie).await;
    assert!(all.contains("beyond"), "{all}");
    let far = get(addr, "/ui/queues?shard=2", &cookie).await;
    assert!(
        far.contains("beyond") && far.contains("<bdi>op</bdi>"),
        "{far}"
    );
    let job = get(addr, "/ui/job?id=2/x", &cookie).await;
    assert!(job.contains("Job 2/x"), "{job}");
    let stream = "/ui/live?view=/ui/job%3Fid%3D2/x&once=1";
    let parts = get(addr, stream, &cookie).await;
    assert!(parts.contains("part-head"), "{parts}");
    // A form is checked by both servers: where it comes from here, its token there.
    let cancel = |token: &str| format!("csrf={token}&job=2/x&confirmed=1&back=/ui/job%3Fid%3D2/x");
    let path = "/ui/do/cancelJob";
    let foreign = format!("{cookie}Sec-Fetch-Site: cross-site\r\n");
    for (headers, body) in [
        (&foreign, cancel(form_token(&job))),
        (&cookie, cancel("of-nobody")),
    ] {
        let refused = post(addr, path, headers, &body).await;
        assert_eq!(status(&refused), "403", "{refused}");
    }
    let done = post(addr, path, &cookie, &cancel(form_token(&job))).await;
    assert_eq!(
        (status(&done), header(&done, "location")),
        ("303", "/ui/job?id=2/x"),
        "{done}"
    );
    let notice = header(&done, "set-cookie").split(';').next();
    let both = cookie.replace("\r\n", &format!("; {}\r\n", notice.expect("a cookie")));
    let job = get(addr, "/ui/job?id=2/x", &both).await;
    assert!(job.contains("Cancelled 2/x."), "{job}");
    let reading = sign_in(addr, reader.reveal()).await;
    let job = get(addr, "/ui/job?id=2/x", &reading).await;
    assert!(
        job.contains("Job 2/x") && !job.contains("/ui/do/retryJob"),
        "{job}"
    );
    // Nobody gets in by calling themselves another server.
    let claim = "Ganger-On-Behalf-Of: shared-token;x;admin@*\r\n";
    for headers in [claim.to_owned(), format!("{reading}{claim}")] {
        let refused = get(addr, "/ui/queues", &headers).await;
        assert!(["401", "403"].contains(&status(&refused)), "{refused}");
    }
    two.stop().await;
    let gone = get(addr, "/ui/job?id=2/x", &cookie).await;
    assert_eq!(status(&gone), "503", "{gone}");
    assert!(gone.contains("Shard 2 cannot be reached"), "{gone}");
    one.stop().await;
    let audit = std::fs::read_to_string(audit).expect("a log");
    let line = audit
        .lines()
        .find(|line| line.contains("\"cancelJob\"") && line.contains("2/x"));
    let line = line.unwrap_or_else(|| panic!("not audited: {audit}"));
    assert!(line.contains("op") && line.contains("\"ui\""), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_that_was_asked_forbids_is_forbidden_elsewhere_too() {
    let (here, there) = (free_address().await, free_address().await);
    let topology = topology(&[("1", here), ("2", there)]);
    let directory = tempfile::tempdir().expect("a directory");
    let access = directory.path().join("access");
    let reader = add_token(&access, "eyes", "reader@*");
    let server = |name, addr: SocketAddr| Config {
        addr: addr.to_string(),
        shard: shard(name),
        topology: topology.clone(),
        token: Secret::new(ROOT).ok(),
        access_file: Some(access.clone()),
        ..config()
    };
    let mut strict = server("1", here);
    strict.ui.is_read_only = true;
    strict.ui.payloads = ganger_dashboard::Payloads::Hidden;
    let (here, there) = (
        start_server(strict).await,
        start_server(server("2", there)).await,
    );
    let addr = here.addr();
    let root = format!("Authorization: Bearer {ROOT}\r\n");
    let body = r#"{"kind":"a","id":"x","payload":"of-nobody-else"}"#;
    let answer = fetch(addr, "POST /api/v1/jobs?shard=2", &root, body).await;
    assert_eq!(status(&answer), "201", "{answer}");
    let reading = sign_in(addr, reader.reveal()).await;
    for (headers, sees) in [(&reading, false), (&sign_in(addr, ROOT).await, true)] {
        let data = get(addr, "/ui/job?id=2/x&view=data", headers).await;
        assert_eq!(status(&data), "200", "{data}");
        assert_eq!(data.contains("of-nobody-else"), sees, "{data}");
    }
    let cookie = sign_in(addr, ROOT).await;
    let job = get(addr, "/ui/job?id=2/x", &cookie).await;
    assert!(
        job.contains("Read only") && job.contains("Job 2/x"),
        "{job}"
    );
    assert!(!job.contains("/ui/do/cancelJob"), "{job}");
    let token = form_token(&job);
    let form = format!("csrf={token}&job=2/x&confirmed=1");
    let refused = post(addr, "/ui/do/cancelJob", &cookie, &form).await;
    assert_eq!(status(&refused), "403", "{refused}");
    // A stream of another server ends with the session here.
    let stream = tokio::spawn({
        let cookie = cookie.clone();
        async move { get(addr, "/ui/live?view=/ui/job%3Fid%3D2/x", &cookie).await }
    });
    let own = get(addr, "/ui/queues", &cookie).await;
    let form = format!("csrf={}", form_token(&own));
    let out = post(addr, "/ui/do/signOut", &cookie, &form).await;
    assert_eq!(status(&out), "303", "{out}");
    let ended = tokio::time::timeout(Duration::from_secs(60), stream).await;
    ended.expect("the stream ends").expect("no panic");
    // More requests than a session may make in a second are refused before they are forwarded.
    let cookie = sign_in(addr, ROOT).await;
    let many = (0..200).map(|_| get(addr, "/ui/job?id=2/x", &cookie));
    let many = futures::future::join_all(many).await;
    assert!(many.iter().any(|answer| status(answer) == "429"));
    here.stop().await;
    there.stop().await;
}
