//! The answer to a request below `/ui`: who asks, which page or action, and the headers that every answer has.

mod ask;
mod compress;
mod forms;
mod headers;
mod origin;
mod place;
mod sign_in;

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use axum::body::Body;
use ganger_access::Identity;
use ganger_shard::Health;
use ganger_types::{Namespace, ShardId};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use jiff::tz::TimeZone;
use maud::{Markup, html};

use crate::assets;
use crate::fault::Fault;
use crate::format::Clock;
use crate::frame::{self, Surroundings};
use crate::links::Links;
use crate::live;
use crate::notice;
use crate::page::{Page, Stop};
use crate::pages;
use crate::params::{EVERYWHERE, Params};
use crate::question;
use crate::rights::Rights;
use crate::session::{Session, cookie_of};
use crate::settings::{Payloads, Settings};
use crate::site::{Site, seconds_now};
use crate::view::{View, starting};

/// Name of the cookie with the zone of the browser, which the module sets.
const ZONE_COOKIE: &str = "ganger_zone";

/// The dashboard of a server. Cloning is a reference count.
#[derive(Clone)]
pub struct Dashboard(Site);

pub use place::{Elsewhere, Place};

/// The sender of a request, as the server has identified it.
#[derive(Clone, Debug)]
pub struct Visitor {
    /// Its identity: that of a session, a certificate, or anyone's where no credentials are asked for.
    pub identity: Identity,
    /// The address that the request came from; `None` if it is not known.
    pub from: Option<SocketAddr>,
    /// Set if another server forwards the request, which has checked where it comes from and how many there are.
    pub forwarded: Option<Forwarded>,
}

/// What a page has from the server that a person asked: what its settings forbid, whatever those of the server that
/// answers say, and the way out of the session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    is_read_only: bool,
    hides_payloads: bool,
    /// Token of the form that ends the session there; `None` without a session.
    sign_out: Option<String>,
}

/// A request, taken apart.
struct Asked<'a> {
    site: &'a Site,
    visitor: &'a Visitor,
    session: Option<Session>,
    head: &'a http::request::Parts,
    /// The path below `/ui`.
    path: &'a str,
    query: &'a str,
    began: Instant,
}

impl Dashboard {
    /// Makes the dashboard; reads or makes the file of sessions.
    ///
    /// # Errors
    /// If the file of sessions or the key file cannot be used.
    pub fn new(settings: Settings) -> io::Result<Self> {
        Site::new(settings).map(Self)
    }

    /// The part of a path below `/ui`, with or without the base path in front; `None` if the path is not ours.
    pub fn owns<'a>(&self, path: &'a str) -> Option<&'a str> {
        let below = path
            .strip_prefix(&*self.0.base)
            .filter(|rest| rest.starts_with('/'));
        let path = below.unwrap_or(path);
        if path == "/robots.txt" {
            return Some(path);
        }
        let rest = path.strip_prefix("/ui")?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// The address of the first page.
    pub fn home(&self) -> String {
        format!("{}/ui/", self.0.base)
    }

    /// The session of a request, unless it was ended. Whether its token still counts is for the server to look up.
    pub fn session(&self, headers: &HeaderMap) -> Option<Session> {
        let session = self.0.cookies.read(headers, seconds_now())?;
        (!self.0.kept.is_ended(session.nonce)).then_some(session)
    }

    /// Answers a request whose path is ours.
    pub async fn answer(&self, request: Request<Body>, visitor: Visitor) -> Response<Body> {
        let began = Instant::now();
        let (head, body) = request.into_parts();
        let path = self.owns(head.uri.path()).unwrap_or("/").to_owned();
        let asked = Asked {
            site: &self.0,
            visitor: &visitor,
            session: self.session(&head.headers),
            head: &head,
            path: &path,
            query: head.uri.query().unwrap_or_default(),
            began,
        };
        let response = asked.answer(body).await;
        let mut response = headers::add(response);
        if head.method == Method::HEAD {
            *response.body_mut() = Body::empty();
        }
        response
    }
}

