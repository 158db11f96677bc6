//! Limits on input and on waiting output.

use std::time::Duration;

use ganger_types::limits::KEY_VALUE_MAX;

/// Bytes of an argument. A longer argument is skipped and its command refused.
pub(crate) const BULK_BYTES_MAX: usize = KEY_VALUE_MAX;
/// Bytes of an argument that is skipped; more is an error of the protocol, as in Redis.
pub(crate) const BULK_BYTES_PASSED_MAX: usize = 512 << 20;
/// Bytes of all arguments of a command, with [`ARGUMENT_BYTES`] for each.
pub(crate) const FRAME_BYTES_MAX: usize = 256 << 20;
/// Bytes that count for an argument besides its own.
pub(crate) const ARGUMENT_BYTES: usize = 64;
/// Arguments of a command.
pub(crate) const ARGUMENTS_MAX: usize = 1 << 20;
/// Bytes of a line: a length, or a command written as words.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// Arguments of a command of an unauthenticated client.
pub(crate) const ARGUMENTS_UNKNOWN_MAX: usize = 10;
/// Bytes of an argument of an unauthenticated client.
pub(crate) const BULK_BYTES_UNKNOWN_MAX: usize = 16 << 10;

/// Free bytes in the buffer before a read.
pub(crate) const READ_BYTES: usize = 4 << 10;
/// Bytes that are read, if available, before their commands run.
pub(crate) const READ_TOGETHER_BYTES: usize = 64 << 10;
/// Bytes of buffer that an idle connection keeps.
pub(crate) const IDLE_BYTES: usize = 16 << 10;
/// Bytes of replies that are collected before a write.
pub(crate) const WRITE_BYTES: usize = 64 << 10;
/// Bytes that count for a part of a reply besides its own.
pub(crate) const PART_BYTES: usize = 64;
/// Confirmations of subscriptions that are collected before a write.
pub(crate) const CONFIRMATIONS: usize = 256;
/// Calls of one commit.
pub(crate) const BATCH_CALLS_MAX: usize = 1_024;
/// Bytes that count for a call besides those of its values.
pub(crate) const CALL_BYTES: usize = 256;
/// Calls of qless with large answers in one transaction.
pub(crate) const TRANSACTION_WIDE_CALLS_MAX: usize = 16;
/// Calls with large answers that the shard runs at the same time, for all connections. More would only wait there.
pub(crate) const WIDE_CALLS_MAX: usize = 4;
/// Jobs of one `pop` of qless that make its answer a large one.
#[cfg(feature = "qless")]
pub(crate) const WIDE_JOBS: usize = 64;
/// Keys of one command that make its answer a large one.
pub(crate) const WIDE_KEYS: usize = 64;
/// Bytes of replies that need no call, in one transaction.
pub(crate) const LOCAL_REPLIES_BYTES_MAX: usize = 16 << 20;
/// Bytes of the values of one commit.
pub(crate) const BATCH_BYTES_MAX: usize = 8 << 20;
/// Bytes that a client may send while a command waits.
pub(crate) const BEHIND_WAIT_BYTES_MAX: usize = 1 << 20;
/// Lists of one waiting command.
pub(crate) const WAIT_LISTS_MAX: usize = 1_000;
/// Bytes of the names of these lists together.
pub(crate) const WAIT_NAMES_BYTES_MAX: usize = 128 << 10;
/// Commands of a transaction.
pub(crate) const QUEUED_COMMANDS_MAX: usize = 100_000;
/// Bytes of the arguments in a transaction, with [`ARGUMENT_BYTES`] for each.
pub(crate) const QUEUED_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Elements from work queues that a connection remembers, to give them back at its end if no client has used them.
pub(crate) const POPPED_MAX: usize = 64;
/// Keys that a connection may watch.
pub(crate) const WATCHED_KEYS_MAX: usize = 10_000;
/// Channels and patterns that a connection may subscribe to.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 10_000;
/// Bytes of messages that may wait for a subscriber; beyond that its connection is cut.
pub(crate) const MAILBOX_BYTES_MAX: usize = 32 << 20;
/// Bytes of the name of a channel; patterns have [`ganger_types::limits::KEY_PATTERN_MAX`].
pub(crate) const CHANNEL_BYTES_MAX: usize = 1 << 10;
/// Bytes of the name of a client, of its library, and of the library's version.
pub(crate) const CLIENT_NAME_BYTES_MAX: usize = 256;
/// Bytes of an argument that an error shows.
pub(crate) const SHOWN_BYTES_MAX: usize = 128;
/// Interval at which the rights of an active, waiting or subscribed connection are checked, because a token may
/// expire.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the rights of an idle connection are checked.
pub(crate) const IDLE_LOOK_EVERY: Duration = Duration::from_secs(30);
/// Time that a client has to read [`WRITE_BYTES`] before its unread output counts in the budget.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(2);
/// Time that a client has to send [`PACE_BYTES`] of an incomplete command or transaction that counts in the budget.
pub(crate) const PACE_EVERY: Duration = Duration::from_secs(30);
/// Minimum number of bytes in that time.
pub(crate) const PACE_BYTES: usize = 64 << 10;
/// Largest expiry in milliseconds, counted from now or from 1970: about 30,000 years.
pub(crate) const EXPIRY_MILLIS_MAX: i64 = 1_000_000_000_000_000;
/// Scripts that are stored by their digests; beyond that the oldest is dropped, and its clients send it again.
#[cfg(feature = "qless")]
pub(crate) const SCRIPTS_MAX: usize = 128;
/// Bytes of a script; a longer one is not recognised. The longest published one has 100,000.
#[cfg(feature = "qless")]
pub(crate) const SCRIPT_BYTES_MAX: usize = 1 << 20;
