//! Imports with faults: the import or the server is killed, the source goes away, is still loading, or contains invalid
//! records. A repeated import finishes, and each record is imported once.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::clients;
use ganger_e2e::command::output_text;
use ganger_e2e::ports::free_address;
use ganger_e2e::quantumleap;
use ganger_e2e::redis::{LineClient, Redis, TestBed};
use ganger_e2e::relay::{AtLimit, Relay};
use ganger_e2e::server::{Server, Setup};

use crate::import::{count, import_into, run_to};
use crate::import_quantumleap::{all_are_inserted, source};

/// Number of waiting items: several batches.
const ITEMS: u64 = 3_000;
/// Number of waiting tasks: several batches.
const TASKS: u64 = 1_500;

/// An import with a relay in front of its source.
struct FaultyImport<'a> {
    setup: &'a Setup,
    relay: Relay,
    /// Bytes that the source sends in a complete import.
    whole: u64,
    /// Percentages of these bytes at which the import is killed, the server is killed, and the source goes away.
    moments: [u64; 3],
}

impl<'a> FaultyImport<'a> {
    /// Measures the import with a dry run, which must exit with `code`.
    fn new(setup: &'a Setup, redis: SocketAddr, code: i32, moments: [u64; 3]) -> Result<Self> {
        let relay = Relay::start(redis)?;
        relay.limit(u64::MAX, AtLimit::Cut);
        let mut dry = import_into(setup, &relay.address.to_string());
        dry.arg("--dry-run");
        run_to(dry, code)?;
        let whole = relay.passed();
        Ok(Self {
            setup,
            relay,
            whole,
            moments,
        })
    }

    fn command(&self) -> Command {
        import_into(self.setup, &self.relay.address.to_string())
    }

    /// Starts an import and holds it after this percentage of the bytes.
    fn start_held_at(&self, hundredths: u64) -> Result<Child> {
        self.relay
            .limit(self.whole * hundredths / 100, AtLimit::Hold);
        let mut command = self.command();
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = child.spawn()?;
        self.relay.wait_until_held()?;
        Ok(child)
    }

    fn kill_import(&self) -> Result<()> {
        let mut killed = self.start_held_at(self.moments[0])?;
        killed.kill()?;
        killed.wait()?;
        self.relay.release();
        Ok(())
    }

    /// Kills the server during an import; returns a new one.
    fn kill_server(&self, server: &mut Server) -> Result<Server> {
        let import = self.start_held_at(self.moments[1])?;
        server.kill()?;
        self.relay.release();
        let output = import.wait_with_output()?;
        let error = output_text(&output);
        ensure!(
            output.status.code() == Some(4),
            "{}: {error}",
            output.status
        );
        ensure!(error.contains("run the import again"), "{error}");
        self.setup.start()
    }

    fn cut_source(&self) -> Result<()> {
        let moment = self.whole * self.moments[2] / 100;
        self.relay.limit(moment, AtLimit::Cut);
        let output = self.command().output()?;
        let error = output_text(&output);
        ensure!(
            output.status.code() == Some(4),
            "{}: {error}",
            output.status
        );
        ensure!(error.contains("is gone"), "{error}");
        ensure!(error.contains("run the import again"), "{error}");
        self.relay.release();
        Ok(())
    }
}

/// Reads the elements of a list in ganger.
fn elements(test_bed: &TestBed, list: &str) -> Result<Vec<String>> {
    let mut line = test_bed.line_client()?;
    let count = line.call(&format!("LRANGE {list} 0 -1"))?;
    let count: usize = count.strip_prefix('*').context(count.clone())?.parse()?;
    let each = (0..count).map(|_| {
        line.read_line()?;
        line.read_line()
    });
    each.collect()
}

