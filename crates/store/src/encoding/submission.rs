//! Submissions on their way to the server of another shard.

use ganger_types::command::Enqueue;
use ganger_types::{IdempotencyKey, Namespace};

use super::new_job::{NEW_JOB, read_new_job, write_new_job};
use super::{Cursor, DecodeError, Record, Writer};

impl Record for Enqueue {
    const WHAT: &'static str = "submission";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.option(self.idempotency_key.as_ref(), |out, key| {
            out.bytes(key.as_bytes());
        });
        out.flag(self.graph);
        out.length(self.jobs.len());
        self.jobs.iter().for_each(|job| write_new_job(out, job));
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            namespace: from.name(Namespace::new)?,
            idempotency_key: from.option(|from| from.name(IdempotencyKey::new))?,
            graph: from.flag()?,
            jobs: from.list(|from| read_new_job(NEW_JOB, from))?,
        })
    }
}
