//! The recorder: what one thread does to the files of one directory, and which of its calls are made to fail.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, c_int};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::recovery::Expected;
use crate::syscalls;

/// Number of a file, in the order in which the recorder first saw them.
pub(crate) type File = usize;

/// A change of the disk, or of the state that is expected on it.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Link(String, File),
    Unlink(String),
    Rename(String, String),
    /// The directory was flushed.
    SyncDirectory,
    Write(File, u64, Rc<[u8]>),
    Truncate(File, u64),
    /// A file was flushed; true if the descriptor was read-only.
    Sync(File, bool),
    /// A flush of a file failed. What it should have written may never reach the disk, even if later flushes succeed.
    FailedSync(File),
    /// The state that is expected from here on.
    Expect(Expected),
}

/// Faults to inject into the calls of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Number of writes that succeed before one fails; `None` if none fails.
    pub(crate) write_in: Option<u32>,
    /// Number of flushes that succeed before one fails; `None` if none fails.
    pub(crate) sync_in: Option<u32>,
    /// Whether the disk is full: no file grows.
    pub(crate) is_full: bool,
}

/// What the recorder does with a write.
pub(crate) enum WriteDecision {
    Proceed,
    /// Write only this many bytes, because the disk is full after them.
    Short(usize),
    Fail(c_int),
}

#[derive(Default)]
struct Recorder {
    root: PathBuf,
    /// Files by inode number; `None` for files that do not matter.
    files: HashMap<u64, Option<File>>,
    /// First known name of each file.
    names: Vec<String>,
    /// Inode numbers of the directory's files, by name.
    visible: BTreeMap<String, u64>,
    events: Vec<Event>,
    faults: Faults,
    /// Whether a fault was injected since the last [`clear_failed`].
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

/// The recorded calls and the files that they name.
pub(crate) struct Recording {
    pub(crate) events: Vec<Event>,
    /// First known name of each file.
    pub(crate) names: Vec<String>,
}

/// Starts to record what this thread does to the files in `root`. Existing files get the first numbers, in order of
/// their names.
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

/// Continues in another directory, in which files of the same names have the same content.
pub(crate) fn move_to(root: &Path) {
    with_recorder(|recorder| recorder.move_to(root));
}

/// Runs `work` without recording it.
pub(crate) fn unrecorded<T>(work: impl FnOnce() -> T) -> T {
    let recorder = RECORDER.take();
    let result = work();
    RECORDER.set(recorder);
    result
}

/// Records the state that is expected from here on.
pub(crate) fn expect(expected: Expected) {
    with_recorder(|recorder| recorder.events.push(Event::Expect(expected)));
}

/// Sets the faults to inject.
pub(crate) fn set_faults(faults: Faults) {
    with_recorder(|recorder| recorder.faults = faults);
}

/// Returns the faults that are still to come.
pub(crate) fn faults() -> Faults {
    with_recorder(|recorder| recorder.faults).unwrap_or_default()
}

/// Whether a fault was injected since the last [`clear_failed`].
pub(crate) fn has_failed() -> bool {
    with_recorder(|recorder| recorder.has_failed).unwrap_or(false)
}

/// Forgets that a fault was injected.
pub(crate) fn clear_failed() {
    with_recorder(|recorder| recorder.has_failed = false);
}

/// Returns the number of events so far.
pub(crate) fn count() -> usize {
    with_recorder(|recorder| recorder.events.len()).unwrap_or(0)
}

/// Whether a file matters after a power cut.
pub(crate) fn is_kept(name: &str) -> bool {
    !name.ends_with("-shm") && !name.ends_with("db.lock")
}

/// Returns the inode numbers of the files of a directory that matter, by name.
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

    /// Returns the file behind a descriptor and its length; `None` if it does not matter.
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

    /// Finds renames that did not go through the C library.
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

/// Whether a descriptor is that of a file that matters.
pub(crate) fn watches(fd: c_int) -> bool {
    with_recorder(|recorder| recorder.file(fd).is_some()).unwrap_or(false)
}

/// Decides about a write, as the faults say.
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

/// Records a write of bytes to a file at an offset.
pub(crate) fn wrote(fd: c_int, bytes: &[u8], at: i64) {
    with_recorder(|recorder| {
        let (file, _) = recorder.file(fd)?;
        let at = u64::try_from(at).ok()?;
        recorder.events.push(Event::Write(file, at, bytes.into()));
        Some(())
    });
}

/// Records a new length of a file.
pub(crate) fn truncated(fd: c_int, length: i64) {
    with_recorder(|recorder| {
        let (file, _) = recorder.file(fd)?;
        let length = u64::try_from(length).ok()?;
        recorder.events.push(Event::Truncate(file, length));
        Some(())
    });
}

/// Returns the error with which a flush fails; `None` if it succeeds.
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

/// Records a successful flush.
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

/// Looks up the inode of a name before it is removed, because the number may be reused at once.
pub(crate) fn before_unlink(path: &CStr) {
    with_recorder(|recorder| {
        let name = recorder.name_at(path)?;
        let known = list(&recorder.root);
        let number = known.get(&name)?;
        // A file that was created and never written is not known yet and does not matter.
        recorder.visible.entry(name).or_insert(*number);
        Some(())
    });
}

/// Records the removal of a name.
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

/// Records that a file got another name.
pub(crate) fn renamed(from: &CStr, to: &CStr) {
    with_recorder(|recorder| {
        let (from, to) = (recorder.name_at(from)?, recorder.name_at(to)?);
        let number = recorder.visible.remove(&from)?;
        recorder.visible.insert(to.clone(), number);
        recorder.events.push(Event::Rename(from, to));
        Some(())
    });
}
