//! Cuts the power at every event of a run, and checks what each cut leaves.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use tempfile::TempDir;

use crate::disk::{Disk, Image, Survivors};
use crate::planted::PlantedBug;
use crate::record::{Event, Recording};
use crate::recovery::{self, CheckOptions, Expected, State};
use crate::rng::Rng;
use crate::workload::{self, Step};

/// Numbers of cuts and states that were checked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Number of events after which the power was cut.
    pub cuts: u64,
    /// Number of these during the recovery from an earlier cut.
    pub second_cuts: u64,
    /// Number of disk states after these cuts.
    pub images: u64,
    /// Number of distinct ones among these, each of which was opened.
    pub opened: u64,
}

/// A run after which the store is wrong, with or without a power cut.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong, where the power was cut, and what survived.
    pub what: String,
    /// The steps of the run.
    pub steps: Vec<Step>,
}

/// How much is checked for each cut.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of random states for each cut, besides the one without any change that was not flushed; 0 for a fixed set
    /// that covers all kinds of survivors.
    pub draws: usize,
    /// The recovery itself is cut for one in this many opened states.
    pub second_cut_in: usize,
    /// One in this many opened states is audited, and as many others are used and closed.
    pub audit_in: usize,
}

impl Effort {
    /// One or two states of many cuts.
    pub const WIDE: Self = Self {
        draws: 1,
        second_cut_in: 100,
        audit_in: 40,
    };
    /// Many states of each cut.
    pub const DEEP: Self = Self {
        draws: 0,
        second_cut_in: 20,
        audit_in: 10,
    };
}

/// Number of last changes of which each is left out alone.
const SINGLES_MAX: usize = 6;

/// Looks for power cuts that a store does not survive.
pub struct Explorer {
    directory: TempDir,
    rng: Rng,
    effort: Effort,
    bug: Option<PlantedBug>,
    /// Digest of the recovered state, or the error, by the digest of the disk's image.
    recovered: HashMap<u64, Result<u64, String>>,
    states: HashMap<u64, State>,
    /// Counts of what was explored so far.
    pub counts: Counts,
}

fn digest_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// A disk from which a run starts, and the state that it holds.
pub struct StartState {
    pub(crate) image: Image,
    pub(crate) state: State,
}

impl StartState {
    /// Returns a disk without files.
    pub fn empty() -> Self {
        Self {
            image: Image::default(),
            state: State::default(),
        }
    }
}

