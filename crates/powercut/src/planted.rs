//! Planted bugs: known mistakes, made in what a run recorded or in what a recovery reads, to prove that the search finds
//! them.

use ganger_store::encoding::{Cursor, SEAL_BYTES, seal, unseal};
use ganger_types::ShardId;

use crate::disk::{Content, Image};
use crate::record::{Event, Recording};
use crate::recovery::STORE;
use crate::workload::Step;

/// A mistake that the search must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Rows that were written for a reader without a flush are never flushed. The store had this bug; this model found it.
    SettledIsNotFlushed,
    /// A record of the turn log is not flushed.
    TurnIsNotFlushed,
    /// The tables are not flushed at the end of a large commit.
    LargeIsNotFlushed,
    /// A segment of the turn log is overwritten before the tables are flushed.
    RestartBeforeFlush,
    /// The database file is not flushed after a checkpoint of SQLite's log.
    CheckpointIsNotFlushed,
    /// The directory is not flushed after files are created or renamed.
    DirectoryIsNotFlushed,
    /// A new store is renamed to its final name before it is flushed.
    NewStoreIsNotFlushed,
    /// A commit is acknowledged before its flush.
    AcknowledgedTooSoon,
    /// The turn log is removed before the tables record that there is none.
    TurnsRemovedTooSoon,
    /// Recovery ignores the newest record of the turn log.
    RecoveryForgetsOne,
    /// Recovery accepts a torn record of the turn log.
    ChecksumIsIgnored,
    /// Recovery stops after the first record of a segment.
    RecoveryStopsAtTheFirst,
    /// A finished backup is not flushed.
    CopyIsNotFlushed,
    /// After a failed flush SQLite's log is flushed again without being written again.
    LogIsNotRewritten,
}

impl PlantedBug {
    /// All planted bugs, in the order of their declaration.
    pub const ALL: [Self; 14] = [
        Self::SettledIsNotFlushed,
        Self::TurnIsNotFlushed,
        Self::LargeIsNotFlushed,
        Self::RestartBeforeFlush,
        Self::CheckpointIsNotFlushed,
        Self::DirectoryIsNotFlushed,
        Self::NewStoreIsNotFlushed,
        Self::AcknowledgedTooSoon,
        Self::TurnsRemovedTooSoon,
        Self::RecoveryForgetsOne,
        Self::ChecksumIsIgnored,
        Self::RecoveryStopsAtTheFirst,
        Self::CopyIsNotFlushed,
        Self::LogIsNotRewritten,
    ];

    /// Whether the bug is in the creation of a store.
    pub(crate) fn is_at_creation(self) -> bool {
        matches!(
            self,
            Self::NewStoreIsNotFlushed | Self::DirectoryIsNotFlushed
        )
    }

