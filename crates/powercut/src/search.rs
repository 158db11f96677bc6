//! The search: every short run, and random long ones.

use crate::explore::{Counts, Effort, Explorer, StartState, Violation};
use crate::planted::PlantedBug;
use crate::rng::Rng;
use crate::workload::Step;

/// Steps of which the short runs consist.
pub const ALPHABET: [Step; 8] = [
    Step::Small,
    Step::Large,
    Step::Read,
    Step::Idle,
    Step::Kill,
    Step::Close,
    Step::Remove,
    Step::FailSync(0),
];

/// Number of runs between two progress reports.
const REPORT_EVERY: usize = 1_000;

/// Cuts the power in every run of at most `depth` steps of the alphabet. Only the last step is cut, since longer runs
/// begin with shorter ones. The runs are split into `parts` equal parts, of which this call does number `part`, from 0.
/// `report` receives the number of finished runs, the number of all runs, and the counts so far.
///
/// # Errors
/// The first violation.
pub fn every_sequence(
    depth: u32,
    (part, parts): (usize, usize),
    effort: Effort,
    bug: Option<PlantedBug>,
    mut report: impl FnMut(usize, usize, Counts),
) -> Result<Counts, Violation> {
    let mut explorer = Explorer::new(depth.into(), effort, bug);
    let base = start_state(&explorer)?;
    let all: usize = (0..=depth)
        .map(|length| ALPHABET.len().pow(length) / parts)
        .sum();
    let mut done = 0;
    for length in 0..=depth {
        for number in (part..ALPHABET.len().pow(length)).step_by(parts) {
            let mut rest = number;
            let steps: Vec<Step> = (0..length)
                .map(|_| {
                    let step = ALPHABET[rest % ALPHABET.len()];
                    rest /= ALPHABET.len();
                    step
                })
                .collect();
            explorer.explore(&base, &steps, true)?;
            done += 1;
            if done % REPORT_EVERY == 0 {
                report(done, all, explorer.counts);
            }
        }
    }
    Ok(explorer.counts)
}

fn start_state(explorer: &Explorer) -> Result<StartState, Violation> {
    explorer.base().map_err(|what| Violation {
        what,
        steps: Vec::new(),
    })
}

/// Cuts the power in three random long runs of this seed, each of which starts from a disk that the one before left.
///
/// # Errors
/// The first violation.
pub fn random(seed: u64, effort: Effort, bug: Option<PlantedBug>) -> Result<Counts, Violation> {
    let mut rng = Rng::new(seed);
    let mut explorer = Explorer::new(seed, effort, bug);
    let mut base = if rng.one_in(3) {
        StartState::empty()
    } else {
        start_state(&explorer)?
    };
    for _ in 0..3 {
        let count = 3 + rng.below(24);
        let steps: Vec<Step> = (0..count).map(|_| draw(&mut rng)).collect();
        base = explorer.explore(&base, &steps, false)?;
    }
    Ok(explorer.counts)
}

fn draw(rng: &mut Rng) -> Step {
    let after = u32::try_from(rng.below(12)).unwrap_or(0);
    match rng.below(40) {
        12 => Step::Wide,
        13 | 14 => Step::Large,
        15 | 16 => Step::Remove,
        17..=20 => Step::Read,
        21 | 22 => Step::List,
        23 => Step::Load,
        24..=28 => Step::Idle,
        29 => Step::Backup,
        30 => Step::Check,
        31 => Step::Reopen,
        32 | 33 => Step::Close,
        34 => Step::Kill,
        35 => Step::DiskFull,
        36 => Step::DiskFree,
        37 => Step::FailWrite(after),
        38 => Step::FailSync(after / 4),
        _ => Step::Small,
    }
}

/// Looks for a planted bug, in its own short run and then in random ones, with the seeds 0 to `seeds` - 1. Returns the
/// violation that it caused; `None` if it was not found.
pub fn hunt(bug: PlantedBug, seeds: u64) -> Option<Violation> {
    let effort = Effort {
        draws: 2,
        second_cut_in: 1_000,
        audit_in: 1_000,
    };
    for seed in 0..seeds {
        let mut explorer = Explorer::new(seed, effort, Some(bug));
        let base = if bug.is_at_creation() {
            StartState::empty()
        } else {
            start_state(&explorer).ok()?
        };
        let mut found = explorer.explore(&base, bug.steps(), false);
        if found.is_ok() && seed % 4 == 3 {
            found = random(seed, effort, Some(bug)).map(|_| StartState::empty());
        }
        if let Err(violation) = found {
            return Some(violation);
        }
    }
    None
}
