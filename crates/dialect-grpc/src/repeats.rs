//! Which calls can be sent again without doing anything twice.

use ganger_proto::v1;
use prost::Message as _;

use crate::continued::all_messages;

const ENQUEUE: &str = "/ganger.v1.Jobs/Enqueue";
const SUBMIT_GRAPH: &str = "/ganger.v1.Jobs/SubmitGraph";
/// The reports about leased jobs. The token tells the owner of the job that it has one already (`rel L7`).
const REPORTS: [&str; 4] = [
    "/ganger.v1.Leases/Complete",
    "/ganger.v1.Leases/Fail",
    "/ganger.v1.Leases/Release",
    "/ganger.v1.Leases/Renew",
];

/// Whether the call of a method, such as `/ganger.v1.Leases/Complete`, is a report about a leased job, which can be sent
/// again whatever its messages are.
pub fn is_report(path: &str) -> bool {
    REPORTS.contains(&path)
}

/// Whether a method submits jobs, so that its messages may tell that the call can be sent again.
pub fn is_submission(path: &str) -> bool {
    [ENQUEUE, SUBMIT_GRAPH].contains(&path)
}

/// Whether the messages of a submission, as bytes on the wire, have an idempotency key, or an id for each job. A compressed
/// message is not looked into.
pub fn has_key(path: &str, body: &[u8]) -> bool {
    let Some(messages) = all_messages(body) else {
        return false;
    };
    match path {
        ENQUEUE => messages
            .first()
            .is_some_and(|only| is_repeatable_request(only)),
        SUBMIT_GRAPH => is_repeatable_graph(&messages),
        _ => false,
    }
}

/// Whether an `EnqueueRequest` has an idempotency key, or an id for each job: it makes no job twice then.
pub(crate) fn is_repeatable_request(encoded: &[u8]) -> bool {
    v1::EnqueueRequest::decode(encoded)
        .is_ok_and(|request| !request.idempotency_key.is_empty() || have_ids(&request.jobs))
}

/// Whether the parts of a graph have an idempotency key, which stands in the first, or an id for each job.
fn is_repeatable_graph(encoded: &[&[u8]]) -> bool {
    let parts = encoded.iter().map(|part| v1::GraphPart::decode(*part));
    let parts: Result<Vec<_>, _> = parts.collect();
    let Some((first, parts)) = parts.as_ref().ok().and_then(|parts| parts.split_first()) else {
        return false;
    };
    !first.idempotency_key.is_empty()
        || (have_ids(&first.jobs) && parts.iter().all(|part| have_ids(&part.jobs)))
}

fn have_ids(jobs: &[v1::NewJob]) -> bool {
    jobs.iter().all(|job| job.id.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continued::framed;

    fn job(id: &str) -> v1::NewJob {
        v1::NewJob {
            id: (!id.is_empty()).then(|| id.to_owned()),
            ..v1::NewJob::default()
        }
    }

    fn request(key: &str, ids: &[&str]) -> Vec<u8> {
        let request = v1::EnqueueRequest {
            idempotency_key: key.to_owned(),
            jobs: ids.iter().map(|id| job(id)).collect(),
            ..v1::EnqueueRequest::default()
        };
        framed(&request.encode_to_vec()).to_vec()
    }

    fn part(key: &str, ids: &[&str]) -> Vec<u8> {
        let part = v1::GraphPart {
            idempotency_key: key.to_owned(),
            jobs: ids.iter().map(|id| job(id)).collect(),
            ..v1::GraphPart::default()
        };
        framed(&part.encode_to_vec()).to_vec()
    }

    #[test]
    fn a_key_or_the_ids_of_all_jobs_are_seen() {
        assert!(has_key(ENQUEUE, &request("k", &[""])));
        assert!(has_key(ENQUEUE, &request("", &["a", "b"])));
        assert!(!has_key(ENQUEUE, &request("", &["a", ""])));
        let graph = |first: Vec<u8>, second: Vec<u8>| [first, second].concat();
        for (body, expected) in [
            (graph(part("k", &[""]), part("", &[""])), true),
            (graph(part("", &["a"]), part("", &["b"])), true),
            (graph(part("", &["a"]), part("", &[""])), false),
            (Vec::new(), false),
        ] {
            assert_eq!(has_key(SUBMIT_GRAPH, &body), expected, "{body:?}");
        }
    }

    #[test]
    fn a_part_of_a_message_and_a_compressed_one_have_none() {
        let whole = request("k", &["a"]);
        for end in 0..whole.len() {
            let part = whole.get(..end).expect("it is within");
            assert!(!has_key(ENQUEUE, part), "{end} bytes");
        }
        let mut compressed = whole;
        compressed[0] = 1;
        assert!(!has_key(ENQUEUE, &compressed));
    }
}
