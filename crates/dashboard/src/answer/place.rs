//! Where a request is answered: what concerns a shard that only another server has is forwarded there.

use std::time::Instant;

use axum::body::Body;
use futures::StreamExt as _;
use ganger_access::Identity;
use ganger_types::ShardId;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, header};

use crate::actions::Form;
use crate::params::{EVERYWHERE, Params};
use crate::session::{Session, cookie_of};
use crate::settings::{Payloads, Settings};

use super::{Asked, Dashboard, Forwarded, Visitor, headers, notice, origin, too_many};

/// Header of a forwarded request with what the settings of the forwarding server forbid.
const FORBIDS: HeaderName = HeaderName::from_static("ganger-dashboard-forbids");
/// Header of a forwarded request with the token that ends the session of the forwarding server.
const SIGN_OUT: HeaderName = HeaderName::from_static("ganger-dashboard-sign-out");
/// Word of [`FORBIDS`] for `ui.read_only`.
const ACTIONS: &str = "actions";
/// Word of [`FORBIDS`] for `ui.payloads`.
const PAYLOADS: &str = "payloads";

/// Where a request is answered.
pub enum Place {
    /// By this server, whose shards it is about.
    Here(Request<Body>),
    /// By the server of another shard.
    Elsewhere(Elsewhere),
    /// Nowhere: it is refused.
    Refused(Response<Body>),
}

/// A request for another server, with the identity that this server has found.
pub struct Elsewhere {
    /// The shard that it is about.
    pub shard: ShardId,
    /// The request as it is forwarded: the cookie of the session stays here.
    pub request: Request<Body>,
    session: Option<Session>,
}

impl Forwarded {
    /// Takes the headers of the forwarding server from a request.
    pub fn take(headers: &mut HeaderMap) -> Self {
        let value = headers.remove(FORBIDS);
        let text = value.as_ref().and_then(|value| value.to_str().ok());
        let words: Vec<&str> = text.unwrap_or_default().split(' ').collect();
        let sign_out = headers.remove(SIGN_OUT);
        Self {
            sign_out: sign_out.and_then(|token| token.to_str().ok().map(str::to_owned)),
            is_read_only: words.contains(&ACTIONS),
            hides_payloads: words.contains(&PAYLOADS),
        }
    }

    /// Adds what the settings of this server forbid.
    fn add(settings: &Settings, headers: &mut HeaderMap) {
        let options = &settings.options;
        let words = match (options.is_read_only, options.payloads == Payloads::Hidden) {
            (false, false) => "",
            (true, false) => ACTIONS,
            (false, true) => PAYLOADS,
            (true, true) => "actions payloads",
        };
        headers.insert(FORBIDS, HeaderValue::from_static(words));
    }
}

impl Dashboard {
    /// Finds where a request is answered. One for another server is checked here for how many there are and, if it is a
    /// form, for where it comes from.
    pub async fn place(&self, request: Request<Body>, visitor: &Visitor) -> Place {
        let path = self.owns(request.uri().path()).unwrap_or("/").to_owned();
        let is_page = !(path.starts_with("/assets/") || matches!(&*path, "/robots.txt" | "/login"));
        if !is_page || visitor.identity == Identity::Anonymous {
            return Place::Here(request);
        }
        let elsewhere = self.0.elsewhere();
        if elsewhere.is_empty() {
            return Place::Here(request);
        }
        let (head, body) = request.into_parts();
        let asked = Asked {
            site: &self.0,
            visitor,
            session: self.session(&head.headers),
            head: &head,
            path: &path,
            query: head.uri.query().unwrap_or_default(),
            began: Instant::now(),
        };
        let (shard, body) = match asked.shard(body).await {
            Ok(found) => found,
            Err(refusal) => return Place::Refused(headers::add(refusal)),
        };
        let Some(shard) = shard.filter(|shard| elsewhere.contains(shard)) else {
            return Place::Here(Request::from_parts(head, body));
        };
        if !self.0.pace.allows(&asked.party(), asked.began) {
            return Place::Refused(headers::add(asked.outside(&too_many())));
        }
        let session = asked.session.clone();
        let key = asked.form_key().filter(|_| session.is_some());
        let sign_out = key.map(|key| self.0.csrf.token(&key));
        let mut request = Request::from_parts(head, body);
        keep_harmless_cookies(request.headers_mut());
        Forwarded::add(&self.0.settings, request.headers_mut());
        request.headers_mut().remove(SIGN_OUT);
        if let Some(Ok(token)) = sign_out.map(HeaderValue::try_from) {
            request.headers_mut().insert(SIGN_OUT, token);
        }
        Place::Elsewhere(Elsewhere {
            shard,
            request,
            session,
        })
    }

    /// The answer of another server: it renews the session as one of this server does, and ends with it.
    pub fn answered_elsewhere(
        &self,
        session: Option<Session>,
        mut response: Response<Body>,
    ) -> Response<Body> {
        let Some(session) = session else {
            return response;
        };
        self.0.renew(&session, &mut response);
        let site = self.0.clone();
        let ended = async move { site.session_over(&session).await };
        response.map(|body| Body::from_stream(body.into_data_stream().take_until(Box::pin(ended))))
    }
}

