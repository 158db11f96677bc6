//! Tests of the simulator: campaigns without violations, reproducible runs, and planted bugs that are found.

use ganger_sim::{Recording, Tape, campaign, hunt, run, shrink};

/// Seeds of the campaign on each level. CI runs these only here; `cargo xtask sim` runs others.
const SEEDS: std::ops::Range<u64> = 0..300;
/// Seeds that run twice, to compare the runs.
const SEEDS_TWICE: std::ops::Range<u64> = 300..320;
/// Maximum number of seeds to find a planted bug.
const HUNT_SEEDS: u64 = 120;

fn a_campaign_finds_nothing_and_reaches_every_goal(level: u8) {
    let report = campaign(SEEDS, level, 2);
    let failures: Vec<String> = report
        .failures
        .iter()
        .map(|(seed, violation)| {
            format!("cargo xtask sim --level {level} --seed {seed} --shrink: {violation}")
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} seeds fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert!(
        report.unreached().is_empty(),
        "never reached: {:?}",
        report.unreached()
    );
    // Some runs of level 2 have too few events because commits are slow.
    let void_share = if level == 1 { 50 } else { 10 };
    assert!(
        report.void * void_share <= report.runs,
        "{} of {} runs are void",
        report.void,
        report.runs
    );
}

#[test]
fn seeds_of_level_one_find_nothing_and_reach_every_goal() {
    a_campaign_finds_nothing_and_reaches_every_goal(1);
}

#[test]
fn seeds_of_level_two_find_nothing_and_reach_every_goal() {
    a_campaign_finds_nothing_and_reaches_every_goal(2);
}

#[test]
fn seeds_of_level_three_find_nothing_and_reach_every_goal() {
    a_campaign_finds_nothing_and_reaches_every_goal(3);
}

#[test]
fn seeds_of_level_four_find_nothing_and_reach_every_goal() {
    a_campaign_finds_nothing_and_reaches_every_goal(4);
}

#[test]
fn the_same_seed_gives_the_same_trace_byte_for_byte() {
    let recording = Recording {
        log: false,
        deep: true,
    };
    for (seed, level) in SEEDS_TWICE.flat_map(|seed| [(seed, 1), (seed, 2), (seed, 3), (seed, 4)]) {
        let tape = Tape::draw(seed, level, 0);
        let (first, second) = (run(&tape, recording), run(&tape, recording));
        assert_eq!(first.hash, second.hash, "seed {seed} at level {level}");
        assert_eq!(first.events, second.events, "seed {seed} at level {level}");
    }
}

#[test]
fn every_planted_bug_is_found() {
    let hunts = hunt(1, HUNT_SEEDS).into_iter();
    let missed: Vec<String> = hunts
        .chain(hunt(2, HUNT_SEEDS))
        .chain(hunt(3, HUNT_SEEDS))
        .chain(hunt(4, HUNT_SEEDS))
        .filter(|hunt| hunt.found.is_none())
        .map(|hunt| format!("planted {}: {}", hunt.bug, hunt.what))
        .collect();
    assert!(
        missed.is_empty(),
        "not found in {HUNT_SEEDS} seeds: {missed:?}"
    );
}

#[test]
fn a_failing_tape_is_shrunk_and_still_fails_by_the_same_rule() {
    is_shrunk(&Tape::draw(0, 1, 5));
}

#[test]
fn a_failing_tape_of_several_shards_is_shrunk_and_still_fails_by_the_same_rule() {
    is_shrunk(&Tape::draw(1, 3, 306));
}

fn is_shrunk(tape: &Tape) {
    let rule = run(tape, Recording::default())
        .violation
        .map(|violation| violation.rule);
    assert!(rule.is_some(), "the planted bug is found by this seed");
    let small = shrink(tape);
    let recording = Recording {
        log: true,
        deep: false,
    };
    let outcome = run(&small, recording);
    assert_eq!(outcome.violation.map(|violation| violation.rule), rule);
    assert!(
        small.len() < tape.len() / 4,
        "{} of {} steps are left",
        small.len(),
        tape.len()
    );
    assert!(!outcome.log.is_empty());
    let again = Tape::parse(&small.to_text()).expect("a tape reads back");
    assert_eq!(
        run(&again, Recording::default())
            .violation
            .map(|violation| violation.rule),
        rule
    );
}

#[test]
fn tapes_of_old_findings_pass() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tapes");
    let mut failures = Vec::new();
    for entry in std::fs::read_dir(directory).expect("the directory of tapes is there") {
        let path = entry.expect("readable").path();
        if path.extension().is_none_or(|extension| extension != "tape") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let tape = Tape::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if let Some(violation) = run(&tape, Recording::default()).violation {
            failures.push(format!("{name}: {violation}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