    /// Returns a short run that reaches the bug.
    pub(crate) fn steps(self) -> &'static [Step] {
        use Step::{Backup, Close, FailSync, Idle, Kill, Large, Read, Small, Wide};
        match self {
            Self::SettledIsNotFlushed => &[Small, Small, Read, Idle, Small],
            Self::TurnIsNotFlushed | Self::NewStoreIsNotFlushed | Self::DirectoryIsNotFlushed => {
                &[Small, Small]
            }
            Self::LargeIsNotFlushed | Self::AcknowledgedTooSoon => &[Large, Small, Large],
            Self::RestartBeforeFlush => &[Wide, Wide, Wide, Wide, Wide, Wide, Wide, Small],
            Self::CheckpointIsNotFlushed => &[Large, Idle, Large, Idle, Small, Kill],
            Self::TurnsRemovedTooSoon => &[Small, Small, Close],
            Self::ChecksumIsIgnored => &[Wide, Wide, Wide],
            Self::RecoveryForgetsOne | Self::RecoveryStopsAtTheFirst => &[Small, Small, Small],
            Self::CopyIsNotFlushed => &[Small, Backup, Small],
            Self::LogIsNotRewritten => &[Small, Read, FailSync(0), Idle],
        }
    }

    /// Returns the events of a run that has this bug.
    pub(crate) fn change_events(self, recording: &Recording) -> Vec<Event> {
        let is = |file: &usize, suffix: &str| recording.names[*file].ends_with(suffix);
        let is_turns = |file: &usize| segment_of(&recording.names[*file]).is_some();
        let mut events = recording.events.clone();
        match self {
            Self::SettledIsNotFlushed => events
                .retain(|event| !matches!(event, Event::Sync(file, true) if is(file, "-wal"))),
            Self::TurnIsNotFlushed => {
                // The flush after the creation of the file stays.
                let mut is_filling = false;
                events.retain(|event| {
                    let is_flush = matches!(event, Event::Sync(file, _) if is_turns(file));
                    let is_kept = !is_flush || is_filling;
                    is_filling = matches!(event, Event::Write(_, _, bytes) if bytes.len() == ZEROS);
                    is_kept
                });
            }
            Self::LargeIsNotFlushed => events
                .retain(|event| !matches!(event, Event::Sync(file, false) if is(file, "-wal"))),
            Self::RestartBeforeFlush => swap(&mut events, |one, two| {
                matches!(one, Event::Sync(file, _) if is(file, "-wal"))
                    && matches!(two, Event::Write(file, 0, _) if is_turns(file))
            }),
            Self::CheckpointIsNotFlushed => {
                events.retain(|event| !matches!(event, Event::Sync(file, _) if is(file, STORE)));
            }
            Self::DirectoryIsNotFlushed => {
                events.retain(|event| !matches!(event, Event::SyncDirectory));
            }
            Self::NewStoreIsNotFlushed => events
                .retain(|event| !matches!(event, Event::Sync(file, _) if recording.names[*file] == NEW_STORE)),
            Self::AcknowledgedTooSoon => swap(&mut events, |one, two| {
                matches!(one, Event::Sync(..))
                    && matches!(two, Event::Expect(expected) if expected.in_progress.is_none())
            }),
            Self::TurnsRemovedTooSoon => {
                for _ in 0..8 {
                    swap(&mut events, |one, two| {
                        !matches!(one, Event::Expect(_) | Event::Unlink(_))
                            && matches!(two, Event::Unlink(name) if segment_of(name).is_some())
                    });
                }
            }
            Self::CopyIsNotFlushed => events.retain(|event| {
                !matches!(event, Event::Sync(file, _) if is(file, ".db.new") && recording.names[*file] != NEW_STORE)
            }),
            // SQLite writes the header of the log separately; only our rewrite writes frames from offset 0.
            Self::LogIsNotRewritten => events.retain(|event| {
                !matches!(event, Event::Write(file, 0, bytes) if is(file, "-wal") && bytes.len() > WAL_HEADER)
            }),
            Self::RecoveryForgetsOne | Self::ChecksumIsIgnored | Self::RecoveryStopsAtTheFirst => {}
        }
        events
    }

    /// Returns an image as a recovery with this bug reads it.
    pub(crate) fn change_image(self, image: &Image) -> Image {
        let edit: fn(&mut [u8], usize, &Image) = match self {
            Self::RecoveryForgetsOne => erase_newest_record,
            Self::ChecksumIsIgnored => reseal_records,
            Self::RecoveryStopsAtTheFirst => keep_first_record,
            _ => return image.clone(),
        };
        let original = image;
        let mut image = image.clone();
        for (name, content) in &mut image.files {
            if let Some(segment) = segment_of(name) {
                let mut bytes = content.bytes();
                edit(&mut bytes, segment, original);
                *content = Content::of(&bytes);
            }
        }
        image
    }
}

/// Swaps adjacent events where both match.
fn swap(events: &mut [Event], matches: impl Fn(&Event, &Event) -> bool) {
    for second in 1..events.len() {
        if matches(&events[second - 1], &events[second]) {
            events.swap(second - 1, second);
        }
    }
}

