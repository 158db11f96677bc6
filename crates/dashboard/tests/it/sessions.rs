//! Signing in and out, what sessions survive, rights, and forms of other sites.

use ganger_dashboard::Options;
use ganger_dashboard::Payloads;
use ganger_types::Bytes;

use crate::kit::{Setup, Site, start_shard};

#[tokio::test]
async fn a_stranger_goes_to_the_form_and_back_to_where_it_wanted() {
    let site = Site::closed().await;
    let browser = site.browser();
    let answer = browser.get("/ui/jobs?queue=mail").await;
    assert_eq!(answer.status, 303);
    assert_eq!(
        answer.headers["location"],
        "/ui/login?to=/ui/jobs%3Fqueue%3Dmail"
    );
    let form = browser.follow(&answer).await;
    assert_eq!(form.only("h1"), "Sign in");
    let wrong = browser
        .press(&form, "Sign in", &[("token", "not-a-token")])
        .await;
    assert_eq!(wrong.status, 401);
    assert_eq!(
        wrong.only("[role=alert]"),
        "That token is not known, or has expired."
    );
    let hands = browser
        .press(&form, "Sign in", &[("token", "secret-of-hands")])
        .await;
    assert_eq!(hands.status, 403);
    assert_eq!(
        hands.only("[role=alert]"),
        "This token may take jobs and nothing else."
    );
    let good = browser
        .press(&form, "Sign in", &[("token", "secret-of-eyes")])
        .await;
    assert_eq!(good.headers["location"], "/ui/jobs?queue=mail");
    let page = browser.follow(&good).await;
    assert!(page.only("header.banner").contains("eyes (reader)"));
    let cookie = browser.cookie("ganger_session").expect("a session");
    assert!(!cookie.contains("secret"));
}

#[tokio::test]
async fn a_path_of_another_site_is_not_gone_to() {
    let site = Site::closed().await;
    for to in [
        "//evil.example/",
        "https://evil.example/",
        "/\\evil.example",
    ] {
        let answer = site
            .browser()
            .post("/ui/login", &[("token", "secret-of-eyes"), ("to", to)])
            .await;
        assert_eq!(answer.headers["location"], "/ui/", "{to}");
    }
}

#[tokio::test]
async fn signing_out_ends_the_session_also_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("sessions");
    let shard = start_shard("1").await;
    let setup = || Setup {
        asks_for_tokens: true,
        session_file: Some(file.clone()),
        ..Setup::default()
    };
    let site = Site::over(vec![shard.clone()], setup());
    let browser = site.signed_in("op").await;
    let session = browser.cookie("ganger_session").expect("a session");
    let other = site.signed_in("op").await;
    let kept = other.cookie("ganger_session").expect("a session");
    let page = browser.page("/ui/").await;
    let out = browser.press(&page, "Sign out", &[]).await;
    assert_eq!(out.headers["location"], "/ui/login");
    assert_eq!(browser.cookie("ganger_session"), None);
    let again = Site::over(vec![shard], setup());
    let browser = again.browser();
    browser.set_cookie("ganger_session", &session);
    assert_eq!(
        browser.get("/ui/").await.status,
        303,
        "the ended session is refused"
    );
    browser.set_cookie("ganger_session", &kept);
    assert_eq!(
        browser.get("/ui/").await.status,
        200,
        "a restart signs nobody out"
    );
}

#[tokio::test]
async fn a_revoked_token_ends_its_sessions_at_once() {
    let site = Site::closed().await;
    let browser = site.signed_in("op").await;
    browser.page("/ui/").await;
    site.keys.revoke("op");
    let answer = browser.get("/ui/").await;
    assert_eq!(answer.status, 303);
    let form = browser.follow(&answer).await;
    assert!(
        form.only("[role=alert]")
            .starts_with("This session has ended")
    );
}

#[tokio::test]
async fn a_link_from_another_site_is_opened_once_more_from_our_own() {
    let site = Site::closed().await;
    let mut browser = site.browser();
    browser.headers = vec![
        ("sec-fetch-site", "cross-site".to_owned()),
        ("sec-fetch-mode", "navigate".to_owned()),
    ];
    let answer = browser.page("/ui/jobs?tag=a%20b").await;
    assert!(
        answer
            .text
            .contains("http-equiv=\"refresh\" content=\"0; url=/ui/jobs?tag=a%20b\""),
        "{}",
        answer.text
    );
    assert_eq!(answer.link("Continue"), "/ui/jobs?tag=a%20b");
    browser.headers = vec![("sec-fetch-site", "same-origin".to_owned())];
    assert_eq!(
        browser.get("/ui/jobs?tag=a%20b").await.status,
        303,
        "then to the form"
    );
}

