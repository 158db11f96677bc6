//! Limits on resources, working directories, and which files may run: faults f64, f65 and f66 of the catalogue.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::support::TestWorker;

#[tokio::test]
async fn rel_w6_f64_each_limit_ends_the_program_and_not_the_worker() {
    let handlers = "
        [handler.cpu]
        cpu_time = \"1s\"
        [handler.memory]
        memory = \"200MiB\"
        [handler.disk]
        file_size = \"1MiB\"
        [handler.files]
        open_files = 20
    ";
    let worker = TestWorker::with(handlers, |_| {});
    worker.python("cpu", "while True: pass");
    worker.python("memory", "x = 'x' * (1 << 30)");
    worker.sh("disk", "exec head -c 100000000 /dev/zero > file");
    worker.python("files", "all = [open('/dev/null') for _ in range(100)]");
    for (kind, group) in [
        ("cpu", "cpu-limit"),
        ("disk", "file-limit"),
        ("files", "exit-1"),
    ] {
        worker.deliver_job(kind, kind, "");
        let failure = worker.sink.failure(kind).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            (group, false),
            "{}",
            failure.message
        );
    }
    worker.deliver_job("memory", "memory", "");
    let failure = worker.sink.failure("memory").await;
    match failure.group.as_str() {
        "memory-limit" => assert!(failure.message.contains("209715200 bytes")),
        group => assert!(group == "exit-1" && failure.message.contains("MemoryError")),
    }
    assert!(
        worker
            .sink
            .failure("files")
            .await
            .message
            .contains("Too many open files")
    );
    worker.end().await;
}

#[tokio::test]
async fn rel_w6_f64_memory_and_processes_of_a_run_are_limited_as_a_whole() {
    let handlers = "
        [handler.memory]
        memory = \"64MiB\"
        [handler.bomb]
        processes = 20
    ";
    let worker = TestWorker::with(handlers, |_| {});
    // Each child alone is far below the limit.
    worker.python(
        "memory",
        "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        kept = bytearray(os.urandom(8 << 20))\n\
         \x20       time.sleep(1000)\n\
         for _ in range(20):\n    if os.wait()[1]: os._exit(1)",
    );
    worker.python(
        "bomb",
        "import os, time\nfor _ in range(100):\n    if os.fork() == 0: time.sleep(1000)\nprint(1)",
    );
    let has_groups = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")
        .is_ok_and(|all| all.contains("memory") && all.contains("pids"));
    if !has_groups || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: control groups cannot bound memory and processes here");
        worker.end().await;
        return;
    }
    for job in ["one", "two"] {
        worker.deliver_job(job, "memory", "");
        let failure = worker.sink.failure(job).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            ("memory-limit", false),
            "{}",
            failure.message
        );
    }
    worker.deliver_job("bomb", "bomb", "");
    let failure = worker.sink.failure("bomb").await;
    assert_eq!(failure.group, "exit-1", "{}", failure.message);
    worker
        .sink
        .wait_for_log("bomb", "it may have 20 at a time")
        .await;
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn rel_w5_f64_the_size_of_a_working_directory_can_be_limited() {
    let worker = TestWorker::with("[default]\ndirectory_size = \"1MiB\"", |_| {});
    worker
        .sh(
            "fills",
            "echo mine > file; head -c 3000000 /dev/zero > more",
        )
        .sh("fits", "echo 5 > file; cat file; ls -A | wc -l >&2");
    worker.deliver_job("fills", "fills", "");
    if !rustix::process::geteuid().is_root() {
        let reason = worker.sink.release("fills").await.reason;
        assert!(reason.contains("directory_size"), "{reason}");
        eprintln!("skipped: {reason}");
        worker.end().await;
        return;
    }
    let failure = worker.sink.failure("fills").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("disk-full", false),
        "{}",
        failure.message
    );
    assert!(
        failure.message.contains("1048576 bytes") && failure.message.contains("No space left"),
        "{}",
        failure.message
    );
    worker.deliver_job("fits", "fits", "");
    assert_eq!(worker.sink.result("fits").await, "5");
    assert_eq!(worker.sink.log("fits"), b"1\n", "it was empty");
    let scratch = worker.scratch.path().display().to_string();
    worker.end().await;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&scratch), "nothing stays mounted");
}

