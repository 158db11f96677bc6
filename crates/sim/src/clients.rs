//! The clients' side of the network: how producers and workers use answers, and what workers do with their jobs.

use ganger_types::import::ImportOutcome;
use ganger_types::{Answer, Command, ImportRecord, Reply};

use crate::actor::worker::{SimWorker, WorkerAction};
use crate::plan::Fault;
use crate::rng::Rng;
use crate::world::{Call, Caller, SimEvent, StepOutcome, World};

impl World {
    /// Delivers an answer to its client.
    pub(crate) fn answer(&mut self, mut call: Call, answer: &Answer) -> StepOutcome {
        self.answered += 1;
        self.ledger.heard(self.time, &call.command, answer)?;
        match answer {
            Ok(Reply::Enqueued { jobs, graph, .. }) => {
                let Command::Enqueue(cmd) = &call.command else {
                    return Ok(());
                };
                for job in jobs {
                    self.known.learn(&cmd.namespace, &job.id);
                }
                if let Some(graph) = graph {
                    self.known.learn_graph(&cmd.namespace, graph);
                }
                Ok(())
            }
            Ok(Reply::Imported(each)) => {
                let Command::Import(cmd) = &call.command else {
                    return Ok(());
                };
                for (record, imported) in cmd.records.iter().zip(each) {
                    if let (ImportRecord::Job(source), ImportOutcome::Taken) = (record, imported)
                        && let Some(id) = &source.job.id
                    {
                        self.known.learn(&cmd.namespace, id);
                    }
                }
                Ok(())
            }
            Ok(
                Reply::Operation(record)
                | Reply::OperationWorked {
                    operation: record, ..
                },
            ) => {
                self.known.learn_operation(record);
                Ok(())
            }
            Ok(Reply::Leased(grants)) => {
                let Caller::Worker(worker) = call.by else {
                    return Ok(());
                };
                for grant in grants {
                    self.known.learn(&grant.namespace, &grant.job);
                    self.take_up(worker, &call, grant, &mut call.rng.clone());
                    call.rng.next();
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take_up(&mut self, worker: usize, call: &Call, grant: &ganger_types::Grant, rng: &mut Rng) {
        let hand = &mut self.workers[worker];
        if hand.incarnation != call.incarnation {
            return;
        }
        hand.takes(grant);
        let incarnation = hand.incarnation;
        let after = SimWorker::works_for(&self.plan, rng, grant.lease_for);
        let time = self.time + after;
        let work = SimEvent::WorkerActs {
            worker,
            incarnation,
            token: grant.token,
            rng: rng.split(),
        };
        self.at(time, work);
    }

    pub(crate) fn work(
        &mut self,
        worker: usize,
        incarnation: u64,
        token: ganger_types::LeaseToken,
        mut rng: Rng,
    ) -> StepOutcome {
        let hand = &mut self.workers[worker];
        if hand.incarnation != incarnation || self.is_healed {
            return Ok(());
        }
        let Some(place) = hand.tasks.iter().position(|task| task.held.token == token) else {
            return Ok(());
        };
        let act = SimWorker::handle(&self.plan, &self.known, &mut hand.tasks[place], &mut rng);
        let lease_for = hand.tasks[place].lease_for;
        match act {
            WorkerAction::Die => {
                self.oracle.goals.reach("worker-died-holding");
                hand.dies();
                Ok(())
            }
            WorkerAction::Sleep => {
                let task = hand.tasks.remove(place);
                let report = crate::actor::worker::honest(&task);
                hand.sent.push(report.clone());
                self.ops += 1;
                let by = Caller::Worker(worker);
                let call = Call {
                    op: self.ops,
                    by,
                    incarnation,
                    command: report,
                    rng: rng.split(),
                    sent_at: self.time,
                };
                let after = self.clocks.world_micros(lease_for) + rng.below(10_000_000);
                self.at(self.time + after, SimEvent::LateReport(call));
                Ok(())
            }
            WorkerAction::Continue(command) => {
                let after = SimWorker::works_for(&self.plan, &mut rng, lease_for);
                let again = SimEvent::WorkerActs {
                    worker,
                    incarnation,
                    token,
                    rng: rng.split(),
                };
                self.at(self.time + after + 1, again);
                self.send(Caller::Worker(worker), command, rng)
            }
            WorkerAction::Finish(command) => {
                hand.tasks.remove(place);
                if hand.sent.len() == 6 {
                    hand.sent.remove(0);
                }
                hand.sent.push(command.clone());
                if self.plan.suffers(Fault::Repeats) && rng.chance(200) {
                    self.send(Caller::Worker(worker), command.clone(), rng.split())?;
                }
                self.send(Caller::Worker(worker), command, rng)
            }
        }
    }
}
