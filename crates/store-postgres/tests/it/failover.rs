//! The primary is lost, and a synchronous standby takes its place.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use std::{io, thread};

use ganger_postgres_instance::Instance;
use ganger_store::{CommitError, Reader, Store};
use ganger_store_postgres::{
    Database, Formats, Member, NodeName, OWNERSHIP_LEASE, OWNERSHIP_LEASE_MIN, PostgresReader,
    PostgresStore, Seen, ServerIdentity, Settings,
};
use ganger_types::query::JobQuery;
use ganger_types::{Epoch, JobKey, ShardId};

use crate::support::{Ground, commit, store};

/// A server whose commits wait for one standby.
fn with_standby(test: &str) -> Option<(Ground, Instance)> {
    let ground = Ground::start(test)?;
    let standby = ground.instance.standby("one").expect("it starts");
    ground.sql("ALTER SYSTEM SET synchronous_standby_names = 'one'");
    ground.sql("SELECT pg_reload_conf()");
    let is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while ground.sql(is_sync) != "1" {
        thread::yield_now();
    }
    Some((ground, standby))
}

/// Settings with both servers, the primary first.
fn settings(ground: &Ground, standby: &Instance) -> Settings {
    let host = |port: u16| format!("127.0.0.1:{port}");
    let (first, second) = (host(ground.instance.port()), host(standby.port()));
    let url = Ground::url(ground.instance.port()).replace(&first, &format!("{first},{second}"));
    Settings::from_url(&url).expect("it is whole")
}

/// Commits a job; takes the shard back if the outcome is unknown, and commits it then if it is not there.
fn put(store: &mut PostgresStore, epoch: &mut Epoch, sequence: u64) {
    match store.commit(&commit(*epoch, sequence)) {
        Ok(()) => {}
        Err(CommitError::Unknown(_)) => {
            let opened = store.take_back(*epoch).expect("it is ours");
            *epoch = opened.epoch;
            if opened.sequence < sequence {
                store
                    .commit(&commit(*epoch, sequence))
                    .expect("it owns the shard");
            }
        }
        Err(refused) => panic!("it owns the shard: {refused}"),
    }
}

fn all() -> JobQuery {
    JobQuery {
        limit: 100,
        ..JobQuery::default()
    }
}

/// Number of jobs in a list of all, which is read from the tables alone.
fn listed(reader: &mut PostgresReader) -> usize {
    let page = reader.list(&all()).expect("it reads");
    page.jobs.len()
}

/// A port that leads to one server and then to another. Connections that were made before go on.
struct Switch {
    port: u16,
    server: Arc<AtomicU16>,
}

impl Switch {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        let server = Arc::new(AtomicU16::new(server));
        let to = Arc::clone(&server);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = (Ipv4Addr::LOCALHOST, to.load(Ordering::SeqCst));
                let Ok(server) = TcpStream::connect(server) else {
                    continue;
                };
                carry(&client, &server).expect("a stream has a copy");
                carry(&server, &client).expect("a stream has a copy");
            }
        });
        Self { port, server }
    }
}

/// Carries what one end sends to the other, on a thread that ends with them.
fn carry(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    thread::spawn(move || {
        drop(io::copy(&mut from, &mut to));
        drop(to.shutdown(std::net::Shutdown::Both));
    });
    Ok(())
}

/// Rows are written behind the log and wait for no standby: one that takes the primary's place may lack them.
#[test]
fn rows_that_a_failover_has_lost_are_read_without_another_commit() {
    let Some((mut ground, standby)) = with_standby("rows_that_a_failover_has_lost_are_read") else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = settings(&ground, &standby);
    settings.limits.has_row_thread = false;
    let mut store = store(settings, number);
    let mut epoch = store.open().expect("it opens").epoch;
    for sequence in 1..=3 {
        put(&mut store, &mut epoch, sequence);
    }
    let mut reader = store.reader().expect("it opens");
    // The standby has the log, and gets none of the rows.
    let deaf = "ALTER SYSTEM SET primary_conninfo = ''";
    standby.sql("postgres", deaf).expect("it may");
    standby
        .sql("postgres", "SELECT pg_reload_conf()")
        .expect("it may");
    while ground.sql("SELECT count(*) FROM pg_stat_replication") != "0" {
        thread::yield_now();
    }
    assert_eq!(listed(&mut reader), 3);
    ground.instance.kill().expect("it runs");
    standby.promote().expect("it is a standby");
    assert_eq!(listed(&mut reader), 3);
    assert!(reader.job(JobKey(2)).expect("it reads").is_some());
    // The rows are there again, and the shard goes on.
    for sequence in 4..=5 {
        put(&mut store, &mut epoch, sequence);
    }
    let mut jobs = 0;
    store.load(&mut |_| jobs += 1).expect("it loads");
    assert_eq!(jobs, 5);
}

