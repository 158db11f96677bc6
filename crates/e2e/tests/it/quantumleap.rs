//! Notifications from curl through server and pool of workers into PostgreSQL, also with kills of each of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::command::{output_text, run, wait_for};
use ganger_e2e::quantumleap::{Pool, TestBed, notification, parent_of};
use ganger_e2e::server::Server;
use serde_json::Value;

const TENANT: [&str; 2] = ["fiware-service: x", "fiware-servicepath: /"];

/// Arguments of curl with the tenant of these tests.
const OF_TENANT: [&str; 4] = ["-H", TENANT[0], "-H", TENANT[1]];

/// Waits until `wanted` tasks match the query.
fn wait_for_count(test_bed: &TestBed, query: &str, wanted: u64) -> Result<()> {
    wait_for(&format!("{wanted} tasks for {query:?}"), || {
        Ok((test_bed.count(query)? == wanted).then_some(()))
    })
}

#[test]
fn the_calls_of_the_cookbook_work_as_described() -> Result<()> {
    const NAME: &str = "the_calls_of_the_cookbook_work_as_described";
    let variables = [("WQ_MAX_RETRIES", "8"), ("QL_RETRY_BASE", "0.5")];
    let Some(mut test_bed) = TestBed::new(NAME, &variables)? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    let mut pool = test_bed.pool(&["--workers", "2"])?;

    // Load some data, and meanwhile stop the database so that some of the tasks fail.
    let answer = test_bed.notify("before", &TENANT)?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(answer.body.trim() == "\"Notification successfully processed\"");
    wait_for_count(&test_bed, "?taskStatus=succeeded", 1)?;
    test_bed.postgres.stop()?;
    for room in ["during 1", "during 2"] {
        ensure!(test_bed.notify(room, &TENANT)?.status == 200);
    }
    let of_another = ["fiware-service: y"];
    ensure!(test_bed.notify("of another", &of_another)?.status == 200);
    wait_for("a first attempt of both", || {
        let items = test_bed
            .curl("/wq/notifications/summary", &OF_TENANT)?
            .items()?;
        let tried = items.iter().filter(|item| !errors(item).is_empty());
        Ok((tried.count() == 2).then_some(()))
    })?;
    while_the_database_is_away(&test_bed)?;

    test_bed.postgres.start_again()?;
    wait_for_count(&test_bed, "?taskStatus=succeeded", 4)?;
    once_it_is_back(&test_bed)?;
    pool.stop()?;
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

fn errors(runtime: &Value) -> &[Value] {
    runtime["errors"].as_array().map_or(&[], Vec::as_slice)
}

fn while_the_database_is_away(test_bed: &TestBed) -> Result<()> {
    // (1) All tasks of a tenant and path, with their inputs.
    let items = test_bed.curl("/wq/notifications", &OF_TENANT)?.items()?;
    ensure!(items.len() == 3, "{items:?}");
    for item in &items {
        ensure!(item["input"]["fiware_service"] == "x", "{item}");
        ensure!(item["input"]["payload"][0]["type"] == "Room", "{item}");
    }
    // (2) Pending tasks, and tasks that succeeded.
    let pending = test_bed.curl("/wq/notifications?taskStatus=pending", &OF_TENANT)?;
    let pending = pending.items()?;
    ensure!(pending.len() == 2, "{pending:?}");
    for item in &pending {
        let runtime = &item["runtime"];
        let tried = u64::try_from(errors(runtime).len())?;
        ensure!(runtime["retries_left"] == 8 - tried, "{runtime}");
        let first = errors(runtime)[0].as_str().unwrap_or_default();
        ensure!(first.starts_with("InterfaceError("), "{first}");
    }
    let succeeded = test_bed.curl("/wq/notifications?taskStatus=succeeded", &OF_TENANT)?;
    ensure!(succeeded.items()?[0]["input"]["payload"][0]["id"] == "before");
    // (3) Without the inputs.
    let items = test_bed
        .curl("/wq/notifications/summary", &OF_TENANT)?
        .items()?;
    ensure!(items.len() == 3, "{items:?}");
    ensure!(items.iter().all(|item| item.get("input").is_none()));
    // (4) to (6) Counts: of everything, by outcome, and of one tenant.
    ensure!(test_bed.count("")? == 4);
    ensure!(test_bed.count("?taskStatus=succeeded")? == 1);
    let of_tenant = test_bed.curl("/wq/notifications/count?taskStatus=pending", &OF_TENANT)?;
    ensure!(of_tenant.body == "2\n", "{of_tenant:?}");
    Ok(())
}

fn once_it_is_back(test_bed: &TestBed) -> Result<()> {
    let rows =
        "select entity_id || ' ' || temperature || ' ' || pressure from mtx.etroom order by 1";
    let rows = test_bed.sql(rows)?;
    let wanted = "before 23.3 720\nduring 1 23.3 720\nduring 2 23.3 720";
    ensure!(rows == wanted, "{rows}");
    // Earlier errors are still shown.
    let items = test_bed
        .curl("/wq/notifications/summary", &OF_TENANT)?
        .items()?;
    ensure!(items.iter().filter(|item| !errors(item).is_empty()).count() == 2);
    // The time index is the arrival of the notification, not the time of the successful attempt.
    let late = "select count(*) from mtx.etroom where time_index > now() - interval '1 hour' and time_index < now()";
    ensure!(test_bed.sql(late)? == "3");
    // (7) Deletes all tasks of a tenant and path, and no others.
    let deletion = ["-X", "DELETE", "-H", TENANT[0], "-H", TENANT[1]];
    let answer = test_bed.curl("/wq/notifications", &deletion)?;
    ensure!(answer.status == 204 && answer.body.is_empty(), "{answer:?}");
    ensure!(
        test_bed
            .curl("/wq/notifications", &OF_TENANT)?
            .items()?
            .is_empty()
    );
    ensure!(test_bed.count("")? == 1);
    ensure!(test_bed.sql("select count(*) from mtx.etroom")? == "3");
    Ok(())
}

#[test]
fn retries_are_exhausted_and_permanent_errors_are_not_retried() -> Result<()> {
    const NAME: &str = "retries_are_exhausted_and_permanent_errors_are_not_retried";
    let variables = [("WQ_MAX_RETRIES", "2"), ("QL_RETRY_BASE", "0.1")];
    let Some(mut test_bed) = TestBed::new(NAME, &variables)? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    let mut pool = test_bed.pool(&[])?;
    // Two service paths for one entity.
    test_bed.notify(
        "incurable",
        &["fiware-service: x", "fiware-servicepath: /a,/b"],
    )?;
    wait_for_count(&test_bed, "?taskStatus=failed", 1)?;
    let path = ["-H", "fiware-service: x", "-H", "fiware-servicepath: /a,/b"];
    let items = test_bed.curl("/wq/notifications/summary", &path)?.items()?;
    ensure!(errors(&items[0]).len() == 1, "{items:?}");
    ensure!(
        items[0].to_string().contains("InvalidHeaderValue("),
        "{items:?}"
    );

    test_bed.postgres.stop()?;
    test_bed.notify("exhausted", &TENANT)?;
    wait_for_count(&test_bed, "?taskStatus=failed", 2)?;
    let items = test_bed
        .curl("/wq/notifications/summary", &OF_TENANT)?
        .items()?;
    ensure!(
        items[0]["status"] == "failed" && items[0]["retries_left"] == 0,
        "{items:?}"
    );
    ensure!(errors(&items[0]).len() == 3, "{items:?}");
    test_bed.postgres.start_again()?;
    test_bed.notify("after", &TENANT)?;
    wait_for_count(&test_bed, "?taskStatus=succeeded", 1)?;
    ensure!(test_bed.sql("select entity_id from mtx.etroom")? == "after");
    pool.stop()?;
    server.stop()
}

#[test]
fn without_offloading_the_answer_is_the_outcome_of_the_insert() -> Result<()> {
    const NAME: &str = "without_offloading_the_answer_is_the_outcome_of_the_insert";
    let Some(mut test_bed) = TestBed::new(NAME, &[("WQ_OFFLOAD_WORK", "false")])? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    ensure!(test_bed.notify("at once", &[])?.status == 200);
    ensure!(test_bed.rooms()? == 1);
    let two_paths = ["fiware-servicepath: /a,/b"];
    ensure!(test_bed.notify("wrong", &two_paths)?.status == 400);
    test_bed.postgres.stop()?;
    let answer = test_bed.notify("nowhere", &[])?;
    ensure!(answer.status == 500, "{answer:?}");
    ensure!(
        answer
            .body
            .contains("Notification not processed or not updated"),
        "{answer:?}"
    );
    ensure!(test_bed.count("")? == 0);
    server.stop()
}

#[test]
fn the_health_follows_the_database_down_and_up() -> Result<()> {
    const NAME: &str = "the_health_follows_the_database_down_and_up";
    let Some(mut test_bed) = TestBed::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    let until_health = |test_bed: &TestBed, status: u16, word: &str| {
        wait_for(&format!("health {status}"), || {
            let answer = test_bed.curl("/health", &[])?;
            let body: Value = serde_json::from_str(&answer.body)?;
            Ok((answer.status == status && body["status"] == word).then_some(()))
        })
    };
    until_health(&test_bed, 200, "pass")?;
    test_bed.postgres.stop()?;
    until_health(&test_bed, 503, "fail")?;
    test_bed.postgres.start_again()?;
    until_health(&test_bed, 200, "pass")?;
    server.stop()
}

/// Number of notifications in the run with kills.
const NOTIFICATIONS: usize = 2_000;
/// Number of clients that send them.
const SENDERS: usize = 4;

/// The rooms that were accepted, and those without an answer.
#[derive(Default)]
struct SentRooms {
    accepted: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

#[test]
fn every_notification_ends_with_one_row_whatever_is_killed() -> Result<()> {
    const NAME: &str = "every_notification_ends_with_one_row_whatever_is_killed";
    let variables = [("WQ_MAX_RETRIES", "10"), ("QL_RETRY_BASE", "0.5")];
    let Some(mut test_bed) = TestBed::new(NAME, &variables)? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    let mut pool = test_bed.pool(&["--workers", "2"])?;
    let sent = Mutex::new(SentRooms::default());
    let (next, has_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let port = test_bed.port;
    let killed = thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| send(port, &next, &sent, &has_ended));
        }
        let killed = kill_everything(&mut test_bed, &mut server, &mut pool, &next);
        // After an error the senders must stop.
        has_ended.store(killed.is_err(), Ordering::Release);
        killed
    });
    killed?;
    let sent = sent.into_inner().expect("senders do not panic");
    ensure!(
        sent.accepted.len() == NOTIFICATIONS,
        "{}",
        sent.accepted.len()
    );
    wait_for_count(&test_bed, "?taskStatus=pending", 0)?;
    expect_one_row_each(&test_bed, &sent)?;
    pool.stop()?;
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

