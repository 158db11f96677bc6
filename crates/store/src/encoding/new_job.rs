//! New jobs, in parts of a submission over several shards and in submissions that are forwarded to another server.

use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput, NewJob, Start, Unique};

use super::field::{Field, Form, choice, fields, record};
use super::{Cursor, DecodeError, Writer};

/// Version of the layout of new jobs: the first with names.
const NEW_JOB: u8 = 2;

fields!(NewJob {
    id,
    queue,
    kind,
    payload,
    inputs,
    after,
    priority,
    start,
    deadline,
    timeout,
    retry,
    tags,
    labels,
    tracked,
    unique,
    keep_succeeded,
    keep_failed,
    name since 2 or None,
});

fields!(Unique { key, window });

choice!(NewInput, "has an unknown kind of input" {
    1 Value(value)
    2 Result(edge)
});

fields!(NewEdge { dependency, policy });

choice!(Dependency, "has an unknown kind of dependency" {
    1 Member(place)
    2 Job(id)
    3 Remote { job, is_member }
});

choice!(Start, "has an unknown kind of start" {
    1 Now {}
    2 After(pause)
    3 At(at)
});

/// The encoding of new jobs in the newest layout, whatever the version of the record around them.
struct NewestLayout;

impl Form<Vec<NewJob>> for NewestLayout {
    fn put(field: &Vec<NewJob>, out: &mut Writer<'_>) {
        field.put(out);
    }

    fn take(from: &mut Cursor<'_>) -> Result<Vec<NewJob>, DecodeError> {
        from.in_version(NEW_JOB, Field::take)
    }
}

record!("submission", version 1, Enqueue {
    namespace,
    idempotency_key,
    graph,
    jobs as NewestLayout,
});

#[cfg(test)]
mod tests {
    use ganger_types::{JobName, Kind};

    use super::*;

    fn written(job: &NewJob) -> Vec<u8> {
        let mut bytes = Vec::new();
        job.put(&mut Writer::new(&mut bytes));
        bytes
    }

    #[test]
    fn a_job_of_the_first_layout_reads_as_one_without_a_name() {
        let job = NewJob {
            kind: Kind::from_static("k"),
            ..NewJob::default()
        };
        let bytes = written(&job);
        let mut old = Cursor::new(&bytes[..bytes.len() - 1], "part");
        assert_eq!(old.in_version(1, NewJob::take).expect("it reads"), job);
        let named = NewJob {
            name: Some(JobName::from_static("count-01")),
            ..job
        };
        let bytes = written(&named);
        let mut new = Cursor::new(&bytes, "part");
        assert_eq!(new.in_version(2, NewJob::take).expect("it reads"), named);
    }
}
