//! The attempts of a job: when, on which worker, how long, how they ended, how much they logged.

use axum::response::Response;
use ganger_document::view::attempt::Attempts;

use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::resource::jobs::find;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let job = find(&context).await?;
    let shard = context.shard();
    let mut attempts = Attempts::new(&job, shard.wall_time());
    for attempt in &mut attempts.attempts {
        attempt.log_bytes = shard.log_bytes(job.record.key, attempt.attempt).await?;
    }
    Ok(json::ok(&attempts))
}
