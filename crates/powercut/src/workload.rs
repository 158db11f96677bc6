//! The workload: what happens to a store before the power is cut.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ganger_store::suite::sample;
use ganger_store::{CommitError, Reader, Store, StoreError};
use ganger_store_embedded::{EmbeddedStore, backup, check};
use ganger_types::query::JobQuery;
use ganger_types::{Bytes, Change, Commit, Epoch, JobKey, Meta};

use crate::disk::Image;
use crate::record::{self, Faults, Recording};
use crate::recovery::{Expected, STORE, State, compare_sequence, open};
use crate::syscalls;

/// Number of jobs in a large commit. With their payloads they do not fit into a segment of the turn log.
const LARGE_JOBS: u64 = 34;
/// Bytes of each payload in a large commit.
const LARGE_BYTES: usize = 900;
/// Bytes of a payload that takes nearly half of a segment of the turn log.
const WIDE_BYTES: usize = 10_000;
/// Number of jobs that a removal leaves.
const JOBS_LEFT: usize = 8;

/// A step of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A commit of one job.
    Small,
    /// A commit that takes nearly half of a segment of the turn log.
    Wide,
    /// A commit that is larger than a segment and is written into the tables at once.
    Large,
    /// A commit that removes jobs.
    Remove,
    /// A reader reads the last payload.
    Read,
    /// A reader lists and counts jobs.
    List,
    /// All rows are loaded again.
    Load,
    /// The shard is idle and lets the store do its upkeep.
    Idle,
    /// A backup is made.
    Backup,
    /// The store is audited while it is open.
    Check,
    /// The same process opens the store again without closing it.
    Reopen,
    /// The store is closed and opened.
    Close,
    /// The process is killed, and another process opens the store.
    Kill,
    /// The disk is full: no file can grow.
    DiskFull,
    /// The disk has free space again.
    DiskFree,
    /// The write after this many successful ones fails.
    FailWrite(u32),
    /// The flush after this many successful ones fails.
    FailSync(u32),
}

pub(crate) fn digest_of_payload(payload: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    hasher.finish()
}

/// The recording of a run of the workload.
pub(crate) struct Run {
    pub(crate) recording: Recording,
    /// Index of the first event of the last step.
    pub(crate) last_from: usize,
}

/// Runs all steps on a disk that holds `image`, in which `state` is acknowledged.
pub(crate) fn run(
    image: &Image,
    state: &State,
    steps: &[Step],
    directory: &Path,
) -> Result<Run, String> {
    for name in ["a", "b"] {
        std::fs::create_dir_all(directory.join(name)).map_err(|error| error.to_string())?;
    }
    let at = directory.join("a");
    image.write_to(&at).map_err(|error| error.to_string())?;
    syscalls::seed_sqlite(1);
    record::start(&at);
    let mut live = LiveStore {
        root: directory.to_path_buf(),
        at,
        is_second: false,
        store: None,
        epoch: Epoch(0),
        expected: Expected {
            acknowledged: state.clone(),
            ..Expected::default()
        },
        tries: 0,
        copies: 0,
        has_failed: false,
    };
    live.expect();
    let mut last_from = 0;
    let mut all = || {
        live.start()?;
        for step in steps {
            last_from = record::count();
            live.step(*step).map_err(|why| format!("{step:?}: {why}"))?;
        }
        Ok(())
    };
    let done = all();
    let recording = record::stop();
    drop(live);
    done.map(|()| Run {
        recording,
        last_from,
    })
}

/// Uses a recovered store, closes it, and checks it once more.
pub(crate) fn use_recovered(directory: &Path, state: State) -> Result<(), String> {
    let mut live = LiveStore {
        root: directory.to_path_buf(),
        at: directory.to_path_buf(),
        is_second: false,
        store: None,
        epoch: Epoch(0),
        expected: Expected {
            acknowledged: state,
            ..Expected::default()
        },
        tries: 0,
        copies: 0,
        has_failed: false,
    };
    live.start()?;
    for step in [Step::Small, Step::Idle, Step::Large, Step::Close] {
        live.step(step)
            .map_err(|why| format!("step {step:?} after recovery: {why}"))?;
    }
    Ok(())
}

/// A store in use, with the state that it must have.
struct LiveStore {
    root: PathBuf,
    /// Directory of the store's files. A kill moves them to the other one of `a` and `b`.
    at: PathBuf,
    is_second: bool,
    store: Option<EmbeddedStore>,
    epoch: Epoch,
    expected: Expected,
    /// Number of commits attempted. Each attempt has different payloads.
    tries: u64,
    copies: u64,
    /// Whether an injected fault occurred since the store was opened.
    has_failed: bool,
}

