//! Checks settings of queues and namespaces.

use std::collections::BTreeSet;

use ganger_types::Answer;
use ganger_types::command::{ConfigureNamespace, ConfigureQueue, ForgetQueue, QueueChange};

use super::{CheckResult, Oracle};

impl Oracle {
    pub(super) fn configure_queue(&mut self, cmd: &ConfigureQueue, answer: &Answer) -> CheckResult {
        if let Err(rejection) = answer {
            return self.refused(rejection, &BTreeSet::from(["out_of_range"]));
        }
        let name = (cmd.namespace.clone(), cmd.queue.clone());
        let settings = self.queues.entry(name).or_default();
        match &cmd.change {
            QueueChange::All(all) | QueueChange::AllIf { settings: all, .. } => {
                *settings = all.clone();
            }
            QueueChange::Paused(paused) => settings.paused = *paused,
        }
        Ok(())
    }

    pub(super) fn forget_queue(&mut self, cmd: &ForgetQueue, answer: &Answer) -> CheckResult {
        let live = self.count_live(|job| job.namespace == cmd.namespace && job.queue == cmd.queue);
        let mut objections = BTreeSet::from(["queue_not_found"]);
        if live > 0 {
            objections.insert("queue_in_use");
        }
        if let Err(rejection) = answer {
            return self.refused(rejection, &objections);
        }
        if live > 0 {
            return Err(self.wrong(
                "K4",
                format!("a queue with {live} live jobs was forgotten"),
                Vec::new(),
            ));
        }
        let has_kept = self
            .jobs
            .values()
            .any(|job| job.namespace == cmd.namespace && job.queue == cmd.queue);
        if !has_kept {
            self.queues
                .remove(&(cmd.namespace.clone(), cmd.queue.clone()));
        }
        Ok(())
    }

    pub(super) fn configure_namespace(
        &mut self,
        cmd: &ConfigureNamespace,
        answer: &Answer,
    ) -> CheckResult {
        if let Err(rejection) = answer {
            return self.refused(rejection, &BTreeSet::from(["out_of_range", "too_large"]));
        }
        self.namespaces
            .insert(cmd.namespace.clone(), cmd.settings.clone());
        Ok(())
    }
}
