//! Tests of starts and stops that meet, and of a crash.

use super::*;

/// Creates a server that has not been started; `None` if none can run here.
fn stopped() -> Option<Instance> {
    if unavailable_reason().is_some() {
        return None;
    }
    let mut instance = Instance::start().expect("it starts");
    instance.stop().expect("it stops");
    Some(instance)
}

#[test]
fn a_server_that_is_stopped_while_it_starts_ends() {
    let Some(mut instance) = stopped() else {
        return;
    };
    for _ in 0..10 {
        instance.launch().expect("it is launched");
        instance.wait_for_end().expect("it ends");
    }
}

#[test]
fn a_server_that_has_not_been_started_yet_has_not_failed() {
    let Some(mut instance) = stopped() else {
        return;
    };
    for _ in 0..10 {
        instance.launch().expect("it is launched");
        assert!(!instance.has_failed_to_start().expect("it can be seen"));
        instance.wait_for_end().expect("it ends");
    }
}

#[test]
fn a_server_that_crashed_has_no_session_left_and_keeps_what_was_committed() {
    if unavailable_reason().is_some() {
        return;
    }
    let mut instance = Instance::start().expect("it starts");
    let mut sleeping = instance.program("psql");
    sleeping
        .args(["-X", "-U", USER, "-d", ROLE, "-c", "select pg_sleep(60)"])
        .arg("-h")
        .arg(instance.socket_directory())
        .arg("-p")
        .arg(instance.port().to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let begun = Instant::now();
    let mut sleeping = sleeping.spawn().expect("psql starts");
    let sql = |instance: &Instance, text: &str| instance.sql(ROLE, text).expect("it is done");
    let sleeps = "select count(*) from pg_stat_activity where query like 'select pg_sleep%'";
    while sql(&instance, sleeps) != "1" {
        thread::sleep(Duration::from_millis(10));
    }
    sql(&instance, "create table kept as select 7 as number");
    instance.crash().expect("it ends");
    // A session that lived on would answer after its minute.
    assert!(!sleeping.wait().expect("psql ends").success());
    assert!(begun.elapsed() < START_MAX);
    instance.start_again().expect("it recovers");
    assert_eq!(sql(&instance, "select number from kept"), "7");
}