impl LiveStore {
    fn expect(&self) {
        record::expect(self.expected.clone());
    }

    fn store(&mut self) -> Result<&mut EmbeddedStore, String> {
        self.store
            .as_mut()
            .ok_or_else(|| "the store is not open".to_owned())
    }

    /// Creates or opens the store and becomes its owner.
    fn start(&mut self) -> Result<(), String> {
        self.retry(|live| {
            live.store = None;
            live.store = Some(open(&live.at)?);
            Ok(())
        })?;
        self.take_over()
    }

    fn take_over(&mut self) -> Result<(), String> {
        let opened = self.retry(|live| match live.store.as_mut() {
            Some(store) => store.open(),
            None => Err(StoreError::Io {
                path: String::new(),
                doing: "opened",
                reason: "it is not there".to_owned(),
            }),
        })?;
        self.epoch = opened.epoch;
        self.expected.acknowledged = compare_sequence(opened.sequence, &self.expected)?;
        self.expected.in_progress = None;
        self.has_failed = false;
        self.expect();
        Ok(())
    }

    /// Repeats an operation that may fail once because of an injected fault and once because the disk is full.
    fn retry<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, String> {
        let before = record::faults();
        let first = match work(self) {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        let is_armed = before.write_in.is_some() || before.sync_in.is_some();
        if !is_armed && !before.is_full && !self.has_failed {
            return Err(format!("unexpected error: {first}"));
        }
        record::set_faults(Faults {
            is_full: before.is_full,
            ..Faults::default()
        });
        work(self).or_else(|second| {
            if !before.is_full {
                return Err(format!("unexpected error of the second attempt: {second}"));
            }
            record::set_faults(Faults::default());
            work(self)
                .map_err(|third| format!("error although the disk has free space again: {third}"))
        })
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Small | Step::Wide => {
                let bytes = if step == Step::Wide { WIDE_BYTES } else { 700 };
                self.submit(1, bytes)
            }
            Step::Large => self.submit(LARGE_JOBS, LARGE_BYTES),
            Step::Remove => self.remove(),
            Step::Read => self.read(),
            Step::List => self.list(),
            Step::Load => {
                let sequence = self.expected.acknowledged.sequence;
                let seen = crate::recovery::read_state(self.store()?, sequence);
                let same = |seen: &State, live: &Self| *seen == live.expected.acknowledged;
                self.check_answer(seen, same)
            }
            Step::Idle => {
                let result = self.store()?.idle();
                self.check_answer(result, |(), _| true)
            }
            Step::Backup => self.backup(),
            Step::Check => self.check(),
            Step::Reopen => self.take_over(),
            Step::Close => {
                self.store = None;
                self.start()
            }
            Step::Kill => self.kill(),
            Step::DiskFull | Step::DiskFree => {
                change_faults(|faults| faults.is_full = step == Step::DiskFull);
                Ok(())
            }
            Step::FailWrite(after) => {
                change_faults(|faults| faults.write_in = Some(after));
                Ok(())
            }
            Step::FailSync(after) => {
                change_faults(|faults| faults.sync_in = Some(after));
                Ok(())
            }
        }
    }

    /// Notes whether an injected fault occurred since `before`.
    fn note_faults(&mut self, before: Faults) {
        let now = record::faults();
        self.has_failed |= (before.write_in.is_some() && now.write_in.is_none())
            || (before.sync_in.is_some() && now.sync_in.is_none());
    }

    /// Checks an answer. An error is allowed only after an injected fault; the store is then opened again, as the shard does.
    fn check_answer<T>(
        &mut self,
        answer: Result<T, StoreError>,
        is_right: impl FnOnce(&T, &Self) -> bool,
    ) -> Result<(), String> {
        match answer {
            Ok(answer) if is_right(&answer, self) => Ok(()),
            Ok(_) => Err("wrong answer".to_owned()),
            Err(_) if record::has_failed() => {
                record::clear_failed();
                self.has_failed = true;
                self.take_over()
            }
            Err(error) => Err(format!("unexpected error: {error}")),
        }
    }

    fn submit(&mut self, count: u64, bytes: usize) -> Result<(), String> {
        let mut after = self.expected.acknowledged.clone();
        let first = after.jobs.last_key_value().map_or(1, |(key, _)| key + 1);
        self.tries += 1;
        let mut changes = Vec::new();
        for key in first..first + count {
            let mut payload =
                format!("payload {key} of try {} at {}", self.tries, after.sequence).into_bytes();
            payload.resize(bytes, b'.');
            after.jobs.insert(key, digest_of_payload(&payload));
            changes.push(Change::PutJob(Box::new(sample::job(key))));
            changes.push(Change::PutPayload {
                key: JobKey(key),
                payload: Bytes::from(payload),
            });
        }
        self.commit(changes, after)
    }

