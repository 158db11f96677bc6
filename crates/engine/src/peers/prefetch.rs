//! Rows of finished jobs and of undecided parts that the host must read before a command of another shard.

use std::collections::BTreeSet;

use ganger_types::{Command, Graph, JobId, Message, Namespace};

use crate::engine::Engine;

impl Engine {
    /// The undecided parts whose jobs `command` enqueues. The host reads them into [`crate::PrefetchedRows::parts`].
    pub fn prefetch_parts(&self, command: &Command) -> Vec<(Namespace, Graph)> {
        let mut wants = BTreeSet::new();
        match command {
            Command::Decide(cmd) if cmd.is_committed => {
                wants.extend(self.undecided_part(&cmd.namespace, &cmd.graph));
            }
            Command::Receive(cmd) => {
                let messages = cmd.messages.iter();
                wants.extend(messages.filter_map(|record| self.part_of(&record.message)));
            }
            _ => {}
        }
        wants.into_iter().collect()
    }

    fn undecided_part(&self, namespace: &Namespace, graph: &Graph) -> Option<(Namespace, Graph)> {
        let name = (namespace.clone(), graph.clone());
        let part = self.peers.parts.get(&name)?;
        (!part.is_committed).then_some(name)
    }

    /// The undecided part whose submission must be committed, because a member on another shard no longer waits for
    /// one of its jobs.
    pub(super) fn drop_undecided(
        &self,
        namespace: &Namespace,
        dependency: &JobId,
        unneeded_in: Option<&Graph>,
    ) -> Option<(Namespace, Graph)> {
        let key = self.undecided_job(namespace, dependency)?;
        let name = self.undecided_with(key)?;
        // An id may have belonged to a job of an earlier graph.
        (unneeded_in == Some(&name.1)).then(|| name.clone())
    }

    /// The undecided part whose jobs a message enqueues.
    pub(super) fn part_of(&self, message: &Message) -> Option<(Namespace, Graph)> {
        match message {
            Message::Ended { dependent, .. } => self.undecided_with(*dependent).cloned(),
            Message::LetGo {
                namespace,
                dependency,
                unneeded_in,
                ..
            } => self.drop_undecided(namespace, dependency, unneeded_in.as_ref()),
            Message::Decided {
                namespace,
                graph,
                is_committed: true,
            } => self.undecided_part(namespace, graph),
            _ => None,
        }
    }

    /// The finished jobs that a decision or a message is about.
    pub(crate) fn prefetch_of_peers(
        &self,
        command: &Command,
        want: &mut impl FnMut(&Namespace, &JobId),
    ) {
        if let Command::Receive(cmd) = command {
            for record in &cmd.messages {
                prefetch_of_follow(&record.message, want);
            }
        }
        for name in self.prefetch_parts(command) {
            self.prefetch_of_part(&name, want);
        }
    }

    pub(super) fn prefetch_of_part(
        &self,
        name: &(Namespace, Graph),
        want: &mut impl FnMut(&Namespace, &JobId),
    ) {
        for (_, id) in &self.peers.parts[name].outside {
            want(&name.0, id);
        }
    }
}

/// The job in a question of a peer.
pub(super) fn prefetch_of_follow(message: &Message, want: &mut impl FnMut(&Namespace, &JobId)) {
    if let Message::Follow {
        namespace,
        dependency,
        ..
    } = message
    {
        want(namespace, dependency);
    }
}
