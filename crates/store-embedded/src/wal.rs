//! Looks for damage in the write-ahead log, before SQLite reads it.
//!
//! SQLite ends recovery at the first frame whose checksum is wrong. That is right for a torn end, a commit that was
//! never acknowledged; but it would silently drop acknowledged commits if a frame in the middle rotted. If any frame
//! of a later commit is intact, the bad frame was once completely on disk and is damage (`rel D7`, `rel D8`), unless
//! these commits were not flushed here because they are in the turn log too. Then the turn log has everything that is
//! lost, and the caller checks it next.
//!
//! Format: <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>. Checksums continue from frame to frame;
//! each frame stores its own, so the frames after a bad one can still be verified.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use ganger_store::StoreError;

use crate::create::beside;
use crate::fault::io;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
const MAGIC: u32 = 0x377f_0682;

type Sums = (u32, u32);

struct Header {
    is_big_endian: bool,
    page_bytes: usize,
    salts: [u8; 8],
    sums: Sums,
    is_intact: bool,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn add(is_big_endian: bool, (mut one, mut two): Sums, bytes: &[u8]) -> Sums {
    for pair in bytes.chunks_exact(8) {
        let (x, y) = pair.split_at(4);
        let read = |half: &[u8]| {
            let half = half.try_into().expect("four bytes");
            if is_big_endian {
                u32::from_be_bytes(half)
            } else {
                u32::from_le_bytes(half)
            }
        };
        one = one.wrapping_add(read(x)).wrapping_add(two);
        two = two.wrapping_add(read(y)).wrapping_add(one);
    }
    (one, two)
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let magic = word(bytes, 0);
        let page_bytes = usize::try_from(word(bytes, 8)).ok()?;
        let is_page = page_bytes.is_power_of_two() && (512..=65_536).contains(&page_bytes);
        if magic & !1 != MAGIC || !is_page {
            return None;
        }
        let is_big_endian = magic & 1 == 1;
        let sums = (word(bytes, 24), word(bytes, 28));
        Some(Self {
            is_big_endian,
            page_bytes,
            salts: bytes[16..24].try_into().expect("eight bytes"),
            sums,
            is_intact: add(is_big_endian, (0, 0), &bytes[..24]) == sums,
        })
    }

    /// Whether the frame's checksums follow from `before`.
    fn judge(&self, before: Sums, frame: &[u8]) -> bool {
        let sums = add(self.is_big_endian, before, &frame[..8]);
        let sums = add(self.is_big_endian, sums, &frame[FRAME_HEADER_BYTES..]);
        frame[8..16] == self.salts && sums == stored_sums(frame)
    }
}

fn stored_sums(frame: &[u8]) -> Sums {
    (word(frame, 16), word(frame, 20))
}

/// Flushes the write-ahead log of a store. SQLite has flushed its name with its first bytes.
pub(crate) fn flush(store: &Path) -> Result<(), StoreError> {
    let path = beside(store, "-wal");
    let flushed = File::open(&path).and_then(|file| file.sync_data());
    flushed.map_err(|error| io(&path, "flushed", error))
}

/// Number of bytes read and rewritten at a time.
const REWRITE_BYTES: usize = 1 << 20;

/// Rewrites the write-ahead log of a store with the content that the system shows, and flushes it, before SQLite
/// copies any of it into the file.
///
/// After a failed flush the system may show bytes that are not on disk and report the next flush as successful,
/// because it no longer knows that they need writing. A new process cannot know that its predecessor saw a failed
/// flush, so this runs at every opening; a store that was closed has no log.
pub(crate) fn rewrite(store: &Path) -> Result<(), StoreError> {
    let path = beside(store, "-wal");
    let file = match File::options().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(&path, "opened", error)),
    };
    rewrite_file(&file).map_err(|error| io(&path, "written again", error))
}

fn rewrite_file(file: &File) -> std::io::Result<()> {
    let mut buffer = vec![0; REWRITE_BYTES];
    let mut at = 0;
    loop {
        let length = file.read_at(&mut buffer, at)?;
        if length == 0 {
            break;
        }
        file.write_all_at(&buffer[..length], at)?;
        at += u64::try_from(length).unwrap_or(0);
    }
    if at > 0 {
        file.sync_data()?;
    }
    Ok(())
}

/// Refuses a store whose log is damaged before its end.
pub(crate) fn inspect(store: &Path) -> Result<(), StoreError> {
    let path = beside(store, "-wal");
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io(&path, "read", error)),
    };
    let damage = find_damage(BufReader::with_capacity(1 << 18, file));
    let damage = damage.map_err(|error| io(&path, "read", error))?;
    damage.map_or(Ok(()), |what| {
        let what = format!(
            "its log {} {what}; commits from there on would be lost: restore a backup, or the log from a copy",
            path.display()
        );
        Err(StoreError::Damaged { path: store.display().to_string(), what })
    })
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<bool> {
    match from.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Describes where the log is damaged; `None` if it is intact.
fn find_damage(mut log: impl Read) -> std::io::Result<Option<String>> {
    let mut bytes = [0; HEADER_BYTES];
    if !fill(&mut log, &mut bytes)? {
        return Ok(None);
    }
    let Some(header) = Header::read(&bytes) else {
        // An empty log may be all zeros; SQLite flushes its header before the first frame.
        let is_blank = bytes.iter().all(|byte| *byte == 0);
        return Ok((!is_blank).then(|| "has a damaged header".to_owned()));
    };
    let mut frame = vec![0; FRAME_HEADER_BYTES + header.page_bytes];
    let mut sums = header.sums;
    let mut offset = HEADER_BYTES;
    let mut bad_at = (!header.is_intact).then_some(0);
    // Whether a commit has ended since the bad frame: later frames were written after its flush.
    let mut has_ended = !header.is_intact;
    while fill(&mut log, &mut frame)? {
        let is_intact = header.judge(sums, &frame);
        if let Some(bad) = bad_at {
            if is_intact && has_ended {
                return Ok(Some(format!("is damaged at byte {bad}")));
            }
            has_ended |= is_intact && word(&frame, 4) != 0;
        } else if !is_intact {
            bad_at = Some(offset);
            // A bad frame that ended its commit says so, if that field is not the damaged one.
            has_ended = frame[8..16] == header.salts && word(&frame, 4) != 0;
        }
        sums = stored_sums(&frame);
        offset += frame.len();
    }
    Ok(None)
}