/// Sends rooms until all are accepted. A room without an answer is sent again under another name, because the first one
/// may have been accepted.
fn send(
    port: std::net::SocketAddr,
    next: &AtomicUsize,
    sent: &Mutex<SentRooms>,
    has_ended: &AtomicBool,
) {
    let mut client = ganger_e2e::http::Client::new(port, Duration::from_secs(10));
    loop {
        let number = next.fetch_add(1, Ordering::AcqRel);
        if number >= NOTIFICATIONS {
            return;
        }
        for again in 0_u32.. {
            if has_ended.load(Ordering::Acquire) {
                return;
            }
            let room = format!("room {number} {again}");
            let answer = client.request("POST", "/v2/notify", &notification(&room));
            let mut sent = sent.lock().expect("senders do not panic");
            if answer.is_ok_and(|answer| answer.status == 200) {
                sent.accepted.insert(room);
                break;
            }
            sent.unknown.insert(room);
            drop(sent);
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Kills child, server, pool and database in turn while notifications arrive.
fn kill_everything(
    test_bed: &mut TestBed,
    server: &mut Server,
    pool: &mut Pool,
    next: &AtomicUsize,
) -> Result<()> {
    let parts = 9;
    for part in 1..parts {
        wait_for("further notifications", || {
            let is_there = next.load(Ordering::Acquire) >= part * NOTIFICATIONS / parts;
            Ok(is_there.then_some(()))
        })?;
        match part % 4 {
            1 => {
                wait_for("a child", || Ok(pool.kill_child()?.then_some(())))?;
            }
            2 => {
                server.kill()?;
                *server = test_bed.setup.start()?;
            }
            3 => {
                pool.kill()?;
                *pool = test_bed.pool(&["--workers", "2"])?;
            }
            _ => {
                test_bed.postgres.kill()?;
                test_bed.postgres.start_again()?;
            }
        }
    }
    Ok(())
}

fn expect_one_row_each(test_bed: &TestBed, sent: &SentRooms) -> Result<()> {
    let failed = test_bed.count("?taskStatus=failed")?;
    ensure!(failed == 0, "{failed} tasks failed");
    let rows = test_bed.sql("select entity_id, count(*) from public.etroom group by 1")?;
    let rows: BTreeMap<&str, &str> = rows
        .lines()
        .map(|row| {
            row.split_once('|')
                .context("the row has fewer than two columns")
        })
        .collect::<Result<_>>()?;
    for room in &sent.accepted {
        let count = rows.get(room.as_str()).copied().unwrap_or("0");
        ensure!(count == "1", "{room} was accepted and has {count} rows");
    }
    for (room, count) in rows {
        ensure!(count == "1", "{room} has {count} rows");
        let is_known = sent.accepted.contains(room) || sent.unknown.contains(room);
        ensure!(is_known, "{room} was never sent");
    }
    Ok(())
}

#[test]
fn a_burst_ends_when_everything_is_inserted_and_metrics_can_be_read() -> Result<()> {
    const NAME: &str = "a_burst_ends_when_everything_is_inserted_and_metrics_can_be_read";
    let Some(test_bed) = TestBed::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    for room in 0..5 {
        test_bed.notify(&room.to_string(), &[])?;
    }
    let limited = test_bed.pool_command(&["--max-tasks", "2"]).output()?;
    ensure!(limited.status.success(), "{}", output_text(&limited));
    ensure!(test_bed.rooms()? == 2 && test_bed.count("?taskStatus=pending")? == 3);
    let telemetry = test_bed.directory.path().join("telemetry");
    let directory = telemetry.to_string_lossy();
    let arguments = ["-w", "2", "-b", "--collect-telemetry-in", &directory];
    let burst = test_bed.pool_command(&arguments).output()?;
    ensure!(burst.status.success(), "{}", output_text(&burst));
    ensure!(
        output_text(&burst).contains("3 inserted, 0 failed"),
        "{}",
        output_text(&burst)
    );
    ensure!(test_bed.rooms()? == 5);
    ensure!(fs::read_dir(&telemetry)?.count() == 1);

    let address = ganger_e2e::ports::free_address()?;
    let mut pool = test_bed.pool(&["--metrics", &address.to_string()])?;
    test_bed.notify("one more", &[])?;
    let mut client = ganger_e2e::http::Client::new(address, Duration::from_secs(20));
    wait_for("the metrics", || {
        let Ok(answer) = client.request("GET", "/metrics", &Value::Null) else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        let is_there = text.contains("ganger_ngsi_rows_total 1\n")
            && text.contains("ganger_ngsi_tasks_total{outcome=\"inserted\"} 1\n")
            && text.contains("ganger_ngsi_queue_size 0\n");
        Ok(is_there.then_some(()))
    })?;
    pool.stop()?;
    server.stop()
}

#[test]
fn children_end_with_their_pool_however_it_ends() -> Result<()> {
    const NAME: &str = "children_end_with_their_pool_however_it_ends";
    let Some(test_bed) = TestBed::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    for is_killed in [false, true] {
        let mut pool = test_bed.pool(&["-w", "3"])?;
        let children = wait_for("three children", || {
            let children = pool.children()?;
            Ok((children.len() == 3).then_some(children))
        })?;
        if is_killed {
            pool.kill()?;
        } else {
            pool.stop()?;
        }
        wait_for("the end of the children", || {
            let is_alive = |id: &i32| parent_of(*id).is_some();
            Ok((!children.iter().any(is_alive)).then_some(()))
        })?;
    }
    server.stop()
}

#[test]
fn a_password_is_not_visible_in_arguments() -> Result<()> {
    const NAME: &str = "a_password_is_not_visible_in_arguments";
    let Some(test_bed) = TestBed::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    let pool = test_bed.pool(&[])?;
    let child = wait_for("a child", || Ok(pool.children()?.first().copied()))?;
    let arguments = fs::read_to_string(format!("/proc/{child}/cmdline"))?;
    let arguments: Vec<_> = arguments.split_terminator('\0').skip(1).collect();
    ensure!(arguments == ["ngsi-insert"], "{arguments:?}");
    server.stop()
}

#[test]
fn contradictory_flags_are_refused() -> Result<()> {
    for (arguments, named) in [
        (&["--ngsi", "--dir", "/tmp"][..], "--dir"),
        (&["--ngsi", "--concurrency", "2"], "--concurrency"),
        (&["--ngsi", "--mode", "weighted"], "--mode"),
        (&["--ngsi", "-q", "a", "-q", "b"], "--queue"),
        (&["--ngsi", "-w", "0"], "--workers"),
        (&["--ngsi", "--max-tasks", "0"], "--max-tasks"),
        (&["--ngsi", "crate://h/d"], "--ngsi"),
        (&["--ngsi", "--metrics", "x"], "--metrics"),
        (&["--workers", "2"], "--ngsi"),
        (&["--burst-mode"], "--ngsi"),
        (&["--collect-telemetry-in", "/tmp"], "--ngsi"),
    ] {
        let mut all = vec!["worker"];
        all.extend(arguments);
        let output = run(&all, &[])?;
        let words = output_text(&output);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {words}");
        ensure!(words.contains(named), "{arguments:?}: {words}");
    }
    Ok(())
}

/// Number of tasks in the long list, as in the specification.
const LISTED: usize = 100_000;
/// Size of each listed task, in bytes.
const LISTED_BYTES: usize = 10 << 10;
/// Maximum growth of the server's memory while it lists them, in KiB.
const GROWTH_KIB_MAX: u64 = 100 << 10;

#[test]
fn a_long_list_is_written_in_little_memory() -> Result<()> {
    const NAME: &str = "a_long_list_is_written_in_little_memory";
    let Some(test_bed) = TestBed::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = test_bed.setup.start()?;
    let next = AtomicUsize::new(0);
    let text = "x".repeat(LISTED_BYTES);
    let filled: Result<Vec<()>> = thread::scope(|scope| {
        let fillers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| fill(&test_bed, &next, &text)))
            .collect();
        fillers
            .into_iter()
            .map(|filler| filler.join().expect("no filler panics"))
            .collect()
    });
    filled?;
    // Measure the idle server with the same waiting tasks first.
    server.stop()?;
    let mut server = test_bed.setup.start()?;
    fs::write(format!("/proc/{}/clear_refs", server.id()), "5")?;
    let idle = peak_kib(&server)?;
    let listed = test_bed.curl(
        "/wq/notifications",
        &[
            "--output",
            "/dev/null",
            "--write-out",
            "\n%{size_download}\n200",
        ],
    )?;
    let grown = peak_kib(&server)?.saturating_sub(idle);
    let bytes: usize = listed.body.trim().parse()?;
    ensure!(
        bytes > LISTED * LISTED_BYTES,
        "only {bytes} bytes were listed"
    );
    ensure!(
        grown < GROWTH_KIB_MAX,
        "the server grew by {grown} KiB over {idle} KiB"
    );
    server.stop()
}

fn fill(test_bed: &TestBed, next: &AtomicUsize, text: &str) -> Result<()> {
    let mut client = test_bed.client();
    while next.fetch_add(1, Ordering::AcqRel) < LISTED {
        let mut body = notification("r");
        body["data"][0]["text"] = serde_json::json!({ "type": "Text", "value": text });
        let answer = client.request("POST", "/v2/notify", &body);
        let status = answer.map(|answer| answer.status);
        ensure!(matches!(status, Ok(200)), "{status:?}");
    }
    Ok(())
}

/// Returns the peak memory of a process in KiB since the last reset through `clear_refs`.
fn peak_kib(server: &Server) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next());
    Ok(kib.context("no VmHWM")?.parse()?)
}