impl Asked<'_> {
    async fn answer(&self, body: Body) -> Response<Body> {
        if let Some(file) = self.path.strip_prefix("/assets/") {
            let found = assets::answer(file, &self.head.headers);
            return found.unwrap_or_else(|| self.outside(&no_page(self.path)));
        }
        if self.path == "/robots.txt" {
            return plain("User-agent: *\nDisallow: /\n");
        }
        if self.visitor.forwarded.is_none() && !self.site.pace.allows(&self.party(), self.began) {
            return self.outside(&too_many());
        }
        let is_of_server = self.visitor.forwarded.is_some() && self.head.method == Method::POST;
        if is_of_server && self.path == question::PATH {
            return self.answer_question(body).await;
        }
        let is_read = matches!(self.head.method, Method::GET | Method::HEAD);
        let is_form = self.path.starts_with("/do/") || self.path == "/login";
        let is_sent = is_form && self.head.method == Method::POST;
        if !(is_read || is_sent) {
            return self.refuse_method(is_form);
        }
        if self.path.is_empty() {
            return redirect(self.links().bare("/").as_str());
        }
        if is_read && self.comes_from_another_site() {
            return self.once_more();
        }
        if self.path == "/login" {
            return if is_read {
                self.show_sign_in()
            } else {
                self.sign_in(body).await
            };
        }
        if self.visitor.identity == Identity::Anonymous {
            return self.send_to_sign_in();
        }
        if is_read {
            self.read().await
        } else {
            self.act(body).await
        }
    }

    /// The party whose requests are counted together.
    fn party(&self) -> String {
        match &self.session {
            Some(session) => session.nonce.to_string(),
            None => self
                .visitor
                .from
                .map_or_else(String::new, |from| from.ip().to_string()),
        }
    }

    fn links(&self) -> Links {
        Links::new(self.site.base.clone(), Namespace::default(), None)
    }

    /// The address that was asked for, as browsers know it.
    fn here(&self) -> String {
        let path = if self.path.is_empty() { "/" } else { self.path };
        let address = self.links().bare(path).as_str().to_owned();
        if self.query.is_empty() {
            address
        } else {
            format!("{address}?{}", self.query)
        }
    }

    async fn read(&self) -> Response<Body> {
        if self.path.starts_with("/do/") {
            return self.refuse_method(true);
        }
        match self.path {
            "/live" => {
                let (session, zone) = (self.session.as_ref(), self.zone());
                let mut stream =
                    live::answer(self.site, self.visitor, session, self.query, &zone).await;
                self.keep_session(&mut stream);
                stream
            }
            "/raw" => match self.view(self.query).await {
                Ok(view) => match pages::raw(&view, self.query).await {
                    Ok(response) => response,
                    Err(fault) => self.fault(&view, &fault).await,
                },
                Err(stop) => self.stopped(stop),
            },
            "/stats/csv" => match self.view(self.query).await {
                Ok(view) => match pages::stats_csv(&view, self.query).await {
                    Ok(response) => response,
                    Err(fault) => self.fault(&view, &fault).await,
                },
                Err(stop) => self.stopped(stop),
            },
            path => match self.view(self.query).await {
                Err(stop) => self.stopped(stop),
                Ok(view) => {
                    let page = if let Some(jobs) = starts(&view) {
                        Err(Stop::Fault(starting(jobs)))
                    } else {
                        pages::build(&view, path, self.query).await
                    };
                    match page {
                        Ok(page) => self.page(&view, &page).await,
                        Err(Stop::Fault(fault)) => self.fault(&view, &fault).await,
                        Err(stop) => self.stopped(stop),
                    }
                }
            },
        }
    }

    /// The view that a query asks for: namespace and shards, with the viewer's rights and clock.
    async fn view(&self, query: &str) -> Result<View, Stop> {
        let params = Params::read_any(query);
        let (namespace, shard) = scope(&params)?;
        let is_named = namespace.is_some();
        let view = make_view(
            self.site,
            self.visitor,
            namespace.unwrap_or_default(),
            shard,
            self.zone(),
        )?;
        let view = view.for_forms(self.form_key());
        if is_named || view.rights.may_read("listQueues") || self.head.method == Method::POST {
            return Ok(view);
        }
        // A viewer without rights in the default namespace begins in the first one of its own.
        let names = view.namespaces().await;
        let first = names.into_iter().find(|name| {
            make_view(self.site, self.visitor, name.clone(), None, self.zone())
                .is_ok_and(|view| view.rights.may_read("listQueues"))
        });
        match first {
            None => Ok(view),
            Some(first) => {
                let name = ganger_document::names::text(first.as_bytes());
                let here = self.here();
                let before = if here.contains('?') { '&' } else { '?' };
                let encoded = Links::new("".into(), Namespace::default(), None)
                    .bare("")
                    .with("ns", &name);
                let pair = encoded
                    .as_str()
                    .split_once('?')
                    .map_or("", |(_, pair)| pair)
                    .to_owned();
                Err(Stop::Elsewhere(format!("{here}{before}{pair}")))
            }
        }
    }

    fn zone(&self) -> TimeZone {
        let name = cookie_of(&self.head.headers, ZONE_COOKIE);
        let name = name.map(|name| name.replace("%2F", "/"));
        name.and_then(|name| TimeZone::get(&name).ok())
            .unwrap_or(TimeZone::UTC)
    }

    /// What tokens of this visitor's forms are made of; `None` where nobody has a session.
    fn form_key(&self) -> Option<Vec<u8>> {
        if self.site.settings.gate.is_open() {
            return None;
        }
        Some(match &self.session {
            Some(session) => session.nonce.0.to_vec(),
            // A certificate has no session, but a name that nobody else can have.
            None => self.visitor.identity.to_string().into_bytes(),
        })
    }

    async fn page(&self, view: &View, page: &Page) -> Response<Body> {
        let namespaces = view.namespaces().await;
        let waiting = cookie_of(&self.head.headers, notice::COOKIE);
        let notice = waiting.and_then(|name| self.site.notices.take(name));
        let here = if self.head.method == Method::POST {
            page.asks_at
                .clone()
                .unwrap_or_else(|| view.links.to("/").as_str().to_owned())
        } else {
            self.here()
        };
        let around = Surroundings {
            view,
            namespaces: &namespaces,
            here: &here,
            notice: notice.as_ref(),
            is_open: self.site.settings.gate.is_open(),
            has_session: self.session.is_some(),
            sign_out_elsewhere: self
                .visitor
                .forwarded
                .as_ref()
                .and_then(|it| it.sign_out.as_deref()),
            made_in: self.began.elapsed(),
        };
        let document = frame::document(page, &around);
        let mut response = self.html(page.status, &document);
        self.keep_session(&mut response);
        if waiting.is_some() {
            let clear = self.site.cookies.header(notice::COOKIE, "", 0);
            response.headers_mut().append(header::SET_COOKIE, clear);
        }
        response
    }

    /// Gives the browser a later end of its session, if it is time.
    fn keep_session(&self, response: &mut Response<Body>) {
        if let Some(session) = &self.session {
            self.site.renew(session, response);
        }
    }

    async fn fault(&self, view: &View, fault: &Fault) -> Response<Body> {
        let status = (self.site.settings.status_of)(fault.code);
        let page = pages::fault_page(fault, status, view.links.to("/").as_str());
        let mut response = self.page(view, &page).await;
        retry_after(&mut response, fault);
        response
    }

    fn stopped(&self, stop: Stop) -> Response<Body> {
        match stop {
            Stop::Elsewhere(address) => redirect(&address),
            Stop::Fault(fault) => self.outside(&fault),
        }
    }

    /// A refusal without the frame, for those whose rights are not known.
    fn outside(&self, fault: &Fault) -> Response<Body> {
        let status = (self.site.settings.status_of)(fault.code);
        let links = self.links();
        let content = pages::plain_fault(fault, links.bare("/").as_str());
        let document = frame::outside(&links, &fault.heading, None, &content);
        let mut response = self.html(status, &document);
        retry_after(&mut response, fault);
        response
    }

    fn html(&self, status: StatusCode, document: &Markup) -> Response<Body> {
        let mut response = compress::html(&self.head.headers, document.0.as_bytes());
        *response.status_mut() = status;
        response
    }

    fn refuse_method(&self, is_form: bool) -> Response<Body> {
        let fault = Fault::new(
            "method_not_allowed",
            "This method is not possible here",
            format!("{} is not possible at this address.", self.head.method),
        );
        let mut response = self.outside(&fault);
        let allowed = if is_form { "POST" } else { "GET, HEAD" };
        response
            .headers_mut()
            .insert(header::ALLOW, HeaderValue::from_static(allowed));
        response
    }

    /// Whether a browser follows a link from another site, for which it leaves a strict cookie out.
    fn comes_from_another_site(&self) -> bool {
        let is = |name: &str, value: &str| {
            self.head
                .headers
                .get(name)
                .is_some_and(|found| found.as_bytes() == value.as_bytes())
        };
        self.session.is_none()
            && !self.site.settings.gate.is_open()
            && self.visitor.identity == Identity::Anonymous
            && is("sec-fetch-site", "cross-site")
            && is("sec-fetch-mode", "navigate")
    }

    /// A page that asks for itself again, now from our own site.
    fn once_more(&self) -> Response<Body> {
        let here = self.here();
        let content = html! { h1 { "Opening the dashboard" } p { a href=(here) { "Continue" } } };
        let document = frame::outside(&self.links(), "Opening", Some((0, &here)), &content);
        self.html(StatusCode::OK, &document)
    }
}

