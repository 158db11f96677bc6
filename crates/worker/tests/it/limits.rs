//! What programs do to the machine, to their directory and to their own file: faults f64, f65, f66.
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
    let rig = TestWorker::with(handlers, |_| {});
    rig.python("cpu", "while True: pass");
    rig.python("memory", "x = 'x' * (1 << 30)");
    rig.sh("disk", "exec head -c 100000000 /dev/zero > file");
    rig.python("files", "all = [open('/dev/null') for _ in range(100)]");
    for (kind, group) in [
        ("cpu", "cpu-limit"),
        ("disk", "file-limit"),
        ("files", "exit-1"),
    ] {
        rig.job(kind, kind, "");
        let failure = rig.sink.failure(kind).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            (group, false),
            "{}",
            failure.message
        );
    }
    rig.job("memory", "memory", "");
    let failure = rig.sink.failure("memory").await;
    match failure.group.as_str() {
        "memory-limit" => assert!(failure.message.contains("209715200 bytes")),
        group => assert!(group == "exit-1" && failure.message.contains("MemoryError")),
    }
    assert!(
        rig.sink
            .failure("files")
            .await
            .message
            .contains("Too many open files")
    );
    rig.end().await;
}

#[tokio::test]
async fn rel_w6_f64_memory_and_processes_of_all_its_processes_together_are_bounded() {
    let handlers = "
        [handler.memory]
        memory = \"64MiB\"
        [handler.bomb]
        processes = 20
    ";
    let rig = TestWorker::with(handlers, |_| {});
    // Each child alone is far below the limit.
    rig.python(
        "memory",
        "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        kept = bytearray(os.urandom(8 << 20))\n\
         \x20       time.sleep(1000)\n\
         for _ in range(20):\n    if os.wait()[1]: os._exit(1)",
    );
    rig.python(
        "bomb",
        "import os, time\nfor _ in range(100):\n    if os.fork() == 0: time.sleep(1000)\nprint(1)",
    );
    let has_groups = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")
        .is_ok_and(|all| all.contains("memory") && all.contains("pids"));
    if !has_groups || !rustix::process::geteuid().is_root() {
        eprintln!("skipped: control groups cannot bound memory and processes here");
        rig.end().await;
        return;
    }
    for job in ["one", "two"] {
        rig.job(job, "memory", "");
        let failure = rig.sink.failure(job).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            ("memory-limit", false),
            "{}",
            failure.message
        );
    }
    rig.job("bomb", "bomb", "");
    let failure = rig.sink.failure("bomb").await;
    assert_eq!(failure.group, "exit-1", "{}", failure.message);
    rig.sink.logged("bomb", "it may have 20 at a time").await;
    rig.assert_no_process();
    rig.end().await;
}

#[tokio::test]
async fn rel_w5_f64_a_working_directory_may_be_bounded_as_a_whole() {
    let rig = TestWorker::with("[default]\ndirectory_size = \"1MiB\"", |_| {});
    rig.sh(
        "fills",
        "echo mine > file; head -c 3000000 /dev/zero > more",
    )
    .sh("fits", "echo 5 > file; cat file; ls -A | wc -l >&2");
    rig.job("fills", "fills", "");
    if !rustix::process::geteuid().is_root() {
        let reason = rig.sink.release("fills").await.reason;
        assert!(reason.contains("directory_size"), "{reason}");
        eprintln!("skipped: {reason}");
        rig.end().await;
        return;
    }
    let failure = rig.sink.failure("fills").await;
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
    rig.job("fits", "fits", "");
    assert_eq!(rig.sink.result("fits").await, "5");
    assert_eq!(rig.sink.log("fits"), b"1\n", "it was empty");
    let place = rig.scratch.path().display().to_string();
    rig.end().await;
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&place), "nothing stays mounted");
}

