//! The whole way of a notification with the real programs: curl, server, pool of workers, PostgreSQL; and what becomes
//! of it when each of them is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::command::{run, until, words};
use ganger_e2e::quantumleap::{Pool, World, notification, parent_of};
use ganger_e2e::server::Server;
use serde_json::Value;

const TENANT: [&str; 2] = ["fiware-service: x", "fiware-servicepath: /"];

/// Arguments of curl for the tenant of these tests.
const OF_TENANT: [&str; 4] = ["-H", TENANT[0], "-H", TENANT[1]];

/// Waits until so many tasks are as the query says.
fn until_count(world: &World, query: &str, wanted: u64) -> Result<()> {
    until(&format!("{wanted} tasks for {query:?}"), || {
        Ok((world.count(query)? == wanted).then_some(()))
    })
}

#[test]
fn the_calls_of_the_cookbook_do_what_it_says() -> Result<()> {
    const NAME: &str = "the_calls_of_the_cookbook_do_what_it_says";
    let variables = [("WQ_MAX_RETRIES", "8"), ("QL_RETRY_BASE", "0.5")];
    let Some(mut world) = World::new(NAME, &variables)? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    let mut pool = world.pool(&["--workers", "2"])?;

    // Load some data, and while you do that bring down the database so that some of the tasks will fail.
    let answer = world.notify("before", &TENANT)?;
    ensure!(answer.status == 200, "{answer:?}");
    ensure!(answer.body.trim() == "\"Notification successfully processed\"");
    until_count(&world, "?taskStatus=succeeded", 1)?;
    world.postgres.stop()?;
    for room in ["during 1", "during 2"] {
        ensure!(world.notify(room, &TENANT)?.status == 200);
    }
    let of_another = ["fiware-service: y"];
    ensure!(world.notify("of another", &of_another)?.status == 200);
    until("a first attempt of both", || {
        let items = world
            .curl("/wq/notifications/summary", &OF_TENANT)?
            .items()?;
        let tried = items.iter().filter(|item| !errors(item).is_empty());
        Ok((tried.count() == 2).then_some(()))
    })?;
    while_the_database_is_away(&world)?;

    world.postgres.start_again()?;
    until_count(&world, "?taskStatus=succeeded", 4)?;
    once_it_is_back(&world)?;
    pool.stop()?;
    server.stop()?;
    world.setup.expect_no_panic()?;
    world.setup.check()
}

fn errors(runtime: &Value) -> &[Value] {
    runtime["errors"].as_array().map_or(&[], Vec::as_slice)
}

fn while_the_database_is_away(world: &World) -> Result<()> {
    // (1) All tasks of a tenant and path, with their inputs.
    let items = world.curl("/wq/notifications", &OF_TENANT)?.items()?;
    ensure!(items.len() == 3, "{items:?}");
    for item in &items {
        ensure!(item["input"]["fiware_service"] == "x", "{item}");
        ensure!(item["input"]["payload"][0]["type"] == "Room", "{item}");
    }
    // (2) Those that are pending, and those that succeeded.
    let pending = world.curl("/wq/notifications?taskStatus=pending", &OF_TENANT)?;
    let pending = pending.items()?;
    ensure!(pending.len() == 2, "{pending:?}");
    for item in &pending {
        let runtime = &item["runtime"];
        let tried = u64::try_from(errors(runtime).len())?;
        ensure!(runtime["retries_left"] == 8 - tried, "{runtime}");
        let first = errors(runtime)[0].as_str().unwrap_or_default();
        ensure!(first.starts_with("InterfaceError("), "{first}");
    }
    let succeeded = world.curl("/wq/notifications?taskStatus=succeeded", &OF_TENANT)?;
    ensure!(succeeded.items()?[0]["input"]["payload"][0]["id"] == "before");
    // (3) Without the inputs.
    let items = world
        .curl("/wq/notifications/summary", &OF_TENANT)?
        .items()?;
    ensure!(items.len() == 3, "{items:?}");
    ensure!(items.iter().all(|item| item.get("input").is_none()));
    // (4) to (6) Counts: of everything, by outcome, and of one tenant.
    ensure!(world.count("")? == 4);
    ensure!(world.count("?taskStatus=succeeded")? == 1);
    let of_tenant = world.curl("/wq/notifications/count?taskStatus=pending", &OF_TENANT)?;
    ensure!(of_tenant.body == "2\n", "{of_tenant:?}");
    Ok(())
}

