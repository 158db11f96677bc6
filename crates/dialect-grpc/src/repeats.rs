//! Which calls can be sent again without doing anything twice.

use ganger_proto::v1;
use prost::Message as _;

use crate::continued::first_message;

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

/// Whether a method submits jobs, so that its first message may have an idempotency key.
pub fn is_submission(path: &str) -> bool {
    [ENQUEUE, SUBMIT_GRAPH].contains(&path)
}

/// Whether the first message of a submission, as bytes on the wire, has an idempotency key. The ids of its jobs are none: a
/// job that is not kept once it has ended would be made a second time. A compressed message is not looked into.
pub fn has_key(path: &str, body: &[u8]) -> bool {
    let Some(message) = first_message(body) else {
        return false;
    };
    match path {
        ENQUEUE => v1::EnqueueRequest::decode(message)
            .is_ok_and(|request| !request.idempotency_key.is_empty()),
        SUBMIT_GRAPH => {
            v1::GraphPart::decode(message).is_ok_and(|part| !part.idempotency_key.is_empty())
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::continued::framed;

    fn request(key: &str) -> Vec<u8> {
        let request = v1::EnqueueRequest {
            idempotency_key: key.to_owned(),
            ..v1::EnqueueRequest::default()
        };
        framed(&request.encode_to_vec()).to_vec()
    }

    #[test]
    fn a_key_is_seen_in_the_first_message_of_a_submission() {
        assert!(has_key(ENQUEUE, &request("k")));
        assert!(!has_key(ENQUEUE, &request("")));
        assert!(!has_key("/ganger.v1.Jobs/Cancel", &request("k")));
        let part = v1::GraphPart {
            idempotency_key: "k".to_owned(),
            ..v1::GraphPart::default()
        };
        let mut parts = framed(&part.encode_to_vec()).to_vec();
        parts.extend(framed(&v1::GraphPart::default().encode_to_vec()));
        assert!(has_key(SUBMIT_GRAPH, &parts));
    }

    #[test]
    fn a_part_of_a_message_and_a_compressed_one_have_none() {
        let whole = request("k");
        for end in 0..whole.len() {
            let part = whole.get(..end).expect("it is within");
            assert!(!has_key(ENQUEUE, part), "{end} bytes");
        }
        let mut compressed = whole;
        compressed[0] = 1;
        assert!(!has_key(ENQUEUE, &compressed));
    }
}
