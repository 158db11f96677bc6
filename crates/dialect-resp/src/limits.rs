//! Bounds on what comes from outside and on what waits to go out.

use std::time::Duration;

use ganger_types::limits::KEY_VALUE_MAX;

/// Bytes of an argument that is kept. A longer one is read past, and its command refused.
pub(crate) const BULK_BYTES_MAX: usize = KEY_VALUE_MAX;
/// Bytes of an argument that are read past; more is an error of the protocol, as in Redis.
pub(crate) const BULK_BYTES_PASSED_MAX: usize = 512 << 20;
/// Bytes of all arguments of a command, with [`ARGUMENT_BYTES`] for each.
pub(crate) const FRAME_BYTES_MAX: usize = 256 << 20;
/// Bytes that count for an argument beside its own.
pub(crate) const ARGUMENT_BYTES: usize = 64;
/// Arguments of a command.
pub(crate) const ARGUMENTS_MAX: usize = 1 << 20;
/// Bytes of a line: a length, or a command that is written as words.
pub(crate) const LINE_BYTES_MAX: usize = 64 << 10;
/// Arguments of a command of somebody who has not shown who it is.
pub(crate) const ARGUMENTS_UNKNOWN_MAX: usize = 10;
/// Bytes of an argument of such a command.
pub(crate) const BULK_BYTES_UNKNOWN_MAX: usize = 16 << 10;

/// Bytes to make room for before a read.
pub(crate) const READ_BYTES: usize = 4 << 10;
/// Bytes that are read together, if they are there, before the commands among them are run.
pub(crate) const READ_TOGETHER_BYTES: usize = 64 << 10;
/// Memory of a buffer that an idle connection keeps.
pub(crate) const IDLE_BYTES: usize = 16 << 10;
/// Bytes of replies that are gathered before they are written.
pub(crate) const WRITE_BYTES: usize = 64 << 10;
/// Bytes that count for a part of a reply beside its own.
pub(crate) const PART_BYTES: usize = 64;
/// Confirmations of subscriptions that are put together at a time.
pub(crate) const CONFIRMATIONS: usize = 256;
/// Calls that make one commit.
pub(crate) const BATCH_CALLS_MAX: usize = 1_024;
/// Bytes that count for a call beside those of its values.
pub(crate) const CALL_BYTES: usize = 256;
/// Calls of qless with large answers in one transaction.
pub(crate) const TRANSACTION_WIDE_CALLS_MAX: usize = 16;
/// Calls with large answers of all connections that the shard works on at a time. More would only wait there.
pub(crate) const WIDE_CALLS_MAX: usize = 4;
/// Keys of one command that make its answer a large one.
pub(crate) const WIDE_KEYS: usize = 64;
/// Bytes of replies that need no call, in one transaction.
pub(crate) const LOCAL_REPLIES_BYTES_MAX: usize = 16 << 20;
/// Bytes of values that make one commit.
pub(crate) const BATCH_BYTES_MAX: usize = 8 << 20;
/// Bytes that a client may send behind a command that waits.
pub(crate) const BEHIND_WAIT_BYTES_MAX: usize = 1 << 20;
/// Lists that a command waits for.
pub(crate) const WAIT_LISTS_MAX: usize = 1_000;
/// Bytes of their names together.
pub(crate) const WAIT_NAMES_BYTES_MAX: usize = 128 << 10;
/// Commands of a transaction.
pub(crate) const QUEUED_COMMANDS_MAX: usize = 100_000;
/// Bytes of their arguments, with [`ARGUMENT_BYTES`] for each.
pub(crate) const QUEUED_BYTES_MAX: usize = FRAME_BYTES_MAX;
/// Elements that a connection took from work queues and that go back at its end if nobody has asked for them: the last
/// so many.
pub(crate) const POPPED_MAX: usize = 64;
/// Keys that a connection may watch.
pub(crate) const WATCHED_KEYS_MAX: usize = 10_000;
/// Channels and patterns that a connection may listen to.
pub(crate) const SUBSCRIPTIONS_MAX: usize = 10_000;
/// Bytes of messages that wait for a subscriber who does not read; past it the connection is cut.
pub(crate) const MAILBOX_BYTES_MAX: usize = 32 << 20;
/// Bytes of the name of a channel; patterns have [`ganger_types::limits::KEY_PATTERN_MAX`].
pub(crate) const CHANNEL_BYTES_MAX: usize = 1 << 10;
/// Bytes of the name of a client, of its library, and of the library's version.
pub(crate) const CLIENT_NAME_BYTES_MAX: usize = 256;
/// Bytes of an argument that an error shows.
pub(crate) const SHOWN_BYTES_MAX: usize = 128;
/// How often the rights of a connection are looked at again while it waits or listens, or sends commands: a token may
/// expire without any change.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Likewise while it does nothing at all.
pub(crate) const IDLE_LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long a client may take to read [`WRITE_BYTES`] before what it has not read counts in the budget.
pub(crate) const STALLED_AFTER: Duration = Duration::from_secs(2);
/// How long a client may take for [`PACE_BYTES`] of a command or transaction that is not complete and that counts in
/// the budget.
pub(crate) const PACE_EVERY: Duration = Duration::from_secs(30);
/// Bytes that it sends in that time at least.
pub(crate) const PACE_BYTES: usize = 64 << 10;
/// Largest expiry in milliseconds, counted from now or from 1970: about 30,000 years.
pub(crate) const EXPIRY_MILLIS_MAX: i64 = 1_000_000_000_000_000;
/// Scripts that are remembered by their digests; past it the oldest is forgotten, and its clients send it again.
#[cfg(feature = "qless")]
pub(crate) const SCRIPTS_MAX: usize = 128;
/// Bytes of a script that is looked at; what is longer is not known. The longest that is published has 100,000.
#[cfg(feature = "qless")]
pub(crate) const SCRIPT_BYTES_MAX: usize = 1 << 20;
