//! The loads, over plain sockets, against the bare server in this process.

use std::net::TcpListener;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use ganger_bench::measure::{self, DEEP_EMPTY, Setting, lives};
use ganger_bench::{Bare, BareServer, Blocking, Named};

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A bare server whose thread lives as long as the test.
fn start(name: &str) -> (Directory, Blocking<Bare>) {
    let name = format!("ganger-bench-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(name);
    std::fs::create_dir(&directory).expect("a new directory");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let bare = Bare {
        address: listener.local_addr().expect("it is bound"),
        process: std::process::id(),
    };
    let server = BareServer::create(&directory).expect("a new journal");
    thread::spawn(move || server.serve(&listener));
    (Directory(directory), Blocking(bare))
}

#[tokio::test]
async fn every_load_runs_against_the_bare_server() {
    for named in Named::ALL {
        // The server has one queue, and loads without consumers leave their jobs.
        let (_directory, peer) = start(named.name());
        let setting = Setting {
            queue: named.name().to_owned(),
            payload_bytes: 200,
            time: Duration::from_millis(50),
            waiting: 1_000,
        };
        let measured = measure::named(&peer, named, &named.shape(), &setting).await;
        let outcomes = measured.unwrap_or_else(|error| panic!("{}: {error}", named.name()));
        let loads: Vec<_> = outcomes.iter().map(|outcome| outcome.load).collect();
        if named == Named::D {
            assert_eq!(loads, [DEEP_EMPTY, "D"]);
        } else {
            assert_eq!(loads, [named.name()]);
        }
        for outcome in outcomes {
            assert!(outcome.measured.per_second > 0.0, "{}", outcome.load);
            assert!(outcome.measured.used.cpu.is_some(), "{}", outcome.load);
            let is_paced = matches!(named, Named::Ack | Named::L | Named::Paced);
            assert_eq!(outcome.latency.is_some(), is_paced, "{}", outcome.load);
        }
    }
}

#[tokio::test]
async fn full_lives_run_over_connections_that_do_one_thing_after_the_other() {
    let (_directory, peer) = start("lives");
    let load = lives::load("queue".to_owned(), 3, 16, 200);
    let measured = lives::measure(&peer, &load, 3, Duration::from_millis(50)).await;
    assert!(measured.expect("it runs").per_second > 0.0);
}
