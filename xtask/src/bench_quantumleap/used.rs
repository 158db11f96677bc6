//! CPU time of processes, from what the system says of them.

use std::fs;

use anyhow::{Context as _, Result};

/// Hundredths of seconds in the system's figures.
const TICKS: f64 = 100.0;

/// CPU seconds that a process has used by itself.
pub(crate) fn by_process(id: u32) -> Result<f64> {
    let fields = fields(&id.to_string())?;
    Ok((fields[0] + fields[1]) / TICKS)
}

/// CPU seconds of a process, of its children, and of those of its children that have ended.
pub(crate) fn by_family(id: u32) -> Result<f64> {
    let mut ticks: f64 = fields(&id.to_string())?[..4].iter().sum();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        // A process that ended meanwhile is in its parent's figures next time.
        if name.bytes().all(|byte| byte.is_ascii_digit())
            && parent(&name) == Some(id)
            && let Ok(child) = fields(&name)
        {
            ticks += child[0] + child[1];
        }
    }
    Ok(ticks / TICKS)
}

fn parent(name: &str) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Time of a process as user and in the system, and the same of children that have ended.
fn fields(name: &str) -> Result<[f64; 4]> {
    let stat = fs::read_to_string(format!("/proc/{name}/stat"))?;
    // The name in brackets may hold anything.
    let (_, rest) = stat.rsplit_once(')').context("no name in its statistics")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Ok([
        fields[11].parse()?,
        fields[12].parse()?,
        fields[13].parse()?,
        fields[14].parse()?,
    ])
}
