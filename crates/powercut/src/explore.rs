//! Cuts the power at every event of a run, and looks at what is left.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use tempfile::TempDir;

use crate::dice::Dice;
use crate::disk::{Disk, Image, Survivors};
use crate::judge::{self, Care, Expected, State};
use crate::plant::Plant;
use crate::record::{Event, Recording};
use crate::work::{self, Step};

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
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
    dice: Dice,
    effort: Effort,
    plant: Option<Plant>,
    /// What a state of the disk recovers to.
    known: HashMap<u64, Result<u64, String>>,
    states: HashMap<u64, State>,
    /// What was looked at so far.
    pub tally: Tally,
}

fn digest_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Where a run begins.
pub struct Base {
    pub(crate) image: Image,
    pub(crate) state: State,
}

impl Base {
    /// A disk that holds no files.
    pub fn nothing() -> Self {
        Self {
            image: Image::default(),
            state: State::default(),
        }
    }
}

impl Explorer {
    /// One that draws from `seed`; `plant` is a mistake that it should find.
    ///
    /// # Panics
    /// If no directory can be made.
    pub fn new(seed: u64, effort: Effort, plant: Option<Plant>) -> Self {
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
            dice: Dice::new(seed),
            effort,
            plant,
            known: HashMap::new(),
            states: HashMap::new(),
            tally: Tally::default(),
        }
    }

    /// A closed store with a few jobs.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn base(&self) -> Result<Base, String> {
        let nothing = Base::nothing();
        let steps = [Step::Small, Step::Small, Step::Large, Step::Remove];
        let live = self.directory.path().join("live");
        let run = work::run(&nothing.image, &nothing.state, &steps, &live)?;
        let mut disk = Disk::new(&nothing.image, &run.recording);
        let mut expected = Expected::default();
        for event in &run.recording.events {
            disk.take(event);
            if let Event::Expect(now) = event {
                expected = now.clone();
            }
        }
        let image = disk.image(Survivors::All);
        let care = Care {
            audits: true,
            goes_on: false,
            records: false,
        };
        let cut = self.directory.path().join("cut");
        let (state, _) = judge::recover(&image, care, &cut)?;
        judge::compare(&state, &expected)?;
        let image = Image::read(&cut).map_err(|error| error.to_string())?;
        Ok(Base { image, state })
    }

    /// Does these steps, and cuts the power at each of their events; or only at those of the last step.
    ///
    /// Gives one of the disks that were left, with what is on it.
    ///
    /// # Errors
    /// If something acknowledged is missing, something else is there, or a step fails.
    pub fn explore(
        &mut self,
        base: &Base,
        steps: &[Step],
        last_only: bool,
    ) -> Result<Base, Violation> {
        let live = self.directory.path().join("live");
        let violation = |what| Violation {
            what,
            steps: steps.to_vec(),
        };
        let run = work::run(&base.image, &base.state, steps, &live).map_err(violation)?;
        let from = if last_only { run.last_from } else { 0 };
        let left = self.cut_all(&base.image, &run.recording, from, None);
        left.map_err(violation)
    }

    /// Cuts at each event from one on. What happened within a recovery is expected to give what that began with.
    fn cut_all(
        &mut self,
        image: &Image,
        recording: &Recording,
        from: usize,
        within: Option<&Expected>,
    ) -> Result<Base, String> {
        let mut disk = Disk::new(image, recording);
        let mut expected = within.cloned().unwrap_or_default();
        let events = match self.plant {
            Some(plant) => plant.change(recording),
            None => recording.events.clone(),
        };
        let mut left = Base {
            image: image.clone(),
            state: expected.sure.clone(),
        };
        let stop_at = self.dice.below(events.len().max(1));
        for (number, event) in events.iter().enumerate() {
            disk.take(event);
            if let Event::Expect(now) = event {
                expected = now.clone();
                if let Some(within) = within {
                    expected.copies.clone_from(&within.copies);
                }
            }
            if number < from {
                continue;
            }
            self.tally.cuts += 1;
            self.tally.second_cuts += u64::from(within.is_some());
            for survivors in self.variants(&disk, within.is_some()) {
                let image = disk.image(survivors);
                let state = self.judge(&image, &expected, within.is_some());
                let state = state.map_err(|why| {
                    let second = if within.is_some() { "second " } else { "" };
                    format!("{why}\n  {second}power cut after event {number}, survivors {survivors:?}:{}",
                        story(&events, number, recording))
                })?;
                if number == stop_at {
                    left = Base { image, state };
                }
            }
        }
        Ok(left)
    }

    fn variants(&mut self, disk: &Disk, is_second: bool) -> Vec<Survivors> {
        let (pending, files) = disk.pending();
        let mut all = vec![Survivors::None];
        if pending == 0 {
            return all;
        }
        if is_second || self.effort.draws > 0 {
            // `None` is known already unless a flush came before.
            for _ in 0..self.effort.draws.max(1) {
                let drawn = self.draw(pending, &files);
                all.push(drawn);
            }
            return all;
        }
        all.push(Survivors::All);
        for number in 1..pending.min(1 + SINGLES_MAX) {
            all.push(Survivors::AllBut(number));
        }
        for _ in 0..4 {
            all.push(Survivors::LastTorn(self.dice.draw()));
        }
        if pending > 1 {
            for _ in 0..4 {
                all.push(Survivors::Some(self.dice.draw()));
                all.push(Survivors::Torn(self.dice.draw()));
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

    fn draw(&mut self, pending: usize, files: &[usize]) -> Survivors {
        let (number, seed) = (self.dice.below(pending), self.dice.draw());
        let file = files.get(self.dice.below(files.len().max(1))).copied();
        match (self.dice.below(8), file) {
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
    fn judge(
        &mut self,
        image: &Image,
        expected: &Expected,
        is_second: bool,
    ) -> Result<State, String> {
        self.tally.images += 1;
        judge::compare_copies(image, expected)?;
        let image = match self.plant {
            Some(plant) => &plant.edit(image),
            None => image,
        };
        let digest = image.digest();
        let mut recording = None;
        let known = match self.known.get(&digest) {
            Some(known) => known.clone(),
            None => {
                self.tally.opened += 1;
                let effort = self.effort;
                let care = Care {
                    audits: self.dice.one_in(effort.audit_in),
                    goes_on: self.dice.one_in(effort.audit_in),
                    records: !is_second && self.dice.one_in(effort.second_cut_in),
                };
                let cut = self.directory.path().join("cut");
                let recovered = judge::recover(image, care, &cut);
                let known = recovered.map(|(state, recorded)| {
                    recording = recorded;
                    let digest = digest_of(&state);
                    self.states.entry(digest).or_insert(state);
                    digest
                });
                self.known.insert(digest, known.clone());
                known
            }
        };
        let state = self.states[&known?].clone();
        judge::compare(&state, expected)?;
        if let Some(recording) = recording {
            self.cut_all(image, &recording, 0, Some(expected))?;
        }
        Ok(state)
    }
}

/// The last events before a cut.
fn story(events: &[Event], last: usize, recording: &Recording) -> String {
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
                expected.sure.sequence,
                if expected.maybe.is_some() {
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
