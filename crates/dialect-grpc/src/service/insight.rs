//! Failures, statistics, workers, tags, tracked jobs, events.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_access::CONTINUE;
use ganger_access::{Operation, Right};
use ganger_attention::Scope;
use ganger_proto::v1::insight_server::Insight;
use ganger_proto::{convert, v1};
use ganger_shard::series::Rates;
use ganger_types::limits::PAGE_WORKERS_MAX;
use ganger_types::query::Query;
use ganger_types::time::MICROS_PER_SECOND;
use ganger_types::{Day, Namespace, Queue, Reply};
use tonic::{Request, Response, Status};

use super::{Streamed, reply_as};
use crate::decode::{self, At};
use crate::encode;
use crate::problem::Problem;
use crate::{ServiceContext, authorization};

/// Tags shown unless asked otherwise, and at most.
const TAGS_DEFAULT: u32 = 100;
const TAGS_MAX: u32 = 1_000;

/// Queues of one request for rates.
const RATES_MAX: usize = 200;
/// The method that shows other shards: its right decides who sees what concerns servers.
const LIST_PEERS: &str = "ganger.v1.Admin/ListPeers";

fn queue_rates(rates: &Rates) -> v1::QueueRates {
    let p95 = rates.running.quantile(0.95);
    let p95 = p95.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    v1::QueueRates {
        enqueued: rates.enqueued,
        succeeded: rates.succeeded,
        failed: rates.failed,
        ended_by_minute: rates.by_minute.clone(),
        run_p95_ms: p95.map(convert::ms),
    }
}

fn here(request: &Request<v1::InsightRequest>) -> Result<Namespace, Problem> {
    decode::namespace(&request.get_ref().namespace)
}

/// The day that contains a time; 0: today.
fn day(at_us: u64) -> Day {
    let seconds = match at_us {
        0 => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs(),
        _ => at_us / MICROS_PER_SECOND,
    };
    Day(u32::try_from(seconds / 86_400).unwrap_or(u32::MAX))
}

#[tonic::async_trait]
impl Insight for ServiceContext {
    async fn failure_groups(
        &self,
        request: Request<v1::InsightRequest>,
    ) -> Result<Response<v1::FailureGroupsReply>, Status> {
        let namespace = here(&request)?;
        let groups = self.handle.failure_groups(&namespace).await;
        let groups = groups.map_err(Problem::from)?.into_iter();
        let now = self.handle.wall_time();
        let groups = groups.map(|group| encode::failure_group(group, now));
        Ok(Response::new(v1::FailureGroupsReply {
            groups: groups.collect(),
            unreachable: Vec::new(),
        }))
    }

