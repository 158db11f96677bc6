//! Reads of raw keys: durable values are answered at once, without a flush and before writes that wait for one.

use std::collections::VecDeque;

use ganger_store::Reader;
use ganger_types::{Command, Now};

use super::is_key_read;
use crate::core::Core;
use crate::core::request::{CallReply, Output, Request, Ticket};

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Takes the reads out of the queue, and answers those that see only durable state.
    ///
    /// A connection sends nothing more before its calls are answered, so a read overtakes only other clients' calls,
    /// and those are unanswered too: the order is not observable.
    pub(in crate::core) fn take_reads(&mut self, now: Now) {
        if !self.inbox.iter().any(is_read) {
            return;
        }
        let waiting = std::mem::take(&mut self.inbox);
        let (mut reads, others): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(is_read);
        self.inbox = others;
        while self.has_room()
            && let Some(request) = reads.pop_front()
        {
            if let Request::CallAll { commands, ticket } = request {
                self.take_read(now, commands, ticket);
            }
        }
        for request in reads.into_iter().rev() {
            self.inbox.push_front(request);
        }
    }

    fn take_read(&mut self, now: Now, commands: Vec<Command>, ticket: T) {
        let before = self.commands_in_open();
        let is_durable = commands.iter().all(|command| self.sees_durable(command));
        let changes = self.changes_in_open();
        let answer = Ok(CallReply::Replies(self.apply_all(now, commands)));
        // The lookup has removed an expired key.
        if !is_durable || self.changes_in_open() != changes {
            return self.answer(now, ticket, answer);
        }
        self.outputs.push(Output::Answer(ticket, answer));
        // The read is answered, so it does not count towards the batch.
        if let Some(turn) = &mut self.open {
            turn.commands = before;
        }
    }

    fn commands_in_open(&self) -> usize {
        self.open.as_ref().map_or(0, |turn| turn.commands)
    }

    fn changes_in_open(&self) -> usize {
        self.open
            .as_ref()
            .map_or(0, |turn| turn.effects.changes.len())
    }
}

/// Whether a request only reads keys.
fn is_read<T>(request: &Request<T>) -> bool {
    let Request::CallAll { commands, .. } = request else {
        return false;
    };
    commands.iter().all(is_key_read)
}
