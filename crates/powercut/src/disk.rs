//! A model of the disk: what is on it, and what it may hold after a power cut.
//!
//! A write is durable once its file was flushed after it. Until then a cut may keep it, lose it, or tear it at sectors
//! of 512 bytes or pages of 4 KiB. A later write may survive without an earlier one, and a file may keep its new length
//! without the bytes, which are then zeros. Names are durable once the directory was flushed. Bytes that are not written
//! do not change; SQLite and the turn log both rely on that.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use crate::record::{Event, File, Recording};
use crate::rng::Rng;

const PAGE: usize = 4_096;
const SECTOR: usize = 512;

fn index(at: u64) -> usize {
    usize::try_from(at).expect("files are small")
}

/// The content of a file. Absent pages are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    length: u64,
    pages: BTreeMap<usize, Rc<[u8; PAGE]>>,
}

impl Content {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let end = at + u64::try_from(bytes.len()).unwrap_or(0);
        self.length = self.length.max(end);
        let (mut at, mut rest) = (index(at), bytes);
        while !rest.is_empty() {
            let (number, within) = (at / PAGE, at % PAGE);
            let (now, later) = rest.split_at(rest.len().min(PAGE - within));
            if self.pages.contains_key(&number) || now.iter().any(|byte| *byte != 0) {
                let page = self
                    .pages
                    .entry(number)
                    .or_insert_with(|| Rc::new([0; PAGE]));
                Rc::make_mut(page)[within..within + now.len()].copy_from_slice(now);
            }
            at += now.len();
            rest = later;
        }
    }

    fn truncate(&mut self, length: u64) {
        if length < self.length {
            let (number, within) = (index(length) / PAGE, index(length) % PAGE);
            self.pages.split_off(&(number + 1));
            if let Some(page) = self.pages.get_mut(&number) {
                Rc::make_mut(page)[within..].fill(0);
            }
        }
        self.length = length;
    }

    fn grow(&mut self, length: u64) {
        self.length = self.length.max(length);
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; index(self.length)];
        for (number, page) in &self.pages {
            let at = number * PAGE;
            let end = bytes.len().min(at + PAGE);
            if at < end {
                bytes[at..end].copy_from_slice(&page[..end - at]);
            }
        }
        bytes
    }

    fn write_to(&self, path: &Path) -> std::io::Result<()> {
        let file = std::fs::File::create(path)?;
        file.set_len(self.length)?;
        for (number, page) in &self.pages {
            let at = number * PAGE;
            let end = index(self.length).min(at + PAGE);
            if at < end {
                file.write_all_at(&page[..end - at], u64::try_from(at).unwrap_or(0))?;
            }
        }
        Ok(())
    }
}

/// Returns a fast, non-cryptographic digest of a page.
fn mix(page: &[u8; PAGE]) -> u64 {
    let mut sum = 0_u64;
    for word in page.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
        sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        sum ^= sum >> 29;
    }
    sum
}

/// The files of a directory, by name.
#[derive(Clone, Default)]
pub(crate) struct Image {
    pub(crate) files: BTreeMap<String, Content>,
}

impl Image {
    /// Reads the files of a directory that matter after a power cut.
    pub(crate) fn read(directory: &Path) -> std::io::Result<Self> {
        let mut image = Self::default();
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if crate::record::is_kept(&name) {
                let content = Content::of(&std::fs::read(entry.path())?);
                image.files.insert(name, content);
            }
        }
        Ok(image)
    }

    /// Replaces the files of a directory with these.
    pub(crate) fn write_to(&self, directory: &Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(directory)? {
            std::fs::remove_file(entry?.path())?;
        }
        for (name, content) in &self.files {
            content.write_to(&directory.join(name))?;
        }
        Ok(())
    }

    /// Returns a digest of all names and contents.
    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for (name, content) in &self.files {
            (name, content.length).hash(&mut hasher);
            for (number, page) in &content.pages {
                (number, mix(page)).hash(&mut hasher);
            }
        }
        hasher.finish()
    }
}

#[derive(Clone, Debug)]
enum Change {
    Write(u64, Rc<[u8]>),
    Truncate(u64),
}

/// A change of a file that no flush has made durable.
#[derive(Clone, Debug)]
struct Pending {
    change: Change,
    /// Whether a flush of it failed. Later flushes do not make it durable then.
    has_failed_sync: bool,
}

