//! Signing in and out.

use axum::body::Body;
use futures::future::join_all;
use ganger_access::{Identity, Outcome, Record};
use ganger_shard::Handle;
use ganger_types::Namespace;
use http::{Response, StatusCode, header};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::frame;
use crate::links::own_path;
use crate::pages::{Login, login_form};
use crate::params::Params;
use crate::question::{Question, Shard};
use crate::rights::Table;
use crate::session::{Nonce, Session};
use crate::settings::{Accepted, Unaccepted};
use crate::site::seconds_now;
use crate::view::View;

use super::{Asked, make_view, origin, redirect};

impl Asked<'_> {
    /// Shows the form, or goes on if the visitor is signed in already.
    pub(super) fn show_sign_in(&self) -> Response<Body> {
        let params = Params::read_any(self.query);
        let to = params.text("to").ok().flatten().and_then(own_path);
        let to = to.map_or_else(|| self.home(), str::to_owned);
        if self.visitor.identity != Identity::Anonymous {
            return redirect(&to);
        }
        let ended = self.session.is_some().then(|| {
            "This session has ended: its token was revoked, has expired or has other rights now, or your browser shows no client certificate.".to_owned()
        });
        self.form_page(StatusCode::OK, &to, ended)
    }

    fn home(&self) -> String {
        self.links().bare("/").as_str().to_owned()
    }

    fn form_page(&self, status: StatusCode, to: &str, refusal: Option<String>) -> Response<Body> {
        let login = Login {
            refusal,
            to: to.to_owned(),
            takes_tokens: self.site.settings.gate.takes_tokens(),
        };
        let links = self.links();
        let document = frame::outside(&links, "Sign in", None, &login_form(&links, &login));
        self.html(status, &document)
    }

    /// Where those go who are not signed in.
    pub(super) fn send_to_sign_in(&self) -> Response<Body> {
        if self.path == "/live" {
            return crate::live::signed_out();
        }
        let is_action = self.path.starts_with("/do/");
        let to = if is_action { self.home() } else { self.here() };
        let address = self.links().bare("/login").with("to", &to);
        redirect(address.as_str())
    }

    /// Checks the token of the form.
    pub(super) async fn sign_in(&self, body: Body) -> Response<Body> {
        if let Err(reason) = origin::check(&self.site.settings, self.head) {
            return self.refuse_cross_site("signIn", reason);
        }
        let text = match self.form_text(body).await {
            Ok(text) => text,
            Err(fault) => return self.outside(&fault),
        };
        let fields = Params::read_any(&text);
        let to = fields.text("to").ok().flatten().and_then(own_path);
        let to = to.map_or_else(|| self.home(), str::to_owned);
        let token = fields.bytes("token").unwrap_or_default().trim_ascii();
        let gate = &self.site.settings.gate;
        if gate.is_open() {
            return redirect(&to);
        }
        match gate.check(token, self.visitor.from).await {
            Ok(accepted) => self.begin_session(accepted, &to),
            Err(Unaccepted::Unknown) => {
                let text = "That token is not known, or has expired.";
                self.form_page(StatusCode::UNAUTHORIZED, &to, Some(text.to_owned()))
            }
            Err(Unaccepted::TooMany { retry_after }) => self.outside(
                &Fault::new(
                    "too_many_attempts",
                    "Too many wrong tokens",
                    "Too many wrong tokens came from this address.",
                )
                .retry_after(retry_after),
            ),
        }
    }

    fn begin_session(&self, accepted: Accepted, to: &str) -> Response<Body> {
        let Accepted {
            identity,
            name,
            hash,
        } = accepted;
        let log = |outcome, detail: Option<&str>| {
            self.site.settings.audit.write(&Record {
                from: self.visitor.from,
                detail: detail.map(str::to_owned),
                via: Some("ui"),
                ..Record::new(identity.to_string(), "signIn", outcome)
            });
        };
        if !may_read_something(&identity, &self.site.table) {
            log(Outcome::Refused, Some("the token may read nothing"));
            let text = "This token may take jobs and nothing else.";
            return self.form_page(StatusCode::FORBIDDEN, to, Some(text.to_owned()));
        }
        log(Outcome::Done, None);
        let now = seconds_now();
        let session = Session::begin(name, hash, now, self.site.life);
        let mut response = redirect(to);
        let cookie = self.site.cookies.set(&session, now);
        response.headers_mut().append(header::SET_COOKIE, cookie);
        response
    }

    /// Ends the session, so that its cookie is refused from now on.
    pub(super) async fn sign_out(&self) -> Response<Body> {
        if let Some(session) = &self.session {
            let end = session.issued + self.site.life.max.as_secs();
            let kept = self.site.kept.end(session.nonce, end, seconds_now());
            if let Err(error) = kept {
                tracing::error!(%error, "an ended session could not be written down; a restart would let it in again");
            }
            self.audit("signOut", Outcome::Done, None);
            self.tell_others(session.nonce, end).await;
        }
        let mut response = redirect(self.links().bare("/login").as_str());
        let cookie = self.site.cookies.clear();
        response.headers_mut().append(header::SET_COOKIE, cookie);
        response
    }
}

impl Asked<'_> {
    /// Ends a session on the other servers too, which may share its key.
    async fn tell_others(&self, nonce: Nonce, until: u64) {
        let view = make_view(
            self.site,
            self.visitor,
            Namespace::default(),
            None,
            TimeZone::UTC,
        );
        let Ok(view) = view else { return };
        let question = EndSession {
            nonce: nonce.to_string(),
            until,
        };
        let others = view.everywhere().iter();
        let others = others.filter(|shard| matches!(shard, Shard::Elsewhere(_)));
        let told = others.map(|shard| shard.ask(&view, &question));
        for fault in join_all(told).await.into_iter().filter_map(Result::err) {
            let reason = format!("{}: {}", fault.heading, fault.detail);
            tracing::warn!(%reason, "another server could not be told that a session was ended");
        }
    }
}

/// Ends a session on another server behind the same address.
#[derive(Serialize, Deserialize)]
pub(crate) struct EndSession {
    nonce: String,
    /// Seconds since the epoch until which it would count.
    until: u64,
}

impl Question for EndSession {
    const NAME: &'static str = "end_session";
    type Answer = ();

    fn operation(&self) -> &'static str {
        "whoAmI"
    }

    async fn ask(&self, view: &View, _: &Handle) -> Result<(), Fault> {
        let nonce = Nonce::read(&self.nonce);
        let nonce = nonce.ok_or_else(|| Fault::value("nonce", "names no session"))?;
        let kept = view.site.kept.end(nonce, self.until, seconds_now());
        if let Err(error) = kept {
            tracing::error!(%error, "an ended session could not be written down; a restart would let it in again");
        }
        Ok(())
    }
}

fn may_read_something(identity: &Identity, table: &Table) -> bool {
    let listing = table.get("listQueues");
    listing.is_some_and(|operation| identity.may_somewhere(*operation).is_ok())
}
