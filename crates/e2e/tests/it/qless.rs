//! qless on the Redis port of the real server, with its unmodified published clients and worker programs.

use std::collections::BTreeMap;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::clients::{Qless, script};
use ganger_e2e::redis::{LineClient, TestBed, collect_worked, or_skip};
use rustix::process::{Pid, Signal, kill_process_group};

/// Number of jobs in the run with kills.
const JOBS: usize = 1_500;
/// Number of kills in that run.
const KILLS: usize = 3;
/// Number of jobs for the worker programs.
const JOBS_OF_PROGRAMS: usize = 60;
/// Time after which the published clients' tests are ended.
const TIMEOUT: Duration = Duration::from_secs(240);

/// Returns a Python with the client; `None` if it cannot be installed here.
fn python(test: &str, client: Qless) -> Option<Command> {
    or_skip(test, client.python())
}

fn all_operations(test: &str, client: Qless) -> Result<()> {
    for protocol in ["2", "3"] {
        let Some(python) = python(test, client) else {
            return Ok(());
        };
        let test_bed = TestBed::new(&["--resp-allow-flush"])?;
        test_bed.run_with_server(
            python,
            "qless_all_operations.py",
            &[client.name(), protocol],
        )?;
    }
    Ok(())
}

#[test]
fn qless_works_on_the_port_over_an_older_library() -> Result<()> {
    all_operations("qless_works_on_the_port_over_an_older_library", Qless::Old)
}

#[test]
fn qless_works_on_the_port_over_the_newest_library() -> Result<()> {
    all_operations(
        "qless_works_on_the_port_over_the_newest_library",
        Qless::New,
    )
}

#[test]
fn qless_with_throttles_works_on_the_port() -> Result<()> {
    all_operations("qless_with_throttles_works_on_the_port", Qless::Throttles)
}

#[test]
fn reqless_works_on_the_port() -> Result<()> {
    all_operations("reqless_works_on_the_port", Qless::Reqless)
}

#[test]
fn the_whole_state_of_qless_survives_a_kill() -> Result<()> {
    const NAME: &str = "the_whole_state_of_qless_survives_a_kill";
    for client in [Qless::New, Qless::Reqless] {
        let run_command = |test_bed: &TestBed, what: &str| {
            let arguments = [client.name(), what];
            test_bed.run(client.python()?, "qless_state.py", &arguments)
        };
        if python(NAME, client).is_none() {
            return Ok(());
        }
        let test_bed = TestBed::new(&[])?;
        let mut server = test_bed.setup.start()?;
        run_command(&test_bed, "fill")?;
        let before = run_command(&test_bed, "print")?;
        ensure!(before.contains("\"running\""), "{before}");
        server.kill()?;
        let mut server = test_bed.setup.start()?;
        let after = run_command(&test_bed, "print")?;
        ensure!(before == after, "before:\n{before}\nafter:\n{after}");
        server.stop()?;
        test_bed.setup.expect_no_panic()?;
        test_bed.setup.check()?;
    }
    Ok(())
}

#[test]
fn workers_of_all_libraries_complete_each_job_once_through_kills() -> Result<()> {
    const NAME: &str = "workers_of_all_libraries_complete_each_job_once_through_kills";
    let pythons = Qless::ALL.map(|client| python(NAME, client));
    let [Some(old), Some(new), Some(throttles), Some(reqless)] = pythons else {
        return Ok(());
    };
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let jobs = JOBS.to_string();
    let arguments = ["qless", "put", &jobs];
    test_bed.run(Qless::New.python()?, "qless_work.py", &arguments)?;
    let mut workers = vec![
        test_bed.start(old, "qless_work.py", &["qless", "work"])?,
        test_bed.start(new, "qless_work.py", &["qless", "work"])?,
        test_bed.start(throttles, "qless_work.py", &["qless", "work"])?,
        test_bed.start(reqless, "qless_work.py", &["reqless", "work"])?,
    ];
    let readers = workers
        .iter_mut()
        .map(collect_worked)
        .collect::<Result<Vec<_>>>()?;
    for kill in 1..=KILLS {
        // Kill when this share of the jobs has been taken.
        let left = JOBS - JOBS * kill / (KILLS + 1);
        until_left(&mut test_bed.line_client()?, &["work"], left)?;
        server.kill()?;
        server = test_bed.setup.start()?;
    }
    for mut worker in workers {
        let status = worker.wait()?;
        ensure!(status.success(), "a worker ended with {status}");
    }
    let arguments = ["qless", "check", &jobs];
    test_bed.run(Qless::New.python()?, "qless_work.py", &arguments)?;
    let mut worked: BTreeMap<String, usize> = BTreeMap::new();
    for ids in readers {
        for id in ids.join().expect("a reader does not panic") {
            *worked.entry(id).or_default() += 1;
        }
    }
    let twice: Vec<_> = worked.iter().filter(|(_, count)| **count > 1).collect();
    ensure!(twice.is_empty(), "completed more than once: {twice:?}");
    // Each kill loses at most the reply to the last call of each worker.
    let unreported = JOBS - worked.len();
    ensure!(
        unreported <= Qless::ALL.len() * KILLS,
        "{unreported} jobs were never completed"
    );
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

/// Waits until at most `left` jobs are in these sets of the queue.
fn until_left(line: &mut LineClient, sets: &[&str], left: usize) -> Result<()> {
    let begun = Instant::now();
    line.call("SELECT 1")?;
    loop {
        let mut found = 0;
        for set in sets {
            found += usize::try_from(line.integer(&format!("ZCARD ql:q:work-{set}"))?)?;
        }
        if found <= left {
            return Ok(());
        }
        ensure!(begun.elapsed() < TIMEOUT, "{found} jobs are left");
    }
}

/// A worker program with its child processes; all are killed when dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        // An error means that they have ended already.
        kill_process_group(Pid::from_child(&self.0), Signal::KILL).ok();
        drop(self.0.wait());
    }
}

#[test]
fn the_published_worker_programs_run_jobs() -> Result<()> {
    use std::os::unix::process::CommandExt as _;

    const NAME: &str = "the_published_worker_programs_run_jobs";
    for client in Qless::ALL {
        let (Some(python), Some(mut program)) =
            (python(NAME, client), or_skip(NAME, client.worker()))
        else {
            return Ok(());
        };
        let test_bed = TestBed::new(&[])?;
        let mut server = test_bed.setup.start()?;
        let jobs = JOBS_OF_PROGRAMS.to_string();
        test_bed.run(python, "qless_work.py", &[client.name(), "put", &jobs])?;
        let modules = script("");
        let url = format!("redis://127.0.0.1:{}/1", test_bed.resp.port());
        program
            .args(["--host", &url, "--queue", "work", "--workers", "2"])
            .args(["--interval", "1", "--import", "qless_jobs", "--path"])
            .arg(&modules)
            .env("PYTHONPATH", &modules)
            // Prevents files beside the modules.
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .arg("--workdir")
            .arg(test_bed.directory.path())
            .process_group(0);
        let program = Program(program.spawn().with_context(|| format!("{program:?}"))?);
        until_left(&mut test_bed.line_client()?, &["work", "locks"], 0)?;
        let arguments = [client.name(), "check", &jobs];
        test_bed.run(client.python()?, "qless_work.py", &arguments)?;
        drop(program);
        server.stop()?;
        test_bed.setup.expect_no_panic()?;
        test_bed.setup.check()?;
    }
    Ok(())
}