/// Headers that a browser sends.
type Headers = Vec<(&'static str, String)>;

/// Headers of a request, a changed field of its form, and the expected status.
type Case<'a> = (Headers, Option<(&'a str, &'a str)>, u16);

#[tokio::test]
async fn forms_need_to_come_from_our_pages_and_to_carry_a_token_of_their_session() {
    let site = Site::closed().await;
    site.enqueue("mail", "send", |_| {}).await;
    let mut browser = site.signed_in("op").await;
    let page = browser.page("/ui/queue?name=mail").await;
    let (action, fields) = page.button("Pause queue");
    let with = |changed: Option<(&str, &str)>| {
        let mut fields = fields.clone();
        if let Some((name, value)) = changed {
            fields.retain(|(known, _)| known != name);
            fields.push((name.to_owned(), value.to_owned()));
        }
        fields
    };
    let other = site.signed_in("op").await;
    let foreign = other
        .page("/ui/queue?name=mail")
        .await
        .button("Pause queue")
        .1;
    let foreign = foreign
        .iter()
        .find(|(name, _)| name == "csrf")
        .expect("a token")
        .1
        .clone();
    let good = vec![("sec-fetch-site", "same-origin".to_owned())];
    let ours = vec![("origin", "http://127.0.0.1:3733".to_owned())];
    let cases: Vec<Case<'_>> = vec![
        (good.clone(), Some(("csrf", "")), 403),
        (good.clone(), Some(("csrf", "AAAA")), 403),
        (good.clone(), Some(("csrf", &foreign)), 403),
        (vec![("sec-fetch-site", "cross-site".to_owned())], None, 403),
        (vec![("sec-fetch-site", "same-site".to_owned())], None, 403),
        (vec![("origin", "null".to_owned())], None, 403),
        (
            vec![("origin", "http://evil.example".to_owned())],
            None,
            403,
        ),
        (vec![], None, 403),
        (ours, None, 303),
    ];
    for (headers, changed, status) in cases {
        browser.headers = headers.clone();
        let fields = with(changed);
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let answer = browser.post(&action, &fields).await;
        assert_eq!(answer.status.as_u16(), status, "{headers:?} {changed:?}");
    }
    browser.headers = good;
    assert!(
        browser
            .page("/ui/queue?name=mail")
            .await
            .buttons()
            .contains(&"Resume queue".to_owned())
    );
}

#[tokio::test]
async fn each_action_is_refused_to_those_without_its_right_and_the_audit_log_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("audit");
    let site = Site::with(Setup {
        asks_for_tokens: true,
        audit: Some(log.clone()),
        ..Setup::default()
    })
    .await;
    let id = site.enqueue("mail", "send", |_| {}).await;
    let job = format!("1/{}", id.to_text());
    // Whom the table of operations lets do it, said in other words than there.
    let everyone_who_makes = ["root", "op", "maker"];
    let operators = ["root", "op"];
    let actions: Vec<(&str, String, &[&str])> = vec![
        ("pauseQueue", "queue=mail".to_owned(), &operators),
        ("resumeQueue", "queue=mail".to_owned(), &operators),
        ("setQueue", "queue=mail".to_owned(), &operators),
        ("forgetQueue", "queue=mail".to_owned(), &operators),
        ("retryJob", format!("job={job}"), &operators),
        ("cancelJob", format!("job={job}"), &everyone_who_makes),
        ("timeOutJob", format!("job={job}"), &operators),
        ("deleteJob", format!("job={job}"), &operators),
        ("alterJob", format!("job={job}&start=now"), &operators),
        ("retryJobs", "scope=all&state=failed".to_owned(), &operators),
        (
            "cancelJobs",
            "scope=all&state=ready".to_owned(),
            &everyone_who_makes,
        ),
        ("deleteJobs", "scope=all&state=ready".to_owned(), &operators),
        ("stopOperation", "id=1/op-1".to_owned(), &everyone_who_makes),
        ("setNamespace", String::new(), &["root"]),
        ("enqueueJob", String::new(), &everyone_who_makes),
        ("runSchedule", "id=x".to_owned(), &operators),
        ("pauseSchedule", "id=x".to_owned(), &operators),
        ("resumeSchedule", "id=x".to_owned(), &operators),
        ("setSchedule", "id=x".to_owned(), &operators),
        ("deleteSchedule", "id=x".to_owned(), &operators),
        ("releaseWorker", "worker=w".to_owned(), &operators),
        ("reconcilePeer", "peer=2".to_owned(), &["root"]),
        ("audit", "shard=1".to_owned(), &["root"]),
    ];
    for name in ["root", "op", "maker", "eyes"] {
        let browser = site.signed_in(name).await;
        let csrf = browser.page("/ui/").await.button("Sign out").1;
        let csrf = csrf
            .iter()
            .find(|(field, _)| field == "csrf")
            .expect("a token")
            .1
            .clone();
        for (action, with, allowed) in &actions {
            let answer = browser
                .post(
                    &format!("/ui/do/{action}"),
                    &[("csrf", &csrf), ("with", with)],
                )
                .await;
            let is_refused = answer.status == 403;
            assert_eq!(
                is_refused,
                !allowed.contains(&name),
                "{name} {action}: {}",
                answer.status
            );
            if is_refused {
                assert!(
                    answer.main().contains("permission_denied"),
                    "{name} {action}"
                );
            }
        }
        let nothing = browser
            .post("/ui/do/dropEverything", &[("csrf", &csrf)])
            .await;
        assert_eq!(nothing.status, 404);
    }
    let lines = std::fs::read_to_string(log).expect("readable");
    let denied = lines
        .lines()
        .find(|line| line.contains("pauseQueue") && line.contains("denied"));
    let denied = denied.expect("a line");
    assert!(
        denied.contains("\"via\":\"ui\"") && denied.contains("token \\\"maker\\\""),
        "{denied}"
    );
    assert!(lines.contains("\"what\":\"signIn\""), "{lines}");
}