impl Elsewhere {
    /// Takes it apart: the shard, the request, and the session for [`Dashboard::answered_elsewhere`].
    pub fn into_parts(self) -> (ShardId, Request<Body>, Option<Session>) {
        (self.shard, self.request, self.session)
    }
}

impl Asked<'_> {
    /// The shard that the request is about, and its body again.
    async fn shard(&self, body: Body) -> Result<(Option<ShardId>, Body), Response<Body>> {
        if self.head.method != Method::POST {
            return Ok((shard_of_page(self.path, self.query), body));
        }
        let Some(action) = self.path.strip_prefix("/do/") else {
            return Ok((None, body));
        };
        if let Err(reason) = origin::check(&self.site.settings, self.head) {
            return Err(self.refuse_cross_site(action, reason));
        }
        let text = self.form_text(body).await;
        let text = text.map_err(|fault| self.outside(&fault))?;
        let form = Form::read(&text).ok();
        Ok((form.as_ref().and_then(shard_of_form), Body::from(text)))
    }
}

/// Leaves only the cookies that another server needs for the page: the zone, and the name of a notice.
fn keep_harmless_cookies(headers: &mut HeaderMap) {
    let kept = [super::ZONE_COOKIE, notice::COOKIE];
    let pairs = kept.into_iter().filter_map(|name| {
        let value = cookie_of(headers, name)?;
        Some(format!("{name}={value}"))
    });
    let cookies = pairs.collect::<Vec<_>>().join("; ");
    headers.remove(header::COOKIE);
    if let Ok(value) = HeaderValue::try_from(cookies)
        && !value.is_empty()
    {
        headers.insert(header::COOKIE, value);
    }
}

/// The shard that the address of a page names; `None` if it is about all shards or the first one.
fn shard_of_page(path: &str, query: &str) -> Option<ShardId> {
    let params = Params::read_any(query);
    let text = |name: &str| params.text(name).ok().flatten();
    if path == "/live" {
        let (below, query) = text("view")?.split_once('?')?;
        return shard_of_page(below, query);
    }
    let named = text(EVERYWHERE[1]).filter(|shard| *shard != "all");
    named
        .and_then(ShardId::new)
        .or_else(|| shard_of_reference(text("id")?))
        .or_else(|| shard_of_reference(text("like")?))
}

/// The shard that a form is about; `None` if about none, or about several.
fn shard_of_form(form: &Form) -> Option<ShardId> {
    let text = |name: &str| form.text(name).ok().flatten();
    let of_jobs = |params: &Params| {
        let jobs = params.texts("job").ok()?;
        let mut shards = jobs.iter().map(|job| shard_of_reference(job));
        let first = shards.next()??;
        // Jobs of several shards are changed by the server that is asked, which asks the others.
        shards
            .all(|shard| shard.as_ref() == Some(&first))
            .then_some(first)
    };
    text(EVERYWHERE[1])
        .and_then(ShardId::new)
        .or_else(|| of_jobs(&form.with))
        .or_else(|| of_jobs(&form.fields))
        .or_else(|| shard_of_reference(text("id")?))
}

/// The shard of a reference such as `2/job-7`; `None` for names without one.
fn shard_of_reference(text: &str) -> Option<ShardId> {
    let (shard, _) = text.split_once('/')?;
    ShardId::new(shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shard_of_a_page_is_the_one_that_it_names_or_that_of_its_job() {
        for (path, query, shard) in [
            ("/queues", "", None),
            ("/queues", "shard=all", None),
            ("/queues", "shard=2", Some("2")),
            ("/job", "id=3/abc&view=log", Some("3")),
            ("/jobs/new", "like=3%2Fabc", Some("3")),
            ("/schedule", "id=nightly", None),
            (
                "/live",
                "view=%2Fui%2Fjob%3Fid%3D4%252Fabc&seen=",
                Some("4"),
            ),
            ("/live", "view=/ui/queues", None),
        ] {
            let found = shard_of_page(path, query);
            assert_eq!(found.as_ref().map(ShardId::as_str), shard, "{path}?{query}");
        }
    }

    #[test]
    fn the_shard_of_a_form_is_that_of_its_button_or_of_its_jobs() {
        for (body, shard) in [
            ("csrf=x&queue=mail", None),
            ("with=queue%3Dmail%26shard%3D2", Some("2")),
            ("job=3/a&job=3/b", Some("3")),
            ("job=3/a&job=2/b", None),
            ("id=2/op-7", Some("2")),
        ] {
            let form = Form::read(body).expect("readable");
            let found = shard_of_form(&form);
            assert_eq!(found.as_ref().map(ShardId::as_str), shard, "{body}");
        }
    }

    #[test]
    fn the_cookie_of_the_session_stays_here() {
        let mut headers = HeaderMap::new();
        let cookies = "ganger_session=secret; ganger_zone=Europe%2FVienna; other=1";
        headers.insert(header::COOKIE, HeaderValue::from_static(cookies));
        keep_harmless_cookies(&mut headers);
        assert_eq!(headers[header::COOKIE], "ganger_zone=Europe%2FVienna");
    }
}
