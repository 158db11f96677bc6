//! A message's reports: applied in one turn of the shard, answered together.

use std::collections::{HashMap, HashSet};

use ganger_proto::v1;
use ganger_proto::v1::report::What;
use ganger_shard::{CallError, GatheredRequests};
use ganger_types::{Command, JobKey, JobState, LeaseToken, Namespace, Reply, ShardId};

use super::holders::Holders;
use crate::decode::{self, At};
use crate::encode;
use crate::problem::Problem;

/// Reports as commands; reports that cannot become commands are answered already.
pub(crate) struct Batch {
    commands: Vec<Command>,
    /// For each command: its number, and whether it was a completion.
    numbers: Vec<(u64, bool)>,
    answers: Vec<v1::ReportAnswer>,
    /// Bytes of the messages that brought them.
    bytes: usize,
}

/// Result of applying a batch of reports.
pub(crate) struct Applied {
    /// The message that answers all reports.
    pub(crate) message: v1::ServerMessage,
    /// Leases whose renewal was reported, and whether they are still live.
    pub(crate) renewed: Vec<(LeaseToken, bool)>,
    /// Number of reports that the shard has applied.
    pub(crate) reports: usize,
    /// Bytes of the messages that brought them.
    pub(crate) bytes: usize,
}

impl Batch {
    /// Converts reports that came in messages of `bytes` together.
    pub(crate) fn new(
        here: &ShardId,
        namespace: &Namespace,
        reports: Vec<v1::Report>,
        bytes: usize,
    ) -> Self {
        let mut batch = Self {
            commands: Vec::with_capacity(reports.len()),
            numbers: Vec::with_capacity(reports.len()),
            answers: Vec::new(),
            bytes,
        };
        for report in reports {
            batch.take(here, namespace, report);
        }
        batch
    }

    fn take(&mut self, here: &ShardId, namespace: &Namespace, report: v1::Report) {
        let number = report.number;
        let is_completion = matches!(report.what, Some(What::Complete(_)));
        let command = match report.what {
            Some(what) => decode::report(here, At::top("report"), namespace, what),
            None => Err(Problem::missing("report", "say what became of the job")),
        };
        match command {
            Ok(command) => {
                self.commands.push(command);
                self.numbers.push((number, is_completion));
            }
            Err(problem) => self.answers.push(encode::answer(number, Err(problem))),
        }
    }

    /// Removes the jobs that these reports end from the registry, so that the stream does not report their end as a lost
    /// lease.
    pub(crate) fn forget(
        &self,
        held: &mut HashMap<LeaseToken, JobKey>,
        adopted: &mut HashSet<LeaseToken>,
        holders: &Holders,
    ) {
        let mut map = holders.lock();
        for command in &self.commands {
            let ends = match command {
                Command::Complete(report) => &report.held,
                Command::Fail(report) => &report.held,
                Command::Release(report) => &report.held,
                _ => continue,
            };
            adopted.remove(&ends.token);
            if let Some(key) = held.remove(&ends.token) {
                map.remove(&key);
            }
        }
    }

    /// Number of reports that the shard is to apply.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Adds the reports to the requests for the shard. The future returns the message that answers all.
    pub(crate) fn apply(
        self,
        requests: &mut GatheredRequests,
    ) -> impl Future<Output = Applied> + Send + use<> {
        let Self {
            commands,
            numbers,
            answers,
            bytes,
        } = self;
        let count = commands.len();
        let renewals: Vec<Option<LeaseToken>> = commands
            .iter()
            .map(|command| match command {
                Command::Renew(report) => Some(report.held.token),
                _ => None,
            })
            .collect();
        let replies = (count > 0).then(|| requests.call_all(commands));
        async move {
            let replies = match replies {
                Some(replies) => replies.await,
                None => Ok(Vec::new()),
            };
            let (message, renewed) = applied(replies, numbers, renewals, answers);
            Applied {
                message,
                renewed,
                reports: count,
                bytes,
            }
        }
    }
}

/// Sorts the replies to reports: `numbers` and `renewals` belong to them, `answers` are there already.
fn applied(
    replies: Result<Vec<Result<Reply, CallError>>, CallError>,
    numbers: Vec<(u64, bool)>,
    renewals: Vec<Option<LeaseToken>>,
    mut answers: Vec<v1::ReportAnswer>,
) -> (v1::ServerMessage, Vec<(LeaseToken, bool)>) {
    let mut completed = Vec::new();
    let mut renewed = Vec::new();
    match replies {
        Ok(replies) => {
            let answered = renewals.into_iter().zip(&replies);
            renewed.extend(answered.filter_map(|(token, reply)| Some((token?, reply.is_ok()))));
            for ((number, is_completion), reply) in numbers.into_iter().zip(replies) {
                match reply {
                    Ok(Reply::Reported {
                        state: JobState::Succeeded,
                        repeat: false,
                        ..
                    }) if is_completion => completed.push(number),
                    reply => {
                        answers.push(encode::answer(number, reply.map_err(Problem::from)));
                    }
                }
            }
        }
        Err(error) => {
            let problem = Problem::from(error);
            let refused = |(number, _)| encode::answer(number, Err(problem.clone()));
            answers.extend(numbers.into_iter().map(refused));
        }
    }
    let message = v1::ServerMessage {
        completed,
        answers,
        ..v1::ServerMessage::default()
    };
    (message, renewed)
}
