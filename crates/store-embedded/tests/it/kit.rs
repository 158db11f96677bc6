//! A store with rows of every kind.

pub(crate) mod fixture;

use std::path::{Path, PathBuf};

use ganger_store::suite::sample;
use ganger_store::{Loaded, Reader, Store, StoreError, StoredJob};
use ganger_store_embedded::{EmbeddedStore, Limits};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Change, Commit, Epoch, FailurePolicy, Group, InputRow, InputState, JobId, JobKey, Meta,
    Namespace, Outcome, ShardId, Tag,
};
use tempfile::TempDir;

pub(crate) const LIVE: u64 = 60;
pub(crate) const ALL: u64 = 90;

pub(crate) fn directory() -> TempDir {
    TempDir::new().expect("a directory can be made")
}

pub(crate) fn open(path: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::create_or_open(path, &ShardId::default())
}

/// Opens a store with other limits.
pub(crate) fn open_with(path: &Path, limits: Limits) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::with_limits(path, &ShardId::default(), limits)
}

/// A store that is written to, commit by commit.
pub(crate) struct Written {
    pub(crate) store: EmbeddedStore,
    epoch: Epoch,
    /// Sequence of the last commit.
    pub(crate) sequence: u64,
}

impl Written {
    pub(crate) fn start(path: &Path, limits: Limits) -> Self {
        let mut written = Self {
            store: open_with(path, limits).expect("a store can be made"),
            epoch: Epoch(0),
            sequence: 0,
        };
        written.open();
        written
    }

    /// Opens the store again as it is.
    pub(crate) fn open(&mut self) {
        let opened = self.store.open().expect("it opens");
        assert_eq!(opened.sequence, self.sequence);
        self.epoch = opened.epoch;
    }

    pub(crate) fn commit(&mut self, changes: Vec<Change>) {
        self.sequence += 1;
        let commit = Commit {
            epoch: self.epoch,
            sequence: self.sequence,
            meta: Meta::default(),
            changes,
        };
        self.store.commit(&commit.into()).expect("it is accepted");
    }
}

/// Commits one batch of changes after the other.
pub(crate) fn write(store: &mut EmbeddedStore, batches: Vec<Vec<Change>>) {
    let opened = store.open().expect("the store opens");
    for (changes, sequence) in batches.into_iter().zip(opened.sequence + 1..) {
        let meta = Meta {
            next_key: JobKey(ALL),
            wall: sample::MORNING,
            ..Meta::default()
        };
        let commit = Commit {
            epoch: opened.epoch,
            sequence,
            meta,
            changes,
        };
        store
            .commit(&commit.into())
            .expect("the commit is accepted");
    }
}

/// Limits of a store without a turn log: every commit goes into the tables at once.
pub(crate) const WITHOUT_LOG: fn() -> Limits = || Limits {
    segment_bytes: 0,
    ..Limits::default()
};

/// Limits of a store without a thread that writes the tables.
pub(crate) const WITHOUT_THREAD: fn() -> Limits = || Limits {
    has_row_thread: false,
    ..Limits::default()
};

fn payload(key: u64) -> Bytes {
    Bytes::from(format!("payload of job {key}").repeat(5))
}

fn result(key: u64) -> Bytes {
    Bytes::from(format!("result {key}"))
}