fn once_it_is_back(world: &World) -> Result<()> {
    let rows =
        "select entity_id || ' ' || temperature || ' ' || pressure from mtx.etroom order by 1";
    let rows = world.sql(rows)?;
    let wanted = "before 23.3 720\nduring 1 23.3 720\nduring 2 23.3 720";
    ensure!(rows == wanted, "{rows}");
    // What went wrong on the way stays to be seen.
    let items = world
        .curl("/wq/notifications/summary", &OF_TENANT)?
        .items()?;
    ensure!(items.iter().filter(|item| !errors(item).is_empty()).count() == 2);
    // The time index is that of the notification, not of the attempt that went well.
    let late = "select count(*) from mtx.etroom where time_index > now() - interval '1 hour' and time_index < now()";
    ensure!(world.sql(late)? == "3");
    // (7) All tasks of a tenant and path go, and no others.
    let deletion = ["-X", "DELETE", "-H", TENANT[0], "-H", TENANT[1]];
    let answer = world.curl("/wq/notifications", &deletion)?;
    ensure!(answer.status == 204 && answer.body.is_empty(), "{answer:?}");
    ensure!(
        world
            .curl("/wq/notifications", &OF_TENANT)?
            .items()?
            .is_empty()
    );
    ensure!(world.count("")? == 1);
    ensure!(world.sql("select count(*) from mtx.etroom")? == "3");
    Ok(())
}

#[test]
fn retries_are_exhausted_and_what_cannot_be_cured_is_not_tried_again() -> Result<()> {
    const NAME: &str = "retries_are_exhausted_and_what_cannot_be_cured_is_not_tried_again";
    let variables = [("WQ_MAX_RETRIES", "2"), ("QL_RETRY_BASE", "0.1")];
    let Some(mut world) = World::new(NAME, &variables)? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    let mut pool = world.pool(&[])?;
    // Two paths for one entity.
    world.notify(
        "incurable",
        &["fiware-service: x", "fiware-servicepath: /a,/b"],
    )?;
    until_count(&world, "?taskStatus=failed", 1)?;
    let path = ["-H", "fiware-service: x", "-H", "fiware-servicepath: /a,/b"];
    let items = world.curl("/wq/notifications/summary", &path)?.items()?;
    ensure!(errors(&items[0]).len() == 1, "{items:?}");
    ensure!(
        items[0].to_string().contains("InvalidHeaderValue("),
        "{items:?}"
    );

    world.postgres.stop()?;
    world.notify("exhausted", &TENANT)?;
    until_count(&world, "?taskStatus=failed", 2)?;
    let items = world
        .curl("/wq/notifications/summary", &OF_TENANT)?
        .items()?;
    ensure!(
        items[0]["status"] == "failed" && items[0]["retries_left"] == 0,
        "{items:?}"
    );
    ensure!(errors(&items[0]).len() == 3, "{items:?}");
    world.postgres.start_again()?;
    world.notify("after", &TENANT)?;
    until_count(&world, "?taskStatus=succeeded", 1)?;
    ensure!(world.sql("select entity_id from mtx.etroom")? == "after");
    pool.stop()?;
    server.stop()
}

#[test]
fn without_offloading_the_answer_is_the_outcome_of_the_insert() -> Result<()> {
    const NAME: &str = "without_offloading_the_answer_is_the_outcome_of_the_insert";
    let Some(mut world) = World::new(NAME, &[("WQ_OFFLOAD_WORK", "false")])? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    ensure!(world.notify("at once", &[])?.status == 200);
    ensure!(world.rooms()? == 1);
    let two_paths = ["fiware-servicepath: /a,/b"];
    ensure!(world.notify("wrong", &two_paths)?.status == 400);
    world.postgres.stop()?;
    let answer = world.notify("nowhere", &[])?;
    ensure!(answer.status == 500, "{answer:?}");
    ensure!(
        answer
            .body
            .contains("Notification not processed or not updated"),
        "{answer:?}"
    );
    ensure!(world.count("")? == 0);
    server.stop()
}

