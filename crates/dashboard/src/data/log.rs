//! Pieces of the log of an attempt, found without reading what is before them.

use ganger_shard::Handle;
use ganger_types::JobKey;

use crate::fault::Fault;

/// Bytes of log on a page.
pub(crate) const PAGE_BYTES: u64 = 64 << 10;

/// A piece of the log of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins, in bytes of the log.
    pub(crate) from: u64,
    pub(crate) bytes: Vec<u8>,
    /// Bytes of the whole log of the attempt.
    pub(crate) total: u64,
}

/// The piece from an offset on, or the last one.
pub(crate) async fn piece(
    shard: &Handle,
    job: JobKey,
    attempt: u32,
    from: Option<u64>,
) -> Result<Piece, Fault> {
    let total = shard.log_bytes(job, attempt).await?;
    let from = from.unwrap_or_else(|| total.saturating_sub(PAGE_BYTES));
    let mut piece = Piece {
        from,
        bytes: Vec::new(),
        total,
    };
    let wanted = usize::try_from(PAGE_BYTES).unwrap_or(usize::MAX);
    let mut place = from;
    while piece.bytes.len() < wanted {
        let chunks = shard.log(job, (attempt, place), wanted).await?;
        let mut is_over = true;
        for chunk in chunks.into_iter().filter(|chunk| chunk.attempt == attempt) {
            if piece.bytes.is_empty() {
                // A chunk is whole: one that began before the offset belongs to the page before.
                piece.from = chunk.offset;
            }
            place = chunk.offset + length(&chunk.bytes);
            piece.bytes.extend_from_slice(&chunk.bytes);
            is_over = false;
        }
        if is_over {
            break;
        }
    }
    Ok(piece)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