#[test]
fn items_are_imported_once_through_kills_of_import_and_server_and_a_lost_source() -> Result<()> {
    let redis = Redis::start(free_address()?)?;
    let many = ITEMS.to_string();
    redis.run(clients::python()?, "import_items.py", &["fill", &many])?;
    let digest = redis.digest()?;
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    // The keys are scanned twice: for their kinds, and for items in no list. The faults come in between.
    let import = FaultyImport::new(&test_bed.setup, redis.address, 0, [47, 54, 61])?;
    let in_line = || test_bed.line_client()?.integer("LLEN jobs:item:x:queue");

    import.kill_import()?;
    let first = in_line()?;
    ensure!(first > 0, "nothing was imported before the kill");
    let mut server = import.kill_server(&mut server)?;
    let second = in_line()?;
    ensure!(second > first, "{first}, then {second}");
    import.cut_source()?;
    let third = in_line()?;
    ensure!(third < i64::try_from(ITEMS)?, "{third}: it was not cut");

    let report = run_to(import.command(), 0)?;
    let there = count(&report, "work_queue_items", "already_there");
    let sum = there + count(&report, "work_queue_items", "taken_over");
    ensure!(there > 0 && sum == ITEMS + 4, "{report}");
    let ids = elements(&test_bed, "jobs:item:x:queue")?;
    let numbers = ids.iter().filter_map(|id| id.parse::<u64>().ok());
    ensure!(numbers.eq((0..ITEMS).rev()), "{ids:?}");
    let others = ids.iter().filter(|id| id.parse::<u64>().is_err());
    ensure!(others.eq(&["orphan"]), "{ids:?}");
    let held = elements(&test_bed, "jobs:item:x:processing")?;
    ensure!(held == ["lost", "held-2", "held-1"], "{held:?}");
    ensure!(redis.digest()? == digest, "the source has changed");
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

#[test]
fn tasks_are_inserted_once_through_kills_of_import_and_server_and_a_lost_source() -> Result<()> {
    const NAME: &str =
        "tasks_are_inserted_once_through_kills_of_import_and_server_and_a_lost_source";
    let Some(test_bed) = quantumleap::TestBed::new(NAME, &[])? else {
        return Ok(());
    };
    let (redis, tasks) = source(TASKS)?;
    let digest = redis.digest()?;
    let mut server = test_bed.setup.start()?;
    // The job of another program is refused.
    let import = FaultyImport::new(&test_bed.setup, redis.address, 1, [35, 60, 75])?;

    import.kill_import()?;
    let first = test_bed.count("")?;
    ensure!(first > 0, "nothing was imported before the kill");
    // Imported tasks are already being worked on.
    let mut pool = test_bed.pool(&["--workers", "2"])?;
    let mut server = import.kill_server(&mut server)?;
    let second = test_bed.count("")?;
    ensure!(second > first, "{first}, then {second}");
    import.cut_source()?;
    let third = test_bed.count("")?;
    ensure!(third < TASKS, "{third}: it was not cut");

    let report = run_to(import.command(), 1)?;
    let there = count(&report, "quantumleap_tasks", "already_there");
    let sum = there + count(&report, "quantumleap_tasks", "taken_over");
    ensure!(there > 0 && sum == TASKS + 4, "{report}");
    all_are_inserted(&test_bed, &tasks)?;
    ensure!(test_bed.count("")? == TASKS + 4);
    ensure!(redis.digest()? == digest, "the source has changed");
    pool.stop()?;
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

#[test]
fn an_import_waits_for_a_source_that_is_still_loading() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let directory = directory.path().to_string_lossy().into_owned();
    let files = ["--requirepass", "secret", "--dir", &directory];
    let redis = Redis::start_with(free_address()?, &files)?;
    let mut line = LineClient::new(redis.address)?;
    for words in [
        "AUTH secret",
        "DEBUG POPULATE 200 other 2000",
        "SET q:item:a data",
        "SAVE",
    ] {
        let reply = line.call(words)?;
        ensure!(reply == "+OK", "{words}: {reply}");
    }
    ensure!(line.integer("RPUSH q:queue a")? == 1);
    ensure!(line.call("SAVE")? == "+OK");
    drop((line, redis));
    // Loading takes four seconds, during which Redis answers that it is loading.
    let slow = ["--key-load-delay", "20000"];
    let often = ["--loading-process-events-interval-bytes", "1024"];
    let arguments = [&files[..], &slow, &often].concat();
    let redis = Redis::start_with(free_address()?, &arguments)?;
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;

    let source = format!(":secret@{}", redis.address);
    let output = import_into(&test_bed.setup, &source).output()?;
    let error = output_text(&output);
    ensure!(output.status.success(), "{}: {error}", output.status);
    ensure!(error.contains("still loads its data: waiting"), "{error}");
    ensure!(
        test_bed.line_client()?.integer("LLEN q:queue")? == 1,
        "{error}"
    );
    server.stop()?;
    test_bed.setup.expect_no_panic()
}

/// The pickled call of an insert, uncompressed, which RQ accepts too.
const CALL: &[u8] = b"\x80\x04(\x8c\x17wq.core.task.run_actionNcwq.ql.notify\nInsertAction\n)\x81}\
    \x8c\x06_inputcwq.ql.notify\nInsertActionInput\n)\x81}\x8c\x07payload]}asbsb\x85}t.";

#[test]
fn invalid_records_of_rq_are_refused_one_by_one() -> Result<()> {
    let redis = Redis::start(free_address()?)?;
    let mut line = LineClient::new(redis.address)?;
    let quoted = |bytes: &[u8]| -> String {
        let each = bytes.iter().map(|byte| format!("\\x{byte:02x}"));
        format!("\"{}\"", each.collect::<String>())
    };
    let call = quoted(CALL);
    let good = |last: char| quoted(format!("x:{}", base64(last)).as_bytes());
    let key = |last: char| quoted(format!("rq:job:x:{}", base64(last)).as_bytes());
    for words in [
        "SADD rq:queues rq:queue:default rq:queue:odd other rq:queue:",
        "SET rq:queue:odd x",
        "SET rq:wip:default x",
        "SET rq:job:text x",
        "HSET rq:job:garbage data nonsense",
        "HSET rq:job:empty status queued",
        "HSET rq:job:dependents:x data x",
        "EVAL \"return redis.call('HSET', 'rq:job:large', 'data', string.rep('x', 5000000))\" 0",
        &format!("HSET rq:job:no-id data {call}"),
        &format!(
            "HSET {} data {call} result_ttl 9223372036854775807",
            key('1')
        ),
        &format!(
            "HSET {} data {call} failure_ttl -9 retries_left 4294967295",
            key('2')
        ),
        &format!(
            "HSET {} data {call} retry_intervals [[ meta x status odd",
            key('3')
        ),
        &format!("ZADD rq:scheduled:default 1e300 {}", good('1')),
        &format!("ZADD rq:failed:default inf {}", good('2')),
        &format!("RPUSH rq:queue:default text garbage ghost {}", good('3')),
    ] {
        let reply = line.call(words)?;
        ensure!(!reply.starts_with('-'), "{words}: {reply}");
    }
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let report = run_to(import_into(&test_bed.setup, &redis.address.to_string()), 1)?;
    let tasks = &report["records"]["quantumleap_tasks"];
    ensure!(tasks["taken_over"] == 3, "{report}");
    ensure!(tasks["refused"] == 5, "{report}");
    let refusals = tasks["refusals"].to_string();
    for reason in [
        "WRONGTYPE",
        "cannot be unpacked",
        "larger than 4 MiB",
        "its id does not have the form of a QuantumLeap task",
    ] {
        ensure!(refusals.contains(reason), "no {reason}: {report}");
    }
    let left_out = tasks["left_out"].to_string();
    ensure!(left_out.contains("the id has no job"), "{report}");
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

/// Returns the last segment of a task's id: 32 digits in Base64, of which `last` is the last.
fn base64(last: char) -> String {
    let third = match last {
        '1' => "E",
        '2' => "I",
        _ => "M",
    };
    // Thirty times "0", then "0" and the last digit.
    format!("{}MD{third}=", "MDAw".repeat(10))
}
