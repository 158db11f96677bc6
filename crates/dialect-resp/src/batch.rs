//! Batches: the calls of commands that arrive together make one commit, and the replies keep their order.

use ganger_shard::{CallError, Handle};
use ganger_types::keys::{KeyAnswers, KeyCall, KeyCalls, KeyReply};
use ganger_types::{Bytes, Command, ExternalCall, ExternalReply, Namespace, Reply};

use crate::limits::{BATCH_BYTES_MAX, BATCH_CALLS_MAX, CALL_BYTES};
use crate::plan::{Answer, Call, PlannedCall, Shape};
use crate::refusal::unavailable;
use crate::unconfirmed_pops::{Pop, is_taken};
use crate::value::Value;

/// The calls of commands that arrived together.
#[derive(Default)]
pub(crate) struct Batch {
    slots: Vec<Slot>,
    /// Calls; consecutive calls on the keys of one database are one entry.
    commands: Vec<Command>,
    /// Calls that take an element from a work queue: index of the call, namespace, and list.
    taking: Vec<(usize, Namespace, Bytes)>,
    calls: usize,
    /// The weights of the calls together.
    weight: usize,
    wide: usize,
    bytes: usize,
}

/// Combines the answers to several calls into one reply.
pub(crate) type CombineReplies = Box<dyn FnOnce(Vec<Answer>) -> Value + Send>;

/// How a reply is made.
enum Slot {
    /// A reply that needs no call.
    Ready(Value),
    /// From the answer to the next call.
    Call(Shape),
    /// From the answers to this number of calls.
    Several(usize, CombineReplies),
}

/// The outcome of a batch.
pub(crate) enum BatchOutcome {
    /// A reply for each command, and the elements that were taken from work queues.
    Replies(Vec<Value>, Vec<Pop>),
    /// A watched key has changed; nothing was done.
    Changed,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether the answers may be large.
    pub(crate) fn is_wide(&self) -> bool {
        self.wide > 0
    }

    /// Approximate size in memory, in bytes.
    pub(crate) fn held(&self) -> usize {
        self.bytes + self.calls * CALL_BYTES
    }

    /// Whether all calls only read, so that the answers may be dropped.
    pub(crate) fn is_read_only(&self) -> bool {
        self.commands.iter().all(|command| match command {
            Command::External(ExternalCall::Keys(calls)) => {
                calls.calls.iter().all(|call| call.reads().is_some())
            }
            _ => false,
        })
    }

    /// Whether the batch must run before another call is added. A call with a large answer is the last of its commit.
    pub(crate) fn is_full(&self) -> bool {
        self.weight >= BATCH_CALLS_MAX || self.wide > 0 || self.bytes >= BATCH_BYTES_MAX
    }

    /// Adds a reply that needs no call, and returns its index.
    pub(crate) fn ready(&mut self, value: Value) -> usize {
        self.bytes += value.held();
        self.slots.push(Slot::Ready(value));
        self.slots.len() - 1
    }

    /// Adds a call whose answer makes one reply.
    pub(crate) fn call(&mut self, namespace: &Namespace, planned: PlannedCall, is_wide: bool) {
        self.wide += usize::from(is_wide || planned.is_wide);
        self.weight += planned.weight;
        self.put(namespace, planned.call);
        self.slots.push(Slot::Call(planned.shape));
    }

