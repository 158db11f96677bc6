//! Limits on the queues of a namespace and on the namespaces of a shard.

use std::collections::BTreeSet;

use ganger_types::limits::NAMESPACES_MAX;
use ganger_types::{Namespace, NamespaceSettings, Queue, Rejection};

use crate::check::{at_most, check_named};
use crate::engine::Engine;
use crate::state::{QueueIndex, Space};

impl Engine {
    /// Refuses queues if the new ones among them would exceed the limit of the namespace.
    pub(crate) fn check_new_queues<'a>(
        &self,
        namespace: &Namespace,
        queues: impl IntoIterator<Item = &'a Queue>,
    ) -> Result<(), Rejection> {
        let space = self.find_space(namespace).map(|space| &self.spaces[space]);
        let is_known = |index: &QueueIndex| {
            let queue = &self.queues[*index];
            queue.known || queue.counts.live() > 0
        };
        let is_new = |queue: &&Queue| {
            let found = space.and_then(|space| space.queues.get(*queue));
            !found.is_some_and(is_known)
        };
        let new: BTreeSet<&Queue> = queues.into_iter().filter(is_new).collect();
        if new.is_empty() {
            return Ok(());
        }
        for queue in &new {
            check_named("the name of a queue", queue.as_bytes())?;
        }
        self.check_new_namespace(namespace)?;
        let have = space.map_or(0, |space| {
            space
                .queues
                .values()
                .filter(|index| is_known(index))
                .count()
        });
        let all = u64::try_from(have + new.len()).unwrap_or(u64::MAX);
        let limit = self.settings(namespace).queues_max;
        at_most("the number of queues of the namespace", all, limit)
    }

    /// Refuses a new namespace if the shard has the maximum number already.
    pub(crate) fn check_new_namespace(&self, namespace: &Namespace) -> Result<(), Rejection> {
        let is_used = |space: &&Space| {
            !space.queues.is_empty() || space.settings != NamespaceSettings::default()
        };
        let space = self.find_space(namespace).map(|space| &self.spaces[space]);
        if self.spaces.len() < NAMESPACES_MAX || space.as_ref().is_some_and(is_used) {
            return Ok(());
        }
        let have = self.spaces.iter().filter(is_used).count();
        let [all, limit] =
            [have + 1, NAMESPACES_MAX].map(|count| u64::try_from(count).unwrap_or(u64::MAX));
        at_most("the number of namespaces", all, limit)
    }
}

#[cfg(test)]
mod tests {
    use ganger_types::command::ConfigureNamespace;
    use ganger_types::{Command, Elapsed, Epoch, Meta, Now, ShardId, Timestamp};

    use super::*;
    use crate::{Effects, Loader, PrefetchedRows, Start};

    #[test]
    fn a_shard_has_a_limit_of_namespaces_with_queues_or_settings() {
        let now = Now {
            elapsed: Elapsed(0),
            wall: Timestamp(0),
        };
        let start = Start {
            shard: ShardId::default(),
            epoch: Epoch(1),
            seed: [0; 32],
            meta: Meta::default(),
            now,
        };
        let mut engine = Loader::new(start).finish();
        let namespace = |number: usize| Namespace::new(number.to_string()).expect("short");
        let queue = Queue::default();
        for number in 0..NAMESPACES_MAX {
            let space = engine.make_space(&namespace(number));
            assert!(
                engine
                    .check_new_queues(&namespace(number), [&queue])
                    .is_ok()
            );
            engine.make_queue(space, &queue, now.wall);
        }
        let more = engine.check_new_queues(&namespace(NAMESPACES_MAX), [&queue]);
        let refused = more.expect_err("too many");
        assert_eq!(refused.code(), "too_large");
        assert!(
            refused.to_string().contains("fewer namespaces"),
            "{refused}"
        );
        let settings = NamespaceSettings {
            queues_max: 3,
            ..NamespaceSettings::default()
        };
        let mut configure = |number: usize| {
            let cmd = ConfigureNamespace {
                namespace: namespace(number),
                settings: settings.clone(),
            };
            let command = Command::ConfigureNamespace(Box::new(cmd));
            let rows = PrefetchedRows::default();
            engine.apply(now, command, &rows, &mut Effects::default())
        };
        let refused = configure(NAMESPACES_MAX).expect_err("too many");
        assert_eq!(refused.code(), "too_large");
        assert!(configure(0).is_ok());
        let known = engine.check_new_queues(&namespace(0), [&Queue::from_static("other")]);
        assert!(known.is_ok());
    }
}