    async fn statistics(
        &self,
        request: Request<v1::StatisticsRequest>,
    ) -> Result<Response<v1::StatisticsReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let queue = decode::queue(At::top("queue"), &request.queue)?;
        let day = day(request.day_at_us);
        let found = self
            .handle
            .statistics(&namespace, &queue, day)
            .await
            .map_err(Problem::from)?;
        let nothing = v1::StatisticsReply {
            day: day.0,
            ..v1::StatisticsReply::default()
        };
        Ok(Response::new(
            found.as_ref().map_or(nothing, v1::StatisticsReply::from),
        ))
    }

    async fn workers(
        &self,
        request: Request<v1::InsightRequest>,
    ) -> Result<Response<v1::WorkersReply>, Status> {
        let namespace = here(&request)?;
        let (mut workers, mut after) = (Vec::new(), None);
        loop {
            let query = Query::Workers(namespace.clone(), after, PAGE_WORKERS_MAX);
            let views = reply_as!(self.ask(query).await?, Reply::Workers(views) => views)?;
            after = views.last().map(|view| view.worker.clone());
            let is_last = views.len() < PAGE_WORKERS_MAX;
            let observed = views
                .into_iter()
                .map(|view| self.handle.observe_worker(&namespace, view));
            workers.extend(observed.map(|worker| v1::WorkerView::from(&worker)));
            if is_last {
                break;
            }
        }
        Ok(Response::new(v1::WorkersReply {
            workers,
            unreachable: Vec::new(),
        }))
    }

    async fn tags(
        &self,
        request: Request<v1::TagsRequest>,
    ) -> Result<Response<v1::TagsReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let limit = decode::bounded(At::top("limit"), request.limit, TAGS_DEFAULT, TAGS_MAX)?;
        let skip = usize::try_from(request.skip).unwrap_or(usize::MAX);
        let take = usize::try_from(limit).unwrap_or(usize::MAX);
        let reply = self.ask(Query::TopTags(namespace, skip, take)).await?;
        let tags = reply_as!(reply, Reply::Tags(tags) => tags)?;
        let tags = tags.iter().map(|(tag, jobs)| v1::TagCount {
            tag: tag.to_text().into_owned(),
            jobs: *jobs,
        });
        Ok(Response::new(v1::TagsReply {
            tags: tags.collect(),
        }))
    }

    async fn tracked(
        &self,
        request: Request<v1::InsightRequest>,
    ) -> Result<Response<v1::TrackedReply>, Status> {
        let namespace = here(&request)?;
        let reply = self.ask(Query::Tracked(namespace.clone())).await?;
        let ids = reply_as!(reply, Reply::Tracked(ids) => ids)?;
        let mut tracked = Vec::with_capacity(ids.len());
        for (id, since) in ids {
            let stored = self
                .handle
                .job(&namespace, &id)
                .await
                .map_err(Problem::from)?;
            tracked.push(v1::TrackedJob {
                job: id.to_text().into_owned(),
                since_at_us: since.0,
                view: stored.map(|stored| convert::job_message(self.handle.id(), stored, true)),
                shard: String::new(),
            });
        }
        Ok(Response::new(v1::TrackedReply {
            tracked,
            unreachable: Vec::new(),
        }))
    }

    async fn attention(
        &self,
        request: Request<v1::AttentionRequest>,
    ) -> Result<Response<v1::AttentionReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let on_server = Operation::new(LIST_PEERS, Right::OBSERVE.on_server());
        let may_see = authorization::identity().may(on_server, None).is_ok();
        let scope = if request.here_only {
            Scope::Here
        } else {
            Scope::All
        };
        let sees_server = may_see && !request.namespace_only;
        let items = self.attention.items(&namespace, sees_server, scope).await;
        Ok(Response::new(v1::AttentionReply {
            items: items.iter().map(Into::into).collect(),
        }))
    }

    async fn rates(
        &self,
        request: Request<v1::RatesRequest>,
    ) -> Result<Response<v1::RatesReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let number = request.queues.len();
        if number > RATES_MAX {
            let text = format!("queues: {number} names, the limit is {RATES_MAX}");
            return Err(Problem::new("invalid_value", text).into());
        }
        let queues = request.queues.iter();
        let queues = queues.map(|queue| decode::queue(At::top("queues"), queue));
        let queues: Vec<Queue> = queues.collect::<Result<_, _>>()?;
        let now = self.handle.wall_time();
        let rates = self.handle.series(|table| {
            let total = table.total_rates(&namespace, now);
            (total, table.rates(&namespace, &queues, now))
        });
        let (total, each) = rates.map_err(Problem::from)?;
        Ok(Response::new(v1::RatesReply {
            total: Some(queue_rates(&total)),
            queues: each.iter().map(queue_rates).collect(),
        }))
    }

    async fn series(
        &self,
        request: Request<v1::SeriesRequest>,
    ) -> Result<Response<v1::SeriesReply>, Status> {
        let now = self.handle.wall_time();
        let query = decode::series(request.get_ref(), now)?;
        let reply = self
            .handle
            .series(|table| table.read(&query, now))
            .map_err(Problem::from)?;
        Ok(Response::new(encode::series(reply)))
    }

    async fn latency(
        &self,
        request: Request<v1::LatencyRequest>,
    ) -> Result<Response<v1::LatencyReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let now = self.handle.wall_time();
        let asked = decode::latency(request, now)?;
        let found = self.handle.series(|table| {
            let (queue, kind) = (asked.queue.as_ref(), asked.kind.as_ref());
            table.latency(&namespace, queue, kind, asked.between, now)
        });
        let found = found.map_err(Problem::from)?;
        Ok(Response::new(encode::latency(&found, &asked.quantiles)))
    }

    async fn kinds(
        &self,
        request: Request<v1::KindsRequest>,
    ) -> Result<Response<v1::KindsReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let now = self.handle.wall_time();
        let asked = decode::kinds(request, now)?;
        let page = self.handle.series(|table| {
            let place = (asked.after.as_ref(), asked.limit);
            table.kinds_page(&namespace, asked.queue.as_ref(), asked.between, now, place)
        });
        let page = page.map_err(Problem::from)?;
        Ok(Response::new(encode::kinds(page, &asked.quantiles)))
    }

    async fn names(
        &self,
        request: Request<v1::NamesRequest>,
    ) -> Result<Response<v1::NamesReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let (of, prefix, limit) = decode::names(request)?;
        // One more name shows whether there are others.
        let found = self.handle.names(&namespace, of, prefix, limit + 1).await;
        let mut found = found.map_err(Problem::from)?;
        let complete = found.len() <= limit;
        found.truncate(limit);
        let names = found.iter();
        let names = names.map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Response::new(v1::NamesReply {
            names: names.collect(),
            complete,
        }))
    }

    async fn labels(
        &self,
        request: Request<v1::LabelsRequest>,
    ) -> Result<Response<v1::LabelsReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let asked = decode::label_values(request)?;
        let place = (asked.prefix, asked.after);
        let page = self
            .handle
            .labels(&namespace, asked.key, place, asked.limit)
            .await
            .map_err(Problem::from)?;
        let labels: Vec<_> = page.values.iter().map(encode::label).collect();
        let last = labels.last().filter(|_| page.has_more);
        let next = last.map(|label| label.name.clone());
        Ok(Response::new(v1::LabelsReply {
            labels,
            next: next.unwrap_or_default(),
        }))
    }

    type EventsStream = Streamed<v1::EventBatch>;

    async fn events(
        &self,
        request: Request<v1::EventsRequest>,
    ) -> Result<Response<Self::EventsStream>, Status> {
        let is_continued = request.metadata().contains_key(CONTINUE);
        Ok(Response::new(
            self.event_stream(request.get_ref(), is_continued)?,
        ))
    }

    async fn past_events(
        &self,
        request: Request<v1::PastEventsRequest>,
    ) -> Result<Response<v1::PastEventsReply>, Status> {
        Ok(Response::new(ServiceContext::past_events(
            self,
            request.get_ref(),
        )?))
    }
}
