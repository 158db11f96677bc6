//! A dashboard without a network, and a browser that reads its pages by roles and text.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use futures::future::{BoxFuture, FutureExt as _};
use ganger_access::{Audit, Grants, Hash, Identity, Proof, StreamLimit};
use ganger_dashboard::{Accepted, Dashboard, Gate, Options, Settings, Unaccepted, Visitor};
use ganger_shard::{Delivery, Handle, Hooks, Shard, SystemClock};
use ganger_store::MemoryStore;
use ganger_types::command::{Enqueue, Fail, Lease, LeaseRef, NewJob, TakeFrom};
use ganger_types::{Command, Group, JobId, Kind, Namespace, Queue, Reply, ShardId, Worker};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use scraper::{ElementRef, Html, Selector};
use tokio_util::sync::CancellationToken;

/// Tokens that the gate knows: name, secret, grants.
const TOKENS: &[(&str, &str, &str)] = &[
    ("root", "secret-of-root", "admin@*"),
    ("op", "secret-of-op", "operator@default"),
    ("maker", "secret-of-maker", "producer@default"),
    ("eyes", "secret-of-eyes", "reader@default"),
    ("mailer", "secret-of-mailer", "reader@mail"),
    ("hands", "secret-of-hands", "worker@*"),
];

/// A gate with some tokens, of which each can be revoked.
#[derive(Default)]
pub(crate) struct Keys {
    is_open: bool,
    revoked: Mutex<Vec<String>>,
}

impl Keys {
    pub(crate) fn revoke(&self, name: &str) {
        self.revoked.lock().expect("no panic").push(name.to_owned());
    }

    fn find(&self, is_it: impl Fn(&str, Hash) -> bool) -> Option<Accepted> {
        let (name, secret, grants) = TOKENS
            .iter()
            .find(|(name, secret, _)| is_it(name, Hash::of(secret.as_bytes())))?;
        if self
            .revoked
            .lock()
            .expect("no panic")
            .iter()
            .any(|it| it == name)
        {
            return None;
        }
        let grants: Grants = grants.parse().expect("readable");
        Some(Accepted {
            identity: Identity::principal(*name, grants, Proof::Token),
            name: (*name).to_owned(),
            hash: Hash::of(secret.as_bytes()),
        })
    }
}

impl Gate for Keys {
    fn is_open(&self) -> bool {
        self.is_open
    }

    fn takes_tokens(&self) -> bool {
        true
    }

    fn check<'a>(
        &'a self,
        token: &'a [u8],
        _from: Option<SocketAddr>,
    ) -> BoxFuture<'a, Result<Accepted, Unaccepted>> {
        async move {
            self.find(|_, hash| hash == Hash::of(token))
                .ok_or(Unaccepted::Unknown)
        }
        .boxed()
    }
}

/// A server with a dashboard.
pub(crate) struct Site {
    pub(crate) dashboard: Dashboard,
    pub(crate) shard: Handle,
    pub(crate) shards: Vec<Handle>,
    /// The shards as the dashboard knows them, which may change.
    pub(crate) set: ganger_shard::ShardSet,
    pub(crate) keys: Arc<Keys>,
    pub(crate) stopping: CancellationToken,
}

pub(crate) async fn start_shard(id: &str) -> Handle {
    start_shard_with(id, ganger_shard::Settings::default()).await
}

async fn start_shard_with(id: &str, settings: ganger_shard::Settings) -> Handle {
    let settings = ganger_shard::Settings {
        shard: ShardId::new(id).expect("a shard"),
        reserve_bytes: 0,
        ..settings
    };
    let (store, clock) = (MemoryStore::new(), Arc::new(SystemClock));
    let shard = Shard::start(store, settings, clock, Hooks::default());
    let shard = shard.expect("a store in memory opens");
    shard.ready().await;
    tokio::spawn(shard.clone().work_operations());
    shard
}

/// How a site differs from the usual one.
#[derive(Default)]
pub(crate) struct Setup {
    pub(crate) options: Options,
    pub(crate) asks_for_tokens: bool,
    pub(crate) shards: usize,
    pub(crate) session_file: Option<std::path::PathBuf>,
    pub(crate) audit: Option<std::path::PathBuf>,
}

impl Site {
    pub(crate) async fn open() -> Self {
        Self::with(Setup::default()).await
    }

