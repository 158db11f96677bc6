//! The single row of the table `meta`: the shard, the last commit, and row counts.

use ganger_store::encoding::{Cursor, DecodeError, Record, Writer};
use ganger_store::rows::counts::Counts;
use ganger_store::rows::row::{open_record, seal_record, to_sql};
use ganger_types::{Epoch, Meta, ShardId};
use rusqlite::{Connection, OptionalExtension};

use crate::fault::Fault;
use crate::turns::LogSize;

const TABLE: &str = "meta";
const PLACE: &[u8] = b"store";

/// The state of the store as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) shard: String,
    /// Random bytes chosen when the store was created; they tie the turn log to it.
    pub(crate) identity: [u8; 16],
    pub(crate) epoch: Epoch,
    pub(crate) sequence: u64,
    pub(crate) meta: Meta,
    pub(crate) counts: Counts,
    /// Size of the turn log, whose commits the tables may lack; no segments if the store has none.
    pub(crate) log: LogSize,
}

impl Record for Header {
    const VERSION: u8 = 3;
    const WHAT: &'static str = "store";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.shard.as_bytes());
        out.raw(&self.identity);
        out.number(self.epoch.0);
        out.number(self.sequence);
        self.meta.write(out);
        self.counts.write(out);
        out.number(self.log.segments.into());
        out.number(self.log.segment_bytes);
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            shard: from.text()?.to_owned(),
            identity: from.raw(16)?.try_into().expect("sixteen bytes were taken"),
            epoch: Epoch(from.number()?),
            sequence: from.number()?,
            meta: from.in_version(Meta::VERSION, Meta::read)?,
            counts: Counts::read(from)?,
            log: read_log(from)?,
        })
    }
}

/// Reads the size of the turn log. Version 2 only says whether there is one; version 1 knows none.
fn read_log(from: &mut Cursor<'_>) -> Result<LogSize, DecodeError> {
    match from.version() {
        2 if from.flag()? => Ok(LogSize::FORMAT_7),
        1 | 2 => Ok(LogSize::default()),
        _ => Ok(LogSize {
            segments: from.small()?,
            segment_bytes: from.number()?,
        }),
    }
}

impl Header {
    /// Returns the header of an empty store.
    pub(crate) fn new(shard: &ShardId, identity: [u8; 16]) -> Self {
        Self {
            shard: shard.as_str().to_owned(),
            identity,
            epoch: Epoch(0),
            sequence: 0,
            meta: Meta::default(),
            counts: Counts::default(),
            log: LogSize::default(),
        }
    }

    /// Writes the first header of a new store.
    pub(crate) fn create(connection: &Connection, shard: &ShardId) -> Result<(), Fault> {
        let identity = connection.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
        let header = Self::new(shard, identity);
        let mut body = Vec::new();
        seal_record(TABLE, PLACE, &header, &mut body);
        let sql = "INSERT INTO meta (one, shard, epoch, sequence, body) VALUES (1, ?1, 0, 0, ?2)";
        connection.execute(sql, (&header.shard, &body))?;
        Ok(())
    }

    /// Reads the header; `None` if the row is missing.
    pub(crate) fn find(connection: &Connection) -> Result<Option<Self>, Fault> {
        let mut statement =
            connection.prepare_cached("SELECT epoch, sequence, body FROM meta WHERE one = 1")?;
        let row = statement
            .query_row([], |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, Vec<u8>>(2)?,
                ))
            })
            .optional()?;
        let Some((epoch, sequence, body)) = row else {
            return Ok(None);
        };
        let header: Self = open_record(TABLE, PLACE, &body)?;
        if (to_sql(header.epoch.0), to_sql(header.sequence)) != (epoch, sequence) {
            return Err(Fault::row(
                TABLE,
                "1",
                "its columns do not match its content",
            ));
        }
        Ok(Some(header))
    }

    /// Reads the header from the database.
    pub(crate) fn read_from(connection: &Connection) -> Result<Self, Fault> {
        let missing = || {
            Fault::row(
                TABLE,
                "1",
                "it is missing: whose store this is is not known",
            )
        };
        Self::find(connection)?.ok_or_else(missing)
    }

    /// Replaces the header `old`; returns false if the stored one differs from `old`.
    pub(crate) fn replace(&self, connection: &Connection, old: &Self) -> Result<bool, Fault> {
        let mut body = Vec::with_capacity(96);
        seal_record(TABLE, PLACE, self, &mut body);
        let mut statement = connection.prepare_cached(
            "UPDATE meta SET epoch = ?1, sequence = ?2, body = ?3
             WHERE one = 1 AND epoch = ?4 AND sequence = ?5",
        )?;
        let changed = statement.execute((
            to_sql(self.epoch.0),
            to_sql(self.sequence),
            &body,
            to_sql(old.epoch.0),
            to_sql(old.sequence),
        ))?;
        Ok(changed == 1)
    }
}