/// A primary that was only cut off from its standby still answers, with what was there before.
#[test]
fn a_former_primary_is_not_read_any_more() {
    let Some((mut ground, standby)) = with_standby("a_former_primary_is_not_read_any_more") else {
        return;
    };
    let number = ground.add_shard();
    let switch = Switch::start(ground.instance.port());
    let mut settings = Settings::from_url(&Ground::url(switch.port)).expect("it is whole");
    settings.limits.has_row_thread = false;
    settings.readers = 1;
    let mut store = store(settings, number);
    let mut epoch = store.open().expect("it opens").epoch;
    put(&mut store, &mut epoch, 1);
    let mut reader = store.reader().expect("it opens");
    assert_eq!(listed(&mut reader), 1);
    standby.promote().expect("it is a standby");
    switch.server.store(standby.port(), Ordering::SeqCst);
    // The owner's connections end, and the one that reads does not.
    ground.sql(
        "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
         WHERE usename = 'ganger_node' AND application_name <> 'ganger/reader'",
    );
    put(&mut store, &mut epoch, 2);
    assert_eq!(listed(&mut reader), 2);
    assert!(reader.job(JobKey(2)).expect("it reads").is_some());
    // Who has seen the new primary does not go back to the old one.
    switch
        .server
        .store(ground.instance.port(), Ordering::SeqCst);
    standby
        .terminate_sessions(crate::support::DATABASE)
        .expect("it may");
    let refused = reader.list(&all());
    let refused = refused.expect_err("the only server is a former primary");
    assert!(refused.to_string().contains("former primary"), "{refused}");
    switch.server.store(standby.port(), Ordering::SeqCst);
    assert_eq!(listed(&mut reader), 2);
}

/// A manager that failed, or a person, has promoted a standby and left the primary alive: its commits wait forever.
#[test]
fn a_commit_that_waits_at_a_former_primary_finds_the_new_one() {
    let Some((mut ground, standby)) = with_standby("a_commit_that_waits_at_a_former_primary")
    else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = settings(&ground, &standby);
    // Only another server ends the wait.
    settings.patience = Duration::from_secs(120);
    let mut store = store(settings, number);
    let mut epoch = store.open().expect("it opens").epoch;
    put(&mut store, &mut epoch, 1);
    standby.promote().expect("it is a standby");
    standby
        .sql(
            "postgres",
            "ALTER SYSTEM SET synchronous_standby_names = ''",
        )
        .expect("it may");
    standby
        .sql("postgres", "SELECT pg_reload_conf()")
        .expect("it may");
    let refused = store.commit(&commit(epoch, 2));
    assert!(
        matches!(refused, Err(CommitError::Unknown(_))),
        "{refused:?}"
    );
    let opened = store.take_back(epoch).expect("it is ours");
    assert_eq!(opened.sequence, 1);
    store
        .commit(&commit(opened.epoch, 2))
        .expect("it owns the shard");
}

/// It would confirm that a node still owns its shards, which others have taken over at the new primary.
#[test]
fn a_node_does_not_beat_at_a_former_primary() {
    let Some((mut ground, standby)) = with_standby("a_node_does_not_beat_at_a_former_primary")
    else {
        return;
    };
    ground.add_shard();
    let database = Database::new(settings(&ground, &standby)).expect("they are possible");
    let name = NodeName {
        node: "a".to_owned(),
        incarnation: "x".to_owned(),
        address: "a:1".to_owned(),
        version: "1".to_owned(),
        formats: Formats::OWN,
        lease: OWNERSHIP_LEASE,
    };
    let mut member = Member::new(&database, name);
    let beat = |member: &mut Member| member.beat(&|| Duration::from_secs(1), &|_: u32| true);
    beat(&mut member).expect("the database is there");
    let beats = |server: &Instance| {
        let sql = "SELECT coalesce(max(beat), -1) FROM ganger.node";
        server.sql(crate::support::DATABASE, sql).expect("it runs")
    };
    assert_eq!(beats(&ground.instance), "0");
    standby.promote().expect("it is a standby");
    beat(&mut member).expect("nobody knows of the new one yet");
    assert_eq!(beats(&ground.instance), "1");
    let before = database.newest().now().expect("it has connected");
    let promoted = ServerIdentity {
        timeline: before.timeline + 1,
        ..before
    };
    assert!(
        database.newest().learn(promoted),
        "another node has told of it"
    );
    while let Err(refused) = beat(&mut member) {
        assert!(refused.to_string().contains("former primary"), "{refused}");
    }
    assert_eq!(beats(&ground.instance), "1");
    assert_ne!(beats(&standby), "0");
}

