//! A server that stands still: its processes are stopped and continued, as on a machine that is suspended, or all
//! killed at once, as on one that loses its power.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{fs, io};

use super::{Instance, run};

impl Instance {
    /// Stops all processes of the server where they are. Its connections stay open, and nobody answers.
    ///
    /// # Errors
    /// If the server does not run.
    pub fn pause(&self) -> io::Result<()> {
        let server = self.process()?;
        signal("STOP", &BTreeSet::from([server]))?;
        // None is added once the server itself has stopped.
        signal("STOP", &children(server)?)
    }

    /// Lets a server that was paused go on.
    ///
    /// # Errors
    /// If the server does not run.
    pub fn resume(&self) -> io::Result<()> {
        let server = self.process()?;
        signal("CONT", &children(server)?)?;
        signal("CONT", &BTreeSet::from([server]))
    }

    /// Kills all processes of the server at once. After [`Instance::kill`] sessions live on for a moment, in which they may
    /// confirm commits.
    ///
    /// # Errors
    /// If the server does not run.
    pub fn crash(&mut self) -> io::Result<()> {
        let server = self.process()?;
        signal("STOP", &BTreeSet::from([server]))?;
        let mut all = children(server)?;
        all.insert(server);
        signal("KILL", &all)?;
        self.wait_for_end()
    }

    /// Makes a standby follow this server, for example after a promotion.
    ///
    /// # Errors
    /// If the standby does not run.
    pub fn lead(&self, standby: &Self) -> io::Result<()> {
        let (directory, port) = (self.directory.path().display(), self.port);
        let name = standby.sql("postgres", "show cluster_name")?;
        let follow = format!(
            "alter system set primary_conninfo = 'user=postgres host={directory} port={port} application_name={name}'"
        );
        standby.sql("postgres", &follow)?;
        standby.sql("postgres", "select pg_reload_conf()").map(drop)
    }
}

/// Sends a signal to processes. One that has ended meanwhile is no error.
fn signal(name: &str, processes: &BTreeSet<u32>) -> io::Result<()> {
    if processes.is_empty() {
        return Ok(());
    }
    let mut kill = Command::new("kill");
    kill.arg(format!("-{name}"));
    kill.args(processes.iter().map(u32::to_string));
    let sent = run(&mut kill);
    let is_gone = |process: &u32| !Path::new(&format!("/proc/{process}")).exists();
    if processes.iter().any(is_gone) {
        return Ok(());
    }
    sent
}

/// Returns the processes whose parent this is.
fn children(parent: u32) -> io::Result<BTreeSet<u32>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(process) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // One that has ended meanwhile is not a child any more.
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let parent_of_it = after_name.split_whitespace().nth(1);
        if parent_of_it.and_then(|it| it.parse().ok()) == Some(parent) {
            found.insert(process);
        }
    }
    Ok(found)
}
