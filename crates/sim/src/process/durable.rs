//! Durable turns for the oracle, built from the commits and the records of their times.

use std::collections::BTreeSet;

use ganger_shard::Delivery;
use ganger_types::{Answer, Change, Command, Event, Happening, JobKey, Now, Reply};

use super::{DurableTurn, MomentRecord, RecordedAnswer, ShardProcess};
use crate::oracle::{AppliedCommand, Moment};
use crate::sim_ticket::TicketEvent;

impl ShardProcess {
    /// The next turn that the core has released and the oracle has not checked. `Err` with its sequence if the store
    /// does not have it.
    pub(crate) fn next_durable(&mut self) -> Option<Result<DurableTurn, u64>> {
        let first = self.sent.front()?.commit.sequence;
        if first > self.core.durable_sequence() {
            return None;
        }
        if first > self.store.sequence() {
            return Some(Err(first));
        }
        let sent = self.sent.pop_front()?;
        self.checked = sent.commit.sequence;
        let mut deliveries = Vec::new();
        let moments = sent
            .moments
            .into_iter()
            .map(|marks| self.moment(marks, &mut deliveries))
            .collect();
        // Those whose wait ended without a job.
        self.shared_by.retain(|op| self.waiting.contains_key(op));
        Some(Ok(DurableTurn {
            commit: sent.commit,
            moments,
            deliveries,
        }))
    }

    fn moment(&mut self, marks: MomentRecord, deliveries: &mut Vec<Delivery>) -> Moment {
        let mut applied = Vec::new();
        for (mark, number) in marks.turned_to {
            let (op, answer, sharers) = match mark {
                TicketEvent::Probe => continue,
                TicketEvent::Call(op) => match self.answers.remove(&op) {
                    Some(RecordedAnswer::Plain(answer)) => (op, answer, 1),
                    // Refused before the engine, for lack of space.
                    _ => continue,
                },
                TicketEvent::Try(op) => {
                    let has_waited = self.shared_by.contains(&op);
                    let sharers = if has_waited { self.shared_by.len() } else { 1 };
                    let answer = self.tried(op, number, deliveries);
                    if matches!(&answer, Ok(Reply::Leased(grants)) if grants.is_empty()) {
                        self.shared_by.insert(op);
                    } else {
                        self.shared_by.remove(&op);
                    }
                    (op, answer, sharers)
                }
            };
            let (command, callers_now) = self.commands[&op].clone();
            applied.push(AppliedCommand {
                op,
                command,
                answer,
                callers_now,
                sharers,
            });
        }
        applied.extend(marks.retire.map(|retire| AppliedCommand {
            op: 0,
            command: Command::Retire(retire),
            answer: Ok(Reply::Done),
            callers_now: Now::default(),
            sharers: 1,
        }));
        Moment {
            now: marks.now,
            applied,
        }
    }

    /// The result of an attempt of a lease request: only the last one can have leased jobs.
    fn tried(&mut self, op: u64, number: u64, deliveries: &mut Vec<Delivery>) -> Answer {
        if self.last_try.get(&op) != Some(&number) {
            return Ok(Reply::Leased(Vec::new()));
        }
        match self.answers.remove(&op) {
            Some(RecordedAnswer::Plain(answer)) => answer,
            Some(RecordedAnswer::Jobs(jobs)) => {
                let grants = jobs.iter().map(|one| one.grant.clone()).collect();
                deliveries.extend(jobs);
                Ok(Reply::Leased(grants))
            }
            None => Ok(Reply::Leased(Vec::new())),
        }
    }

    /// Checks that events are complete and in order, across recoveries.
    pub(crate) fn check_events(&mut self, events: &[Event]) -> Result<(), String> {
        self.next_event = check_events(events, self.next_event)?;
        Ok(())
    }
}

/// The jobs whose rows changes write.
pub(crate) fn touched(changes: &[Change]) -> BTreeSet<JobKey> {
    changes
        .iter()
        .filter_map(|change| match change {
            Change::PutJob(record)
            | Change::PutFinished(record)
            | Change::FinishJob { record, .. } => Some(record.key),
            Change::PutPayload { key, .. }
            | Change::RemoveLease(key)
            | Change::RetryJob(key)
            | Change::RemoveJob(key)
            | Change::AppendLog { key, .. } => Some(*key),
            Change::PutInput(row) => Some(row.job),
            Change::RemoveInput { job, .. } => Some(*job),
            Change::PutLease(lease) => Some(lease.key),
            _ => None,
        })
        .collect()
}

/// Checks that events have consecutive positions and contain only allowed moves.
fn check_events(events: &[Event], from: u64) -> Result<u64, String> {
    let mut next = from;
    for event in events {
        if event.position.0 != next {
            return Err(format!(
                "event {} follows {next} (rel P5)",
                event.position.0
            ));
        }
        next += 1;
        if let Happening::JobMoved {
            from: Some(from),
            to,
            job,
            ..
        } = &event.happening
            && from.is_terminal()
            && (to.is_terminal() || from == to)
        {
            return Err(format!("job {job} moved from {from} to {to} (rel A2)"));
        }
    }
    Ok(next)
}
