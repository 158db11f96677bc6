//! The commands of the script. Each command first checks everything and may refuse the call; then it changes the state,
//! and this part cannot fail.

mod cancel;
mod complete;
mod config;
mod depends;
mod fail;
mod failed;
mod get;
mod heartbeat;
mod jobs;
mod log;
mod peek;
pub(crate) mod pop;
mod priority;
mod put;
mod queues;
mod recur;
mod retry;
mod tag;
mod throttle;
mod timeout;
mod track;
mod workers;

use ganger_types::qless::{Generation, QlessAnswer};

use crate::call::{Arguments, Call};
use crate::state::Qless;

/// The function that runs a command, completely or not at all.
pub(crate) type Command = fn(&mut Qless, &mut Call<'_>, Arguments<'_>) -> QlessAnswer;

/// Returns the command with that name; `None` if the generation does not have it. Names are case-sensitive.
pub(crate) fn find(name: &[u8], generation: Generation) -> Option<Command> {
    Some(match name {
        b"get" => get::get,
        b"multiget" => get::multiget,
        b"put" => put::put,
        b"requeue" if generation > Generation::One => put::requeue,
        b"pop" => pop::pop,
        b"peek" => peek::peek,
        b"complete" => complete::complete,
        b"fail" => fail::fail,
        b"retry" => retry::retry,
        b"failed" => failed::failed,
        b"unfail" => failed::unfail,
        b"cancel" => cancel::cancel,
        b"heartbeat" => heartbeat::heartbeat,
        b"depends" => depends::depends,
        b"timeout" => timeout::timeout,
        b"priority" => priority::priority,
        b"tag" => tag::tag,
        b"track" => track::track,
        b"jobs" => jobs::jobs,
        b"log" => log::log,
        b"recur" => recur::recur,
        b"recur.get" => recur::get,
        b"recur.update" => recur::update,
        b"recur.tag" => recur::tag,
        b"recur.untag" => recur::untag,
        b"unrecur" => recur::unrecur,
        b"length" => queues::length,
        b"queues" => queues::queues,
        b"pause" => queues::pause,
        b"unpause" => queues::unpause,
        b"queue.forget" => queues::forget,
        b"stats" => queues::stats,
        b"workers" => workers::workers,
        b"worker.deregister" => workers::deregister,
        b"config.get" => config::get,
        b"config.set" => config::set,
        b"config.unset" => config::unset,
        _ if generation < Generation::Three => return None,
        b"throttle.set" => throttle::set,
        b"throttle.get" => throttle::get,
        b"throttle.delete" => throttle::delete,
        b"throttle.locks" => throttle::locks,
        b"throttle.pending" => throttle::pending,
        b"throttle.ttl" => throttle::ttl,
        b"throttle.release" => throttle::release,
        b"queue.throttle.get" => throttle::queue_get,
        b"queue.throttle.set" => throttle::queue_set,
        _ => return None,
    })
}
