//! Calls that read series, distributions of durations, and names in use.

use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use crate::convert::us;
use crate::error::Error;
use crate::model::{
    EventFilter, Kinds, Labels, Latency, Names, NamesOf, PastEvents, Series, SeriesFilter,
    SeriesOptions,
};

impl Client {
    /// Returns counters and gauges of queues and kinds, step by step.
    ///
    /// # Errors
    /// If the options are refused, or the server cannot be reached.
    pub async fn series(
        &self,
        filter: SeriesFilter,
        options: SeriesOptions,
    ) -> Result<Series, Error> {
        let request = v1::SeriesRequest {
            namespace: self.namespace(),
            queue: filter.queue,
            kind: filter.kind,
            from_us: filter.from.map(us),
            to_us: filter.to.map(us),
            step_seconds: options.step_seconds,
            metrics: options.metrics,
            total: options.is_total,
        };
        Ok(call!(self, Safe, insight_wire.series(request))?.into())
    }

    /// Returns how long jobs waited and attempts ran: at most 20 quantiles from 0 to 1 (0.5, 0.95 and 0.99 if there are
    /// none), and the bins.
    ///
    /// # Errors
    /// If a quantile is out of range, or the server cannot be reached.
    pub async fn latency(&self, filter: SeriesFilter, quantiles: &[f64]) -> Result<Latency, Error> {
        let request = v1::LatencyRequest {
            namespace: self.namespace(),
            queue: filter.queue,
            kind: filter.kind,
            from_us: filter.from.map(us),
            to_us: filter.to.map(us),
            quantiles: quantiles.to_vec(),
        };
        Ok(call!(self, Safe, insight_wire.latency(request))?.into())
    }

    /// Returns what happened to the jobs of each kind: a page of at most `limit` kinds (100 if 0) behind `after`, the
    /// `next` of the page before, or from the first kind on if that is empty.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn kinds(
        &self,
        filter: SeriesFilter,
        after: &str,
        limit: u32,
    ) -> Result<Kinds, Error> {
        let request = v1::KindsRequest {
            namespace: self.namespace(),
            queue: filter.queue,
            from_us: filter.from.map(us),
            to_us: filter.to.map(us),
            after: after.to_owned(),
            limit,
        };
        Ok(call!(self, Safe, insight_wire.kinds(request))?.into())
    }

    /// Returns at most `limit` names (20 if 0) that are in use and begin with `prefix`.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn names(&self, of: NamesOf, prefix: &str, limit: u32) -> Result<Names, Error> {
        let of = match of {
            NamesOf::Queue => v1::NamesOf::Queue,
            NamesOf::Kind => v1::NamesOf::Kind,
            NamesOf::Tag => v1::NamesOf::Tag,
            NamesOf::Worker => v1::NamesOf::Worker,
            NamesOf::Schedule => v1::NamesOf::Schedule,
            NamesOf::Graph => v1::NamesOf::Graph,
            NamesOf::Group => v1::NamesOf::Group,
        };
        let request = v1::NamesRequest {
            namespace: self.namespace(),
            of: of.into(),
            prefix: prefix.to_owned(),
            limit,
        };
        Ok(call!(self, Safe, insight_wire.names(request))?.into())
    }

    /// Returns keys of labels, or values of `key`, that begin with `prefix`, with their numbers of jobs: a page of at most
    /// `limit` (20 if 0) behind `after`, the `next` of the page before, or from the first on if that is empty.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn labels(
        &self,
        key: Option<&str>,
        prefix: &str,
        after: &str,
        limit: u32,
    ) -> Result<Labels, Error> {
        let request = v1::LabelsRequest {
            namespace: self.namespace(),
            key: key.map(str::to_owned),
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            limit,
        };
        Ok(call!(self, Safe, insight_wire.labels(request))?.into())
    }

    /// Reads back events that are kept, the newest first: those before a position, or the newest, at most `limit` (100 if
    /// 0). [`EventFilter::after`] does not count. The server looks at no more than 20,000 events: there may be fewer than
    /// were asked for, and still a next page.
    ///
    /// # Errors
    /// If the server cannot be reached, or refuses a value.
    pub async fn past_events(
        &self,
        filter: &EventFilter,
        before: Option<u64>,
        limit: u32,
    ) -> Result<PastEvents, Error> {
        let request = filter.to_past(self.namespace(), before, limit);
        let reply = call!(self, Safe, insight_wire.past_events(request))?;
        let events = reply.events.into_iter().map(ganger_proto::convert::event);
        Ok(PastEvents {
            events: events.collect::<Result<_, _>>()?,
            oldest: reply.oldest,
            end: reply.end,
            next: reply.next,
        })
    }
}
