//! Power cuts under the store: no acknowledged commit is lost, and each planted bug is found.

use ganger_powercut::{
    Effort, Explorer, PlantedBug, StartState, Step, every_sequence, hunt, random,
};

fn explore(steps: &[Step]) {
    let effort = Effort {
        draws: 3,
        ..Effort::WIDE
    };
    let mut explorer = Explorer::new(1, effort, None);
    if let Err(violation) = explorer.explore(&StartState::empty(), steps, false) {
        panic!("{}", violation.what);
    }
    assert!(explorer.counts.cuts > 100, "{:?}", explorer.counts);
}

/// Three jobs, a list, an idle second, one more job, power cut: this once lost acknowledged jobs.
#[test]
fn rows_written_for_a_reader_are_flushed_before_the_turn_log_restarts() {
    use Step::{Idle, List, Small};
    explore(&[Small, Small, Small, List, Idle, Small]);
}

/// After a failed flush the kernel reports the next flush of the same bytes as successful although they are not on
/// disk. A checkpoint from such bytes was once torn by a power cut, which damaged the store.
#[test]
fn bytes_of_a_failed_flush_are_written_again_before_a_checkpoint() {
    use Step::{FailSync, Idle, Read, Small};
    let effort = Effort {
        draws: 20,
        ..Effort::WIDE
    };
    let mut explorer = Explorer::new(1, effort, None);
    let steps = [Small, Read, FailSync(0), Idle];
    if let Err(violation) = explorer.explore(&StartState::empty(), &steps, false) {
        panic!("{}", violation.what);
    }
}

#[test]
fn short_runs_lose_nothing() {
    match every_sequence(2, (0, 1), Effort::WIDE, None, |_, _, _| ()) {
        Ok(counts) => assert!(counts.cuts > 1_000, "{counts:?}"),
        Err(violation) => panic!("{:?}: {}", violation.steps, violation.what),
    }
}

#[test]
fn long_runs_lose_nothing() {
    for seed in 0..3 {
        if let Err(violation) = random(seed, Effort::WIDE, None) {
            panic!("seed {seed}, {:?}: {}", violation.steps, violation.what);
        }
    }
}

#[test]
fn each_planted_bug_is_found() {
    for bug in PlantedBug::ALL {
        assert!(hunt(bug, 20).is_some(), "{bug:?} is not found");
    }
}