#[tokio::test]
async fn what_a_viewer_may_not_do_is_not_offered() {
    let site = Site::closed().await;
    site.enqueue("mail", "send", |_| {}).await;
    let id = site.enqueue("img", "resize", |_| {}).await;
    site.fail_one("img", "exit-1", "x").await;
    let eyes = site.signed_in("eyes").await;
    let queue = eyes.page("/ui/queue?name=mail").await;
    assert!(!queue.text.contains("/ui/do/pauseQueue"));
    assert!(
        queue
            .main()
            .contains("Pausing this queue: Needs the role operator in default."),
        "{}",
        queue.main()
    );
    let job = eyes.page(&format!("/ui/job?id=1/{}", id.to_text())).await;
    assert!(
        job.main()
            .contains("Retry: Needs the role operator in default.")
    );
    assert!(
        !eyes
            .page("/ui/jobs")
            .await
            .columns("Jobs")
            .contains(&"Select".to_owned())
    );
    assert_eq!(eyes.get("/ui/shards").await.status, 403);
    let maker = site.signed_in("maker").await;
    let job = maker.page(&format!("/ui/job?id=1/{}", id.to_text())).await;
    assert!(job.buttons().contains(&"Enqueue again".to_owned()));
}

#[tokio::test]
async fn a_viewer_of_another_namespace_begins_there() {
    let site = Site::closed().await;
    let command = ganger_types::command::ConfigureNamespace {
        namespace: ganger_types::Namespace::from_static("mail"),
        settings: ganger_types::NamespaceSettings::default(),
    };
    let command = ganger_types::Command::ConfigureNamespace(Box::new(command));
    site.shard.call(command).await.expect("configured");
    let browser = site.signed_in("mailer").await;
    let answer = browser.get("/ui/queues").await;
    assert_eq!(answer.headers["location"], "/ui/queues?ns=mail");
    let page = browser.follow(&answer).await;
    assert_eq!(page.only("title"), "Queues \u{b7} mail \u{b7} ganger");
    assert_eq!(browser.get("/ui/queues?ns=default").await.status, 403);
}

#[tokio::test]
async fn read_only_refuses_every_action_to_everybody() {
    let options = Options {
        is_read_only: true,
        ..Options::default()
    };
    let site = Site::with(Setup {
        options,
        ..Setup::default()
    })
    .await;
    site.enqueue("mail", "send", |_| {}).await;
    let browser = site.browser();
    let page = browser.page("/ui/queue?name=mail").await;
    assert!(page.only("header.banner").contains("Read only"));
    assert!(!page.text.contains("formaction=\"/ui/do/pauseQueue\""));
    let answer = browser
        .post("/ui/do/pauseQueue", &[("with", "queue=mail")])
        .await;
    assert_eq!(answer.status, 403);
    assert_eq!(browser.get("/ui/jobs/new").await.status, 403);
}

#[tokio::test]
async fn payloads_can_be_hidden_from_all_but_operators() {
    let options = Options {
        payloads: Payloads::Hidden,
        ..Options::default()
    };
    let site = Site::with(Setup {
        options,
        asks_for_tokens: true,
        ..Setup::default()
    })
    .await;
    let id = site
        .enqueue("mail", "send", |job| {
            job.payload = Bytes::from_static(b"\"a-secret-name\"");
        })
        .await;
    let path = format!("/ui/job?id=1/{}&view=data", id.to_text());
    let raw = format!("/ui/raw?id=1/{}&part=payload", id.to_text());
    let eyes = site.signed_in("eyes").await;
    let page = eyes.page(&path).await;
    assert!(
        page.main().contains("The payload has 15 bytes"),
        "{}",
        page.main()
    );
    assert!(!page.text.contains("a-secret-name"));
    assert_eq!(eyes.get(&raw).await.status, 403);
    let op = site.signed_in("op").await;
    assert!(op.page(&path).await.main().contains("a-secret-name"));
    assert_eq!(op.page(&raw).await.text, "\"a-secret-name\"");
}