    /// A site whose shard keeps so many events.
    pub(crate) async fn keeping(events: usize) -> Self {
        let settings = ganger_shard::Settings {
            events_kept: events,
            ..ganger_shard::Settings::default()
        };
        let shard = start_shard_with("1", settings).await;
        Self::over(vec![shard], Setup::default())
    }

    pub(crate) async fn closed() -> Self {
        Self::with(Setup {
            asks_for_tokens: true,
            ..Setup::default()
        })
        .await
    }

    pub(crate) async fn with(setup: Setup) -> Self {
        let mut shards = Vec::new();
        for number in 1..=setup.shards.max(1) {
            shards.push(start_shard(&number.to_string()).await);
        }
        Self::over(shards, setup)
    }

    pub(crate) fn over(shards: Vec<Handle>, setup: Setup) -> Self {
        let keys = Arc::new(Keys {
            is_open: !setup.asks_for_tokens,
            ..Keys::default()
        });
        let stopping = CancellationToken::new();
        let set = ganger_shard::ShardSet::from(shards.clone());
        let settings = Settings {
            options: setup.options,
            version: "0.0.0",
            shown_settings: std::collections::BTreeMap::from([(
                "stop_timeout".to_owned(),
                "10s".to_owned(),
            )]),
            shards: set.clone(),
            router: None,
            others: None,
            attention: ganger_attention::Attention::of_shards(shards.clone()),
            operations: ganger_dialect_http::rights(),
            status_of: |code| ganger_dialect_http::Problem::new(code, "").status(),
            gate: keys.clone(),
            is_encrypted: false,
            audit: setup.audit.map_or_else(Audit::to_log, |path| {
                Audit::to_file(&path).expect("writable")
            }),
            streams: StreamLimit::new(1_000),
            stopping: stopping.clone(),
            session_file: setup.session_file,
        };
        Self {
            dashboard: Dashboard::new(settings).expect("it opens"),
            shard: shards[0].clone(),
            shards,
            set,
            keys,
            stopping,
        }
    }

    /// Waits until an operation of the first shard has ended.
    pub(crate) async fn operation_ends(&self, number: u64) {
        let mut changes = self.shard.operation_changes();
        loop {
            changes.borrow_and_update();
            let number = ganger_types::OperationNumber(number);
            let record = self.shard.operation(&Namespace::default(), number).await;
            if record.expect("it is kept").ended_at.is_some() {
                return;
            }
            changes.changed().await.expect("the shard lives");
        }
    }

    /// A browser without cookies.
    pub(crate) fn browser(&self) -> Browser<'_> {
        Browser {
            site: self,
            cookies: Mutex::default(),
            headers: vec![("sec-fetch-site", "same-origin".to_owned())],
        }
    }

    /// A browser that has signed in.
    pub(crate) async fn signed_in(&self, name: &str) -> Browser<'_> {
        let browser = self.browser();
        let secret = TOKENS
            .iter()
            .find(|token| token.0 == name)
            .expect("a token")
            .1;
        let answer = browser.post("/ui/login", &[("token", secret)]).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        browser
    }

    /// Enqueues a job of a kind in a queue, changed by `with`.
    pub(crate) async fn enqueue(
        &self,
        queue: &str,
        kind: &str,
        with: impl FnOnce(&mut NewJob),
    ) -> JobId {
        enqueue_on(&self.shard, queue, kind, with).await
    }

    /// Leases up to so many jobs of a queue.
    pub(crate) async fn lease(&self, queue: &str, jobs: u32) -> Vec<Delivery> {
        let lease = Lease {
            queues: vec![TakeFrom {
                queue: Queue::new(queue).expect("short"),
                weight: 1,
            }],
            worker: Some(Worker::from_static("w-1")),
            jobs_max: jobs,
            ..Lease::default()
        };
        self.shard
            .lease(lease, Duration::ZERO)
            .await
            .expect("leased")
    }

    /// Leases a job of a queue and fails it for good.
    pub(crate) async fn fail_one(&self, queue: &str, group: &str, message: &str) {
        let delivery = self.lease(queue, 1).await.pop().expect("a job");
        let held = LeaseRef {
            namespace: delivery.grant.namespace.clone(),
            job: delivery.grant.job.clone(),
            token: delivery.grant.token,
        };
        let fail = Fail {
            held,
            group: Group::new(group).expect("short"),
            message: message.to_owned(),
            permanent: true,
            retry_after: None,
            lost: false,
        };
        self.shard
            .call(Command::Fail(Box::new(fail)))
            .await
            .expect("failed");
    }
}