#[test]
fn the_health_follows_the_database_down_and_up() -> Result<()> {
    const NAME: &str = "the_health_follows_the_database_down_and_up";
    let Some(mut world) = World::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    let until_health = |world: &World, status: u16, word: &str| {
        until(&format!("health {status}"), || {
            let answer = world.curl("/health", &[])?;
            let body: Value = serde_json::from_str(&answer.body)?;
            Ok((answer.status == status && body["status"] == word).then_some(()))
        })
    };
    until_health(&world, 200, "pass")?;
    world.postgres.stop()?;
    until_health(&world, 503, "fail")?;
    world.postgres.start_again()?;
    until_health(&world, 200, "pass")?;
    server.stop()
}

/// Notifications of the run that goes through kills.
const NOTIFICATIONS: usize = 2_000;
/// Clients that send them.
const SENDERS: usize = 4;

/// What the senders know: which rooms were accepted, and of which they do not know.
#[derive(Default)]
struct Sent {
    accepted: BTreeSet<String>,
    unknown: BTreeSet<String>,
}

#[test]
fn every_notification_ends_with_one_row_whatever_is_killed() -> Result<()> {
    const NAME: &str = "every_notification_ends_with_one_row_whatever_is_killed";
    let variables = [("WQ_MAX_RETRIES", "10"), ("QL_RETRY_BASE", "0.5")];
    let Some(mut world) = World::new(NAME, &variables)? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    let mut pool = world.pool(&["--workers", "2"])?;
    let sent = Mutex::new(Sent::default());
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let port = world.port;
    let killed = thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| send(port, &next, &sent, &is_over));
        }
        let killed = kill_everything(&mut world, &mut server, &mut pool, &next);
        // A run that failed must not leave senders at work.
        is_over.store(killed.is_err(), Ordering::Release);
        killed
    });
    killed?;
    let sent = sent.into_inner().expect("senders do not panic");
    ensure!(
        sent.accepted.len() == NOTIFICATIONS,
        "{}",
        sent.accepted.len()
    );
    until_count(&world, "?taskStatus=pending", 0)?;
    expect_one_row_each(&world, &sent)?;
    pool.stop()?;
    server.stop()?;
    world.setup.expect_no_panic()?;
    world.setup.check()
}

