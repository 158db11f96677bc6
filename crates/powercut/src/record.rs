//! What happens to the files of one directory, as one thread does it; and which of its calls fail.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::recovery::Expected;
use crate::syscalls;

/// A file, by the order in which it was seen first.
pub(crate) type File = usize;

/// Something that changed what is on disk, or what is expected to be there.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Link(String, File),
    Unlink(String),
    Rename(String, String),
    /// The directory was flushed.
    SyncDirectory,
    Write(File, u64, Rc<[u8]>),
    Truncate(File, u64),
    /// A file was flushed; by a descriptor that cannot write it?
    Sync(File, bool),
    /// It was to be flushed, and that failed: what was not flushed may never be, whatever later flushes say.
    FailedSync(File),
    /// From here on this is expected.
    Expect(Expected),
}

/// Calls that are made to fail.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Writes that still go well before one fails; absent if none fails.
    pub(crate) write_in: Option<u32>,
    /// The same of flushes.
    pub(crate) sync_in: Option<u32>,
    /// Whether the disk is full: no file grows.
    pub(crate) is_full: bool,
}

/// What becomes of a write.
pub(crate) enum WriteDecision {
    Proceed,
    /// Only so many bytes have room.
    Short(usize),
    Fail(c_int),
}

#[derive(Default)]
struct Recorder {
    root: PathBuf,
    /// By the number that the system knows it by; absent content for files that do not matter.
    files: HashMap<u64, Option<File>>,
    /// Name of each when it was seen first.
    names: Vec<String>,
    /// The directory as it is.
    visible: BTreeMap<String, u64>,
    events: Vec<Event>,
    faults: Faults,
    /// Whether a call was made to fail since somebody asked.
    has_failed: bool,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

fn with_recorder<T>(work: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    RECORDER
        .try_with(|recorder| {
            let mut recorder = recorder.try_borrow_mut().ok()?;
            recorder.as_mut().map(work)
        })
        .ok()
        .flatten()
}

/// Calls that were recorded, and the files they name.
pub(crate) struct Recording {
    pub(crate) events: Vec<Event>,
    /// Name of each file.
    pub(crate) names: Vec<String>,
}

/// Begins to record what this thread does to the files in `root`. Those that are there already come first, by name.
pub(crate) fn start(root: &Path) {
    let mut recorder = Recorder::default();
    recorder.move_to(root);
    RECORDER.set(Some(recorder));
}

/// Ends the recording and returns it.
pub(crate) fn stop() -> Recording {
    let recorder = RECORDER.take().unwrap_or_default();
    Recording {
        events: recorder.events,
        names: recorder.names,
    }
}

/// Goes on in another directory, in which files of the same names have the same content.
pub(crate) fn move_to(root: &Path) {
    with_recorder(|recorder| recorder.move_to(root));
}

/// Does something that is not recorded.
pub(crate) fn unrecorded<T>(work: impl FnOnce() -> T) -> T {
    let recorder = RECORDER.take();
    let result = work();
    RECORDER.set(recorder);
    result
}

/// Notes what is expected from here on.
pub(crate) fn expect(expected: Expected) {
    with_recorder(|recorder| recorder.events.push(Event::Expect(expected)));
}

/// Says which calls fail from here on.
pub(crate) fn set_faults(faults: Faults) {
    with_recorder(|recorder| recorder.faults = faults);
}

/// Which calls fail now.
pub(crate) fn faults() -> Faults {
    with_recorder(|recorder| recorder.faults).unwrap_or_default()
}

/// Whether a call was made to fail since the last [`clear_failed`].
pub(crate) fn has_failed() -> bool {
    with_recorder(|recorder| recorder.has_failed).unwrap_or(false)
}

/// The failure has been answered.
pub(crate) fn clear_failed() {
    with_recorder(|recorder| recorder.has_failed = false);
}

/// Number of events so far.
pub(crate) fn count() -> usize {
    with_recorder(|recorder| recorder.events.len()).unwrap_or(0)
}

/// Whether a file matters at a power cut.
pub(crate) fn is_kept(name: &str) -> bool {
    !name.ends_with("-shm") && !name.ends_with("db.lock")
}

/// The files of a directory that matter, with the numbers that the system knows them by.
fn list(root: &Path) -> BTreeMap<String, u64> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = entry.metadata().ok()?.ino();
            is_kept(&name).then_some((name, number))
        })
        .collect()
}

impl Recorder {
    fn move_to(&mut self, root: &Path) {
        let before: BTreeMap<String, File> = self
            .visible
            .iter()
            .filter_map(|(name, number)| Some((name.clone(), (*self.files.get(number)?)?)))
            .collect();
        self.root = root.to_path_buf();
        self.visible = list(root);
        self.files = HashMap::new();
        for (name, number) in &self.visible {
            let file = before.get(name).copied().unwrap_or_else(|| {
                let file = self.names.len();
                self.names.push(name.clone());
                if !self.events.is_empty() {
                    self.events.push(Event::Link(name.clone(), file));
                }
                file
            });
            self.files.insert(*number, Some(file));
        }
    }