    fn remove(&mut self) -> Result<(), String> {
        let mut after = self.expected.acknowledged.clone();
        let mut changes = Vec::new();
        while after.jobs.len() > JOBS_LEFT || (changes.is_empty() && !after.jobs.is_empty()) {
            if let Some((key, _)) = after.jobs.pop_first() {
                changes.push(Change::RemoveJob(JobKey(key)));
            }
        }
        if changes.is_empty() {
            changes.push(Change::RemoveJob(JobKey(1_000_000)));
        }
        self.commit(changes, after)
    }

    fn commit(&mut self, changes: Vec<Change>, mut after: State) -> Result<(), String> {
        after.sequence += 1;
        let commit = Arc::new(Commit {
            epoch: self.epoch,
            sequence: after.sequence,
            meta: Meta::default(),
            changes,
        });
        self.expected.in_progress = Some(after.clone());
        self.expect();
        let before = record::faults();
        let committed = self.store()?.commit(&commit);
        self.note_faults(before);
        match committed {
            Ok(()) => self.expected.acknowledged = after,
            Err(CommitError::NotApplied { is_full: true, .. }) if before.is_full => {}
            Err(CommitError::Unknown(_)) if record::has_failed() => {
                record::clear_failed();
                self.has_failed = true;
                return self.take_over();
            }
            Err(error) => return Err(format!("unexpected error: {error}")),
        }
        self.expected.in_progress = None;
        self.expect();
        Ok(())
    }

    fn read(&mut self) -> Result<(), String> {
        let last = self.expected.acknowledged.jobs.last_key_value();
        let Some((key, digest)) = last.map(|(key, digest)| (*key, *digest)) else {
            return Ok(());
        };
        let reader = self.store()?.reader();
        let found = reader.and_then(|mut reader| reader.payload(JobKey(key)));
        self.check_answer(found, |found, _| {
            found.as_deref().map(digest_of_payload) == Some(digest)
        })
    }

    fn list(&mut self) -> Result<(), String> {
        let query = JobQuery::default();
        let reader = self.store()?.reader();
        let found = reader.and_then(|mut reader| {
            let page = reader.list(&query)?;
            Ok((page.jobs.len(), reader.count(&query)?.jobs))
        });
        self.check_answer(found, |(listed, counted), live| {
            let count = live.expected.acknowledged.jobs.len();
            u64::try_from(count).is_ok_and(|count| count == *counted) && *listed <= count
        })
    }

    fn backup(&mut self) -> Result<(), String> {
        let copies = std::mem::take(&mut self.expected.copies);
        self.expect();
        for name in copies.keys() {
            let removed = std::fs::remove_file(self.at.join(name));
            removed.map_err(|error| error.to_string())?;
        }
        self.copies += 1;
        let name = format!("copy-{}.db", self.copies);
        let to = self.at.join(&name);
        // As an operator would, remove what an interrupted backup left.
        for left in [&name, &format!("{name}.new")] {
            let _ = std::fs::remove_file(self.at.join(left));
        }
        let before = record::faults();
        match backup(self.at.join(STORE), &to) {
            Ok(_) => {
                let bytes = std::fs::read(&to).map_err(|error| error.to_string())?;
                let content = crate::disk::Content::of(&bytes);
                self.expected.copies = BTreeMap::from([(name, content)]);
                self.expect();
                Ok(())
            }
            // A failed backup leaves no file, and the store stays usable.
            Err(_) if before.is_full || record::has_failed() => {
                record::clear_failed();
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&mut self) -> Result<(), String> {
        // The read makes the store write its pending rows, so that the audit sees them.
        self.read()?;
        if record::faults().is_full {
            return Ok(());
        }
        let report = check(self.at.join(STORE), |_| {}).map_err(|error| error.to_string())?;
        match report.findings.first() {
            Some(finding) => Err(finding.to_string()),
            None => Ok(()),
        }
    }

    fn kill(&mut self) -> Result<(), String> {
        self.is_second = !self.is_second;
        let next = self.root.join(if self.is_second { "b" } else { "a" });
        let at = self.at.clone();
        let store = self.store.take();
        record::unrecorded(move || {
            let copied = Image::read(&at).and_then(|image| image.write_to(&next));
            // Dropping it writes to the old directory, which is no longer looked at.
            drop(store);
            copied.map(|()| next)
        })
        .map_err(|error| error.to_string())
        .and_then(|next| {
            record::move_to(&next);
            self.at = next;
            self.start()
        })
    }
}

/// Changes which calls fail from now on.
fn change_faults(set: impl FnOnce(&mut Faults)) {
    let mut faults = record::faults();
    set(&mut faults);
    record::set_faults(faults);
}
