//! Recovers a store from what a power cut left, and compares it with what was acknowledged.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ganger_store::{Loaded, Reader, Store, StoreError};
use ganger_store_embedded::{EmbeddedStore, Limits, check};
use ganger_types::{JobKey, ShardId};

use crate::disk::{Content, Image};
use crate::record::{self, Recording};
use crate::workload;

/// File name of the store.
pub(crate) const STORE: &str = "1.db";

/// Small limits, so that a few commits trigger what a server does after thousands.
pub(crate) const LIMITS: Limits = Limits {
    log_pages: 120,
    log_pages_idle: 40,
    waiting_commits: 6,
    waiting_changes: 40,
    waiting_bytes: 30_000,
    waiting_for: Duration::MAX,
    segment_bytes: 24 << 10,
    segments_max: 3,
    // The order of calls must be the same in each run.
    has_row_thread: false,
};

/// The content of a store: the sequence number of the last commit, and the digest of each job's payload by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) sequence: u64,
    pub(crate) jobs: BTreeMap<u64, u64>,
}

/// The states that a store may have after a power cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// The state after the last acknowledged commit.
    pub(crate) acknowledged: State,
    /// The state with the commit in progress; `None` if there is none.
    pub(crate) in_progress: Option<State>,
    /// Finished backups, by file name. They must be unchanged.
    pub(crate) copies: BTreeMap<String, Content>,
}

/// What to check besides the recovered state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckOptions {
    /// Whether to audit the image first, which must find nothing.
    pub(crate) audits: bool,
    /// Whether to use, close and reopen the store afterwards.
    pub(crate) uses_store: bool,
    /// Whether to record the recovery.
    pub(crate) records: bool,
}

pub(crate) fn open(directory: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::with_limits(&directory.join(STORE), &ShardId::default(), LIMITS)
}

/// Reads the content of an open store.
pub(crate) fn read_state(store: &mut EmbeddedStore, sequence: u64) -> Result<State, StoreError> {
    let mut keys = Vec::new();
    store.load(&mut |row| {
        if let Loaded::Job(job) = row {
            keys.push(job.key);
        }
    })?;
    let mut reader = store.reader()?;
    let mut jobs = BTreeMap::new();
    for JobKey(key) in keys {
        let payload = reader.payload(JobKey(key))?;
        let payload = payload.unwrap_or_default();
        jobs.insert(key, workload::digest_of_payload(&payload));
    }
    Ok(State { sequence, jobs })
}

/// Checks that the finished backups are unchanged.
pub(crate) fn compare_copies(image: &Image, expected: &Expected) -> Result<(), String> {
    for (name, content) in &expected.copies {
        if image.files.get(name) != Some(content) {
            return Err(format!("the finished backup {name} is missing or changed"));
        }
    }
    Ok(())
}

/// Opens an image in `directory`. Returns its state, and the recording of the recovery if one was requested.
pub(crate) fn recover(
    image: &Image,
    options: CheckOptions,
    directory: &Path,
) -> Result<(State, Option<Recording>), String> {
    image
        .write_to(directory)
        .map_err(|error| format!("cannot write the image: {error}"))?;
    let path = directory.join(STORE);
    if options.audits && path.exists() {
        let report = check(&path, |_| {}).map_err(|error| format!("check: {error}"))?;
        if let Some(finding) = report.findings.first() {
            return Err(format!("check: {finding}"));
        }
    }
    if options.records {
        record::start(directory);
    }
    let opened = open(directory).and_then(|mut store| {
        let sequence = store.open()?.sequence;
        let state = record::unrecorded(|| read_state(&mut store, sequence))?;
        Ok((store, state))
    });
    if let Ok((_, state)) = &opened {
        // From here on the recovered state counts as acknowledged, since clients may have read it.
        record::expect(Expected {
            acknowledged: state.clone(),
            ..Expected::default()
        });
    }
    let state = opened.map(|(store, state)| {
        drop(store);
        state
    });
    let recording = options.records.then(record::stop);
    let state = state.map_err(|error| format!("cannot open the store: {error}"))?;
    if options.uses_store {
        workload::use_recovered(directory, state.clone())?;
    }
    Ok((state, recording))
}

/// Returns the expected state with this sequence number.
pub(crate) fn compare_sequence(sequence: u64, expected: &Expected) -> Result<State, String> {
    if sequence == expected.acknowledged.sequence {
        return Ok(expected.acknowledged.clone());
    }
    let in_progress = expected.in_progress.as_ref();
    in_progress
        .filter(|state| state.sequence == sequence)
        .cloned()
        .ok_or_else(|| {
            format!(
                "it opens at commit {sequence}, but commit {} was acknowledged",
                expected.acknowledged.sequence
            )
        })
}

pub(crate) fn compare(state: &State, expected: &Expected) -> Result<(), String> {
    if *state == expected.acknowledged || expected.in_progress.as_ref() == Some(state) {
        return Ok(());
    }
    let missing = expected
        .acknowledged
        .jobs
        .keys()
        .filter(|key| !state.jobs.contains_key(key))
        .count();
    Err(format!(
        "it opens at commit {} with {} jobs, but commit {} with {} jobs was acknowledged; {missing} of them are missing{}",
        state.sequence,
        state.jobs.len(),
        expected.acknowledged.sequence,
        expected.acknowledged.jobs.len(),
        if expected.in_progress.is_some() {
            ", and one commit is in progress"
        } else {
            ""
        },
    ))
}
