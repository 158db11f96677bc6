//! Rates, and what a server used for them.

use std::fs;
use std::io;
use std::time::Duration;

/// The unit of CPU times in `/proc`: `USER_HZ`, 100 a second on Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// Jobs per second, and the server's use of CPU and disk for each.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Jobs per second while the measurement ran.
    pub per_second: f64,
    /// What the server used for one job, on average.
    pub used: Used,
}

/// What a server has used so far, or for one job.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// CPU seconds; absent if the server's process is not known.
    pub cpu: Option<f64>,
    /// Flushes to the device; absent if the server does not count them.
    pub flushes: Option<f64>,
    /// Bytes written to the device; absent if the server's process is not known.
    pub bytes: Option<f64>,
}

impl Used {
    /// What a process, its children, and those of its children that have ended have used. Flushes are not known.
    pub fn of_family(process: u32) -> Self {
        Self {
            cpu: cpu_of_family(process).ok(),
            flushes: None,
            bytes: bytes_of_family(process).ok(),
        }
    }

    pub(crate) fn since(self, before: Self) -> Self {
        let since = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        Self {
            cpu: since(self.cpu, before.cpu),
            flushes: since(self.flushes, before.flushes),
            bytes: since(self.bytes, before.bytes),
        }
    }

    /// The same for one of so many jobs.
    pub(crate) fn per_job(self, jobs: u64) -> Self {
        let jobs = u32::try_from(jobs).ok().filter(|jobs| *jobs > 0);
        let each = |used: Option<f64>| Some(used? / f64::from(jobs?));
        Self {
            cpu: each(self.cpu),
            flushes: each(self.flushes),
            bytes: each(self.bytes),
        }
    }
}

/// Events in a time as a rate per second.
pub fn rate(count: u64, time: Duration) -> f64 {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    f64::from(count) / time.as_secs_f64()
}

/// CPU seconds that a process has used by itself.
pub fn cpu_of(process: u32) -> io::Result<f64> {
    let [_, user, system, ..] = fields(&process.to_string())?;
    Ok((user + system) / TICKS_A_SECOND)
}

/// CPU seconds of a process, of its children, and of those of its children that have ended.
pub fn cpu_of_family(process: u32) -> io::Result<f64> {
    let mut ticks: f64 = fields(&process.to_string())?[1..].iter().sum();
    for child in children(process)? {
        // A process that ended meanwhile is in its parent's figures next time.
        if let Ok([_, user, system, ..]) = fields(&child) {
            ticks += user + system;
        }
    }
    Ok(ticks / TICKS_A_SECOND)
}

/// Bytes that a process, its children, and those of its children that have ended have caused to be written to the
/// device.
pub fn bytes_of_family(process: u32) -> io::Result<f64> {
    // The kernel adds those of children that have ended to their parent's.
    let mut bytes = value_of(&format!("/proc/{process}/io"), "write_bytes:")?;
    for child in children(process)? {
        bytes += value_of(&format!("/proc/{child}/io"), "write_bytes:").unwrap_or(0.0);
    }
    Ok(bytes)
}

/// Bytes of memory that a process has in use.
pub fn memory_of(process: u32) -> io::Result<f64> {
    Ok(value_of(&format!("/proc/{process}/status"), "VmRSS:")? * 1024.0)
}

/// The number after a word that begins a line of a file.
fn value_of(path: &str, word: &str) -> io::Result<f64> {
    let text = fs::read_to_string(path)?;
    let line = text.lines().find_map(|line| line.strip_prefix(word));
    let value = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("{path} has no {word}")))
}

fn children(process: u32) -> io::Result<Vec<String>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok([parent, ..]) = fields(&name)
            && (parent - f64::from(process)).abs() < 0.5
        {
            children.push(name.into_owned());
        }
    }
    Ok(children)
}

/// The parent of a process, its time as user and in the system, and the same of its children that have ended.
fn fields(process: &str) -> io::Result<[f64; 5]> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in brackets may hold anything. The parent is the fourth field, times are the 14th to 17th.
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

    #[test]
    fn memory_and_bytes_of_a_process_can_be_read() {
        let process = std::process::id();
        assert!(memory_of(process).expect("this process is there") > 0.0);
        assert!(bytes_of_family(process).expect("this process is there") >= 0.0);
        assert!(memory_of(u32::MAX).is_err());
    }

    #[test]
    fn use_is_the_difference_for_each_job() {
        let used = |cpu, flushes| Used {
            cpu,
            flushes,
            bytes: None,
        };
        let used = used(Some(5.0), Some(30.0)).since(used(Some(1.0), None));
        let used = used.per_job(8);
        assert_eq!((used.cpu, used.flushes), (Some(0.5), None));
    }
}
