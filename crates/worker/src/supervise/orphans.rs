//! The last net: processes whose supervisor was killed come to the worker, and are killed here.

use std::fs;
use std::time::Duration;

use rustix::process::{Signal, WaitOptions, kill_process, waitpid};

use super::sweep::children;

/// Rounds; every round reaches one generation deeper.
const ROUNDS_MAX: u32 = 100;

/// Kills children of this process that carry `marker` in their environment, until there is none.
///
/// The worker must be the reaper of its descendants. The marker tells them from children that other parts
/// of the same process have started. Gives how many were killed.
pub(crate) fn kill_orphans(marker: &str) -> u32 {
    let mut killed = 0;
    for _ in 0..ROUNDS_MAX {
        let orphans: Vec<_> = children("self")
            .into_iter()
            .filter(|pid| carries(&pid.as_raw_nonzero().to_string(), marker))
            .collect();
        if orphans.is_empty() {
            break;
        }
        for pid in orphans {
            let _ = kill_process(pid, Signal::KILL);
            if matches!(waitpid(Some(pid), WaitOptions::empty()), Ok(Some(_))) {
                killed += 1;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    killed
}

fn carries(process: &str, marker: &str) -> bool {
    fs::read(format!("/proc/{process}/environ")).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|one| one == marker.as_bytes())
    })
}
