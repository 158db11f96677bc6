//! Checks imports: each record is taken once, refused for a valid reason, or existed already.

use std::time::Duration;

use ganger_types::command::Enqueue;
use ganger_types::import::ImportOutcome;
use ganger_types::reply::Enqueued;
use ganger_types::{
    Answer, Import, ImportRecord, JobId, JobKey, JobSource, JobState, Namespace, Reply,
};

use super::admission::MemberOutcome;
use super::{CheckResult, Oracle};
use crate::rows::Rows;

/// Time for which an imported record is not imported again.
const MARK_LASTS: Duration = Duration::from_secs(7 * 86_400);

impl Oracle {
    pub(super) fn import(&mut self, cmd: &Import, answer: &Answer, rows: &Rows) -> CheckResult {
        let Ok(Reply::Imported(each)) = answer else {
            let what = format!("an import was answered {answer:?}");
            return Err(self.wrong("P6", what, Vec::new()));
        };
        if each.len() != cmd.records.len() {
            let (sent, told) = (cmd.records.len(), each.len());
            let what = format!("{sent} records were sent, {told} answered");
            return Err(self.wrong("G7", what, Vec::new()));
        }
        for (record, imported) in cmd.records.iter().zip(each) {
            let ImportRecord::Job(source) = record else {
                unreachable!("nobody sends it")
            };
            self.import_one(&cmd.namespace, source, imported, rows)?;
        }
        Ok(())
    }

    fn import_one(
        &mut self,
        namespace: &Namespace,
        source: &JobSource,
        imported: &ImportOutcome,
        rows: &Rows,
    ) -> CheckResult {
        let id = source.job.id.as_ref().expect("each has one");
        let one = Enqueue {
            namespace: namespace.clone(),
            jobs: vec![source.job.clone()],
            ..Enqueue::default()
        };
        let name = (namespace.clone(), id.clone());
        let until = self.marks.get(&name);
        let is_marked = until.is_some_and(|until| *until > self.now.elapsed);
        let member_outcomes = self.member_outcomes(&one);
        let is_refused =
            !self.objections(&one).is_empty() || self.is_too_much(&one, &member_outcomes);
        let is_right = match imported {
            ImportOutcome::AlreadyThere => {
                is_marked || !is_refused && member_outcomes != [MemberOutcome::New]
            }
            ImportOutcome::Refused(_) => !is_marked && is_refused,
            ImportOutcome::Taken => {
                !is_marked && !is_refused && member_outcomes == [MemberOutcome::New]
            }
        };
        if !is_right {
            let what = format!(
                "job {id} was answered {imported:?}; taken before: {is_marked}, to be refused: {is_refused}, else {member_outcomes:?}"
            );
            return Err(self.wrong("P1", what, Vec::new()));
        }
        match imported {
            ImportOutcome::Taken => self.has_come(&one, source.failed.is_some(), rows)?,
            ImportOutcome::Refused(_) => self.goals.reach("import-refused"),
            ImportOutcome::AlreadyThere if member_outcomes == [MemberOutcome::New] => {
                self.goals.reach("imported-once-though-gone");
            }
            ImportOutcome::AlreadyThere => {}
        }
        Ok(())
    }

    /// Adds an imported job. Its number is in its row, not in the answer.
    fn has_come(&mut self, one: &Enqueue, had_failed: bool, rows: &Rows) -> CheckResult {
        let spec = &one.jobs[0];
        let id = spec.id.clone().expect("each has one");
        let Some(key) = self.new_key(&one.namespace, &id, rows) else {
            let what = format!("job {id} was taken over and is not stored");
            return Err(self.wrong("D2", what, Vec::new()));
        };
        let answered = Enqueued {
            key,
            id: id.clone(),
            existed: false,
        };
        self.learn(one, spec, &answered, &[key], None);
        self.settle_new(vec![key]);
        self.goals.reach("imported");
        if had_failed {
            self.note(key, "had failed before it came as number", key.0);
            self.ends_without_success(key, JobState::Failed);
            self.goals.reach("imported-as-failed");
        }
        let until = self.now.elapsed.after(MARK_LASTS);
        self.marks.insert((one.namespace.clone(), id), until);
        Ok(())
    }

    /// The number of a job with this id that the present turn created; it may be removed again.
    fn new_key(&self, namespace: &Namespace, id: &JobId, rows: &Rows) -> Option<JobKey> {
        let stored = rows.find(namespace, id).map(|record| record.key);
        let leaving = self.leaving.iter();
        let leaving = leaving.filter(|it| it.namespace == *namespace && it.id == *id);
        let keys = leaving.map(|record| record.key).chain(stored);
        keys.filter(|key| self.key_max.is_none_or(|max| *key > max))
            .min()
    }
}