#[tokio::test]
async fn rel_w9_a_disk_that_is_full_fails_the_run_and_not_the_worker() {
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
    let rig = TestWorker::with("", |settings| settings.scratch = small.path().into());
    rig.sh("fine", "echo 1 > file; cat file");
    rig.job("before", "fine", "");
    rig.sink.result("before").await;
    let filler = |number: u32| small.path().join(format!("filler-{number}"));
    let count = (0..100).take_while(|number| fs::write(filler(*number), "").is_ok());
    let count = u32::try_from(count.count()).unwrap();
    rig.job("full", "fine", "");
    let failure = rig.sink.failure("full").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("disk-full", false),
        "{}",
        failure.message
    );
    (0..count).for_each(|number| fs::remove_file(filler(number)).unwrap());
    rig.job("after", "fine", "");
    assert_eq!(rig.sink.result("after").await, "1");
    rig.end().await;
    command("umount", &[]);
}

#[tokio::test]
async fn rel_w9_too_many_processes_fail_the_run_and_not_the_worker() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change to a user that may have no process");
        return;
    }
    let handlers = "[default]\nuid = 12346\n[handler.none]\nprocesses = 0";
    let rig = TestWorker::with(handlers, |settings| {
        settings.concurrency = 2;
        fs::set_permissions(&settings.scratch, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&settings.directory, fs::Permissions::from_mode(0o755)).unwrap();
    });
    rig.sh("none", "echo 1")
        .sh("fine", "echo 1")
        .sh("stays", "echo ready >&2; sleep 1000");
    // So its user has one already.
    rig.job("stays", "stays", "");
    rig.sink.logged("stays", "ready").await;
    rig.job("none", "none", "");
    let failure = rig.sink.failure("none").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("too-many-processes", false),
        "{}",
        failure.message
    );
    rig.job("fine", "fine", "");
    assert_eq!(rig.sink.result("fine").await, "1");
    rig.end().await;
}

#[tokio::test]
async fn rel_w6_a_program_gets_no_new_privileges_and_the_limits_it_was_given() {
    let rig = TestWorker::with("[default]\nopen_files = 33\nfile_size = \"2MiB\"", |_| {});
    rig.sh(
        "limits",
        "grep -E '^(NoNewPrivs|SigIgn|SigBlk)' /proc/self/status >&2; ulimit -n >&2; ulimit -c >&2",
    );
    rig.job("limits", "limits", "");
    rig.sink.result("limits").await;
    assert_eq!(
        rig.sink.log("limits"),
        b"SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nNoNewPrivs:\t1\n33\n0\n"
    );
    rig.end().await;
}

#[tokio::test]
async fn rel_w6_a_program_may_run_as_another_user() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change users");
        return;
    }
    let rig = TestWorker::with("[default]\nuid = 12345\ngid = 54321", |settings| {
        // As deployed: the way to the directories is open to all.
        fs::set_permissions(&settings.scratch, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&settings.directory, fs::Permissions::from_mode(0o755)).unwrap();
    });
    rig.sh(
        "who",
        "echo mine > file && echo \"[$(id -u), $(id -g), \\\"$(id -G)\\\"]\"",
    );
    rig.job("who", "who", "");
    assert_eq!(rig.sink.result("who").await, "[12345, 54321, \"54321\"]");
    rig.end().await;
}

#[tokio::test]
async fn a_script_runs_as_a_user_who_cannot_search_its_directory() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root may change the user");
        return;
    }
    let rig = TestWorker::with("[default]\nuid = 12345\ngid = 54321", |_| {});
    let nobody_else = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(rig.programs.path(), nobody_else).unwrap();
    rig.sh("who", "echo \"[$(id -u), \\\"$0\\\"]\"");
    rig.job("who", "who", "");
    assert_eq!(rig.sink.result("who").await, "[12345, \"/dev/fd/4\"]");
    rig.end().await;
}

