//! Workers that take jobs with plain commands: read the next id, claim it, read the claim back, move the id in one
//! step, delete the claim. Wherever a worker dies, another gets the job once the claim has expired, and never before
//! (R49, R50).

use std::time::{Duration, Instant};

use crate::kit::{Client, World};
use ganger_types::keys::KeyUpkeep;

/// Number of steps of the worker that dies.
const STEPS: usize = 5;
/// Lifetime of a claim in milliseconds.
const CLAIM_MS: &str = "700";
const PATIENCE: Duration = Duration::from_secs(60);

/// Items that nobody claims go back to their queue soon.
fn world() -> World {
    World::tended(KeyUpkeep {
        put_back_after: Some(Duration::from_millis(200)),
        ..KeyUpkeep::default()
    })
}

fn add(client: &mut Client) {
    assert_eq!(client.ask(&["SETNX", "jobs:item:7", "data"]), ":1");
    assert_eq!(client.ask(&["LPUSH", "jobs:queue", "7"]), ":1");
}

/// Runs a worker that dies after this number of steps.
fn dies_after(world: &World, steps: usize) {
    let mut worker = world.client();
    for step in 1..=steps {
        match step {
            1 => assert_eq!(worker.ask(&["LINDEX", "jobs:queue", "-1"]), "$1 7"),
            2 => {
                let claim = ["SET", "jobs:lease:7", "first", "NX", "PX", CLAIM_MS];
                assert_eq!(worker.ask(&claim), "+OK");
            }
            // On a slow machine the claim may have expired: a worker that reads anything else stops.
            3 => {
                if worker.ask(&["GET", "jobs:lease:7"]) != "$5 first" {
                    return;
                }
            }
            4 => moves(&mut worker),
            _ => assert!(worker.ask(&["DEL", "jobs:lease:7"]).starts_with(':')),
        }
    }
}

fn moves(worker: &mut Client) {
    assert_eq!(worker.ask(&["MULTI"]), "+OK");
    worker.ask(&["LREM", "jobs:queue", "1", "7"]);
    worker.ask(&["LPUSH", "jobs:processing", "7"]);
    assert_eq!(worker.ask(&["EXEC"]), "*2 :1 :1");
}

/// Claims and runs the job as soon as possible, and checks that a claimed job cannot be claimed.
fn another_takes_it(world: &World) {
    let mut worker = world.client();
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < PATIENCE, "nobody gets it");
        if worker.ask(&["LINDEX", "jobs:queue", "-1"]) != "$1 7" {
            continue;
        }
        worker.ask(&["MULTI"]);
        worker.ask(&["EXISTS", "jobs:lease:7"]);
        worker.ask(&["SET", "jobs:lease:7", "second", "NX", "EX", "60"]);
        match &worker.ask(&["EXEC"])[..] {
            "*2 :1 $-1" => {}
            "*2 :0 +OK" => break,
            other => panic!("it was claimed twice: {other}"),
        }
    }
    assert_eq!(worker.ask(&["GET", "jobs:lease:7"]), "$6 second");
    // A worker that died may have moved the id, and it came back between the read and the claim.
    moves(&mut worker);
    assert_eq!(worker.ask(&["GET", "jobs:item:7"]), "$4 data");
    assert_eq!(worker.ask(&["DEL", "jobs:item:7"]), ":1");
    assert_eq!(worker.ask(&["LREM", "jobs:processing", "0", "7"]), ":1");
    assert_eq!(worker.ask(&["DEL", "jobs:lease:7"]), ":1");
    assert_eq!(worker.ask(&["DBSIZE"]), ":0");
}

#[test]
fn death_after_any_step_leaves_the_job_to_another_once_the_claim_is_over() {
    for steps in 0..=STEPS {
        let world = world();
        add(&mut world.client());
        dies_after(&world, steps);
        another_takes_it(&world);
    }
}

#[test]
fn a_claim_that_its_worker_left_behind_ends_by_itself() {
    let world = world();
    let mut client = world.client();
    add(&mut client);
    // All is done but the last step: the claim stays.
    dies_after(&world, 4);
    assert_eq!(client.ask(&["DEL", "jobs:item:7"]), ":1");
    client.ask(&["LREM", "jobs:processing", "0", "7"]);
    // The same id is enqueued again, and can be claimed once the old claim has expired.
    client.ask(&["SETNX", "jobs:item:7", "data"]);
    client.ask(&["DEL", "jobs:queue"]);
    assert_eq!(client.ask(&["LPUSH", "jobs:queue", "7"]), ":1");
    another_takes_it(&world);
}
