//! Questions of other servers, which ask for their pages of all shards.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Response, header};
use http_body_util::{BodyExt as _, Limited};

use crate::actions;
use crate::data;
use crate::fault::Fault;
use crate::page::Stop;
use crate::pages;
use crate::params::Params;
use crate::question::{QUESTION_BYTES_MAX, Question, Refusal, WHAT, answer};
use crate::view::View;

use super::Asked;

/// Answers the question of this name; `None` if there is none.
macro_rules! answer_one_of {
    ($view:ident, $name:ident, $body:ident; $($question:ty),* $(,)?) => {
        match $name {
            $(<$question>::NAME => answer::<$question>($view, $body).await,)*
            _ => Err(Fault::value(WHAT, "names no question of this version")),
        }
    };
}

async fn answer_named(view: &View, name: &str, body: &[u8]) -> Result<Bytes, Fault> {
    answer_one_of!(view, name, body;
        super::sign_in::EndSession,
        actions::changes::Act,
        actions::changes::ActOnGraph,
        actions::changes::Begin,
        actions::changes::End,
        actions::changes::Move,
        actions::changes::States,
        actions::changes::Try,
        data::events::Kept,
        data::jobs::Count,
        data::jobs::ExactCount,
        data::jobs::GroupCounts,
        data::jobs::List,
        data::operations::Newest,
        data::queues::All,
        data::queues::Closer,
        data::series::Steps,
        pages::audit::Records,
        pages::failures::Groups,
        pages::namespaces::Records,
        pages::namespaces::Sum,
        pages::schedule::Find,
        pages::schedules::All,
        pages::schedules::LastJobs,
        pages::search::Beginning,
        pages::shards::Ask,
        pages::stats::Kinds,
        pages::workers::All,
    )
}

impl Asked<'_> {
    /// Answers a question about a shard of this server.
    pub(super) async fn answer_question(&self, body: Body) -> Response<Body> {
        let view = match self.view(self.query).await {
            Ok(view) => view,
            Err(Stop::Fault(fault)) => return self.refusal(&fault),
            Err(stop) => return self.stopped(stop),
        };
        let params = Params::read_any(self.query);
        let name = params.text(WHAT).ok().flatten().unwrap_or_default();
        let body = Limited::new(body, QUESTION_BYTES_MAX).collect().await;
        let answer = match body {
            Ok(body) => answer_named(&view, name, &body.to_bytes()).await,
            Err(error) => Err(Fault::value("question", &error.to_string())),
        };
        match answer {
            Ok(answer) => json(answer),
            Err(fault) => self.refusal(&fault),
        }
    }

    fn refusal(&self, fault: &Fault) -> Response<Body> {
        let text = serde_json::to_vec(&Refusal::from(fault)).unwrap_or_default();
        let mut response = json(text.into());
        *response.status_mut() = (self.site.settings.status_of)(fault.code);
        response
    }
}

fn json(answer: Bytes) -> Response<Body> {
    let mut response = Response::new(Body::from(answer));
    let media_type = HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, media_type);
    response
}