    /// The file behind a descriptor, if it matters; its length.
    fn file(&mut self, fd: c_int) -> Option<(File, u64)> {
        let (number, is_directory, length) = syscalls::stat(fd)?;
        if is_directory {
            return None;
        }
        if let Some(known) = self.files.get(&number) {
            return known.map(|file| (file, length));
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        let Some(name) = self.name_of(&path) else {
            self.files.insert(number, None);
            return None;
        };
        let file = self.names.len();
        self.names.push(name.clone());
        self.files.insert(number, Some(file));
        self.visible.insert(name.clone(), number);
        self.events.push(Event::Link(name, file));
        Some((file, length))
    }

    fn name_of(&self, path: &Path) -> Option<String> {
        let name = path.strip_prefix(&self.root).ok()?.to_str()?;
        (is_kept(name) && !name.contains('/')).then(|| name.to_owned())
    }

    fn name_at(&self, path: &CStr) -> Option<String> {
        self.name_of(Path::new(std::ffi::OsStr::from_bytes(path.to_bytes())))
    }

    /// Finds renames that were made without the C library.
    fn find_renames(&mut self) {
        let now = list(&self.root);
        let gone: Vec<(String, u64)> = self
            .visible
            .iter()
            .filter(|(name, _)| !now.contains_key(*name))
            .map(|(name, number)| (name.clone(), *number))
            .collect();
        for (from, number) in gone {
            self.visible.remove(&from);
            let to = now
                .iter()
                .find(|(name, found)| **found == number && !self.visible.contains_key(*name));
            if let Some((to, _)) = to {
                self.visible.insert(to.clone(), number);
                self.events.push(Event::Rename(from, to.clone()));
            }
        }
    }
}

/// Whether a descriptor is of a file that matters.
pub(crate) fn watches(fd: c_int) -> bool {
    with_recorder(|recorder| recorder.file(fd).is_some()).unwrap_or(false)
}

/// Whether a write is made.
pub(crate) fn decide_write(fd: c_int, bytes: &[u8], at: i64) -> WriteDecision {
    let decision = with_recorder(|recorder| {
        let (_, length) = recorder.file(fd)?;
        if let Some(left) = &mut recorder.faults.write_in {
            if *left == 0 {
                recorder.faults.write_in = None;
                recorder.has_failed = true;
                return Some(WriteDecision::Fail(libc::EIO));
            }
            *left -= 1;
        }
        // The last block has room to its end.
        let room = length.next_multiple_of(4_096);
        let at = u64::try_from(at).ok()?;
        let end = at + u64::try_from(bytes.len()).ok()?;
        (recorder.faults.is_full && end > room)
            .then(|| WriteDecision::Short(usize::try_from(room.saturating_sub(at)).unwrap_or(0)))
    });
    decision.flatten().unwrap_or(WriteDecision::Proceed)
}

/// A write was made.
pub(crate) fn wrote(fd: c_int, bytes: &[u8], at: i64) {
    with_recorder(|recorder| {
        let (file, _) = recorder.file(fd)?;
        let at = u64::try_from(at).ok()?;
        recorder.events.push(Event::Write(file, at, bytes.into()));
        Some(())
    });
}

/// A file was given a length.
pub(crate) fn truncated(fd: c_int, length: i64) {
    with_recorder(|recorder| {
        let (file, _) = recorder.file(fd)?;
        let length = u64::try_from(length).ok()?;
        recorder.events.push(Event::Truncate(file, length));
        Some(())
    });
}

/// Whether a flush fails, and with what.
pub(crate) fn sync_failure(fd: c_int) -> Option<c_int> {
    with_recorder(|recorder| {
        let (file, _) = recorder.file(fd)?;
        let left = recorder.faults.sync_in.as_mut()?;
        if *left > 0 {
            *left -= 1;
            return None;
        }
        recorder.faults.sync_in = None;
        recorder.has_failed = true;
        recorder.events.push(Event::FailedSync(file));
        Some(libc::EIO)
    })
    .flatten()
}

/// A flush went well.
pub(crate) fn synced(fd: c_int, is_read_only: bool) {
    with_recorder(|recorder| {
        if let Some((file, _)) = recorder.file(fd) {
            recorder.events.push(Event::Sync(file, is_read_only));
            return;
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        if path.is_ok_and(|path| path == recorder.root) {
            recorder.find_renames();
            recorder.events.push(Event::SyncDirectory);
        }
    });
}

/// A name is about to be removed: its number may be used again at once.
pub(crate) fn before_unlink(path: &CStr) {
    with_recorder(|recorder| {
        let name = recorder.name_at(path)?;
        let known = list(&recorder.root);
        let number = known.get(&name)?;
        // A file that was made and never written is not known yet; it does not matter.
        recorder.visible.entry(name).or_insert(*number);
        Some(())
    });
}

/// A name was removed.
pub(crate) fn unlinked(path: &CStr) {
    with_recorder(|recorder| {
        let name = recorder.name_at(path)?;
        let number = recorder.visible.remove(&name)?;
        if recorder.files.remove(&number).flatten().is_some() {
            recorder.events.push(Event::Unlink(name));
        }
        Some(())
    });
}

/// A file got another name.
pub(crate) fn renamed(from: &CStr, to: &CStr) {
    with_recorder(|recorder| {
        let (from, to) = (recorder.name_at(from)?, recorder.name_at(to)?);
        let number = recorder.visible.remove(&from)?;
        recorder.visible.insert(to.clone(), number);
        recorder.events.push(Event::Rename(from, to));
        Some(())
    });
}