/// Jobs that the first shard of a view has read so far, if it is still starting.
fn starts(view: &View) -> Option<u64> {
    match view.shards().first()?.health() {
        Health::Starting { jobs } => Some(jobs),
        _ => None,
    }
}

/// The namespace and the shard that parameters name.
pub(crate) fn scope(params: &Params) -> Result<(Option<Namespace>, Option<ShardId>), Fault> {
    let [ns, shard] = EVERYWHERE;
    let shard = match params.text(shard)? {
        None | Some("all") => None,
        Some(text) => Some(
            ShardId::new(text).ok_or_else(|| Fault::value(shard, "is not the name of a shard"))?,
        ),
    };
    Ok((params.name(ns)?, shard))
}

/// The view of a visitor.
pub(crate) fn make_view(
    site: &Site,
    visitor: &Visitor,
    namespace: Namespace,
    shard: Option<ShardId>,
    zone: TimeZone,
) -> Result<View, Fault> {
    let options = &site.settings.options;
    let forwarded = visitor.forwarded.clone().unwrap_or_default();
    let rights = Rights::new(
        visitor.identity.clone(),
        namespace.clone(),
        site.table.clone(),
        options.is_read_only || forwarded.is_read_only,
        if forwarded.hides_payloads {
            Payloads::Hidden
        } else {
            options.payloads
        },
    );
    let links = Links::new(site.base.clone(), namespace, shard);
    let now = site.home().wall_time();
    View::new(site.clone(), links, Clock { now, zone }, rights)
}

/// `303` to an address of ours.
fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::try_from(to).unwrap_or(HeaderValue::from_static("/ui/"));
    response.headers_mut().insert(header::LOCATION, to);
    response
}

fn plain(text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}

fn retry_after(response: &mut Response<Body>, fault: &Fault) {
    if let Some(after) = fault.retry_after {
        let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
}

fn no_page(path: &str) -> Fault {
    Fault::new(
        "path_not_found",
        "There is no such page",
        format!("The dashboard has nothing at {path:?}."),
    )
}

fn too_many() -> Fault {
    Fault::new(
        "too_many_attempts",
        "Too many requests",
        "This session has sent more than 50 requests within a second.",
    )
    .retry_after(std::time::Duration::from_secs(1))
}
