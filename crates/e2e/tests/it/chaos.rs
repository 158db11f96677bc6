//! A slice of the matrix of faults in a cluster over PostgreSQL. All of it: `cargo xtask chaos`.

use std::time::Duration;

use anyhow::{Result, ensure};
use ganger_e2e::chaos::{
    Case, Databases, Fault, FormerPrimary, Moment, Options, Target, describe, run,
};

/// A slice: one fault after the other, with so many standbys of the database.
fn survives(
    test: &str,
    seed: u64,
    standbys: usize,
    cases: &[(Target, Fault, Moment)],
) -> Result<()> {
    let case = |(target, fault, moment): &(Target, Fault, Moment)| Case {
        target: *target,
        fault: *fault,
        moment: *moment,
        second: None,
    };
    let options = Options {
        test: test.to_owned(),
        seed,
        databases: Databases {
            standbys,
            confirming: standbys,
            ..Databases::default()
        },
        cases: cases.iter().map(case).collect(),
    };
    let Some(report) = run(&options, |round| eprintln!("{}", describe(round)))? else {
        return Ok(());
    };
    eprintln!("{:?}", report.counts);
    let void = report
        .rounds
        .iter()
        .filter(|round| round.void.is_some())
        .count();
    ensure!(
        void * 2 <= report.rounds.len(),
        "too many rounds were void: {void}"
    );
    ensure!(
        report.counts.completed >= 30,
        "too few completions: {:?}",
        report.counts
    );
    Ok(())
}

#[test]
fn nothing_acknowledged_is_lost_when_a_standby_is_promoted() -> Result<()> {
    let promoted = |former| (Target::Primary, Fault::Promote(former), Moment::Steady);
    survives(
        "nothing_acknowledged_is_lost_when_a_standby_is_promoted",
        1,
        2,
        &[
            promoted(FormerPrimary::Dead),
            promoted(FormerPrimary::CutOff),
            promoted(FormerPrimary::Alive),
        ],
    )
}

#[test]
fn nothing_acknowledged_is_lost_when_links_are_cut_and_nodes_stand_still() -> Result<()> {
    use Fault::{Clock, CutFromDatabase, CutFromPeers, IsNotHeard, Kill, NoRights, Pause};
    use Moment::{Claim, HandOver, Rows, Steady};
    use Target::{OtherNode, Owner, Primary, Standby};
    survives(
        "nothing_acknowledged_is_lost_when_links_are_cut",
        2,
        1,
        &[
            (Owner, CutFromDatabase, Steady),
            (OtherNode, IsNotHeard, Claim),
            (Owner, Pause(Duration::from_secs(4)), HandOver),
            (Owner, CutFromPeers, Steady),
            (Primary, Kill, Claim),
            (Owner, Clock(-1), Steady),
            (Standby, Pause(Duration::from_secs(2)), Rows),
            (Primary, NoRights, Steady),
        ],
    )
}
