//! Changes a live job, or the tags, labels, tracking and notes of any job.

use crate::check::{at_most, check_size, cut};
use ganger_types::command::{Alter, Start};
use ganger_types::limits::{LABELS_MAX, MESSAGE_BYTES_MAX, TAGS_MAX};
use ganger_types::{
    Answer, Change, Due, HistoryEntry, JobKey, JobRecord, JobState, LabelKey, LabelValue,
    Rejection, Reply, Tag, What,
};

use crate::engine::Engine;
use crate::state::SpaceIndex;
use crate::transition::Move;
use crate::turn::Turn;

impl Engine {
    pub(crate) fn alter(&mut self, cmd: Alter, turn: &mut Turn<'_>) -> Answer {
        let id = cmd.job.clone().ok_or(Rejection::OutOfRange {
            what: "job",
            expected: "named",
        })?;
        let limit = self.settings(&cmd.namespace).payload_bytes_max;
        check_size(
            "the size of a payload in bytes",
            cmd.payload.as_ref(),
            limit,
        )?;
        let Some(key) = self.find_job(&cmd.namespace, &id) else {
            let record = turn
                .known
                .find(&cmd.namespace, &id)
                .ok_or_else(|| self.not_ours(&cmd.namespace, &id))?;
            return self.alter_finished(&cmd, record, turn);
        };
        let (state, details) = (self.job(key).state, self.job(key).details.as_deref());
        check_state(&cmd, state)?;
        check_trimmings(
            &cmd,
            details.map_or(&[], |details| &details.tags),
            details.map_or(&[], |details| &details.labels),
        )?;

        self.check_new_queues(&cmd.namespace, &cmd.queue)?;

        let space = self.space_of_job(key);
        self.move_in_line(space, key, &cmd, turn);
        let job = self.job_mut(key);
        if let Some(payload) = &cmd.payload {
            job.payload_bytes = u32::try_from(payload.len()).expect("payloads were checked");
        }
        let job_id = job.id();
        let mut tags = job.details_mut().tags.clone();
        self.change_tags(space, &mut tags, &cmd);
        let details = self.job_mut(key).details_mut();
        details.tags.clone_from(&tags);
        change_labels(&mut details.labels, &cmd);
        if let Some(tracked) = cmd.tracked {
            details.tracked = tracked;
            self.track(space, job_id, tracked, turn);
        }
        if let Some((mut text, data)) = cmd.note {
            cut(&mut text, MESSAGE_BYTES_MAX);
            self.append_history(
                key,
                HistoryEntry {
                    at: turn.now.wall,
                    what: What::Note { text, data },
                },
            );
        }
        if let Some(start) = cmd.start {
            self.change_start(key, start, turn);
        }
        self.put(key, turn);
        if let Some(payload) = cmd.payload {
            turn.out.changes.push(Change::PutPayload { key, payload });
        }
        Ok(Reply::Altered {
            tags,
            state: self.job(key).state,
        })
    }

    /// Changes priority and queue. The job keeps the time at which it became ready.
    fn move_in_line(&mut self, space: SpaceIndex, key: JobKey, cmd: &Alter, turn: &mut Turn<'_>) {
        if cmd.priority.is_none() && cmd.queue.is_none() {
            return;
        }
        let queue = cmd.queue.as_ref().map(|queue| {
            let index = self.make_queue(space, queue, turn.now.wall);
            self.queues[index].known = true;
            self.queues.mark_changed(index);
            index
        });
        if let Some(queue) = &cmd.queue {
            let what = What::Enqueued {
                queue: queue.clone(),
            };
            self.append_history(
                key,
                HistoryEntry {
                    at: turn.now.wall,
                    what,
                },
            );
        }
        self.reindex(key, |job| {
            job.priority = cmd.priority.unwrap_or(job.priority);
            job.queue = queue.unwrap_or(job.queue);
        });
        let _ = turn.out;
    }

    /// Puts a running job into another queue; the caller then moves it out of `Running`.
    pub(super) fn change_queue_while_running(
        &mut self,
        key: JobKey,
        queue: &ganger_types::Queue,
        turn: &mut Turn<'_>,
    ) {
        let space = self.space_of_job(key);
        let index = self.make_queue(space, queue, turn.now.wall);
        self.queues[index].known = true;
        self.queues.mark_changed(index);
        self.reindex(key, |job| job.queue = index);
    }

    fn change_start(&mut self, key: JobKey, start: Start, turn: &mut Turn<'_>) {
        let due = match start {
            Start::Now => Due::Elapsed(turn.now.elapsed),
            Start::After(delay) => Due::Elapsed(turn.now.elapsed.after(delay)),
            Start::At(at) => Due::Wall(at),
        };
        if self.job(key).state == JobState::Blocked {
            self.job_mut(key).details_mut().due = Some(due);
            return;
        }
        let to = if due.is_past(turn.now) {
            Move::Ready {
                at: turn.now.elapsed,
                is_ahead: false,
            }
        } else {
            Move::Scheduled(due)
        };
        self.transition(key, to, "altered", turn);
    }

