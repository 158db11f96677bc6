//! Flags for a new job, with the same names as in documents for `submit`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use ganger_client::{
    Backoff, Dependency, Edge, FailurePolicy, KeepFor, NewJob, RetryPolicy, Unique,
};

use crate::command::job::read_label;
use crate::document::span::read_span;

/// Rarely needed fields of a job.
#[derive(Args, Debug)]
pub(crate) struct JobFlags {
    /// Number of retries after the first attempt; the queue's setting if neither this nor --backoff is given.
    #[arg(long, value_name = "N")]
    retries: Option<u32>,

    /// Pause before a retry: 10s, a list such as 1s,10s,1m, or 1s..5m, which doubles from 1 s to 5 min.
    #[arg(long, value_name = "DURATIONS", value_parser = read_backoff)]
    backoff: Option<Backoff>,

    /// Depend on this job, shard/id or id; may be repeated.
    #[arg(long = "after", value_name = "JOB")]
    after: Vec<String>,

    /// What to do if a job of --after does not succeed.
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "fail",
        requires = "after"
    )]
    after_policy: Policy,

    /// Allow at most one job with this key; a second one returns the first. Without --unique-window the key is free
    /// again when the first job ends.
    #[arg(long, value_name = "KEY")]
    unique: Option<String>,

    /// How long the key stays taken after the first job was enqueued.
    #[arg(long, value_name = "DURATION", value_parser = read_span, requires = "unique")]
    unique_window: Option<Duration>,

    /// Add a tag; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Add a label; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = read_label)]
    labels: Vec<(String, String)>,

    /// Track the job: it is listed among the tracked jobs.
    #[arg(long)]
    tracked: bool,

    /// Shard that runs the job; the server's own if absent.
    #[arg(long, value_name = "ID")]
    shard: Option<String>,

    /// Retention after success: a duration, or forever; the queue's setting if absent.
    #[arg(long, value_name = "DURATION", value_parser = read_keep)]
    keep_succeeded: Option<KeepFor>,

    /// Retention after failure or cancellation; the queue's setting if absent.
    #[arg(long, value_name = "DURATION", value_parser = read_keep)]
    keep_failed: Option<KeepFor>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Policy {
    /// The job fails too.
    Fail,
    /// The job waits until the other one was retried and succeeded.
    Wait,
    /// The job runs as if the other one had succeeded.
    Ignore,
}

impl JobFlags {
    /// Sets the given fields of the job.
    pub(crate) fn put_on(self, job: &mut NewJob) {
        if self.retries.is_some() || self.backoff.is_some() {
            let default = RetryPolicy::default();
            job.retry = Some(RetryPolicy {
                retries_max: self.retries.unwrap_or(default.retries_max),
                backoff: self.backoff.unwrap_or(default.backoff),
                ..default
            });
        }
        let policy = match self.after_policy {
            Policy::Fail => FailurePolicy::Fail,
            Policy::Wait => FailurePolicy::Wait,
            Policy::Ignore => FailurePolicy::Ignore,
        };
        let edges = self.after.into_iter().map(|id| Edge {
            dependency: Dependency::Job(id),
            policy,
        });
        job.after = edges.collect();
        let window = self.unique_window;
        job.unique = self.unique.map(|key| Unique { key, window });
        job.tags = self.tags;
        job.labels = self.labels;
        job.tracked = self.tracked;
        job.shard = self.shard;
        job.keep_succeeded = self.keep_succeeded;
        job.keep_failed = self.keep_failed;
    }
}

fn read_backoff(text: &str) -> Result<Backoff, String> {
    if let Some((base, cap)) = text.split_once("..") {
        let (base, cap) = (read_span(base)?, read_span(cap)?);
        return Ok(Backoff::Exponential { base, cap });
    }
    if text.contains(',') {
        let list: Result<_, _> = text.split(',').map(|part| read_span(part.trim())).collect();
        return Ok(Backoff::List(list?));
    }
    Ok(Backoff::Fixed(read_span(text)?))
}

fn read_keep(text: &str) -> Result<KeepFor, String> {
    match text {
        "forever" => Ok(KeepFor::Ever),
        text => read_span(text).map(KeepFor::Time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_is_a_duration_a_list_or_doubles() {
        let second = Duration::from_secs;
        assert_eq!(read_backoff("10s"), Ok(Backoff::Fixed(second(10))));
        assert_eq!(
            read_backoff("1s,10s"),
            Ok(Backoff::List(vec![second(1), second(10)]))
        );
        let doubles = Backoff::Exponential {
            base: second(1),
            cap: second(300),
        };
        assert_eq!(read_backoff("1s..5m"), Ok(doubles));
        assert!(read_backoff("soon").is_err());
        assert!(read_backoff("1s..").is_err());
        assert_eq!(read_keep("forever"), Ok(KeepFor::Ever));
    }
}
