//! Serves requests that wait for elements of lists of raw keys.
//!
//! A request is tried and registered as waiting in one step of the shard. It is served directly after the command
//! that added the element, in the same turn, so no state in between is visible. Waiting requests are not stored.

use std::time::Duration;

use ganger_store::Reader;
use ganger_types::keys::{Condition, End, KeyAnswers, KeyCall, KeyError, KeyKind, KeyReply};
use ganger_types::{
    Bytes, Command, ExternalReply, KeyCalls, KeyWait, Namespace, Now, Popped, Reply,
};

use crate::CallError;
use crate::core::Core;
use crate::core::request::{CallReply, Ticket, WaiterId};
use crate::core::waiters::PopWaiter;

/// An element that was taken for a client that has gone.
#[derive(Clone, Debug)]
pub struct UndeliveredElement {
    /// The request that took the element.
    pub wait: KeyWait,
    /// The list from which the element was taken.
    pub list: Bytes,
    /// The bytes of the element.
    pub value: Bytes,
}

impl<R: Reader, T: Ticket> Core<R, T> {
    pub(in crate::core) fn take_pop(
        &mut self,
        now: Now,
        wait: Box<KeyWait>,
        wait_for: Option<Duration>,
        id: WaiterId,
        ticket: T,
    ) {
        if ticket.is_gone() {
            return;
        }
        let answer = self.try_pop(now, &wait);
        if !matches!(answer, Ok(Ok(None))) || wait_for.is_some_and(|time| time.is_zero()) {
            self.answer(now, ticket, answer.map(CallReply::Popped));
            return;
        }
        let waiter = PopWaiter {
            wait,
            deadline: wait_for.map(|time| now.elapsed.after(time)),
            ticket,
        };
        self.waiters.wait_for_element(id, waiter);
    }

    /// Takes an element from the first list that has one.
    fn try_pop(&mut self, now: Now, wait: &KeyWait) -> Result<Popped, CallError> {
        for list in &wait.lists {
            match self.live().engine.kind_of_key(now, &wait.namespace, list) {
                None => continue,
                Some(KeyKind::String) => return Ok(Err(KeyError::WrongKind)),
                Some(KeyKind::List) => {}
            }
            let call = match &wait.to {
                None => KeyCall::Pop {
                    key: list.clone(),
                    end: wait.end,
                    count: None,
                },
                Some((to, to_end)) => KeyCall::Move {
                    from: list.clone(),
                    to: to.clone(),
                    from_end: wait.end,
                    to_end: *to_end,
                },
            };
            match self.call_key(now, &wait.namespace, call)? {
                Ok(KeyReply::Value(value)) => return Ok(Ok(Some((list.clone(), value)))),
                Ok(_) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(None))
    }

    fn call_key(
        &mut self,
        now: Now,
        namespace: &Namespace,
        call: KeyCall,
    ) -> Result<Result<KeyReply, KeyError>, CallError> {
        match self.apply(now, keys(namespace, call), None)? {
            Reply::External(ExternalReply::Keys(KeyAnswers::Each(mut answers)))
                if answers.len() == 1 =>
            {
                Ok(answers.remove(0))
            }
            _ => unreachable!("one call is answered once"),
        }
    }

    /// Serves the requests that wait for elements of lists that have grown.
    pub(in crate::core) fn serve_grown(&mut self, now: Now) {
        loop {
            let grown = self.live().engine.take_grown();
            if grown.is_empty() {
                return;
            }
            for list in grown {
                self.serve_list(now, &list);
            }
        }
    }

    pub(in crate::core) fn serve_list(&mut self, now: Now, list: &(Namespace, Bytes)) {
        let has_elements = |core: &mut Self| {
            core.live().engine.kind_of_key(now, &list.0, &list.1) == Some(KeyKind::List)
        };
        while has_elements(self) {
            let Some(waiter) = self.waiters.take_first_at_list(list) else {
                return;
            };
            if waiter.ticket.is_gone() {
                continue;
            }
            self.metrics.counters.wakes_total.inc();
            let answer = self.try_pop(now, &waiter.wait);
            self.metrics.counters.wakes_served_total.inc();
            self.answer(now, waiter.ticket, answer.map(CallReply::Popped));
        }
    }

    /// Puts an element back where it was next, unless it has left the list that it was moved to: then another client
    /// has handled it. The element leaves that list only once it is back. A full device does not refuse this, since
    /// it adds nothing new.
    pub(in crate::core) fn unpop(&mut self, now: Now, unpopped: UndeliveredElement) {
        let UndeliveredElement { wait, list, value } = unpopped;
        self.metrics.counters.undelivered_total.inc();
        if let Some((to, to_end)) = &wait.to {
            let find = KeyCall::Find {
                key: to.clone(),
                value: value.clone(),
                rank: from_end(*to_end),
                count: None,
                compared_max: 0,
            };
            let found = self.call_key(now, &wait.namespace, find);
            if !matches!(found, Ok(Ok(KeyReply::Number(_)))) {
                return;
            }
        }
        let push = KeyCall::Push {
            key: list,
            end: wait.end,
            values: vec![value.clone()],
            condition: Condition::Always,
        };
        let pushed = self.apply_if_full(now, keys(&wait.namespace, push), None);
        if !matches!(&pushed, Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Each(answers)))) if answers[0].is_ok())
        {
            tracing::error!(
                ?pushed,
                "an element that nobody received could not be put back"
            );
            return;
        }
        if let Some((to, to_end)) = &wait.to {
            let remove = KeyCall::Remove {
                key: to.clone(),
                count: from_end(*to_end),
                value,
            };
            drop(self.call_key(now, &wait.namespace, remove));
        }
    }
}

/// Returns the count argument for the first match from an end.
fn from_end(end: End) -> i64 {
    match end {
        End::Left => 1,
        End::Right => -1,
    }
}

fn keys(namespace: &Namespace, call: KeyCall) -> Command {
    Command::from(KeyCalls {
        namespace: namespace.clone(),
        watched: Vec::new(),
        calls: vec![call],
    })
}
