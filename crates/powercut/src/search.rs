//! Which runs are looked at: every short one, and long ones drawn at random.

use crate::dice::Dice;
use crate::explore::{Base, Effort, Explorer, Tally, Violation};
use crate::plant::Plant;
use crate::work::Step;

/// The steps of short runs.
pub const ALPHABET: [Step; 8] = [
    Step::Small,
    Step::Large,
    Step::Read,
    Step::Quiet,
    Step::Kill,
    Step::Close,
    Step::Remove,
    Step::FailSync(0),
];

/// Runs between two words of progress.
const TELL_EVERY: usize = 1_000;

/// Cuts the power in every run of at most `depth` steps of the alphabet: each cut once, since longer runs begin with
/// shorter ones. Of `parts` equal parts it does one. Tells now and then how many of how many runs it has done.
///
/// # Errors
/// The first violation.
pub fn every_sequence(
    depth: u32,
    (part, parts): (usize, usize),
    effort: Effort,
    plant: Option<Plant>,
    mut tell: impl FnMut(usize, usize, Tally),
) -> Result<Tally, Violation> {
    let mut explorer = Explorer::new(depth.into(), effort, plant);
    let base = made(&explorer)?;
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
            if done % TELL_EVERY == 0 {
                tell(done, all, explorer.tally);
            }
        }
    }
    Ok(explorer.tally)
}

fn made(explorer: &Explorer) -> Result<Base, Violation> {
    explorer.base().map_err(|what| Violation {
        what,
        steps: Vec::new(),
    })
}

/// Cuts the power in one long run of this seed, which goes on from one of the disks that are left, some times.
///
/// # Errors
/// The first violation.
pub fn random(seed: u64, effort: Effort, plant: Option<Plant>) -> Result<Tally, Violation> {
    let mut dice = Dice::new(seed);
    let mut explorer = Explorer::new(seed, effort, plant);
    let mut base = if dice.one_in(3) {
        Base::nothing()
    } else {
        made(&explorer)?
    };
    for _ in 0..3 {
        let count = 3 + dice.below(24);
        let steps: Vec<Step> = (0..count).map(|_| draw(&mut dice)).collect();
        base = explorer.explore(&base, &steps, false)?;
    }
    Ok(explorer.tally)
}

fn draw(dice: &mut Dice) -> Step {
    let after = u32::try_from(dice.below(12)).unwrap_or(0);
    match dice.below(40) {
        12 => Step::Wide,
        13 | 14 => Step::Large,
        15 | 16 => Step::Remove,
        17..=20 => Step::Read,
        21 | 22 => Step::List,
        23 => Step::Load,
        24..=28 => Step::Quiet,
        29 => Step::Backup,
        30 => Step::Check,
        31 => Step::Reopen,
        32 | 33 => Step::Close,
        34 => Step::Kill,
        35 => Step::Full,
        36 => Step::Room,
        37 => Step::FailWrite(after),
        38 => Step::FailSync(after / 4),
        _ => Step::Small,
    }
}

/// Looks for a planted bug: in a run that comes by all of them, then at random. Gives how it was found.
pub fn hunt(plant: Plant, seeds: u64) -> Option<Violation> {
    let effort = Effort {
        draws: 2,
        second_cut_in: 1_000,
        audit_in: 1_000,
    };
    for seed in 0..seeds {
        let mut explorer = Explorer::new(seed, effort, Some(plant));
        let base = if plant.is_at_creation() {
            Base::nothing()
        } else {
            made(&explorer).ok()?
        };
        let mut found = explorer.explore(&base, plant.steps(), false);
        if found.is_ok() && seed % 4 == 3 {
            found = random(seed, effort, Some(plant)).map(|_| Base::nothing());
        }
        if let Err(violation) = found {
            return Some(violation);
        }
    }
    None
}
