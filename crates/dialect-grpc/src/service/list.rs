//! A page of a list of jobs.

use ganger_proto::{convert, v1};
use ganger_types::cursor::ready_place_text;
use ganger_types::query::Budget;

use crate::ServiceContext;
use crate::decode::{self, Order};
use crate::problem::Problem;

impl ServiceContext {
    /// Returns the page that a request asks for.
    pub(crate) async fn list_page(
        &self,
        request: v1::ListRequest,
    ) -> Result<v1::ListReply, Problem> {
        let (brief, summary) = (request.brief || request.summary, request.summary);
        let (query, order) = decode::listing(request)?;
        let is_bounded = query.budget != Budget::default();
        let (jobs, next, looked) = match order {
            Order::Number => {
                let page = self.handle.list(query).await?;
                let next = page.next.map(|cursor| cursor.to_string());
                (page.jobs, next, page.looked)
            }
            Order::End(after) => {
                let page = self.handle.list_by_end(query, after).await?;
                (page.jobs, page.next.map(|end| end.to_string()), page.looked)
            }
            Order::Next(queue, after) => {
                let page = self.handle.list_next(&query, &queue, after).await?;
                (page.jobs, page.next.map(ready_place_text), page.looked)
            }
        };
        let shard = self.handle.id();
        let jobs = jobs.into_iter();
        Ok(v1::ListReply {
            jobs: jobs
                .map(|stored| {
                    let mut message = convert::job_message(shard, stored, brief);
                    if summary {
                        convert::shorten_job(&mut message);
                    }
                    message
                })
                .collect(),
            next: next.unwrap_or_default(),
            complete: is_bounded.then_some(!looked.is_cut),
            looked_at: is_bounded.then_some(looked.records),
            looked_back_to_us: looked.back_to.filter(|_| looked.is_cut).map(|at| at.0),
            unreachable: Vec::new(),
        })
    }
}