    /// Adds calls that make one reply together: each of these in each namespace.
    pub(crate) fn several<'a>(
        &mut self,
        namespaces: impl IntoIterator<Item = &'a Namespace>,
        calls: &[Call],
        join: CombineReplies,
    ) {
        let before = self.calls;
        for namespace in namespaces {
            for call in calls {
                self.put(namespace, call.clone());
            }
        }
        self.weight += self.calls - before;
        self.slots.push(Slot::Several(self.calls - before, join));
    }

    /// Makes the batch fail if one of these keys has changed. Returns false if the batch has calls other than on the
    /// keys of this namespace, for which that is impossible.
    pub(crate) fn watch(&mut self, namespace: &Namespace, watched: Vec<(Bytes, u64)>) -> bool {
        if self.commands.is_empty() {
            self.commands.push(no_calls(namespace));
        }
        match &mut *self.commands {
            [Command::External(ExternalCall::Keys(calls))] if calls.namespace == *namespace => {
                calls.watched = watched;
                true
            }
            _ => false,
        }
    }

    fn put(&mut self, namespace: &Namespace, call: Call) {
        self.calls += 1;
        self.bytes += call.bytes();
        let call = match call {
            Call::Keys(call) => {
                if let KeyCall::Move { from, to, .. } = &call
                    && is_taken(from, to)
                {
                    let which = self.calls - 1;
                    self.taking.push((which, namespace.clone(), from.clone()));
                }
                call
            }
            #[cfg(feature = "qless")]
            Call::Qless(request) => {
                let namespace = namespace.clone();
                let call = ganger_types::qless::QlessCall { namespace, request };
                self.commands.push(Command::from(call));
                return;
            }
        };
        match self.commands.last_mut() {
            Some(Command::External(ExternalCall::Keys(last))) if last.namespace == *namespace => {
                last.calls.push(call);
            }
            _ => {
                let mut command = no_calls(namespace);
                if let Command::External(ExternalCall::Keys(calls)) = &mut command {
                    calls.calls.push(call);
                }
                self.commands.push(command);
            }
        }
    }

    /// Runs the calls in one commit and returns their answers once it is durable; `None` if a watched key has
    /// changed.
    async fn run(&mut self, handle: &Handle) -> Option<Vec<Result<Answer, Value>>> {
        let mut answers = Vec::with_capacity(self.calls);
        let commands = std::mem::take(&mut self.commands);
        if commands.is_empty() {
            return Some(answers);
        }
        let counts: Vec<_> = commands.iter().map(calls_in).collect();
        let replies = call(handle, commands).await;
        for (reply, count) in replies.into_iter().zip(counts) {
            match reply {
                Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Each(all)))) => {
                    answers.extend(all.into_iter().map(Answer::Keys).map(Ok));
                }
                Ok(Reply::External(ExternalReply::Keys(KeyAnswers::Changed))) => return None,
                #[cfg(feature = "qless")]
                Ok(Reply::External(ExternalReply::Qless(answer))) => {
                    answers.push(Ok(Answer::Qless(answer)));
                }
                Ok(_) => unreachable!("calls are answered as such"),
                Err(error) => {
                    answers.extend((0..count).map(|_| Err(unavailable(&error))));
                }
            }
        }
        Some(answers)
    }

    /// Runs the calls, without watched keys, and returns their answers.
    pub(crate) async fn answers(mut self, handle: &Handle) -> Vec<Result<Answer, Value>> {
        self.run(handle).await.unwrap_or_default()
    }

    /// Runs the calls in one commit and returns the replies once it is durable.
    pub(crate) async fn gather(mut self, handle: &Handle) -> BatchOutcome {
        let Some(answers) = self.run(handle).await else {
            return BatchOutcome::Changed;
        };
        let popped = self
            .taking
            .into_iter()
            .filter_map(|(which, namespace, list)| {
                let Ok(Answer::Keys(Ok(KeyReply::Value(element)))) = answers.get(which)? else {
                    return None;
                };
                let element = element.clone();
                Some(Pop {
                    namespace,
                    list,
                    element,
                })
            });
        let popped = popped.collect();
        let mut answers = answers.into_iter();
        let mut next = move || answers.next().expect("there is an answer for each call");
        let replies = self.slots.into_iter();
        let replies = replies.map(|slot| slot.reply(&mut next)).collect();
        BatchOutcome::Replies(replies, popped)
    }
}

fn no_calls(namespace: &Namespace) -> Command {
    Command::from(KeyCalls {
        namespace: namespace.clone(),
        watched: Vec::new(),
        calls: Vec::new(),
    })
}

fn calls_in(command: &Command) -> usize {
    match command {
        Command::External(ExternalCall::Keys(calls)) => calls.calls.len(),
        _ => 1,
    }
}

impl Slot {
    fn reply(self, next: &mut impl FnMut() -> Result<Answer, Value>) -> Value {
        match self {
            Self::Ready(value) => value,
            Self::Call(shape) => match next() {
                Ok(answer) => shape.reply(answer),
                Err(error) => error,
            },
            Self::Several(count, join) => {
                let answers: Vec<_> = (0..count).map(|_| next()).collect();
                answers
                    .into_iter()
                    .collect::<Result<_, _>>()
                    .map_or_else(|error| error, join)
            }
        }
    }
}

async fn call(handle: &Handle, mut commands: Vec<Command>) -> Vec<Result<Reply, CallError>> {
    if commands.len() == 1
        && let Some(command) = commands.pop()
    {
        return vec![handle.call(command).await];
    }
    let count = commands.len();
    match handle.call_all(commands).await {
        Ok(replies) => replies,
        Err(error) => vec![Err(error); count],
    }
}