#[derive(Clone, Default)]
struct FileState {
    content: Content,
    pending: Vec<Pending>,
}

fn apply(content: &mut Content, change: &Change) {
    match change {
        Change::Write(at, bytes) => content.write(*at, bytes),
        Change::Truncate(length) => content.truncate(*length),
    }
}

impl FileState {
    fn sync(&mut self) {
        let mut failed: Vec<Pending> = Vec::new();
        for pending in std::mem::take(&mut self.pending) {
            if pending.has_failed_sync {
                failed.push(pending);
                continue;
            }
            apply(&mut self.content, &pending.change);
            // A later write of the same bytes replaces the one whose flush failed.
            failed.retain(|earlier| !overlap(&earlier.change, &pending.change));
        }
        self.pending = failed;
    }
}

fn overlap(one: &Change, two: &Change) -> bool {
    let range = |change: &Change| match change {
        Change::Write(at, bytes) => *at..at + u64::try_from(bytes.len()).unwrap_or(0),
        Change::Truncate(length) => *length..u64::MAX,
    };
    let (one, two) = (range(one), range(two));
    one.start < two.end && two.start < one.end
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(String, File),
    Unlink(String),
    Rename(String, String),
}

/// Which of the changes without a flush survive the cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivors {
    None,
    All,
    /// All but the one with this index, counted backwards from the last.
    AllBut(usize),
    /// The changes of this file and all names.
    OnlyFile(usize),
    /// All changes but those of this file.
    AllButFile(usize),
    /// A random subset, drawn from this seed; each change survives whole or not at all.
    Some(u64),
    /// A random subset, drawn from this seed; writes may be torn.
    Torn(u64),
    /// All, but the last one is torn as this seed decides.
    LastTorn(u64),
}

/// The disk at one point of a recording.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    files: Vec<FileState>,
    names: BTreeMap<String, File>,
    name_changes: Vec<NameChange>,
}

impl Disk {
    /// Creates a disk with the files of an image, numbered as in the recording that begins with them.
    pub(crate) fn new(image: &Image, recording: &Recording) -> Self {
        let mut disk = Self {
            files: vec![FileState::default(); recording.names.len()],
            ..Self::default()
        };
        for (file, (name, content)) in image.files.iter().enumerate() {
            debug_assert_eq!(&recording.names[file], name, "the first files are these");
            disk.files[file].content = content.clone();
            disk.names.insert(name.clone(), file);
        }
        disk
    }

    /// Applies one recorded event.
    pub(crate) fn apply_event(&mut self, event: &Event) {
        let mut pend = |file: File, change| {
            self.files[file].pending.push(Pending {
                change,
                has_failed_sync: false,
            });
        };
        match event {
            Event::Link(name, file) => self
                .name_changes
                .push(NameChange::Link(name.clone(), *file)),
            Event::Unlink(name) => self.name_changes.push(NameChange::Unlink(name.clone())),
            Event::Rename(from, to) => {
                self.name_changes
                    .push(NameChange::Rename(from.clone(), to.clone()));
            }
            Event::SyncDirectory => {
                for change in std::mem::take(&mut self.name_changes) {
                    rename(&mut self.names, &change);
                }
            }
            Event::Write(file, at, bytes) => pend(*file, Change::Write(*at, Rc::clone(bytes))),
            Event::Truncate(file, length) => pend(*file, Change::Truncate(*length)),
            Event::Sync(file, _) => self.files[*file].sync(),
            Event::FailedSync(file) => {
                for pending in &mut self.files[*file].pending {
                    pending.has_failed_sync = true;
                }
            }
            Event::Expect(_) => {}
        }
    }

    /// Returns the number of changes that a cut may lose, and the files that have any.
    pub(crate) fn pending(&self) -> (usize, Vec<File>) {
        let files: Vec<File> = (0..self.files.len())
            .filter(|file| !self.files[*file].pending.is_empty())
            .collect();
        let writes: usize = files
            .iter()
            .map(|file| self.files[*file].pending.len())
            .sum();
        (writes + self.name_changes.len(), files)
    }