impl Explorer {
    /// Creates an explorer that draws from `seed`. `bug` is planted into every run and recovery.
    ///
    /// # Panics
    /// If no temporary directory can be created.
    pub fn new(seed: u64, effort: Effort, bug: Option<PlantedBug>) -> Self {
        let memory = PathBuf::from("/dev/shm");
        let directory = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let directory = directory.expect("a directory can be made");
        for name in ["live", "cut"] {
            std::fs::create_dir(directory.path().join(name)).expect("the directory is empty");
        }
        Self {
            directory,
            rng: Rng::new(seed),
            effort,
            bug,
            recovered: HashMap::new(),
            states: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Returns a closed store with a few jobs.
    ///
    /// # Errors
    /// If the store cannot be created or checked.
    pub fn base(&self) -> Result<StartState, String> {
        let empty = StartState::empty();
        let steps = [Step::Small, Step::Small, Step::Large, Step::Remove];
        let live = self.directory.path().join("live");
        let run = workload::run(&empty.image, &empty.state, &steps, &live)?;
        let mut disk = Disk::new(&empty.image, &run.recording);
        let mut expected = Expected::default();
        for event in &run.recording.events {
            disk.apply_event(event);
            if let Event::Expect(now) = event {
                expected = now.clone();
            }
        }
        let image = disk.image(Survivors::All);
        let options = CheckOptions {
            audits: true,
            uses_store: false,
            records: false,
        };
        let cut = self.directory.path().join("cut");
        let (state, _) = recovery::recover(&image, options, &cut)?;
        recovery::compare(&state, &expected)?;
        let image = Image::read(&cut).map_err(|error| error.to_string())?;
        Ok(StartState { image, state })
    }

    /// Runs these steps and cuts the power after each of their events, or only after those of the last step.
    ///
    /// Returns one of the disks that the cuts left, chosen at random.
    ///
    /// # Errors
    /// If an acknowledged commit is missing, the store holds anything that was not committed, or a step fails.
    pub fn explore(
        &mut self,
        base: &StartState,
        steps: &[Step],
        last_only: bool,
    ) -> Result<StartState, Violation> {
        let live = self.directory.path().join("live");
        let violation = |what| Violation {
            what,
            steps: steps.to_vec(),
        };
        let run = workload::run(&base.image, &base.state, steps, &live).map_err(violation)?;
        let from = if last_only { run.last_from } else { 0 };
        let remaining = self.cut_all(&base.image, &run.recording, from, None);
        remaining.map_err(violation)
    }

    /// Cuts the power after each event from the index `from` on. `within` is the expected state if the recording is that of
    /// a recovery.
    fn cut_all(
        &mut self,
        image: &Image,
        recording: &Recording,
        from: usize,
        within: Option<&Expected>,
    ) -> Result<StartState, String> {
        let mut disk = Disk::new(image, recording);
        let mut expected = within.cloned().unwrap_or_default();
        let events = match self.bug {
            Some(bug) => bug.change_events(recording),
            None => recording.events.clone(),
        };
        let mut remaining = StartState {
            image: image.clone(),
            state: expected.acknowledged.clone(),
        };
        let stop_at = self.rng.below(events.len().max(1));
        for (number, event) in events.iter().enumerate() {
            disk.apply_event(event);
            if let Event::Expect(now) = event {
                expected = now.clone();
                if let Some(within) = within {
                    expected.copies.clone_from(&within.copies);
                }
            }
            if number < from {
                continue;
            }
            self.counts.cuts += 1;
            self.counts.second_cuts += u64::from(within.is_some());
            for survivors in self.survivor_variants(&disk, within.is_some()) {
                let image = disk.image(survivors);
                let state = self.check_image(&image, &expected, within.is_some());
                let state = state.map_err(|why| {
                    let second = if within.is_some() { "second " } else { "" };
                    format!("{why}\n  {second}power cut after event {number}, survivors {survivors:?}:{}",
                        describe_events(&events, number, recording))
                })?;
                if number == stop_at {
                    remaining = StartState { image, state };
                }
            }
        }
        Ok(remaining)
    }

    fn survivor_variants(&mut self, disk: &Disk, is_second: bool) -> Vec<Survivors> {
        let (pending, files) = disk.pending();
        let mut all = vec![Survivors::None];
        if pending == 0 {
            return all;
        }
        if is_second || self.effort.draws > 0 {
            // The state of `None` was opened already unless a flush came before.
            for _ in 0..self.effort.draws.max(1) {
                let drawn = self.draw_survivors(pending, &files);
                all.push(drawn);
            }
            return all;
        }
        all.push(Survivors::All);
        for number in 1..pending.min(1 + SINGLES_MAX) {
            all.push(Survivors::AllBut(number));
        }
        for _ in 0..4 {
            all.push(Survivors::LastTorn(self.rng.draw()));
        }
        if pending > 1 {
            for _ in 0..4 {
                all.push(Survivors::Some(self.rng.draw()));
                all.push(Survivors::Torn(self.rng.draw()));
            }
        }
        if files.len() > 1 {
            for file in files {
                all.push(Survivors::OnlyFile(file));
                all.push(Survivors::AllButFile(file));
            }
        }
        all
    }

    fn draw_survivors(&mut self, pending: usize, files: &[usize]) -> Survivors {
        let (number, seed) = (self.rng.below(pending), self.rng.draw());
        let file = files.get(self.rng.below(files.len().max(1))).copied();
        match (self.rng.below(8), file) {
            (0 | 1, _) => Survivors::All,
            (2, _) => Survivors::AllBut(number),
            (3, Some(file)) => Survivors::OnlyFile(file),
            (4, Some(file)) => Survivors::AllButFile(file),
            (5, _) => Survivors::Some(seed),
            (6, _) => Survivors::Torn(seed),
            _ => Survivors::LastTorn(seed),
        }
    }

    /// Recovers an image, unless the same image was recovered before, and compares the result.
    fn check_image(
        &mut self,
        image: &Image,
        expected: &Expected,
        is_second: bool,
    ) -> Result<State, String> {
        self.counts.images += 1;
        recovery::compare_copies(image, expected)?;
        let image = match self.bug {
            Some(bug) => &bug.change_image(image),
            None => image,
        };
        let digest = image.digest();
        let mut recording = None;
        let known = match self.recovered.get(&digest) {
            Some(known) => known.clone(),
            None => {
                self.counts.opened += 1;
                let effort = self.effort;
                let options = CheckOptions {
                    audits: self.rng.one_in(effort.audit_in),
                    uses_store: self.rng.one_in(effort.audit_in),
                    records: !is_second && self.rng.one_in(effort.second_cut_in),
                };
                let cut = self.directory.path().join("cut");
                let recovered = recovery::recover(image, options, &cut);
                let known = recovered.map(|(state, recorded)| {
                    recording = recorded;
                    let digest = digest_of(&state);
                    self.states.entry(digest).or_insert(state);
                    digest
                });
                self.recovered.insert(digest, known.clone());
                known
            }
        };
        let state = self.states[&known?].clone();
        recovery::compare(&state, expected)?;
        if let Some(recording) = recording {
            self.cut_all(image, &recording, 0, Some(expected))?;
        }
        Ok(state)
    }
}

/// Describes the last events before a cut.
fn describe_events(events: &[Event], last: usize, recording: &Recording) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let name = |file: &usize| recording.names[*file].as_str();
    for event in &events[last.saturating_sub(30)..=last] {
        let _ = match event {
            Event::Write(file, at, bytes) => {
                write!(text, "\n    write {} {at}+{}", name(file), bytes.len())
            }
            Event::Truncate(file, length) => write!(text, "\n    truncate {} {length}", name(file)),
            Event::Sync(file, _) => write!(text, "\n    flush {}", name(file)),
            Event::FailedSync(file) => write!(text, "\n    failed flush {}", name(file)),
            Event::Expect(expected) => write!(
                text,
                "\n    acknowledged {}{}",
                expected.acknowledged.sequence,
                if expected.in_progress.is_some() {
                    ", one in progress"
                } else {
                    ""
                }
            ),
            Event::Link(name, _) => write!(text, "\n    make {name}"),
            Event::Unlink(name) => write!(text, "\n    remove {name}"),
            Event::Rename(from, to) => write!(text, "\n    rename {from} {to}"),
            Event::SyncDirectory => write!(text, "\n    flush the directory"),
        };
    }
    text
}