#[tokio::test]
async fn rel_w6_a_sandboxed_program_writes_only_in_its_own_directory() {
    let rig = TestWorker::with("[default]\nsandbox = true", |_| {});
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().join("file");
    let script = format!(
        "echo mine > file && echo nothing > /dev/null && echo theirs > '{}' || cat file >&2",
        file.display()
    );
    rig.sh("writes", &script);
    rig.job("writes", "writes", "");
    match rig.sink.outcome("writes").await {
        ganger_client::Report::Release(releasing) => {
            assert!(releasing.reason.contains("sandbox"), "{}", releasing.reason);
            eprintln!("skipped: {}", releasing.reason);
        }
        _ => {
            assert!(!file.exists());
            let log = String::from_utf8(rig.sink.log("writes")).unwrap();
            assert!(
                log.contains("Permission denied") && log.contains("mine"),
                "{log}"
            );
        }
    }
    rig.end().await;
}

#[tokio::test]
async fn rel_w5_f65_whatever_a_program_does_to_its_directory_it_is_gone_afterwards() {
    let rig = TestWorker::new();
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
        rig.sh(kind, script);
        rig.job(kind, kind, "");
        rig.sink.result(kind).await;
    }
    assert_eq!(rig.sink.log("empty"), b"700\n");
    rig.end().await;
    assert!(kept.path().join("file").exists());
}

#[tokio::test]
async fn f65_a_program_may_remove_or_replace_its_own_file() {
    let rig = TestWorker::new();
    rig.sh("removes", "rm \"$GANGER_PROGRAM\"; echo 1");
    rig.job("first", "removes", "");
    assert_eq!(rig.sink.result("first").await, "1");
    rig.job("second", "removes", "");
    assert!(
        rig.sink
            .release("second")
            .await
            .reason
            .contains("no such file")
    );
    rig.sh("removes", "echo 2");
    rig.job("third", "removes", "");
    assert_eq!(rig.sink.result("third").await, "2");
    rig.end().await;
}

#[tokio::test]
async fn rel_s10_f66_what_is_no_program_is_never_run_but_given_back_uncounted() {
    let rig = TestWorker::new();
    let directory = rig.programs.path().to_path_buf();
    rig.sh("plain", "echo 1")
        .sh("suid", "echo 1")
        .sh(".hidden", "echo 1")
        .sh("handlers.toml", "echo 1");
    fs::set_permissions(directory.join("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(directory.join("suid"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::create_dir(directory.join("directory")).unwrap();
    symlink("/bin/true", directory.join("outside")).unwrap();
    rig.put("interpreter", "#!/no/such/interpreter\n")
        .put("nonsense", "neither script nor binary");
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
        rig.job(kind, kind, "");
        let releasing = rig.sink.release(kind).await;
        assert!(
            !releasing.counted && releasing.delay.as_secs() == 30,
            "{kind}"
        );
        let words = format!(
            "no program {kind} in {} on {}: ",
            directory.display(),
            rig.name
        );
        assert!(releasing.reason.starts_with(&words), "{}", releasing.reason);
    }
    assert_eq!(rig.end().await.released, 12);
}

#[tokio::test]
async fn a_binary_and_a_link_inside_the_directory_are_programs() {
    let rig = TestWorker::new();
    let directory = rig.programs.path().to_path_buf();
    fs::copy(
        fs::canonicalize("/bin/cat").unwrap(),
        directory.join("cat-1.0"),
    )
    .unwrap();
    symlink("cat-1.0", directory.join("cat")).unwrap();
    rig.job("cat", "cat", "5");
    assert_eq!(rig.sink.result("cat").await, "[5]");
    rig.end().await;
}

#[tokio::test]
async fn rel_w9_a_machine_out_of_something_fails_the_run_and_not_the_worker() {
    let rig = TestWorker::with("", |settings| {
        settings.supervisor = "/no/such/supervisor".into();
    });
    rig.sh("fine", "echo 1");
    for job in ["one", "two"] {
        rig.job(job, "fine", "");
        let failure = rig.sink.failure(job).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            ("start-failed", false)
        );
    }
    rig.end().await;
}
