//! Parts of submissions over several shards.

use ganger_types::name::IdempotencyKey;
use ganger_types::peer::PartAnswer;
use ganger_types::{
    Dependent, Graph, IdTag, JobId, JobKey, Namespace, Part, PartRecord, ShardId, Timestamp,
};

use super::new_job::{read_new_job, write_new_job};
use super::peer::{read_bits, read_shard, write_bits, write_shard};
use super::{Cursor, DecodeError, Record, Writer};

/// The version from which a part with its jobs tells their fingerprints.
const WITH_PRINTS: u8 = 3;
/// The version from which the key of a part tells which jobs existed.
const WITH_EXISTED: u8 = 2;

/// An id made from a number and a mark has room for those below these.
const MADE_KEYS: u64 = 1 << 40;
const ID_TAGS: u32 = 1 << 20;

impl Record for PartRecord {
    const VERSION: u8 = WITH_EXISTED;
    const WHAT: &'static str = "part";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.graph.as_bytes());
        write_shard(out, &self.decider);
        out.length(self.shards.len());
        self.shards.iter().for_each(|shard| write_shard(out, shard));
        out.number(self.first.0);
        out.number(u64::from(self.count));
        out.number(u64::from(self.id_tag.0));
        write_ids(out, &self.given);
        write_ids(out, &self.outside);
        out.number(self.prepared_at.0);
        out.flag(self.is_committed);
        out.option(self.cancelled.as_ref(), |out, why| {
            out.bytes(why.as_bytes());
        });
        out.option(self.answer.as_ref(), write_answer);
    }

    fn read(version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let namespace = from.name(Namespace::new)?;
        let graph = from.name(Graph::new)?;
        let decider = read_shard(from)?;
        let shards = from.list(read_shard)?;
        let first = JobKey(from.number()?);
        let count: u32 = from.small()?;
        let end = first.0.checked_add(u64::from(count));
        if end.is_none_or(|end| end > MADE_KEYS) {
            return Err(from.error("has jobs with numbers that no id can tell"));
        }
        Ok(Self {
            namespace,
            graph,
            decider,
            shards,
            first,
            count,
            id_tag: read_id_tag(from)?,
            given: read_ids(from)?,
            outside: read_ids(from)?,
            prepared_at: Timestamp(from.number()?),
            is_committed: from.flag()?,
            cancelled: from.option(|from| from.text().map(str::to_owned))?,
            answer: from.option(|from| read_answer(version, from))?,
        })
    }
}

impl Record for Part {
    // The second tells the names of jobs.
    const VERSION: u8 = WITH_PRINTS;
    const WHAT: &'static str = "part with its jobs";

    fn write(&self, out: &mut Writer<'_>) {
        self.record.write(out);
        out.length(self.jobs.len());
        self.jobs.iter().for_each(|job| write_new_job(out, job));
        out.length(self.dependents.len());
        for (place, dependent) in &self.dependents {
            out.number(u64::from(*place));
            dependent.write(out);
        }
        out.length(self.prints.len());
        self.prints.iter().for_each(|print| write_bits(out, *print));
    }

    fn read(version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let version_of_record = if version < WITH_PRINTS {
            1
        } else {
            PartRecord::VERSION
        };
        let record = PartRecord::read(version_of_record, from)?;
        let jobs = from.list(|from| read_new_job(version, from))?;
        if usize::try_from(record.count) != Ok(jobs.len()) {
            return Err(from.error("has another number of jobs than it says"));
        }
        let dependents = from.list(|from| {
            let place: u32 = from.small()?;
            if place >= record.count {
                return Err(from.error("has a dependent of a job beyond its last"));
            }
            Ok((place, Dependent::read(Dependent::VERSION, from)?))
        })?;
        let prints = if version < WITH_PRINTS {
            Vec::new()
        } else {
            from.list(read_bits)?
        };
        if !prints.is_empty() && prints.len() != jobs.len() {
            return Err(from.error("has another number of fingerprints than of jobs"));
        }
        Ok(Self {
            record,
            jobs,
            prints,
            dependents,
        })
    }
}

fn write_ids(out: &mut Writer<'_>, ids: &[(JobKey, JobId)]) {
    out.length(ids.len());
    for (key, id) in ids {
        out.number(key.0);
        out.bytes(id.as_bytes());
    }
}

fn read_ids(from: &mut Cursor<'_>) -> Result<Vec<(JobKey, JobId)>, DecodeError> {
    from.list(|from| Ok((JobKey(from.number()?), from.name(JobId::new)?)))
}

fn read_id_tag(from: &mut Cursor<'_>) -> Result<IdTag, DecodeError> {
    let tag = from.small()?;
    if tag >= ID_TAGS {
        return Err(from.error("has a start that no id can tell"));
    }
    Ok(IdTag(tag))
}

fn write_answer(out: &mut Writer<'_>, answer: &PartAnswer) {
    out.bytes(answer.key.as_bytes());
    write_bits(out, answer.fingerprint);
    out.length(answer.numbers.len());
    for (shard, first, tag) in &answer.numbers {
        write_shard(out, shard);
        out.number(first.0);
        out.number(u64::from(tag.0));
    }
    out.length(answer.existed.len());
    let existed = answer.existed.iter();
    existed.for_each(|place| out.number(u64::from(*place)));
}

fn read_answer(version: u8, from: &mut Cursor<'_>) -> Result<PartAnswer, DecodeError> {
    Ok(PartAnswer {
        key: from.name(IdempotencyKey::new)?,
        fingerprint: read_bits(from)?,
        numbers: from.list(read_numbers)?,
        existed: if version < WITH_EXISTED {
            Vec::new()
        } else {
            from.list(Cursor::small)?
        },
    })
}

fn read_numbers(from: &mut Cursor<'_>) -> Result<(ShardId, JobKey, IdTag), DecodeError> {
    let shard = read_shard(from)?;
    let first = JobKey(from.number()?);
    if first.0 >= MADE_KEYS {
        return Err(from.error("has jobs with numbers that no id can tell"));
    }
    Ok((shard, first, read_id_tag(from)?))
}

#[cfg(test)]
mod tests {
    use ganger_types::command::NewJob;
    use ganger_types::{JobName, Kind};

    use super::*;

    #[test]
    fn a_job_of_a_part_of_the_first_version_reads_as_one_without_a_name() {
        let job = NewJob {
            kind: Kind::from_static("k"),
            ..NewJob::default()
        };
        let mut bytes = Vec::new();
        write_new_job(&mut Writer::new(&mut bytes), &job);
        let mut old = Cursor::new(&bytes[..bytes.len() - 1], Part::WHAT);
        assert_eq!(read_new_job(1, &mut old).expect("it reads"), job);
        let named = NewJob {
            name: Some(JobName::from_static("count-01")),
            ..job
        };
        let mut bytes = Vec::new();
        write_new_job(&mut Writer::new(&mut bytes), &named);
        let mut new = Cursor::new(&bytes, Part::WHAT);
        assert_eq!(read_new_job(2, &mut new).expect("it reads"), named);
    }
}