/// A former primary that lives on accepts beats, but not that a shard of a dead node gets another one: that waits.
#[test]
fn a_node_that_takes_shards_over_finds_the_new_primary() {
    let Some((mut ground, standby)) = with_standby("a_node_that_takes_shards_over_finds") else {
        return;
    };
    let added = ground.admin.add_shard(1, &ShardId::default());
    added.expect("it is new");
    let member = |node: &str| {
        let database = Database::new(settings(&ground, &standby)).expect("they are possible");
        let name = NodeName {
            node: node.to_owned(),
            incarnation: node.to_owned(),
            address: format!("{node}:1"),
            version: "1".to_owned(),
            formats: Formats::OWN,
            lease: OWNERSHIP_LEASE_MIN,
        };
        Member::new(&database, name)
    };
    let mut second = 0;
    let mut beat = |member: &mut Member| {
        second += 1;
        member.beat(&|| Duration::from_secs(second), &|_: u32| true)
    };
    let mut dead = member("a");
    assert!(beat(&mut dead).expect("it is there").shards[0].is_ours);
    let mut alive = member("b");
    beat(&mut alive).expect("it is there");
    standby.promote().expect("it is a standby");
    for statement in [
        "ALTER SYSTEM SET synchronous_standby_names = ''",
        "SELECT pg_reload_conf()",
    ] {
        standby.sql("postgres", statement).expect("it may");
    }
    let mut beats = (0..20).map(|_| beat(&mut alive));
    let mut refused = 0;
    let is_taken_over = |beat: Result<Seen, _>| match beat {
        Ok(seen) => seen.shards[0].is_ours,
        Err(_) => {
            refused += 1;
            false
        }
    };
    assert!(beats.any(is_taken_over));
    assert_eq!(refused, 1, "the next beat goes to another host");
    let sql = "SELECT node FROM ganger.place";
    let node = standby.sql(crate::support::DATABASE, sql);
    assert_eq!(node.expect("it runs"), "b");
}

#[test]
fn a_standby_that_is_promoted_has_every_acknowledged_commit() {
    let Some((mut ground, standby)) = with_standby("a_standby_that_is_promoted_has_every_commit")
    else {
        return;
    };
    let number = ground.add_shard();
    let database = Database::new(settings(&ground, &standby)).expect("they are possible");
    let mut store = PostgresStore::new(&database, number, &ShardId::default(), "test");
    let mut opened = store.open().expect("it opens");
    let timeline = |store: &PostgresStore| store.durability().expect("it is open").timeline;
    let before = timeline(&store);
    let mut sequence = 0;
    for _ in 0..200 {
        store
            .commit(&commit(opened.epoch, sequence + 1))
            .expect("the standby has it");
        sequence += 1;
    }
    ground.instance.kill().expect("it runs");
    let failed = store.commit(&commit(opened.epoch, sequence + 1));
    let is_lost = matches!(
        failed,
        Err(CommitError::Unknown(_) | CommitError::NotApplied { .. })
    );
    assert!(is_lost, "{failed:?}");
    standby.promote().expect("it is a standby");
    // The commit that may have been on its way did not get anywhere.
    opened = store
        .take_back(opened.epoch)
        .expect("the other host accepts writes");
    assert_eq!(opened.sequence, sequence);
    assert_eq!(timeline(&store), before + 1);
    store
        .commit(&commit(opened.epoch, sequence + 1))
        .expect("it owns the shard");
    let mut jobs = 0;
    store.load(&mut |_| jobs += 1).expect("it loads");
    assert_eq!(jobs, sequence + 1);
}