/// Returns the index of the segment of the turn log that a file is; `None` for other files.
fn segment_of(name: &str) -> Option<usize> {
    let (_, number) = name.split_once("-turns")?;
    if number.is_empty() {
        return Some(0);
    }
    number
        .strip_prefix('-')?
        .parse::<usize>()
        .ok()?
        .checked_sub(1)
}

/// Name of a store that is being created.
const NEW_STORE: &str = "1.db.new";
/// Bytes of the write that fills a new segment of the turn log with zeros.
const ZEROS: usize = 24 << 10;
/// Bytes of the header of SQLite's log.
const WAL_HEADER: usize = 32;

/// Bytes of a record's header: the magic, the length of the content (4 bytes), and its kind (1 byte).
const HEAD_BYTES: usize = 9;
const MAGIC: &[u8] = b"turn";

/// Returns offset, length and sequence number of the consecutive records from the beginning of a segment, whether they
/// are intact or not.
fn records(bytes: &[u8]) -> Vec<(usize, usize, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some((length, sequence)) = record_at(&bytes[at.min(bytes.len())..]) {
        found.push((at, length, sequence));
        at += length;
    }
    found
}

fn record_at(bytes: &[u8]) -> Option<(usize, u64)> {
    let head = bytes.get(..HEAD_BYTES)?;
    let length = u32::from_le_bytes(head[4..8].try_into().ok()?);
    let total = HEAD_BYTES + usize::try_from(length).ok()? + SEAL_BYTES;
    let content = bytes.get(HEAD_BYTES..total)?;
    let mut cursor = Cursor::new(content, "turn");
    if head[8] == 1 {
        let _version = cursor.byte().ok()?;
        let _epoch = cursor.number().ok()?;
    }
    let sequence = cursor.number().ok()?;
    (head.starts_with(MAGIC)).then_some((total, sequence))
}

fn erase_newest_record(bytes: &mut [u8], _: usize, _: &Image) {
    let newest = records(bytes).into_iter().max_by_key(|record| record.2);
    if let Some((at, length, _)) = newest {
        bytes[at..at + length].fill(0);
    }
}

fn keep_first_record(bytes: &mut [u8], _: usize, _: &Image) {
    if let Some((_, length, _)) = records(bytes).first() {
        bytes[*length..].fill(0);
    }
}

/// Gives each record a valid checksum.
fn reseal_records(bytes: &mut [u8], segment: usize, image: &Image) {
    let all = records(bytes);
    let Some(identity) = image
        .files
        .get(STORE)
        .and_then(|store| identity(&store.bytes(), (bytes, segment), &all))
    else {
        return;
    };
    for (at, length, _) in all {
        let mut record = bytes[at..at + length - SEAL_BYTES].to_vec();
        seal(
            "turns",
            &seal_position(&identity, segment, at),
            0,
            &mut record,
        );
        bytes[at..at + length].copy_from_slice(&record);
    }
}

/// Returns what the checksum of a record covers besides its content: the store's identity and the record's position.
fn seal_position(identity: &[u8], segment: usize, at: usize) -> Vec<u8> {
    let position = u64::try_from((segment << 40) | at).unwrap_or(0);
    [identity, &position.to_le_bytes()].concat()
}

/// Returns the identity of a store: the 16 bytes after the shard's name with which the checksum of a record is valid.
fn identity(
    store: &[u8],
    (turns, segment): (&[u8], usize),
    records: &[(usize, usize, u64)],
) -> Option<Vec<u8>> {
    let shard = ShardId::default();
    let shard = shard.as_str().as_bytes();
    let mark = [&[3, u8::try_from(shard.len()).ok()?], shard].concat();
    let candidates = (0..store.len()).filter(|at| store[*at..].starts_with(&mark));
    candidates
        .filter_map(|at| store.get(at + mark.len()..at + mark.len() + 16))
        .find(|identity| {
            records.iter().any(|(at, length, _)| {
                let record = &turns[*at..at + length];
                unseal("turns", &seal_position(identity, segment, *at), record).is_some()
            })
        })
        .map(<[u8]>::to_vec)
}