/// Returns changes: jobs 0 to 59 live, some leased; 60 to 89 finished, some badly. Counts are as an engine keeps
/// them.
pub(crate) fn content() -> Vec<Vec<Change>> {
    let mut batches = Vec::new();
    for key in 0..ALL {
        let mut record = sample::job(key);
        if key % 3 == 0 {
            record.tags = vec![Tag::from_static("third")];
        }
        let mut changes = vec![
            Change::PutJob(Box::new(record.clone())),
            Change::PutPayload {
                key: JobKey(key),
                payload: payload(key),
            },
        ];
        if key >= LIVE {
            let outcome = if key % 10 == 0 {
                Outcome::Failed
            } else {
                Outcome::Succeeded
            };
            record = sample::ended(record, outcome, key, key);
            record.failure = (key % 10 == 0).then(|| sample::failure("io", "broken"));
            let length = u64::try_from(result(key).len()).expect("short");
            record.finished.as_mut().expect("it has ended").result_bytes = Some(length);
            let end = Change::FinishJob {
                record: Box::new(record),
                result: Some(result(key)),
            };
            batches.push(changes);
            changes = vec![end];
        } else if key % 4 == 0 {
            changes.push(Change::PutLease(Box::new(sample::lease(key, "w1"))));
        }
        batches.push(changes);
    }
    let mut queue = sample::queue("default");
    (queue.succeeded, queue.failed) = (27, 3);
    let default = Namespace::default;
    let id = JobId::new("up").expect("short");
    let state = InputState::Missing {
        dependency: JobKey(1),
        id,
        policy: FailurePolicy::Fail,
    };
    batches.push(vec![
        Change::PutQueue(Box::new(queue)),
        Change::PutNamespace(Box::new(sample::namespace("default"))),
        Change::PutTagCount(default(), Tag::from_static("third"), 30),
        Change::PutGroupCount(default(), Group::from_static("io"), 3),
        Change::PutInput(InputRow {
            job: JobKey(2),
            slot: 0,
            state,
        }),
        Change::AppendLog {
            key: JobKey(70),
            attempt: 1,
            offset: 0,
            at: sample::MORNING,
            bytes: Bytes::from_static(b"a line\n"),
        },
    ]);
    batches
}

/// Makes a closed store with that content in a directory.
pub(crate) fn filled(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("1.db");
    let mut store = open(&path).expect("a store can be made");
    write(&mut store, content());
    path
}

/// Everything that can be read from a store.
#[derive(Debug, PartialEq)]
pub(crate) struct StoreContent {
    pub(crate) loaded: Vec<Loaded>,
    pub(crate) jobs: Vec<Option<StoredJob>>,
    pub(crate) payloads: Vec<Option<Bytes>>,
    pub(crate) results: Vec<Option<Bytes>>,
    pub(crate) tagged: Vec<StoredJob>,
    pub(crate) log: Vec<Bytes>,
}

/// Reads everything, or returns the first error.
pub(crate) fn read_all(store: &mut EmbeddedStore) -> Result<StoreContent, StoreError> {
    store.open()?;
    let mut loaded = Vec::new();
    store.load(&mut |row| loaded.push(row))?;
    let mut reader = store.reader()?;
    let keys = || (0..ALL).map(JobKey);
    let tags = vec![Tag::from_static("third")];
    let query = JobQuery {
        tags,
        limit: 100,
        ..JobQuery::default()
    };
    Ok(StoreContent {
        loaded,
        jobs: keys()
            .map(|key| reader.job(key))
            .collect::<Result<_, _>>()?,
        payloads: keys()
            .map(|key| reader.payload(key))
            .collect::<Result<_, _>>()?,
        results: keys()
            .map(|key| reader.result(key))
            .collect::<Result<_, _>>()?,
        tagged: reader.list(&query)?.jobs,
        log: reader
            .log(JobKey(70), (0, 0), 99)?
            .into_iter()
            .map(|chunk| chunk.bytes)
            .collect(),
    })
}

/// Copies the files of a store as they are now, as if the machine had stopped.
pub(crate) fn freeze(path: &Path, into: &TempDir) -> PathBuf {
    let copy = into.path().join("1.db");
    let segments = (2..=16).map(|number| format!("-turns-{number}"));
    for suffix in ["", "-wal", "-turns"]
        .map(str::to_owned)
        .into_iter()
        .chain(segments)
    {
        let name = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        if name(path).exists() {
            std::fs::copy(name(path), name(&copy)).expect("files can be copied");
        }
    }
    copy
}
