//! Where a request is answered: what concerns a shard that only another server has is forwarded there.

use std::time::Instant;

use axum::body::Body;
use ganger_access::Identity;
use ganger_types::ShardId;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};

use crate::actions::Form;
use crate::params::{EVERYWHERE, Params};
use crate::session::cookie_of;

use super::{Asked, Dashboard, Visitor, headers, notice, origin};

/// Where a request is answered.
pub enum Place {
    /// By this server, whose shards it is about.
    Here(Request<Body>),
    /// By the server of this shard, with the identity that this server has found.
    Elsewhere(ShardId, Request<Body>),
    /// Nowhere: it is refused.
    Refused(Response<Body>),
}

impl Dashboard {
    /// Finds where a request is answered. One for another server leaves the cookie of the session here; a form for it is
    /// checked here for where it comes from.
    pub async fn place(&self, request: Request<Body>, visitor: &Visitor) -> Place {
        let path = self.owns(request.uri().path()).unwrap_or("/").to_owned();
        let is_page = !(path.starts_with("/assets/") || matches!(&*path, "/robots.txt" | "/login"));
        let elsewhere = self.0.elsewhere();
        if !is_page || elsewhere.is_empty() || visitor.identity == Identity::Anonymous {
            return Place::Here(request);
        }
        let is_elsewhere = |shard: &ShardId| elsewhere.contains(shard);
        let (mut head, body) = request.into_parts();
        let query = head.uri.query().unwrap_or_default();
        if head.method != Method::POST {
            let shard = shard_of_page(&path, query).filter(is_elsewhere);
            return placed(head, body, shard);
        }
        let Some(action) = path.strip_prefix("/do/") else {
            return Place::Here(Request::from_parts(head, body));
        };
        let asked = Asked {
            site: &self.0,
            visitor,
            session: self.session(&head.headers),
            head: &head,
            path: &path,
            query,
            began: Instant::now(),
        };
        let text = match asked.form_text(body).await {
            Ok(text) => text,
            Err(fault) => return Place::Refused(headers::add(asked.outside(&fault))),
        };
        let shard = Form::read(&text).ok().and_then(|form| shard_of_form(&form));
        let shard = shard.filter(is_elsewhere);
        if shard.is_some()
            && let Err(reason) = origin::check(&self.0.settings, &head)
        {
            return Place::Refused(headers::add(asked.refuse_cross_site(action, reason)));
        }
        head.headers.remove(header::TRANSFER_ENCODING);
        placed(head, Body::from(text), shard)
    }
}

fn placed(mut head: Parts, body: Body, shard: Option<ShardId>) -> Place {
    match shard {
        None => Place::Here(Request::from_parts(head, body)),
        Some(shard) => {
            keep_harmless_cookies(&mut head.headers);
            Place::Elsewhere(shard, Request::from_parts(head, body))
        }
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

/// The shard that a form is about.
fn shard_of_form(form: &Form) -> Option<ShardId> {
    let text = |name: &str| form.text(name).ok().flatten();
    let first = |params: &Params| {
        let jobs = params.texts("job").ok()?;
        shard_of_reference(jobs.first()?)
    };
    text(EVERYWHERE[1])
        .and_then(ShardId::new)
        .or_else(|| first(&form.with))
        .or_else(|| first(&form.fields))
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
    fn the_shard_of_a_form_is_that_of_its_button_or_of_its_first_job() {
        for (body, shard) in [
            ("csrf=x&queue=mail", None),
            ("with=queue%3Dmail%26shard%3D2", Some("2")),
            ("job=3/a&job=3/b", Some("3")),
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
