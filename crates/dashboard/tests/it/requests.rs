//! Methods, headers, parameters, base path.

use ganger_dashboard::Options;
use http::Method;

use crate::kit::{Setup, Site};

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_a_page_to_itself() {
    let site = Site::open().await;
    let browser = site.browser();
    for path in [
        "/ui/",
        "/ui/nothing",
        "/ui/login",
        "/ui/jobs?colour=red",
        "/ui",
    ] {
        let answer = browser.get(path).await;
        let header = |name: &str| answer.headers[name].to_str().expect("text").to_owned();
        let policy = header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"),
            "{path}"
        );
        assert!(
            policy.ends_with("require-trusted-types-for 'script'; trusted-types ganger"),
            "{path}"
        );
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "same-origin");
        assert_eq!(header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(header("cross-origin-resource-policy"), "same-origin");
        assert_eq!(header("cache-control"), "no-store");
        assert!(header("permissions-policy").contains("camera=()"));
    }
    let robots = browser.page("/robots.txt").await;
    assert_eq!(robots.text, "User-agent: *\nDisallow: /\n");
}

#[tokio::test]
async fn pages_have_no_inline_code_and_ask_for_their_own_assets_only() {
    let site = Site::open().await;
    let browser = site.browser();
    site.enqueue("mail", "send", |_| {}).await;
    for path in [
        "/ui/",
        "/ui/queues",
        "/ui/jobs",
        "/ui/queue?name=mail",
        "/ui/jobs/new",
        "/ui/about",
    ] {
        let page = browser.page(path).await;
        let html = page.html();
        for element in html.select(&crate::kit::select("*")) {
            for (name, value) in element.value().attrs() {
                assert!(
                    !name.starts_with("on") && name != "style",
                    "{path}: {name}={value}"
                );
                if matches!(name, "src" | "href" | "action" | "formaction") {
                    assert!(
                        value.starts_with('/') && !value.starts_with("//")
                            || value.starts_with('#'),
                        "{path}: {value}"
                    );
                }
            }
        }
        assert_eq!(page.texts("script"), ["", ""], "{path}");
        assert!(page.texts("style").is_empty(), "{path}");
        assert_eq!(page.texts("h1").len(), 1, "{path}");
    }
    let page = browser.page("/ui/").await;
    let html = page.html();
    let style = html
        .select(&crate::kit::select("link[rel=stylesheet]"))
        .next()
        .expect("a style");
    let asset = browser
        .page(style.value().attr("href").expect("an address"))
        .await;
    assert_eq!(
        asset.headers["cache-control"],
        "public, max-age=31536000, immutable"
    );
    assert_eq!(browser.get("/ui/assets/0000.css").await.status, 404);
}

#[tokio::test]
async fn unknown_parameters_pages_and_methods_are_refused_in_words() {
    let site = Site::open().await;
    let browser = site.browser();
    for (path, status, code) in [
        ("/ui/jobs?colour=red", 400, "unknown_parameter"),
        ("/ui/jobs?state=red", 400, "invalid_value"),
        ("/ui/jobs?after=x", 400, "invalid_value"),
        ("/ui/jobs?shard=9", 422, "unknown_shard"),
        ("/ui/job?id=1/nothing", 404, "job_not_found"),
        ("/ui/job", 400, "invalid_value"),
        ("/ui/nothing", 404, "path_not_found"),
        ("/ui/queue?name=a&name=b", 400, "invalid_value"),
        ("/ui/schedule?id=x", 404, "schedule_not_found"),
        ("/ui/do/pauseQueue", 405, "method_not_allowed"),
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.main().contains(code), "{path}: {}", answer.main());
    }
    for method in [Method::PUT, Method::DELETE, Method::POST, Method::OPTIONS] {
        let answer = browser.request(method.clone(), "/ui/jobs").await;
        assert_eq!(answer.status, 405, "{method}");
        assert_eq!(answer.headers["allow"], "GET, HEAD");
    }
    let head = browser.request(Method::HEAD, "/ui/").await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
    let bare = browser.get("/ui").await;
    assert_eq!(bare.headers["location"], "/ui/");
}

#[tokio::test]
async fn a_base_path_stands_in_every_address_and_requests_come_with_or_without_it() {
    let options = Options {
        base_path: "/ganger".to_owned(),
        ..Options::default()
    };
    let site = Site::with(Setup {
        options,
        ..Setup::default()
    })
    .await;
    assert_eq!(site.dashboard.home(), "/ganger/ui/");
    assert_eq!(site.dashboard.owns("/ganger/ui/jobs"), Some("/jobs"));
    assert_eq!(site.dashboard.owns("/ui/jobs"), Some("/jobs"));
    for other in ["/", "/uix", "/gangerx/ui/", "/api/v1/jobs", "/ganger/api"] {
        assert_eq!(site.dashboard.owns(other), None, "{other}");
    }
    let browser = site.browser();
    for path in ["/ganger/ui/queues", "/ui/queues"] {
        let page = browser.page(path).await;
        assert_eq!(page.link("Jobs"), "/ganger/ui/jobs");
        for address in page.html().select(&crate::kit::select(
            "[href^='/'], [src^='/'], [action^='/']",
        )) {
            let value = address.value();
            let address = value
                .attr("href")
                .or(value.attr("src"))
                .or(value.attr("action"))
                .expect("one of them");
            assert!(
                address.starts_with("/ganger/ui") || address == "/openapi.json",
                "{address}"
            );
        }
    }
}

#[tokio::test]
async fn a_party_that_asks_too_often_is_told_to_wait() {
    let site = Site::open().await;
    let browser = site.browser();
    let mut statuses = Vec::new();
    for _ in 0..60 {
        statuses.push(browser.get("/ui/about").await.status.as_u16());
    }
    assert!(statuses[..50].iter().all(|status| *status == 200));
    assert!(statuses.contains(&429), "{statuses:?}");
}

#[tokio::test]
async fn a_page_is_compressed_where_the_browser_takes_it() {
    use std::io::Read as _;
    let site = Site::open().await;
    let mut browser = site.browser();
    let plain = browser.page("/ui/").await;
    browser.headers.push(("accept-encoding", "gzip".to_owned()));
    let response = browser.send(Method::GET, "/ui/", String::new()).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let body = http_body_util::BodyExt::collect(response.into_body())
        .await
        .expect("whole")
        .to_bytes();
    assert!(body.len() * 2 < plain.text.len());
    let mut text = String::new();
    flate2::read::GzDecoder::new(&body[..])
        .read_to_string(&mut text)
        .expect("gzip");
    assert!(text.contains("<h1>Overview</h1>"));
}
