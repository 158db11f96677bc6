//! Opens what a power cut has left, and compares it with what was acknowledged.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ganger_store::{Loaded, Reader, Store, StoreError};
use ganger_store_embedded::{EmbeddedStore, Limits, check};
use ganger_types::{JobKey, ShardId};

use crate::disk::{Content, Image};
use crate::record::{self, Recording};
use crate::workload;

/// The name of the store's file.
pub(crate) const STORE: &str = "1.db";

/// Small ones, so that a few commits reach what a server does after thousands.
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

/// What a store holds: the payload of each job, and the number of the last commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) sequence: u64,
    pub(crate) jobs: BTreeMap<u64, u64>,
}

/// What has to be there after a power cut.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expected {
    /// State that was acknowledged and must be there.
    pub(crate) acknowledged: State,
    /// With the commit that is being made.
    pub(crate) in_progress: Option<State>,
    /// Finished copies, by name.
    pub(crate) copies: BTreeMap<String, Content>,
}

/// How closely an image is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckOptions {
    /// Whether it is audited first, which must find nothing.
    pub(crate) audits: bool,
    /// Whether the store is then used, closed and opened again.
    pub(crate) uses_store: bool,
    /// Whether what recovery does is recorded.
    pub(crate) records: bool,
}

pub(crate) fn open(directory: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::with_limits(&directory.join(STORE), &ShardId::default(), LIMITS)
}

/// What an open store holds.
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

/// Whether finished copies are there as they were.
pub(crate) fn compare_copies(image: &Image, expected: &Expected) -> Result<(), String> {
    for (name, content) in &expected.copies {
        if image.files.get(name) != Some(content) {
            return Err(format!("the finished copy {name} is not there as it was"));
        }
    }
    Ok(())
}

/// Opens an image in `directory`: what it holds, and what recovery did, if that is recorded.
pub(crate) fn recover(
    image: &Image,
    options: CheckOptions,
    directory: &Path,
) -> Result<(State, Option<Recording>), String> {
    image
        .write_to(directory)
        .map_err(|error| format!("the image cannot be written: {error}"))?;
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
        // From here on others have seen it.
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
    let state = state.map_err(|error| format!("it does not open: {error}"))?;
    if options.uses_store {
        workload::use_recovered(directory, state.clone())?;
    }
    Ok((state, recording))
}

/// The state that a store has by the number of its last commit.
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
                "it opens at commit {sequence}, acknowledged are {}",
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
        "it opens at commit {} with {} jobs; acknowledged are {} with {} jobs, of which {missing} are missing{}",
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