/// Sends rooms until all are accepted. One without an answer is sent again under another name: whether the first one was
/// accepted, nobody knows.
fn send(port: std::net::SocketAddr, next: &AtomicUsize, sent: &Mutex<Sent>, is_over: &AtomicBool) {
    let mut client = ganger_e2e::http::Client::new(port, Duration::from_secs(10));
    loop {
        let number = next.fetch_add(1, Ordering::AcqRel);
        if number >= NOTIFICATIONS {
            return;
        }
        for again in 0_u32.. {
            if is_over.load(Ordering::Acquire) {
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

/// Kills server, pool, child and database in turn, each while notifications come in.
fn kill_everything(
    world: &mut World,
    server: &mut Server,
    pool: &mut Pool,
    next: &AtomicUsize,
) -> Result<()> {
    let parts = 9;
    for part in 1..parts {
        until("further notifications", || {
            let is_there = next.load(Ordering::Acquire) >= part * NOTIFICATIONS / parts;
            Ok(is_there.then_some(()))
        })?;
        match part % 4 {
            1 => {
                until("a child", || Ok(pool.kill_child()?.then_some(())))?;
            }
            2 => {
                server.kill()?;
                *server = world.setup.start()?;
            }
            3 => {
                pool.kill()?;
                *pool = world.pool(&["--workers", "2"])?;
            }
            _ => {
                world.postgres.kill()?;
                world.postgres.start_again()?;
            }
        }
    }
    Ok(())
}

fn expect_one_row_each(world: &World, sent: &Sent) -> Result<()> {
    let failed = world.count("?taskStatus=failed")?;
    ensure!(failed == 0, "{failed} tasks failed");
    let rows = world.sql("select entity_id, count(*) from public.etroom group by 1")?;
    let rows: BTreeMap<&str, &str> = rows
        .lines()
        .map(|row| row.split_once('|').context("two columns"))
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
fn a_burst_ends_when_all_is_inserted_and_the_numbers_can_be_read() -> Result<()> {
    const NAME: &str = "a_burst_ends_when_all_is_inserted_and_the_numbers_can_be_read";
    let Some(world) = World::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    for room in 0..5 {
        world.notify(&room.to_string(), &[])?;
    }
    let limited = world.pool_command(&["--max-tasks", "2"]).output()?;
    ensure!(limited.status.success(), "{}", words(&limited));
    ensure!(world.rooms()? == 2 && world.count("?taskStatus=pending")? == 3);
    let telemetry = world.directory.path().join("telemetry");
    let directory = telemetry.to_string_lossy();
    let arguments = ["-w", "2", "-b", "--collect-telemetry-in", &directory];
    let burst = world.pool_command(&arguments).output()?;
    ensure!(burst.status.success(), "{}", words(&burst));
    ensure!(
        words(&burst).contains("3 inserted, 0 failed"),
        "{}",
        words(&burst)
    );
    ensure!(world.rooms()? == 5);
    ensure!(fs::read_dir(&telemetry)?.count() == 1);

    let address = ganger_e2e::ports::free_address()?;
    let mut pool = world.pool(&["--metrics", &address.to_string()])?;
    world.notify("one more", &[])?;
    let mut client = ganger_e2e::http::Client::new(address, Duration::from_secs(20));
    until("the numbers", || {
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
fn children_go_with_their_pool_however_it_ends() -> Result<()> {
    const NAME: &str = "children_go_with_their_pool_however_it_ends";
    let Some(world) = World::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    for is_killed in [false, true] {
        let mut pool = world.pool(&["-w", "3"])?;
        let children = until("three children", || {
            let children = pool.children()?;
            Ok((children.len() == 3).then_some(children))
        })?;
        if is_killed {
            pool.kill()?;
        } else {
            pool.stop()?;
        }
        until("the end of the children", || {
            let is_alive = |id: &i32| parent_of(*id).is_some();
            Ok((!children.iter().any(is_alive)).then_some(()))
        })?;
    }
    server.stop()
}

#[test]
fn a_password_is_seen_by_nobody() -> Result<()> {
    const NAME: &str = "a_password_is_seen_by_nobody";
    let Some(world) = World::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    let pool = world.pool(&[])?;
    let child = until("a child", || Ok(pool.children()?.first().copied()))?;
    let arguments = fs::read_to_string(format!("/proc/{child}/cmdline"))?;
    let arguments: Vec<_> = arguments.split_terminator('\0').skip(1).collect();
    ensure!(arguments == ["ngsi-insert"], "{arguments:?}");
    server.stop()
}

#[test]
fn flags_that_make_no_sense_together_are_refused() -> Result<()> {
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
        let words = words(&output);
        ensure!(output.status.code() == Some(2), "{arguments:?}: {words}");
        ensure!(words.contains(named), "{arguments:?}: {words}");
    }
    Ok(())
}

/// Tasks of the long list. The specification speaks of 100,000; so many are as telling, and ready in half a minute.
const LISTED: usize = 100_000;
/// Size of each listed task, in bytes.
const LISTED_BYTES: usize = 10 << 10;
/// By how much the server may grow while it lists them.
const GROWTH_KIB_MAX: u64 = 100 << 10;

#[test]
fn a_long_list_is_written_in_little_memory() -> Result<()> {
    const NAME: &str = "a_long_list_is_written_in_little_memory";
    let Some(world) = World::new(NAME, &[])? else {
        return Ok(());
    };
    let mut server = world.setup.start()?;
    let next = AtomicUsize::new(0);
    let text = "x".repeat(LISTED_BYTES);
    let filled: Result<Vec<()>> = thread::scope(|scope| {
        let fillers: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| fill(&world, &next, &text)))
            .collect();
        fillers
            .into_iter()
            .map(|filler| filler.join().expect("no filler panics"))
            .collect()
    });
    filled?;
    // What it needs idle, with the same tasks waiting.
    server.stop()?;
    let mut server = world.setup.start()?;
    fs::write(format!("/proc/{}/clear_refs", server.id()), "5")?;
    let idle = peak_kib(&server)?;
    let listed = world.curl(
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

fn fill(world: &World, next: &AtomicUsize, text: &str) -> Result<()> {
    let mut client = world.client();
    while next.fetch_add(1, Ordering::AcqRel) < LISTED {
        let mut body = notification("r");
        body["data"][0]["text"] = serde_json::json!({ "type": "Text", "value": text });
        let answer = client.request("POST", "/v2/notify", &body);
        let status = answer.map(|answer| answer.status);
        ensure!(matches!(status, Ok(200)), "{status:?}");
    }
    Ok(())
}

/// The most that a process had in memory since somebody last asked to count again.
fn peak_kib(server: &Server) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next());
    Ok(kib.context("no VmHWM")?.parse()?)
}
