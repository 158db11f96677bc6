//! Installs missing servers from Debian packages.

use std::fs;
use std::process::Command;

use anyhow::Result;

use super::postgres;
use crate::process::{exists, run};

/// Installs missing servers, as root or with sudo. A server that cannot be installed is reported and not measured.
pub(crate) fn peers() -> Result<()> {
    let mut missing = Vec::new();
    if !exists("redis-server") {
        missing.push("redis-server");
    }
    if postgres::programs().is_none() {
        missing.push("postgresql-15");
    }
    if !exists("beanstalkd") {
        missing.push("beanstalkd");
    }
    if missing.is_empty() {
        return Ok(());
    }
    if !exists("apt-get") {
        println!(
            "not measured, because it is missing and cannot be installed here: {}",
            missing.join(", ")
        );
        return Ok(());
    }
    // This file prevents Debian from starting an installed server; only private instances are needed.
    let policy = "/usr/sbin/policy-rc.d";
    let is_ours =
        fs::metadata(policy).is_err() && fs::write(policy, "#!/bin/sh\nexit 101\n").is_ok();
    if is_ours {
        run(Command::new("chmod").args(["755", policy]))?;
    }
    let end = install(&missing);
    if is_ours {
        fs::remove_file(policy)?;
    }
    end
}

fn install(packages: &[&str]) -> Result<()> {
    let may_install = run(Command::new("sh").args(["-c", "[ \"$(id -u)\" = 0 ]"])).is_ok();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(if may_install { "apt-get" } else { "sudo" });
        if !may_install {
            command.args(["-n", "apt-get"]);
        }
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    run(&mut command(&["update", "-qq"]))?;
    let mut arguments = vec!["install", "-y", "-qq", "--no-install-recommends"];
    arguments.extend(packages);
    run(&mut command(&arguments))
}
