//! Forms that ask for an action: where they come from, whether they were sent before, and what their answer leads to.

use axum::body::Body;
use bytes::Bytes;
use ganger_access::{Outcome, Record};
use http::{Response, header};
use http_body_util::{BodyExt as _, Limited};

use crate::actions::{self, Answered, Done, FORM_BYTES_MAX, Form, Sent};
use crate::fault::Fault;
use crate::frame::SESSION_TOKEN;
use crate::notice::{self, Notice};
use crate::view::View;

use super::{Asked, origin, redirect};

impl Asked<'_> {
    /// Carries out an action.
    pub(super) async fn act(&self, body: Body) -> Response<Body> {
        let action = self.path.trim_start_matches("/do/");
        if self.visitor.forwarded.is_none()
            && let Err(reason) = origin::check(&self.site.settings, self.head)
        {
            return self.refuse_cross_site(action, reason);
        }
        let form = match self.form(body).await {
            Ok(form) => form,
            Err(fault) => return self.outside(&fault),
        };
        if let Some(key) = self.form_key() {
            let token = form.fields.text("csrf").ok().flatten().unwrap_or_default();
            let of_session = form.fields.text(SESSION_TOKEN).ok().flatten();
            let of_session = of_session
                .filter(|_| action == "signOut")
                .unwrap_or_default();
            let is_good = |token: &str| self.site.csrf.is_good(&key, token);
            if !is_good(token) && !is_good(of_session) {
                return self.refuse_cross_site(action, "the form has no valid token");
            }
        }
        if action == "signOut" {
            return self.sign_out().await;
        }
        let scope = form.text("ns").ok().flatten().map(str::to_owned);
        let query = scope.map_or_else(String::new, |ns| {
            let address = self.links().bare("").with("ns", &ns);
            address
                .as_str()
                .split_once('?')
                .map_or("", |(_, query)| query)
                .to_owned()
        });
        let view = match self.view(&query).await {
            Ok(view) => view,
            Err(stop) => return self.stopped(stop),
        };
        self.act_once(&view, action, &form).await
    }

    /// Does an action, unless the same form has done it already.
    async fn act_once(&self, view: &View, action: &str, form: &Form) -> Response<Body> {
        // Only its hash is remembered: a selection may be long.
        let key = form.fingerprint(action);
        let back = form
            .back()
            .map_or_else(|| view.links.to("/").as_str().to_owned(), str::to_owned);
        let is_keyed = form.fields.has("key");
        if is_keyed && let Sent::Again(answered) = self.site.repeats.begin(&key) {
            return self.sent_again(answered, &back);
        }
        let done = actions::act(view, action, form, self.visitor.from).await;
        match done {
            Ok(Done::Notice { notice, to }) => {
                let to = to.unwrap_or(back);
                if notice.is_done {
                    let answered = Answered {
                        to: to.clone(),
                        text: notice.text.clone(),
                    };
                    self.site.repeats.end(&key, answered);
                } else {
                    self.site.repeats.forget(&key);
                }
                self.with_notice(&to, notice)
            }
            Ok(Done::Page(page)) => {
                self.site.repeats.forget(&key);
                self.page(view, &page).await
            }
            Err(fault) => {
                self.site.repeats.forget(&key);
                self.fault(view, &fault).await
            }
        }
    }

    /// Answers a form that was sent before, by a second click or from the history of the browser: nothing is done, and
    /// the page says so.
    fn sent_again(&self, answered: Option<Answered>, back: &str) -> Response<Body> {
        let Some(Answered { to, text }) = answered else {
            return redirect(back);
        };
        let notice = Notice::done(format!(
            "{text} The same form came twice and was done once. To do it again, open its page again."
        ));
        self.with_notice(&to, notice)
    }

    fn with_notice(&self, to: &str, notice: Notice) -> Response<Body> {
        let name = self.site.notices.put(notice);
        let mut response = redirect(to);
        let cookie = self
            .site
            .cookies
            .header(notice::COOKIE, &name, notice::COOKIE_SECONDS);
        response.headers_mut().append(header::SET_COOKIE, cookie);
        response
    }

    pub(super) fn refuse_cross_site(&self, action: &str, reason: &str) -> Response<Body> {
        self.audit(
            action,
            Outcome::Denied,
            Some(format!("cross_site_refused: {reason}")),
        );
        self.outside(&Fault::new(
            "cross_site_refused",
            "This form was not sent from a page of this server",
            format!("{reason}: open the page again and repeat what you did."),
        ))
    }

    pub(super) fn audit(&self, what: &str, outcome: Outcome, detail: Option<String>) {
        let what: String = what.chars().take(100).collect();
        self.site.settings.audit.write(&Record {
            from: self.visitor.from,
            detail,
            via: Some("ui"),
            ..Record::new(self.visitor.identity.to_string(), what, outcome)
        });
    }

    /// Reads the body of a form.
    async fn form(&self, body: Body) -> Result<Form, Fault> {
        Form::read(&self.form_text(body).await?)
    }

    pub(super) async fn form_text(&self, body: Body) -> Result<String, Fault> {
        let media_type = self
            .head
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        if !media_type.is_some_and(|it| it.starts_with("application/x-www-form-urlencoded")) {
            return Err(Fault::new(
                "content_type_unsupported",
                "This is not a form",
                "The body must be application/x-www-form-urlencoded.",
            ));
        }
        let read = Limited::new(body, FORM_BYTES_MAX).collect().await;
        let bytes: Bytes = match read {
            Ok(read) => read.to_bytes(),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                let limit = crate::format::bytes(u64::try_from(FORM_BYTES_MAX).unwrap_or(0));
                return Err(Fault::new(
                    "body_too_large",
                    "The form is too large",
                    format!("A form has at most {limit}."),
                ));
            }
            Err(_) => {
                return Err(Fault::new(
                    "body_incomplete",
                    "The form is incomplete",
                    "It ended too early. Send it again.",
                ));
            }
        };
        String::from_utf8(bytes.to_vec()).map_err(|_| Fault::value("form", "is not UTF-8"))
    }
}
