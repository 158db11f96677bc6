//! Appends to the log of the current attempt.

use crate::check::check_size;
use ganger_types::command::AppendLog;
use ganger_types::limits::{LOG_BYTES_MAX, LOG_CHUNK_BYTES_MAX};
use ganger_types::{Answer, Change, Happening, Reply};

use crate::engine::Engine;
use crate::turn::Turn;

impl Engine {
    /// Appends to the log of an attempt. A chunk that was sent before is recognised by its offset and not written
    /// twice.
    pub(crate) fn append_log(&mut self, cmd: &AppendLog, turn: &mut Turn<'_>) -> Answer {
        if self.is_external_lease(&cmd.held, turn.known) {
            return self.append_log_external(cmd);
        }
        let key = self
            .live_lease(&cmd.held)
            .ok_or_else(|| self.lease_lost(&cmd.held, turn.known))?;
        let limit = u64::try_from(LOG_CHUNK_BYTES_MAX).expect("a small number");
        check_size(
            "the size of a piece of log in bytes",
            Some(&cmd.bytes),
            limit,
        )?;

        let have = self
            .job(key)
            .details
            .as_deref()
            .map_or(0, |details| details.log_bytes);
        // After a restart the size of the log is not known: the first chunk is accepted at any offset.
        let have = if have == 0 { cmd.offset } else { have };
        let sent = u64::try_from(cmd.bytes.len()).expect("pieces were checked");
        let end = cmd.offset.saturating_add(sent).max(have);
        let from = have.max(cmd.offset).min(LOG_BYTES_MAX);
        let to = end.min(LOG_BYTES_MAX);
        if to > from {
            let skip = usize::try_from(from - cmd.offset).expect("within the piece");
            let take = usize::try_from(to - from).expect("within the piece");
            let bytes = cmd.bytes.slice(skip..skip + take);
            let attempt = self.job(key).attempt;
            turn.out.changes.push(Change::AppendLog {
                key,
                attempt,
                offset: from,
                at: turn.now.wall,
                bytes,
            });
            let space = self.space_of_job(key);
            self.announce(
                space,
                turn.now.wall,
                Happening::LogAppended {
                    key,
                    attempt,
                    bytes: to,
                },
                turn,
            );
        }
        self.job_mut(key).details_mut().log_bytes = end;
        Ok(Reply::LogAppended {
            bytes: to,
            dropped: end.saturating_sub(LOG_BYTES_MAX),
        })
    }
}
