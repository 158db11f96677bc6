//! Cuts the power under the embedded store: in every short run, and in random long ones.

#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ganger_powercut::{
    ALPHABET, Counts, Effort, PlantedBug, Violation, every_sequence, hunt, random,
};

const USAGE: &str = "\
Cuts the power under the embedded store and checks what each cut leaves.

usage: ganger-powercut [--depth N] [--seed N | --seeds A..B] [--deep] [--jobs N] [--hunt]

  --depth N     do every run of at most N steps; 4 if neither depth nor seeds are given
  --seeds A..B  do random long runs, one for each seed; 0..1500 if neither is given
  --seed N      do the random run of one seed
  --deep        check many states of the disk for each cut, instead of few
  --jobs N      use N processes at a time; the default is the number of processors
  --hunt        look for each planted bug";

#[derive(Clone, Default)]
struct Options {
    depth: Option<u32>,
    seeds: Option<(u64, u64)>,
    is_deep: bool,
    is_hunt: bool,
    jobs: Option<usize>,
    /// Which part of how many this process does; `None` in the process that starts them.
    part: Option<(usize, usize)>,
}

fn main() -> ExitCode {
    let Some(options) = parse_options(std::env::args().skip(1)) else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    let is_clean = match (options.is_hunt, options.part) {
        (true, _) => hunt_all(),
        (_, Some(part)) => search(&options, part),
        (_, None) => run_in_processes(&options),
    };
    if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn parse_options(mut words: impl Iterator<Item = String>) -> Option<Options> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        let mut value = || words.next();
        match word.as_str() {
            "--depth" => options.depth = Some(value()?.parse().ok()?),
            "--seed" => {
                let seed = value()?.parse().ok()?;
                options.seeds = Some((seed, seed + 1));
            }
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..")?;
                options.seeds = Some((from.parse().ok()?, to.parse().ok()?));
            }
            "--deep" => options.is_deep = true,
            "--hunt" => options.is_hunt = true,
            "--jobs" => options.jobs = Some(value()?.parse().ok().filter(|jobs| *jobs > 0)?),
            "--part" => {
                let text = value()?;
                let (part, parts) = text.split_once('/')?;
                options.part = Some((part.parse().ok()?, parts.parse().ok()?));
            }
            _ => return None,
        }
    }
    if options.depth.is_none() && options.seeds.is_none() {
        (options.depth, options.seeds) = (Some(4), Some((0, 1_500)));
    }
    Some(options)
}

/// Starts processes that each do a part. Threads would share SQLite's random numbers, which are per process.
fn run_in_processes(options: &Options) -> bool {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = options.jobs.unwrap_or(processors);
    let Ok(program) = std::env::current_exe() else {
        return false;
    };
    let children: Vec<_> = (0..jobs)
        .map(|part| {
            let mut command = Command::new(&program);
            command.args(std::env::args().skip(1));
            command.args(["--part", &format!("{part}/{jobs}")]).spawn()
        })
        .collect();
    let mut is_clean = true;
    for child in children {
        let ended = child.and_then(|mut child| child.wait());
        is_clean &= ended.is_ok_and(|status| status.success());
    }
    is_clean
}

fn search(options: &Options, (part, parts): (usize, usize)) -> bool {
    let effort = if options.is_deep {
        Effort::DEEP
    } else {
        Effort::WIDE
    };
    let begun = Instant::now();
    let mut sum = Counts::default();
    if let Some(depth) = options.depth {
        let steps = ALPHABET.len();
        let report = |done, all, counts| {
            let what = format!("part {part}/{parts}, {done} of {all} runs");
            print_counts(&what, counts, begun.elapsed());
        };
        match every_sequence(depth, (part, parts), effort, None, report) {
            Ok(counts) => add(&mut sum, counts),
            Err(violation) => {
                return report_violation(&format!("a run of {depth} of {steps} steps"), &violation);
            }
        }
        print_counts(
            &format!("part {part}/{parts}, every run of {depth} steps"),
            sum,
            begun.elapsed(),
        );
    }
    let (from, to) = options.seeds.unwrap_or((0, 0));
    let of_ours = |seed: &u64| usize::try_from(*seed).is_ok_and(|seed| seed % parts == part);
    for (count, seed) in (from..to).filter(of_ours).enumerate() {
        match random(seed, effort, None) {
            Ok(counts) => add(&mut sum, counts),
            Err(violation) => return report_violation(&format!("--seed {seed}"), &violation),
        }
        if count % 100 == 99 {
            print_counts(
                &format!("part {part}/{parts}, up to seed {seed}"),
                sum,
                begun.elapsed(),
            );
        }
    }
    print_counts(&format!("part {part}/{parts}, all"), sum, begun.elapsed());
    true
}

fn add(sum: &mut Counts, counts: Counts) {
    sum.cuts += counts.cuts;
    sum.second_cuts += counts.second_cuts;
    sum.images += counts.images;
    sum.opened += counts.opened;
}

fn print_counts(what: &str, sum: Counts, time: Duration) {
    println!(
        "{what}: {} cuts, {} of them during a recovery; {} states, {} distinct ones opened; {:.0} s",
        sum.cuts,
        sum.second_cuts,
        sum.images,
        sum.opened,
        time.as_secs_f64()
    );
}

fn report_violation(what: &str, violation: &Violation) -> bool {
    println!(
        "VIOLATION, {what}: {}\n  after {:?}",
        violation.what, violation.steps
    );
    false
}

fn hunt_all() -> bool {
    let mut is_clean = true;
    for bug in PlantedBug::ALL {
        let begun = Instant::now();
        let found = hunt(bug, 20);
        let time = begun.elapsed().as_secs_f64();
        match &found {
            Some(violation) => {
                let line = violation.what.lines().next().unwrap_or_default();
                println!("{bug:?}: found after {time:.1} s: {line}");
            }
            None => println!("{bug:?}: NOT FOUND"),
        }
        is_clean &= found.is_some();
    }
    is_clean
}