    /// Returns the files that a cut leaves.
    pub(crate) fn image(&self, survivors: Survivors) -> Image {
        let mut survivors = SurvivorDraw::new(survivors, self.pending().0);
        let mut names = self.names.clone();
        let mut broken = BTreeSet::new();
        for change in &self.name_changes {
            let touched: Vec<&String> = match change {
                NameChange::Link(name, _) | NameChange::Unlink(name) => vec![name],
                NameChange::Rename(from, to) => vec![from, to],
            };
            let is_possible = touched.iter().all(|name| !broken.contains(*name));
            if survivors.keeps(None) && is_possible {
                rename(&mut names, change);
            } else {
                broken.extend(touched.into_iter().cloned());
            }
        }
        let mut contents: Vec<Option<Content>> = vec![None; self.files.len()];
        for (file, file_state) in self.files.iter().enumerate() {
            let mut content = file_state.content.clone();
            for pending in &file_state.pending {
                survivors.apply_change(&mut content, file, &pending.change);
            }
            contents[file] = Some(content);
        }
        let files = names
            .into_iter()
            .filter_map(|(name, file)| Some((name, contents[file].clone()?)))
            .collect();
        Image { files }
    }
}

fn rename(names: &mut BTreeMap<String, File>, change: &NameChange) {
    match change {
        NameChange::Link(name, file) => {
            names.insert(name.clone(), *file);
        }
        NameChange::Unlink(name) => {
            names.remove(name);
        }
        NameChange::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
    }
}

/// Decides for each change in turn whether it survives.
struct SurvivorDraw {
    survivors: Survivors,
    /// Number of changes that are not decided yet.
    left: usize,
    rng: Rng,
}

impl SurvivorDraw {
    fn new(survivors: Survivors, count: usize) -> Self {
        let seed = match survivors {
            Survivors::Some(seed) | Survivors::Torn(seed) | Survivors::LastTorn(seed) => seed,
            _ => 0,
        };
        Self {
            survivors,
            left: count,
            rng: Rng::new(seed),
        }
    }

    /// Whether the next change survives whole. `file` is the changed file, `None` for a change of a name.
    fn keeps(&mut self, file: Option<File>) -> bool {
        self.left = self.left.saturating_sub(1);
        match self.survivors {
            Survivors::None => false,
            Survivors::All => true,
            Survivors::AllBut(number) => self.left != number,
            // Names survive as well: without its name the file would not exist.
            Survivors::OnlyFile(only) => file.is_none_or(|file| file == only),
            Survivors::AllButFile(but) => file != Some(but),
            Survivors::Some(_) | Survivors::Torn(_) => self.rng.one_in(2),
            Survivors::LastTorn(_) => self.left > 0,
        }
    }

    fn apply_change(&mut self, content: &mut Content, file: File, change: &Change) {
        let is_kept = self.keeps(Some(file));
        let tears = match self.survivors {
            Survivors::Torn(_) => self.rng.one_in(2),
            Survivors::LastTorn(_) => self.left == 0,
            _ => false,
        };
        match change {
            Change::Write(at, bytes) if tears => self.tear(content, *at, bytes),
            Change::Write(at, bytes) if !is_kept => {
                let end = at + u64::try_from(bytes.len()).unwrap_or(0);
                let is_random = matches!(self.survivors, Survivors::Some(_) | Survivors::Torn(_));
                if is_random && self.rng.one_in(4) {
                    content.grow(end);
                }
            }
            change if is_kept => apply(content, change),
            _ => {}
        }
    }

    /// Keeps a part of a write: its beginning, its end, or a random set of its sectors or pages.
    fn tear(&mut self, content: &mut Content, at: u64, bytes: &[u8]) {
        let unit = if self.rng.one_in(2) { SECTOR } else { PAGE };
        let first = unit - index(at) % unit;
        let ends = (first..bytes.len()).step_by(unit).chain([bytes.len()]);
        let mut from = 0;
        let pieces: Vec<_> = ends
            .map(|end| std::mem::replace(&mut from, end)..end)
            .collect();
        let (kind, middle) = (self.rng.below(3), self.rng.below(pieces.len() + 1));
        for (number, piece) in pieces.into_iter().enumerate() {
            let is_kept = match kind {
                0 => number < middle,
                1 => number >= middle,
                _ => self.rng.one_in(2),
            };
            if is_kept {
                let from = at + u64::try_from(piece.start).unwrap_or(0);
                content.write(from, &bytes[piece]);
            }
        }
    }
}
