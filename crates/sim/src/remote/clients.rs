//! The clients: they submit jobs, work on them and read them, at the machine that answered last or at another.

use ganger_shard::CallError;
use ganger_shard::core::CallReply;
use ganger_types::command::{Complete, Enqueue, Lease, LeaseRef, NewJob, TakeFrom};
use ganger_types::query::Query;
use ganger_types::{
    Bytes, Command, Grant, JobState, Kind, Namespace, Queue, Rejection, Reply, Worker,
};

use super::server::{MILLI, SECOND};
use super::world::{Answered, Event, World};
use crate::rng::Rng;
use crate::world::{StepOutcome, broken};

impl World {
    /// A step of the tape: something of a client, or trouble.
    pub(crate) fn step(&mut self, place: usize) -> StepOutcome {
        let mut rng = Rng::new(self.tape.steps[place].rng);
        let command = match rng.below(100) {
            0..35 => enqueue(&mut rng, place),
            35..60 => lease(self.plan.lease_ms, rng.small(3) + 1),
            60..70 => match self.read(&mut rng) {
                Some(command) => command,
                None => return Ok(()),
            },
            _ => return self.trouble(&mut rng),
        };
        let machine = self.guess();
        let op = self.op();
        self.send(machine, op, command);
        Ok(())
    }

    pub(crate) fn op(&mut self) -> u64 {
        self.next_op += 1;
        self.next_op
    }

    /// The machine that a client takes for the owner's.
    pub(crate) fn guess(&mut self) -> usize {
        if !self.is_healed && self.net.chance(150) {
            return self.net.index(self.machines.len());
        }
        self.serves
    }

    /// Sends a command to a machine.
    pub(crate) fn send(&mut self, machine: usize, op: u64, command: Command) {
        self.tell(|| format!("op {op} to machine {machine}: {command:?}"));
        self.log.deep(&command);
        let after = self.net.below(3 * MILLI);
        let command = Box::new(command);
        self.at(
            after,
            Event::Request {
                machine,
                op,
                command,
            },
        );
    }

    /// Clients ask for some ended jobs that they know, which the owner has to read from the tables.
    pub(crate) fn reads(&mut self, times: u32) {
        let known = self.oracle.jobs.iter();
        let ended = known.filter(|(_, facts)| facts.is_acknowledged && facts.result.is_some());
        let ended: Vec<_> = ended.map(|(job, _)| job.clone()).collect();
        for job in ended.into_iter().rev().take(3) {
            let query = Query::Why(Namespace::default(), job);
            let op = self.op();
            self.send(self.serves, op, Command::Query(Box::new(query)));
        }
        if times > 0 {
            let after = self.net.within(20 * MILLI, 400 * MILLI);
            self.at(after, Event::Reads(times - 1));
        }
    }

    /// A query of a job that some client knows.
    fn read(&mut self, rng: &mut Rng) -> Option<Command> {
        let known = self.oracle.jobs.iter();
        let known: Vec<_> = known
            .filter(|(_, facts)| facts.is_acknowledged)
            .map(|(job, _)| job.clone())
            .collect();
        let job = rng.maybe(&known)?.clone();
        let query = Query::Why(Namespace::default(), job);
        Some(Command::Query(Box::new(query)))
    }

    /// A process has answered.
    pub(crate) fn heard(&mut self, process: u64, op: u64, answer: Answered) -> StepOutcome {
        self.tell(|| format!("op {op} <- process {process}: {answer:?}"));
        self.log.deep(&answer);
        self.answered += 1;
        let Some((command, given_at)) = self.ops.remove(&op) else {
            return Ok(());
        };
        if !self.oracle.counts(process) {
            if let Some(slot) = self.awaited.get_mut(&op) {
                *slot = Some(answer);
            }
            return Ok(());
        }
        match (&command, &answer) {
            (Command::Complete(cmd), Err(CallError::Rejected(Rejection::LeaseLost { .. }))) => {
                self.oracle.lease_lost(process, &cmd.held, self.time)?;
            }
            (Command::Enqueue(_), Ok(CallReply::Reply(Reply::Enqueued { jobs, .. }))) => {
                for job in jobs {
                    self.oracle.submitted(&job.id);
                }
            }
            (Command::Lease(_), Ok(CallReply::Deliveries(deliveries))) => {
                for delivery in deliveries {
                    self.oracle
                        .granted(process, delivery, given_at, self.time)?;
                }
                if !self.awaited.contains_key(&op) {
                    for delivery in deliveries {
                        self.work(&delivery.grant);
                    }
                }
            }
            (Command::Complete(cmd), Ok(CallReply::Reply(Reply::Reported { state, .. })))
                if *state == JobState::Succeeded =>
            {
                let result = cmd.result.clone().unwrap_or_default();
                self.oracle.completed(&cmd.held.job, result)?;
            }
            (Command::Query(query), Err(CallError::Rejected(Rejection::JobNotFound { .. }))) => {
                self.not_found(process, query)?;
            }
            _ => {}
        }
        if let Some(slot) = self.awaited.get_mut(&op) {
            *slot = Some(answer);
        }
        Ok(())
    }

    /// A read has not found a job that was acknowledged.
    fn not_found(&mut self, process: u64, query: &Query) -> StepOutcome {
        let Query::Why(_, job) = query else {
            return Ok(());
        };
        let facts = self.oracle.jobs.get(job);
        let is_known = facts.is_some_and(|facts| facts.is_acknowledged);
        if is_known && process == self.oracle.owner {
            let what =
                format!("job {job} was acknowledged, and process {process} does not find it");
            return Err(broken("P4", what));
        }
        Ok(())
    }

    /// A worker works for a while, and reports.
    fn work(&mut self, grant: &Grant) {
        if !self.is_healed && self.net.chance(150) {
            // It dies.
            return;
        }
        let slow = self.plan.lease_ms * MILLI;
        let after = if self.net.chance(250) {
            self.net.below(2 * slow)
        } else {
            self.net.below((slow / 2).min(SECOND))
        };
        let op = self.op();
        let command = Box::new(complete(grant, op));
        self.at(after, Event::Report { op, command });
    }
}

pub(crate) fn enqueue(rng: &mut Rng, place: usize) -> Command {
    let jobs = (0..=rng.index(3)).map(|number| NewJob {
        kind: Kind::from_static("work"),
        payload: Bytes::from(format!("payload {place} {number}")),
        ..NewJob::default()
    });
    Command::Enqueue(Box::new(Enqueue {
        jobs: jobs.collect(),
        ..Enqueue::default()
    }))
}

pub(crate) fn lease(lease_ms: u64, jobs_max: u32) -> Command {
    Command::Lease(Box::new(Lease {
        queues: vec![TakeFrom {
            queue: Queue::default(),
            weight: 1,
        }],
        worker: Some(Worker::from_static("worker")),
        jobs_max,
        lease_for: Some(std::time::Duration::from_millis(lease_ms)),
        ..Lease::default()
    }))
}

/// The report of a worker. Each has a result of its own.
pub(crate) fn complete(grant: &Grant, op: u64) -> Command {
    Command::Complete(Box::new(Complete {
        held: LeaseRef {
            namespace: grant.namespace.clone(),
            job: grant.job.clone(),
            token: grant.token,
        },
        result: Some(Bytes::from(format!("\"{} by {op}\"", grant.job.to_text()))),
        next: None,
    }))
}
