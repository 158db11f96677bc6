//! Measured rates, and the resources that a server used.

use std::fs;
use std::io;
use std::time::Duration;

/// Ticks per second of CPU times in `/proc`: `USER_HZ`, always 100 on Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// A measured rate, and the server's CPU time and commits for each job.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Jobs per second while the measurement ran.
    pub per_second: f64,
    /// Resources for one job: the average over all jobs of the run, including its warm-up and end.
    pub used: Used,
}

/// The resources that a server has used so far, or for one job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// CPU seconds; `None` if the server's process is unknown.
    pub cpu: Option<f64>,
    /// Commits, each with one flush; `None` if the server's metrics cannot be read.
    pub commits: Option<f64>,
}

impl Used {
    pub(crate) fn since(self, before: Self) -> Self {
        let since = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        Self {
            cpu: since(self.cpu, before.cpu),
            commits: since(self.commits, before.commits),
        }
    }

    /// Divides by the number of jobs.
    pub(crate) fn per_job(self, jobs: u64) -> Self {
        let jobs = u32::try_from(jobs).ok().filter(|jobs| *jobs > 0);
        let each = |used: Option<f64>| Some(used? / f64::from(jobs?));
        Self {
            cpu: each(self.cpu),
            commits: each(self.commits),
        }
    }
}

/// Returns events per second.
pub fn rate(count: u64, time: Duration) -> f64 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    f64::from(count) / time.as_secs_f64()
}

/// Returns the CPU seconds that a process has used, without its children.
pub fn cpu_of(process: u32) -> io::Result<f64> {
    let [_, user, system, ..] = fields(&process.to_string())?;
    Ok((user + system) / TICKS_A_SECOND)
}

/// Returns the CPU seconds of a process, of its living children, and of its children that have ended.
pub fn cpu_of_family(process: u32) -> io::Result<f64> {
    let mut ticks: f64 = fields(&process.to_string())?[1..].iter().sum();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        // A child that ends meanwhile is included in its parent's times at the next call.
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok([parent, user, system, ..]) = fields(&name)
            && (parent - f64::from(process)).abs() < 0.5
        {
            ticks += user + system;
        }
    }
    Ok(ticks / TICKS_A_SECOND)
}

/// Returns the parent's id of a process, its user and system time, and those of its children that have ended.
fn fields(process: &str) -> io::Result<[f64; 5]> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may contain anything. The parent is the fourth field; times are the 14th to 17th.
    let (_, rest) = stat.rsplit_once(')').unwrap_or_default();
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let field = |place: usize| fields.get(place)?.parse().ok();
    let five = || Some([field(1)?, field(11)?, field(12)?, field(13)?, field(14)?]);
    five().ok_or_else(|| io::Error::other(format!("statistics of process {process}: {stat:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_used_at_least_what_its_first_process_has() {
        let own = cpu_of(std::process::id()).expect("this process is there");
        let family = cpu_of_family(std::process::id()).expect("this process is there");
        assert!(family >= own);
        assert!(cpu_of(u32::MAX).is_err());
    }
}
