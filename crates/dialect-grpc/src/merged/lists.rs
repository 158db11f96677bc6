//! The lists that can be merged: their entries, pages and orders.

use std::cmp::Ordering;

use ganger_proto::v1;
use ganger_types::ShardId;
use ganger_types::limits::PAGE_QUEUES_MAX;
use prost::Message;

use super::by_key;

/// Jobs on a page unless asked otherwise, as of each single list.
const PAGE_JOBS: u32 = 100;

/// The reply of a method that lists things.
pub(super) trait List: Message + Default {
    /// Request of the method.
    type Request: Message + Default + Clone;
    /// One of the things.
    type Entry;

    fn entries(&mut self) -> &mut Vec<Self::Entry>;

    /// Compares two entries by the order of the list.
    fn compare(request: &Self::Request, a: &Self::Entry, b: &Self::Entry) -> Ordering;

    /// Writes the shard into an entry.
    fn mark(entry: &mut Self::Entry, shard: &ShardId);

    /// Adds what is known of all pages, and the shards that could not be reached.
    fn sum_up(&mut self, pages: &[Self], unreachable: Vec<String>);

    /// The cursor of a request and the largest number of entries of its page. By default the list has no pages.
    fn page(_: &Self::Request) -> (&str, u32) {
        ("", u32::MAX)
    }

    fn set_page(_: &mut Self::Request, _place: &str, _limit: u32) {}

    /// Cursor of the next page; empty: there is none.
    #[expect(
        clippy::unnecessary_literal_bound,
        reason = "lists with pages return a part of the message"
    )]
    fn next(&self) -> &str {
        ""
    }

    fn set_next(&mut self, _next: String) {}
}

impl List for v1::ListReply {
    type Request = v1::ListRequest;
    type Entry = v1::Job;

    fn entries(&mut self) -> &mut Vec<v1::Job> {
        &mut self.jobs
    }

    fn compare(request: &v1::ListRequest, a: &v1::Job, b: &v1::Job) -> Ordering {
        let end = |job: &v1::Job| job.finished.as_ref().map(|finished| finished.at_us);
        let rank = |job: &v1::Job| (job.priority, job.priority_millionths);
        match request.order() {
            v1::ListOrder::FinishedNewest => by_key(end(a), end(b), |a, b| b.cmp(a)),
            v1::ListOrder::RunsNext => rank(a).cmp(&rank(b)),
            v1::ListOrder::Unspecified if request.newest_first => {
                b.created_at_us.cmp(&a.created_at_us)
            }
            v1::ListOrder::Unspecified => a.created_at_us.cmp(&b.created_at_us),
        }
    }

    /// Jobs have their shard already.
    fn mark(_: &mut v1::Job, _: &ShardId) {}

    fn sum_up(&mut self, pages: &[Self], unreachable: Vec<String>) {
        let complete = pages.iter().filter_map(|page| page.complete);
        self.complete = complete.reduce(|all, complete| all && complete);
        let looked_at = pages.iter().filter_map(|page| page.looked_at);
        self.looked_at = looked_at.reduce(u64::saturating_add);
        // The latest of them: up to there all shards were looked at if the newest come first.
        let back = pages.iter().filter_map(|page| page.looked_back_to_us);
        self.looked_back_to_us = back.max();
        self.unreachable = unreachable;
    }

    fn page(request: &v1::ListRequest) -> (&str, u32) {
        let limit = match request.limit {
            0 => PAGE_JOBS,
            limit => limit,
        };
        (&request.cursor, limit)
    }

    fn set_page(request: &mut v1::ListRequest, place: &str, limit: u32) {
        place.clone_into(&mut request.cursor);
        request.limit = limit;
    }

    fn next(&self) -> &str {
        &self.next
    }

    fn set_next(&mut self, next: String) {
        self.next = next;
    }
}

impl List for v1::QueuesReply {
    type Request = v1::QueuesRequest;
    type Entry = v1::QueueView;

    fn entries(&mut self) -> &mut Vec<v1::QueueView> {
        &mut self.queues
    }

    fn compare(_: &v1::QueuesRequest, a: &v1::QueueView, b: &v1::QueueView) -> Ordering {
        a.queue.cmp(&b.queue)
    }

    fn mark(queue: &mut v1::QueueView, shard: &ShardId) {
        queue.shard = shard.to_string();
    }

    fn sum_up(&mut self, _: &[Self], unreachable: Vec<String>) {
        self.unreachable = unreachable;
    }

    fn page(request: &v1::QueuesRequest) -> (&str, u32) {
        let limit = match request.limit {
            0 => u32::try_from(PAGE_QUEUES_MAX).unwrap_or(u32::MAX),
            limit => limit,
        };
        (&request.cursor, limit)
    }

    fn set_page(request: &mut v1::QueuesRequest, place: &str, limit: u32) {
        place.clone_into(&mut request.cursor);
        request.limit = limit;
    }

    fn next(&self) -> &str {
        &self.next
    }

    fn set_next(&mut self, next: String) {
        self.next = next;
    }
}

macro_rules! lists_without_pages {
    ($($reply:ident { $entries:ident: $entry:ident } of $request:ident by $key:ident;)*) => {$(
        impl List for v1::$reply {
            type Request = v1::$request;
            type Entry = v1::$entry;

            fn entries(&mut self) -> &mut Vec<v1::$entry> {
                &mut self.$entries
            }

            fn compare(_: &v1::$request, a: &v1::$entry, b: &v1::$entry) -> Ordering {
                a.$key.cmp(&b.$key)
            }

            fn mark(entry: &mut v1::$entry, shard: &ShardId) {
                entry.shard = shard.to_string();
            }

            fn sum_up(&mut self, _: &[Self], unreachable: Vec<String>) {
                self.unreachable = unreachable;
            }
        }
    )*};
}
lists_without_pages! {
    SchedulesReply { schedules: Schedule } of SchedulesRequest by id;
    FailureGroupsReply { groups: FailureGroup } of InsightRequest by group;
    WorkersReply { workers: WorkerView } of InsightRequest by worker;
    TrackedReply { tracked: TrackedJob } of InsightRequest by since_at_us;
}
