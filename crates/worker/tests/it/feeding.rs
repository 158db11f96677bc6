//! Persistent programs, which get one job after the other (mode `fed`).
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::path::Path;

use crate::support::{TestWorker, processes, until_true};

const MODE_FED: &str = "[default]\nmode = \"fed\"\n";

/// Answers each job with its process id, the number of jobs so far, and the arguments.
const PERSISTENT_PROGRAM: &str = r#"
import json, os, sys
count = 0
for line in sys.stdin:
    job = json.loads(line)
    count += 1
    first = job["args"][0] if job["args"] else None
    answer = {"id": job["id"], "result": [os.getpid(), count, job["args"]]}
    print("job", count, file=sys.stderr, flush=True)
    if first == "die": sys.exit(3)
    if first == "kill": os.kill(os.getpid(), 9)
    if first == "hang": __import__("time").sleep(1000)
    if first == "error": answer = {"id": job["id"], "error": "no", "group": "mine"}
    if first == "never": answer = {"id": job["id"], "error": "never", "permanent": True}
    if first == "other": answer["id"] = "another"
    if first == "nonsense": print("nonsense", flush=True); continue
    if first == "flood": answer["result"] = "x" * 3000000
    if first == "twice": print(json.dumps(answer) + "\n{}")
    print(json.dumps(answer), flush=True)
    if first == "leave": sys.exit(0)
"#;

async fn pid_and_count(worker: &TestWorker, job: &str) -> (u64, u64) {
    let result: serde_json::Value = serde_json::from_str(&worker.sink.result(job).await).unwrap();
    (result[0].as_u64().unwrap(), result[1].as_u64().unwrap())
}

#[tokio::test]
async fn one_program_takes_many_jobs_each_with_its_own_log() {
    let worker = TestWorker::with(MODE_FED, |_| {});
    worker.python("persistent", PERSISTENT_PROGRAM);
    let mut pids = Vec::new();
    for number in 1..=20 {
        let job = number.to_string();
        worker.deliver_job(&job, "persistent", "[1,\n\"a\\nb\"]");
        let (pid, count) = pid_and_count(&worker, &job).await;
        assert_eq!(count, number);
        assert!(
            worker
                .sink
                .result(&job)
                .await
                .ends_with("[[1, \"a\\nb\"]]]")
        );
        pids.push(pid);
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "one program for all");
    worker.end().await;
}

#[tokio::test]
async fn an_error_fails_the_job_and_the_program_keeps_running() {
    let worker = TestWorker::with(MODE_FED, |_| {});
    worker.python("persistent", PERSISTENT_PROGRAM);
    worker.deliver_job("a", "persistent", "\"error\"");
    let failure = worker.sink.failure("a").await;
    assert_eq!(
        (
            failure.group.as_str(),
            failure.message.as_str(),
            failure.permanent
        ),
        ("mine", "no", false)
    );
    worker.deliver_job("b", "persistent", "\"never\"");
    let failure = worker.sink.failure("b").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("permanent", true)
    );
    worker.deliver_job("c", "persistent", "");
    assert_eq!(pid_and_count(&worker, "c").await.1, 3);
    worker.end().await;
}

#[tokio::test]
async fn a_program_that_breaks_is_started_again_for_the_next_job() {
    let worker = TestWorker::with(MODE_FED, |_| {});
    worker.python("persistent", PERSISTENT_PROGRAM);
    let cases = [
        ("die", "exit-3", false),
        ("kill", "signal-SIGKILL", false),
        ("other", "feed-broken", false),
        ("twice", "feed-broken", false),
        ("nonsense", "bad-output", true),
        ("flood", "bad-output", true),
    ];
    for (what, group, permanent) in cases {
        worker.deliver_job(what, "persistent", &format!("\"{what}\""));
        let failure = worker.sink.failure(what).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            (group, permanent),
            "{what}"
        );
        let next = format!("after {what}");
        worker.deliver_job(&next, "persistent", "");
        assert_eq!(pid_and_count(&worker, &next).await.1, 1, "{what}");
        worker.deliver_job(&format!("{next} again"), "persistent", "");
        assert_eq!(
            pid_and_count(&worker, &format!("{next} again")).await.1,
            2,
            "{what}"
        );
    }
    worker.end().await;
}

#[tokio::test]
async fn a_program_that_ended_between_jobs_fails_no_job() {
    let worker = TestWorker::with(MODE_FED, |_| {});
    worker.python("persistent", PERSISTENT_PROGRAM);
    worker.deliver_job("a", "persistent", "\"leave\"");
    let (pid, _) = pid_and_count(&worker, "a").await;
    until_true("it has left", || {
        !Path::new(&format!("/proc/{pid}")).exists()
    });
    worker.deliver_job("b", "persistent", "");
    assert_eq!(pid_and_count(&worker, "b").await.1, 1);
    worker.end().await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_ends_its_program() {
    let worker = TestWorker::with(MODE_FED, |_| {});
    worker.python("persistent", PERSISTENT_PROGRAM);
    worker.deliver_job("a", "persistent", "\"hang\"");
    worker.sink.wait_for_log("a", "job 1").await;
    worker.lose_lease("a");
    worker.sink.wait_until_abandoned("a").await;
    worker.assert_no_process();
    worker.deliver_job("b", "persistent", "");
    assert_eq!(pid_and_count(&worker, "b").await.1, 1);
    worker.end().await;
}

#[tokio::test]
async fn a_job_that_exceeds_its_wall_time_ends_its_program() {
    let worker = TestWorker::with("[default]\nmode = \"fed\"\nwall_time = \"500ms\"", |_| {});
    worker.python("persistent", PERSISTENT_PROGRAM);
    worker.deliver_job("a", "persistent", "\"hang\"");
    assert_eq!(worker.sink.failure("a").await.group, "timeout");
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn an_idle_program_is_ended() {
    let worker = TestWorker::with("[default]\nmode = \"fed\"\nidle_for = \"1ms\"", |_| {});
    worker.python("persistent", PERSISTENT_PROGRAM);
    worker.deliver_job("a", "persistent", "");
    worker.sink.result("a").await;
    until_true("it is ended", || processes(&worker.name).is_empty());
    worker.end().await;
}

#[tokio::test]
async fn a_job_of_a_kind_without_a_program_is_released() {
    let worker = TestWorker::with(MODE_FED, |_| {});
    worker.add_program("broken", "#!/no/such/interpreter\n");
    for kind in ["none", "broken"] {
        worker.deliver_job(kind, kind, "");
        assert!(!worker.sink.release(kind).await.counted);
    }
    worker.end().await;
}
