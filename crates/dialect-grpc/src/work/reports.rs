//! A message's reports: applied in one turn of the shard, answered together.

use std::collections::HashMap;

use ganger_proto::v1;
use ganger_proto::v1::report::What;
use ganger_shard::Handle;
use ganger_types::{Command, JobKey, JobState, LeaseToken, Namespace, Reply, ShardId};

use super::holders::Holders;
use crate::inward::{self, At};
use crate::outward;
use crate::problem::Problem;

/// Reports taken in, with those that cannot be commands answered already.
pub(crate) struct Batch {
    commands: Vec<Command>,
    /// For each command: its number, and whether it was a completion.
    numbers: Vec<(u64, bool)>,
    answers: Vec<v1::ReportAnswer>,
}

impl Batch {
    pub(crate) fn new(here: &ShardId, namespace: &Namespace, reports: Vec<v1::Report>) -> Self {
        let mut batch = Self {
            commands: Vec::with_capacity(reports.len()),
            numbers: Vec::with_capacity(reports.len()),
            answers: Vec::new(),
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
            Some(what) => inward::report(here, At::top("report"), namespace, what),
            None => Err(Problem::missing("report", "say what became of the job")),
        };
        match command {
            Ok(command) => {
                self.commands.push(command);
                self.numbers.push((number, is_completion));
            }
            Err(problem) => self.answers.push(outward::answer(number, Err(problem))),
        }
    }

    /// Takes the jobs that these reports end out of the registry, so that their own end is not told
    /// to the stream as a loss.
    pub(crate) fn forget(&self, held: &mut HashMap<LeaseToken, JobKey>, holders: &Holders) {
        let mut map = holders.lock();
        for command in &self.commands {
            let ends = match command {
                Command::Complete(report) => &report.held,
                Command::Fail(report) => &report.held,
                Command::Release(report) => &report.held,
                _ => continue,
            };
            if let Some(key) = held.remove(&ends.token) {
                map.remove(&key);
            }
        }
    }

    /// How many reports are on their way.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Applies them, and makes the message that answers all.
    pub(crate) async fn apply(self, handle: Handle) -> (usize, v1::ServerMessage) {
        let Self {
            commands,
            numbers,
            mut answers,
        } = self;
        let count = commands.len();
        let mut completed = Vec::new();
        let replies = if commands.is_empty() {
            Ok(Vec::new())
        } else {
            handle.call_all(commands).await
        };
        match replies {
            Ok(replies) => {
                for ((number, is_completion), reply) in numbers.into_iter().zip(replies) {
                    match reply {
                        Ok(Reply::Reported {
                            state: JobState::Succeeded,
                            repeat: false,
                            ..
                        }) if is_completion => completed.push(number),
                        reply => {
                            answers.push(outward::answer(number, reply.map_err(Problem::from)));
                        }
                    }
                }
            }
            Err(error) => {
                let problem = Problem::from(error);
                let refused = |(number, _)| outward::answer(number, Err(problem.clone()));
                answers.extend(numbers.into_iter().map(refused));
            }
        }
        let message = v1::ServerMessage {
            completed,
            answers,
            ..v1::ServerMessage::default()
        };
        (count, message)
    }
}
