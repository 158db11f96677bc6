//! The last safety net: processes whose supervisor was lost become children of the worker, and are killed and reaped
//! here.
//!
//! The kernel gives the children of a dead process to the nearest subreaper, which is the worker. Programs cannot
//! hide from this: every child of the worker is an orphan that is neither a supervisor nor in the worker's own
//! session. A supervisor starts a new session before it starts anything, and no process can enter an existing
//! session, so children of other parts of the worker's process are not touched.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid,
};

use super::isolate::session_of;
use super::sweep::{KILL_TIMEOUT, children, descendants_of, stop_all};

/// Process ids of supervisors that have not been reaped. Locked while one is started, so that it is not taken for an
/// orphan, and while orphans are killed, so that no id is reused meanwhile.
static SUPERVISORS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Starts a supervisor and records its process id.
pub(super) fn start(command: &mut Command) -> io::Result<Child> {
    let mut supervisors = supervisors();
    let child = command.spawn()?;
    supervisors.insert(child.id());
    Ok(child)
}

/// Waits for a supervisor to end, and kills the processes it left behind. Returns their number.
pub(super) fn collect(supervisor: &mut Child) -> u32 {
    // An error means that it was reaped already.
    let _ = supervisor.wait();
    let mut supervisors = supervisors();
    supervisors.remove(&supervisor.id());
    kill_orphans(&supervisors)
}

fn supervisors() -> MutexGuard<'static, BTreeSet<u32>> {
    SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills and reaps all orphans with all their descendants. Returns their number.
fn kill_orphans(supervisors: &BTreeSet<u32>) -> u32 {
    let mut collected = 0;
    let give_up_at = Instant::now() + KILL_TIMEOUT;
    loop {
        let orphans = orphans(supervisors);
        if orphans.is_empty() {
            return collected;
        }
        let all = || descendants_of(orphans.clone());
        stop_all(all);
        for pid in all() {
            // It may be dead already.
            let _ = kill_process(pid, Signal::KILL);
        }
        for pid in &orphans {
            if matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(Some(_))) {
                collected += 1;
            }
        }
        if Instant::now() > give_up_at {
            return collected;
        }
        // Killed processes take a moment to become zombies; their children then become children of this process.
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn orphans(supervisors: &BTreeSet<u32>) -> Vec<Pid> {
    let own = session_of(None);
    let is_orphan = |pid: &Pid| {
        let number = pid.as_raw_nonzero().get();
        let is_supervisor = u32::try_from(number).is_ok_and(|pid| supervisors.contains(&pid));
        let session = session_of(Some(*pid));
        !is_supervisor && session.is_some() && session != own && is_child(*pid)
    };
    children("self").into_iter().filter(is_orphan).collect()
}

/// Whether the kernel confirms that this is a child: `/proc` lists other ids if it was mounted for another pid
/// namespace.
fn is_child(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), look).is_ok()
}