#[tokio::test]
async fn rel_w9_a_full_disk_fails_the_run_and_not_the_worker() {
    let small = tempfile::tempdir().unwrap();
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may mount a small disk");
        return;
    }
    let command = |program: &str, arguments: &[&str]| {
        let status = std::process::Command::new(program)
            .args(arguments)
            .arg(small.path())
            .status();
        assert!(status.unwrap().success(), "{program}");
    };
    command("mount", &["-t", "tmpfs", "-o", "nr_inodes=20", "small"]);
    let worker = TestWorker::with("", |settings| settings.scratch = small.path().into());
    worker.sh("fine", "echo 1 > file; cat file");
    worker.deliver_job("before", "fine", "");
    worker.sink.result("before").await;
    let filler = |number: u32| small.path().join(format!("filler-{number}"));
    let count = (0..100).take_while(|number| fs::write(filler(*number), "").is_ok());
    let count = u32::try_from(count.count()).unwrap();
    worker.deliver_job("full", "fine", "");
    let failure = worker.sink.failure("full").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("disk-full", false),
        "{}",
        failure.message
    );
    (0..count).for_each(|number| fs::remove_file(filler(number)).unwrap());
    worker.deliver_job("after", "fine", "");
    assert_eq!(worker.sink.result("after").await, "1");
    worker.end().await;
    command("umount", &[]);
}

#[tokio::test]
async fn rel_w9_too_many_processes_fail_the_run_and_not_the_worker() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change to a user that may have no process");
        return;
    }
    let handlers = "[default]\nuid = 12346\n[handler.none]\nprocesses = 0";
    let worker = TestWorker::with(handlers, |settings| {
        settings.concurrency = 2;
        fs::set_permissions(&settings.scratch, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&settings.directory, fs::Permissions::from_mode(0o755)).unwrap();
    });
    worker
        .sh("none", "echo 1")
        .sh("fine", "echo 1")
        .sh("stays", "echo ready >&2; sleep 1000");
    // The user has one process already.
    worker.deliver_job("stays", "stays", "");
    worker.sink.wait_for_log("stays", "ready").await;
    worker.deliver_job("none", "none", "");
    let failure = worker.sink.failure("none").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("too-many-processes", false),
        "{}",
        failure.message
    );
    worker.deliver_job("fine", "fine", "");
    assert_eq!(worker.sink.result("fine").await, "1");
    worker.end().await;
}

#[tokio::test]
async fn rel_w6_a_program_gets_its_limits_and_no_new_privileges() {
    let worker = TestWorker::with("[default]\nopen_files = 33\nfile_size = \"2MiB\"", |_| {});
    worker.sh(
        "limits",
        "grep -E '^(NoNewPrivs|SigIgn|SigBlk)' /proc/self/status >&2; ulimit -n >&2; ulimit -c >&2",
    );
    worker.deliver_job("limits", "limits", "");
    worker.sink.result("limits").await;
    assert_eq!(
        worker.sink.log("limits"),
        b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nNoNewPrivs:\t1\n33\n0\n"
    );
    worker.end().await;
}

#[tokio::test]
async fn rel_w6_a_program_can_run_as_another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change users");
        return;
    }
    let worker = TestWorker::with("[default]\nuid = 12345\ngid = 54321", |settings| {
        // As in a deployment: every user can search the directories.
        fs::set_permissions(&settings.scratch, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&settings.directory, fs::Permissions::from_mode(0o755)).unwrap();
    });
    worker.sh(
        "who",
        "echo mine > file && echo \"[$(id -u), $(id -g), \\\"$(id -G)\\\"]\"",
    );
    worker.deliver_job("who", "who", "");
    assert_eq!(worker.sink.result("who").await, "[12345, 54321, \"54321\"]");
    worker.end().await;
}

#[tokio::test]
async fn a_script_runs_as_a_user_that_cannot_search_its_directory() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change the user");
        return;
    }
    let worker = TestWorker::with("[default]\nuid = 12345\ngid = 54321", |_| {});
    let nobody_else = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(worker.programs.path(), nobody_else).unwrap();
    worker.sh("who", "echo \"[$(id -u), \\\"$0\\\"]\"");
    worker.deliver_job("who", "who", "");
    assert_eq!(worker.sink.result("who").await, "[12345, \"/dev/fd/4\"]");
    worker.end().await;
}

#[tokio::test]
async fn rel_w6_a_sandboxed_program_writes_only_in_its_own_directory() {
    let worker = TestWorker::with("[default]\nsandbox = true", |_| {});
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    let script = format!(
        "echo mine > file && echo nothing > /dev/null && echo theirs > '{}' || cat file >&2",
        file.display()
    );
    worker.sh("writes", &script);
    worker.deliver_job("writes", "writes", "");
    match worker.sink.outcome("writes").await {
        ganger_client::Report::Release(releasing) => {
            assert!(releasing.reason.contains("sandbox"), "{}", releasing.reason);
            eprintln!("skipped: {}", releasing.reason);
        }
        _ => {
            assert!(!file.exists());
            let log = String::from_utf8(worker.sink.log("writes")).unwrap();
            assert!(
                log.contains("Permission denied") && log.contains("mine"),
                "{log}"
            );
        }
    }
    worker.end().await;
}

