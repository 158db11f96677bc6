//! Cuts the power at every event of a run, and looks at what is left.

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

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Moments at which the power was cut.
    pub cuts: u64,
    /// Of these, moments during the recovery from an earlier cut.
    pub second_cuts: u64,
    /// States of the disk after these cuts.
    pub images: u64,
    /// Of these, how many differ and were opened.
    pub opened: u64,
}

/// A store that is not as it should be after a power cut, or before one.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What is wrong, where the power was cut, and what survived.
    pub what: String,
    /// What was done before.
    pub steps: Vec<Step>,
}

/// How much is looked at for each cut.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// States drawn at random for each cut, besides the one without anything that was not flushed; 0 for all kinds.
    pub draws: usize,
    /// Once in so many opened states the recovery itself is cut.
    pub second_cut_in: usize,
    /// Once in so many the store is audited, and in as many others used and closed.
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

/// Changes of which each may be missing alone: the last ones.
const SINGLES_MAX: usize = 6;

/// Looks for power cuts that a store does not survive.
pub struct Explorer {
    directory: TempDir,
    rng: Rng,
    effort: Effort,
    bug: Option<PlantedBug>,
    /// What a state of the disk recovers to.
    recovered: HashMap<u64, Result<u64, String>>,
    states: HashMap<u64, State>,
    /// What was looked at so far.
    pub counts: Counts,
}

fn digest_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Where a run begins.
pub struct StartState {
    pub(crate) image: Image,
    pub(crate) state: State,
}

impl StartState {
    /// A disk that holds no files.
    pub fn empty() -> Self {
        Self {
            image: Image::default(),
            state: State::default(),
        }
    }
}

impl Explorer {
    /// One that draws from `seed`; `planted` is a mistake that it should find.
    ///
    /// # Panics
    /// If no directory can be made.
    pub fn new(seed: u64, effort: Effort, bug: Option<PlantedBug>) -> Self {
        let memory = PathBuf::from("/dev/shm");
        let directory = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let directory = directory.expect("a directory can be made");
        for name in ["live", "cut"] {
            std::fs::create_dir(directory.path().join(name)).expect("it is empty");
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

    /// A closed store with a few jobs.
    ///
    /// # Errors
    /// If it cannot be made.
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

    /// Does these steps, and cuts the power at each of their events; or only at those of the last step.
    ///
    /// Gives one of the disks that were left, with what is on it.
    ///
    /// # Errors
    /// If something acknowledged is missing, something else is there, or a step fails.
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

    /// Cuts at each event from one on. What happened within a recovery is expected to give what that began with.
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
            // `None` is known already unless a flush came before.
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

    /// Recovers an image, or remembers what it gave, and compares.
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

/// The last events before a cut.
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
