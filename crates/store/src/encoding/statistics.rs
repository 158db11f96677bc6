//! Statistics of a queue and day.

use ganger_types::{Day, Namespace, Queue, Sample, StatisticsRecord};

use super::{Cursor, DecodeError, Record, Writer};

impl Record for StatisticsRecord {
    const WHAT: &'static str = "statistics";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.queue.as_bytes());
        out.number(u64::from(self.day.0));
        out.signed(self.failed);
        out.number(self.failures);
        out.number(self.retries);
        write_sample(out, &self.waiting);
        write_sample(out, &self.running);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            namespace: from.name(Namespace::new)?,
            queue: from.name(Queue::new)?,
            day: Day(from.small()?),
            failed: from.signed()?,
            failures: from.number()?,
            retries: from.number()?,
            waiting: read_sample(from)?,
            running: read_sample(from)?,
        })
    }
}

fn write_sample(out: &mut Writer<'_>, sample: &Sample) {
    out.number(sample.count);
    out.float(sample.mean);
    out.float(sample.vk);
    out.length(sample.histogram.len());
    for (bin, count) in &sample.histogram {
        out.number(u64::from(*bin));
        out.number(*count);
    }
}

fn read_sample(from: &mut Cursor<'_>) -> Result<Sample, DecodeError> {
    Ok(Sample {
        count: from.number()?,
        mean: from.float()?,
        vk: from.float()?,
        histogram: from.list(|from| Ok((from.small()?, from.number()?)))?,
    })
}