#[tokio::test]
async fn rel_w5_f65_a_working_directory_is_removed_whatever_the_program_did_to_it() {
    let worker = TestWorker::new();
    let kept = tempfile::tempdir().unwrap();
    fs::write(kept.path().join("file"), "x").unwrap();
    let kept_path = kept.path().display().to_string();
    let tricks = [
        (
            "locks",
            "mkdir -p a/b; touch a/b/c; chmod 0 a/b a .".to_owned(),
        ),
        ("removes", "rm -rf \"$PWD\"; cd /".to_owned()),
        (
            "links",
            format!(
                "ln -s '{kept_path}' link; here=$PWD; cd /; mv \"$here\" \"$here.moved\"; ln -s '{kept_path}' \"$here\""
            ),
        ),
        ("plants", "rmdir \"$PWD\"; echo x > \"$PWD\"".to_owned()),
        (
            "odd",
            "mkfifo pipe; touch \"$(printf 'a\\nb')\" ./-rf; ln -s . loop".to_owned(),
        ),
        (
            "uproots",
            "cd /; chmod 700 \"$HOME/..\"; rm -rf \"${HOME%/*}\"".to_owned(),
        ),
        ("empty", "ls -A >&2; stat -c %a . >&2".to_owned()),
    ];
    for (kind, script) in &tricks {
        worker.sh(kind, script);
        worker.deliver_job(kind, kind, "");
        worker.sink.result(kind).await;
    }
    assert_eq!(worker.sink.log("empty"), b"700\n");
    worker.end().await;
    assert!(kept.path().join("file").exists());
}

#[tokio::test]
async fn f65_a_program_may_remove_or_replace_its_own_file() {
    let worker = TestWorker::new();
    worker.sh("removes", "rm \"$GANGER_PROGRAM\"; echo 1");
    worker.deliver_job("first", "removes", "");
    assert_eq!(worker.sink.result("first").await, "1");
    worker.deliver_job("second", "removes", "");
    assert!(
        worker
            .sink
            .release("second")
            .await
            .reason
            .contains("no such file")
    );
    worker.sh("removes", "echo 2");
    worker.deliver_job("third", "removes", "");
    assert_eq!(worker.sink.result("third").await, "2");
    worker.end().await;
}

#[tokio::test]
async fn rel_s10_f66_a_file_that_is_not_a_program_never_runs_and_its_job_is_released_uncounted() {
    let worker = TestWorker::new();
    let directory = worker.programs.path().to_path_buf();
    worker
        .sh("plain", "echo 1")
        .sh("suid", "echo 1")
        .sh(".hidden", "echo 1")
        .sh("handlers.toml", "echo 1");
    fs::set_permissions(directory.join("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(directory.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::create_dir(directory.join("directory")).unwrap();
    symlink("/bin/true", directory.join("outside")).unwrap();
    worker
        .add_program("interpreter", "#!/no/such/interpreter\n")
        .add_program("nonsense", "neither script nor binary");
    let kinds = [
        "plain",
        "suid",
        ".hidden",
        "handlers.toml",
        "directory",
        "outside",
        "interpreter",
        "nonsense",
        "vanished",
        "../plain",
        "a/b",
        "/bin/true",
    ];
    for kind in kinds {
        worker.deliver_job(kind, kind, "");
        let releasing = worker.sink.release(kind).await;
        assert!(
            !releasing.counted && releasing.delay.as_secs() == 30,
            "{kind}"
        );
        let words = format!(
            "no program {kind} in {} on {}: ",
            directory.display(),
            worker.name
        );
        assert!(releasing.reason.starts_with(&words), "{}", releasing.reason);
    }
    assert_eq!(worker.end().await.released, 12);
}

#[tokio::test]
async fn a_binary_and_a_link_inside_the_directory_are_programs() {
    let worker = TestWorker::new();
    let directory = worker.programs.path().to_path_buf();
    fs::copy(
        fs::canonicalize("/bin/cat").unwrap(),
        directory.join("cat-1.0"),
    )
    .unwrap();
    symlink("cat-1.0", directory.join("cat")).unwrap();
    worker.deliver_job("cat", "cat", "5");
    assert_eq!(worker.sink.result("cat").await, "[5]");
    worker.end().await;
}

#[tokio::test]
async fn rel_w9_a_supervisor_that_cannot_start_fails_the_run_and_not_the_worker() {
    let worker = TestWorker::with("", |settings| {
        settings.supervisor = "/no/such/supervisor".into();
    });
    worker.sh("fine", "echo 1");
    for job in ["one", "two"] {
        worker.deliver_job(job, "fine", "");
        let failure = worker.sink.failure(job).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            ("start-failed", false)
        );
    }
    worker.end().await;
}