    fn alter_finished(&mut self, cmd: &Alter, record: &JobRecord, turn: &mut Turn<'_>) -> Answer {
        let state = record
            .finished
            .as_ref()
            .map_or(record.state, |end| end.outcome.state());
        check_state(cmd, state)?;
        check_trimmings(cmd, &record.tags, &record.labels)?;

        let space = self.make_space(&cmd.namespace);
        let mut record = record.clone();
        self.change_tags(space, &mut record.tags, cmd);
        change_labels(&mut record.labels, cmd);
        if let Some(tracked) = cmd.tracked {
            record.tracked = tracked;
            self.track(space, record.id.clone(), tracked, turn);
        }
        if let Some((text, data)) = &cmd.note {
            let mut text = text.clone();
            cut(&mut text, MESSAGE_BYTES_MAX);
            let max =
                usize::try_from(self.spaces[space].settings.history_max).unwrap_or(usize::MAX);
            while record.history.len() >= max.max(2) {
                record.history.remove(1);
                record.history_dropped += 1;
            }
            let what = What::Note {
                text,
                data: data.clone(),
            };
            record.history.push(HistoryEntry {
                at: turn.now.wall,
                what,
            });
        }
        let tags = record.tags.clone();
        turn.out.changes.push(Change::PutFinished(Box::new(record)));
        Ok(Reply::Altered { tags, state })
    }

    fn change_tags(&mut self, space: SpaceIndex, tags: &mut Vec<Tag>, cmd: &Alter) {
        for tag in &cmd.tags_added {
            if !tags.contains(tag) {
                tags.push(tag.clone());
                self.spaces[space].count_tag(tag, 1);
            }
        }
        for tag in &cmd.tags_removed {
            if let Some(place) = tags.iter().position(|have| have == tag) {
                tags.remove(place);
                self.spaces[space].count_tag(tag, -1);
            }
        }
    }

    fn track(&mut self, space: SpaceIndex, id: ganger_types::JobId, on: bool, turn: &mut Turn<'_>) {
        let state = &mut self.spaces[space];
        let since = on.then_some(turn.now.wall);
        match since {
            Some(since) => state.tracked.insert(id.clone(), since),
            None => state.tracked.remove(&id),
        };
        turn.out
            .changes
            .push(Change::PutTracked(state.name.clone(), id, since));
    }
}

/// Refuses changes that are impossible in this state.
fn check_state(cmd: &Alter, state: JobState) -> Result<(), Rejection> {
    let job = cmd.job.clone().expect("it was found by its id");
    let needed = if state.is_terminal() {
        let only_trimmings = cmd.priority.is_none()
            && cmd.queue.is_none()
            && cmd.start.is_none()
            && cmd.payload.is_none();
        (!only_trimmings)
            .then_some("of a finished job only tags, labels, tracking and notes can be changed")
    } else if state == JobState::Running {
        let waits = cmd.queue.is_none() && cmd.start.is_none() && cmd.payload.is_none();
        (!waits).then_some("queue, start and payload can be changed only while it does not run")
    } else {
        None
    };
    needed.map_or(Ok(()), |needed| {
        Err(Rejection::WrongState { job, state, needed })
    })
}

fn check_trimmings(
    cmd: &Alter,
    tags: &[Tag],
    labels: &[(LabelKey, LabelValue)],
) -> Result<(), Rejection> {
    let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    let tags = tags.len() + cmd.tags_added.len();
    at_most("the number of tags of a job", count(tags), count(TAGS_MAX))?;
    // Check the length of the list first, because comparing its entries with each other is quadratic.
    let what = "the number of labels of a job";
    at_most(what, count(cmd.labels_set.len()), count(LABELS_MAX))?;
    let mut labels = labels.to_vec();
    change_labels(&mut labels, cmd);
    at_most(what, count(labels.len()), count(LABELS_MAX))
}

/// Removes labels before it sets others, so that a key in both lists gets its new value.
fn change_labels(labels: &mut Vec<(LabelKey, LabelValue)>, cmd: &Alter) {
    labels.retain(|(key, _)| !cmd.labels_removed.contains(key));
    for (key, value) in &cmd.labels_set {
        match labels.iter_mut().find(|(have, _)| have == key) {
            Some((_, have)) => have.clone_from(value),
            None => labels.push((key.clone(), value.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> LabelKey {
        LabelKey::new(text).expect("short")
    }

    fn pair(text: &str, value: &str) -> (LabelKey, LabelValue) {
        (key(text), LabelValue::new(value).expect("short"))
    }

    fn many(from: usize, to: usize) -> Vec<(LabelKey, LabelValue)> {
        (from..to).map(|n| pair(&n.to_string(), "x")).collect()
    }

    #[test]
    fn labels_are_set_and_taken_off() {
        let mut labels = vec![pair("a", "1"), pair("b", "2"), pair("c", "3")];
        let cmd = Alter {
            labels_set: vec![pair("b", "new"), pair("c", "9")],
            labels_removed: vec![key("a"), key("c"), key("nobody")],
            ..Alter::default()
        };
        change_labels(&mut labels, &cmd);
        // A key in both lists gets its new value.
        assert_eq!(labels, [pair("b", "new"), pair("c", "9")]);
    }

    #[test]
    fn what_is_left_counts_against_the_limit() {
        let full = many(0, LABELS_MAX);
        let set = |labels_set, labels_removed| Alter {
            labels_set,
            labels_removed,
            ..Alter::default()
        };
        let check = |cmd: &Alter| check_trimmings(cmd, &[], &full);
        assert_eq!(check(&set(vec![pair("0", "new")], Vec::new())), Ok(()));
        assert!(check(&set(vec![pair("more", "x")], Vec::new())).is_err());
        assert_eq!(check(&set(vec![pair("more", "x")], vec![key("0")])), Ok(()));
        let removed = full.iter().map(|(key, _)| key.clone()).collect();
        assert!(check(&set(many(100, 101 + LABELS_MAX), removed)).is_err());
    }
}
