//! The last net: processes whose supervisor was lost come to the worker, and are killed and collected here.
//!
//! The kernel gives the children of a dead process to the nearest reaper above it, which is the worker. Nothing that a
//! program can change marks them: every child of the worker counts that is neither one of its supervisors nor in the
//! worker's own session. A supervisor begins a session of its own before it starts anything, and no process can enter a
//! session, so what other parts of the same process have started is left alone.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, kill_process, waitid, waitpid,
};

use super::isolate::session_of;
use super::sweep::{RESIST_FOR, children, descendants_of, stop_all};

/// The supervisors of this process that have not been collected. Locked while one is started, so that none is taken for
/// an orphan, and while orphans are killed, so that no number is used again meanwhile.
static SUPERVISORS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// Starts a supervisor and notes its process number.
pub(super) fn start(command: &mut Command) -> io::Result<Child> {
    let mut supervisors = supervisors();
    let child = command.spawn()?;
    supervisors.insert(child.id());
    Ok(child)
}

/// Waits for a supervisor to end, and kills what it has left behind. Gives how many that were.
pub(super) fn collect(supervisor: &mut Child) -> u32 {
    // An error means that it was collected already.
    let _ = supervisor.wait();
    let mut supervisors = supervisors();
    supervisors.remove(&supervisor.id());
    kill_orphans(&supervisors)
}

fn supervisors() -> MutexGuard<'static, BTreeSet<u32>> {
    SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills and collects all orphans with all their descendants. Gives how many were collected.
fn kill_orphans(supervisors: &BTreeSet<u32>) -> u32 {
    let mut collected = 0;
    let give_up_at = Instant::now() + RESIST_FOR;
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
        // The killed need a moment to become zombies; their children come to us as they do.
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

/// Whether the kernel says so too: what `/proc` lists has other numbers where it was mounted for other processes.
fn is_child(pid: Pid) -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), look).is_ok()
}