pub(crate) async fn enqueue_on(
    shard: &Handle,
    queue: &str,
    kind: &str,
    with: impl FnOnce(&mut NewJob),
) -> JobId {
    let mut job = NewJob {
        queue: Queue::new(queue).expect("short"),
        kind: Kind::new(kind).expect("short"),
        ..NewJob::default()
    };
    with(&mut job);
    let enqueue = Enqueue {
        jobs: vec![job],
        ..Enqueue::default()
    };
    match shard.call(Command::Enqueue(Box::new(enqueue))).await {
        Ok(Reply::Enqueued { jobs, .. }) => jobs[0].id.clone(),
        other => panic!("{other:?}"),
    }
}

/// What a browser keeps and sends.
pub(crate) struct Browser<'a> {
    site: &'a Site,
    cookies: Mutex<Vec<(String, String)>>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// An answer, read whole.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Browser<'_> {
    /// Sends a request and gives the answer while it is being written.
    pub(crate) async fn send(&self, method: Method, path: &str, body: String) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:3733")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let cookies = self.cookies.lock().expect("no panic").clone();
        if !cookies.is_empty() {
            let pairs: Vec<String> = cookies
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            request = request.header(header::COOKIE, pairs.join("; "));
        }
        let request = request.body(Body::from(body)).expect("a request");
        let visitor = self.visitor(request.headers());
        let response = self.site.dashboard.answer(request, visitor).await;
        self.keep_cookies(response.headers());
        response
    }

    /// As the server identifies a request: by its session, looked up again each time.
    fn visitor(&self, headers: &HeaderMap) -> Visitor {
        let keys = &self.site.keys;
        let session = self.site.dashboard.session(headers);
        let known = session.and_then(|session| {
            keys.find(|name, hash| name == session.name && hash == session.hash)
        });
        Visitor {
            identity: match known {
                _ if keys.is_open => Identity::unchecked(),
                Some(known) => known.identity,
                None => Identity::Anonymous,
            },
            from: None,
            forwarded: None,
        }
    }

    fn keep_cookies(&self, headers: &HeaderMap) {
        let mut cookies = self.cookies.lock().expect("no panic");
        for value in headers.get_all(header::SET_COOKIE) {
            let text = value.to_str().expect("text");
            let (name, rest) = text.split_once('=').expect("a pair");
            let (value, attributes) = rest.split_once(';').expect("attributes");
            assert!(
                attributes.contains("HttpOnly") && attributes.contains("SameSite=Strict"),
                "{text}"
            );
            cookies.retain(|(known, _)| known != name);
            if !attributes.contains("Max-Age=0") {
                cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }

    pub(crate) fn cookie(&self, name: &str) -> Option<String> {
        let cookies = self.cookies.lock().expect("no panic");
        cookies
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.clone())
    }

    pub(crate) fn set_cookie(&self, name: &str, value: &str) {
        let mut cookies = self.cookies.lock().expect("no panic");
        cookies.retain(|(known, _)| known != name);
        cookies.push((name.to_owned(), value.to_owned()));
    }

    async fn whole(&self, method: Method, path: &str, body: String) -> Answer {
        let (head, body) = self.send(method, path, body).await.into_parts();
        let body = body.collect().await.expect("it comes whole").to_bytes();
        Answer {
            status: head.status,
            headers: head.headers,
            text: String::from_utf8_lossy(&body).into_owned(),
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.whole(Method::GET, path, String::new()).await
    }

    pub(crate) async fn request(&self, method: Method, path: &str) -> Answer {
        self.whole(method, path, String::new()).await
    }

    /// A page that must be there.
    pub(crate) async fn page(&self, path: &str) -> Answer {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.whole(Method::POST, path, encode(fields)).await
    }

    /// Presses a button of a page, with the fields of its form, after filling in some of them.
    pub(crate) async fn press(
        &self,
        page: &Answer,
        button: &str,
        filled: &[(&str, &str)],
    ) -> Answer {
        let (action, mut fields) = page.button(button);
        for (name, value) in filled {
            fields.retain(|(known, _)| known != name || *name == "job");
            fields.push(((*name).to_owned(), (*value).to_owned()));
        }
        let fields: Vec<(&str, &str)> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        self.post(&action, &fields).await
    }

    /// Requests the address that a redirect names.
    pub(crate) async fn follow(&self, answer: &Answer) -> Answer {
        assert_eq!(answer.status, 303, "{}", answer.text);
        self.page(answer.headers[header::LOCATION].to_str().expect("text"))
            .await
    }
}

fn encode(fields: &[(&str, &str)]) -> String {
    let set = percent_encoding::NON_ALPHANUMERIC;
    let pairs = fields.iter().map(|(name, value)| {
        let value = percent_encoding::utf8_percent_encode(value, set);
        format!("{name}={value}")
    });
    pairs.collect::<Vec<_>>().join("&")
}

pub(crate) fn select(selector: &str) -> Selector {
    Selector::parse(selector).expect("a selector")
}

pub(crate) fn text_of(element: ElementRef<'_>) -> String {
    let text: String = element.text().collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl Answer {
    pub(crate) fn html(&self) -> Html {
        Html::parse_document(&self.text)
    }

    /// Texts of all elements that a selector finds.
    pub(crate) fn texts(&self, selector: &str) -> Vec<String> {
        self.html().select(&select(selector)).map(text_of).collect()
    }

    /// The text of the one element that a selector finds.
    pub(crate) fn only(&self, selector: &str) -> String {
        let found = self.texts(selector);
        assert_eq!(found.len(), 1, "{selector}: {found:?}");
        found.into_iter().next().expect("one")
    }

    /// The text of `main`.
    pub(crate) fn main(&self) -> String {
        self.only("main")
    }

    /// Headings of the columns of the table with this caption.
    pub(crate) fn columns(&self, caption: &str) -> Vec<String> {
        let html = self.html();
        let table = table(&html, caption);
        table.select(&select("thead th")).map(text_of).collect()
    }

    /// Cells of the rows of the table with this caption.
    pub(crate) fn rows(&self, caption: &str) -> Vec<Vec<String>> {
        let html = self.html();
        let table = table(&html, caption);
        let cells = |row: ElementRef<'_>| row.select(&select("th, td")).map(text_of).collect();
        table.select(&select("tbody tr")).map(cells).collect()
    }

    /// Words of all buttons.
    pub(crate) fn buttons(&self) -> Vec<String> {
        self.texts("main button, main a.button")
    }

    /// The address of the link with this text.
    pub(crate) fn link(&self, text: &str) -> String {
        let html = self.html();
        let selector = select("a[href]");
        let link = html.select(&selector).find(|link| text_of(*link) == text);
        let link = link.unwrap_or_else(|| panic!("no link {text:?} in {}", self.main()));
        link.value().attr("href").expect("an address").to_owned()
    }

    /// Where a button sends its form, and the form's fields with that of the button.
    pub(crate) fn button(&self, words: &str) -> (String, Vec<(String, String)>) {
        let html = self.html();
        let selector = select("button");
        let button = html
            .select(&selector)
            .find(|button| text_of(*button) == words);
        let button =
            button.unwrap_or_else(|| panic!("no button {words:?} among {:?}", self.buttons()));
        let attr = |name: &str| button.value().attr(name).map(str::to_owned);
        let form = match attr("form") {
            Some(id) => html.select(&select(&format!("form#{id}"))).next(),
            None => button
                .ancestors()
                .filter_map(ElementRef::wrap)
                .find(|it| it.value().name() == "form"),
        };
        let form = form.expect("a form");
        let inputs = select("input[name], textarea[name]");
        let mut fields: Vec<(String, String)> = form
            .select(&inputs)
            .filter(|input| input.value().attr("type") != Some("checkbox"))
            .map(|input| {
                let name = input.value().attr("name").expect("a name").to_owned();
                let value = input.value().attr("value").map(str::to_owned);
                (name, value.unwrap_or_else(|| input.text().collect()))
            })
            .collect();
        if let (Some(name), Some(value)) = (attr("name"), attr("value")) {
            fields.push((name, value));
        }
        let action = attr("formaction").or(form.value().attr("action").map(str::to_owned));
        (action.expect("an action"), fields)
    }
}

fn table<'a>(html: &'a Html, caption: &str) -> ElementRef<'a> {
    let selector = select("table");
    let captions = select("caption");
    let mut tables = html.select(&selector);
    let found = tables.find(|table| table.select(&captions).any(|it| text_of(it) == caption));
    found.unwrap_or_else(|| panic!("no table {caption:?}"))
}
