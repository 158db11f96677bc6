//! Converts a job of RQ into a job of ganger: its task, the retries that are left, its retention.

use std::io::Read as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::ZlibDecoder;
use ganger_client::{Backoff, KeepFor, NewJob, RetryPolicy};
use ganger_ngsi::job::{BACKOFF_MAX, KIND, LEASE_EXPIRATIONS_MAX, QUEUE};
use ganger_ngsi::labels;
use ganger_ngsi::task::{Origin, Task};
use ganger_types::limits::{MESSAGE_BYTES_MAX, RETRIES_MAX};
use serde_json::Value as Json;

use super::pickle::{Pickle, ValueIndex};
use crate::command::import::batch::RECORD_BYTES_MAX;

/// Fields that are read from the hash of a job.
pub(super) const FIELDS: [&str; 8] = [
    "data",
    "status",
    "origin",
    "result_ttl",
    "failure_ttl",
    "retries_left",
    "retry_intervals",
    "meta",
];
/// Maximum bytes of a decompressed call.
const UNPACKED_BYTES_MAX: usize = 16 << 20;
/// Name of the function that all tasks call, without its module, which differs between releases.
const FUNCTION: &str = "run_action";
/// Name of the class of their only argument, likewise without its module.
const CLASS: &str = "InsertAction";
/// Default seconds before a retry.
const PAUSE: u64 = 20;
/// QuantumLeap's default retention of a succeeded task, in seconds.
const KEEP_SUCCEEDED: u64 = 86_400;
/// QuantumLeap's default retention of a failed task, in seconds.
const KEEP_FAILED: u64 = 604_800;

/// Values of [`FIELDS`] in a job's hash, in that order; empty if absent.
pub(super) struct Fields(pub(super) Vec<ganger_client::Bytes>);

impl Fields {
    /// Returns the bytes of one of [`FIELDS`].
    pub(super) fn bytes(&self, name: &str) -> &[u8] {
        let at = FIELDS.iter().position(|field| *field == name);
        let value = at.and_then(|at| self.0.get(at));
        value.map_or(&b""[..], |value| value)
    }

    /// Returns a field as text; empty if it is not UTF-8.
    pub(super) fn text(&self, name: &str) -> &str {
        std::str::from_utf8(self.bytes(name)).unwrap_or_default()
    }
}

/// Returns the job of ganger, or the reason why it cannot be imported.
pub(super) fn job(id: &[u8], fields: &Fields) -> Result<NewJob, String> {
    let task = task(fields)?;
    let mut job = NewJob::new(KIND).queue(QUEUE);
    job.id = Some(uuid(id).ok_or("its id does not have the form of a QuantumLeap task")?);
    let payload = task.to_json();
    // The workers must be able to read the payload.
    Task::from_json(&payload).map_err(|error| format!("its entities cannot be stored: {error}"))?;
    job.payload = payload.into();
    let pairs = labels::of(&task.origin).into_iter();
    job.labels = pairs.map(|(key, value)| (key.to_owned(), value)).collect();
    job.retry = Some(retry(fields));
    job.keep_succeeded = Some(keep(fields.text("result_ttl"), KEEP_SUCCEEDED));
    job.keep_failed = Some(keep(fields.text("failure_ttl"), KEEP_FAILED));
    Ok(job)
}

/// Returns the UUID of a task: 32 hexadecimal digits, Base64-encoded in the last segment of its id.
fn uuid(id: &[u8]) -> Option<String> {
    let segment = id.rsplit(|byte| *byte == b':').next()?;
    let uuid = String::from_utf8(STANDARD.decode(segment).ok()?).ok()?;
    let is_uuid = uuid.len() == 32 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_uuid.then_some(uuid)
}

/// Returns the task that the job's call inserts.
fn task(fields: &Fields) -> Result<Task, String> {
    let call = unpacked(fields.bytes("data"))?;
    let unread = |wrong| format!("its call cannot be read: {wrong}");
    let pickle = Pickle::read(&call).map_err(unread)?;
    let action = action(&pickle)?;
    let input = pickle.attribute(action, "_input");
    let input = input.ok_or("its task has no input")?;
    let text = |name: &str| -> Option<String> {
        let index = pickle.attribute(input, name)?;
        pickle.text(index).map(str::to_owned)
    };
    let payload = pickle.attribute(input, "payload");
    let payload = payload.ok_or("its task has no entities")?;
    let payload = pickle.json(payload, RECORD_BYTES_MAX).map_err(unread)?;
    let Json::Array(entities) = payload else {
        return Err("its entities are not a list".to_owned());
    };
    let entities = entities.into_iter().map(|entity| match entity {
        Json::Object(entity) => Ok(entity),
        _ => Err("an entity is not an object".to_owned()),
    });
    Ok(Task {
        origin: Origin {
            tenant: text("fiware_service"),
            service_path: text("fiware_service_path"),
            correlator: text("fiware_correlator"),
        },
        payload: entities.collect::<Result<_, _>>()?,
    })
}

/// Decompresses a call. RQ also accepts calls that are not compressed.
fn unpacked(data: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = u64::try_from(UNPACKED_BYTES_MAX + 1).unwrap_or(u64::MAX);
    let read = ZlibDecoder::new(data).take(most).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() > UNPACKED_BYTES_MAX => Err(format!(
            "its call has more than {} MiB unpacked",
            UNPACKED_BYTES_MAX >> 20
        )),
        Ok(_) => Ok(bytes),
        // No compressed data starts with the first opcode of a pickle.
        Err(_) if data.first() == Some(&0x80) => Ok(data.to_vec()),
        Err(error) => Err(format!("its call cannot be unpacked: {error}")),
    }
}

/// Returns the only argument of the call, which must be QuantumLeap's insert action.
fn action(pickle: &Pickle<'_>) -> Result<ValueIndex, String> {
    let &[function, _, arguments, _] = pickle.elements(pickle.top()) else {
        return Err("its data is not a call of RQ".to_owned());
    };
    let function = pickle.text(function).unwrap_or_default();
    let action = pickle.elements(arguments).first().copied();
    let class = action.and_then(|action| pickle.class(action));
    let is_insert = function.rsplit('.').next() == Some(FUNCTION)
        && class.is_some_and(|(_, name)| name == CLASS);
    let not_one = || {
        let name: String = function.chars().take(100).collect();
        format!("it calls {name:?}: only inserts of QuantumLeap are imported")
    };
    action.filter(|_| is_insert).ok_or_else(not_one)
}

/// Returns the retry policy: the retries that are left, starting with the next pause.
fn retry(fields: &Fields) -> RetryPolicy {
    let left: u32 = fields.text("retries_left").parse().unwrap_or(0);
    let pauses: Vec<u64> =
        serde_json::from_slice(fields.bytes("retry_intervals")).unwrap_or_default();
    let left_pauses = usize::try_from(left).unwrap_or(usize::MAX);
    let next = pauses.get(pauses.len().saturating_sub(left_pauses));
    let next = next.copied().unwrap_or(PAUSE);
    RetryPolicy {
        retries_max: left.min(RETRIES_MAX),
        backoff: Backoff::Exponential {
            base: Duration::from_secs(next).min(BACKOFF_MAX),
            cap: BACKOFF_MAX,
        },
        lease_expirations_max: Some(LEASE_EXPIRATIONS_MAX),
        ..RetryPolicy::default()
    }
}

/// Converts a time to live in seconds; a negative one is forever.
fn keep(text: &str, default: u64) -> KeepFor {
    match text.parse::<i64>() {
        Ok(seconds) => u64::try_from(seconds).map_or(KeepFor::Ever, |seconds| {
            KeepFor::Time(Duration::from_secs(seconds))
        }),
        Err(_) => KeepFor::Time(Duration::from_secs(default)),
    }
}

/// Returns the last error that QuantumLeap recorded for a task.
pub(super) fn last_error(fields: &Fields) -> String {
    let noted = || {
        let pickle = Pickle::read(fields.bytes("meta")).ok()?;
        let errors = pickle.entry(pickle.top(), "exceptions")?;
        pickle.exception(*pickle.elements(errors).last()?, MESSAGE_BYTES_MAX)
    };
    let mut error = noted().unwrap_or_else(|| "it had failed in RQ before the import".to_owned());
    error.truncate(error.floor_char_boundary(MESSAGE_BYTES_MAX));
    error
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::Duration;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;
    use ganger_client::{Backoff, Bytes, KeepFor};

    use super::{FIELDS, Fields, UNPACKED_BYTES_MAX, job, keep, last_error, retry, task, uuid};

    fn fields(pairs: &[(&str, &[u8])]) -> Fields {
        let value = |field: &&str| {
            let pair = pairs.iter().find(|(name, _)| name == field);
            pair.map_or_else(Bytes::new, |(_, value)| Bytes::copy_from_slice(value))
        };
        Fields(FIELDS.iter().map(value).collect())
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::best());
        packed.write_all(bytes).expect("memory takes it");
        packed.finish().expect("memory takes it")
    }

    /// Returns the pickled call of an insert; `entities` are the opcodes that make its entities.
    fn call(entities: &[u8]) -> Vec<u8> {
        let text = |text: &str| {
            let size = u8::try_from(text.len()).expect("it is short");
            [&[0x8c, size][..], text.as_bytes()].concat()
        };
        let parts: [&[u8]; 12] = [
            b"\x80\x04(",
            &text("wq.core.task.run_action"),
            b"Ncwq.ql.notify\nInsertAction\n)\x81}",
            &text("_input"),
            b"cwq.ql.notify\nInsertActionInput\n)\x81}",
            &text("__dict__"),
            b"}",
            &text("payload"),
            entities,
            b"ssb",
            b"sb\x85}",
            b"t.",
        ];
        parts.concat()
    }

    const ID: &[u8] = b"\"\":Lw==:\"\":Mjc0ODQ0MzViZTFkNGMwOWFlOTQ3ZDY3ZjhmMjk4OTg=";

    #[test]
    fn an_insert_becomes_a_job_that_the_workers_read() {
        for data in [packed(&call(b"]}a")), call(b"]}a")] {
            let job = job(ID, &fields(&[("data", &data)])).expect("a job");
            assert_eq!(job.id.as_deref(), Some("27484435be1d4c09ae947d67f8f29898"));
            assert_eq!((&*job.queue, &*job.kind), ("quantumleap", "ngsi-insert"));
            let document = r#"{"fiware_service":null,"fiware_service_path":"/","fiware_correlator":null,"payload":[{}]}"#;
            assert_eq!(job.payload, document);
            assert_eq!(job.labels, [("scope".to_owned(), "\"\":Lw==".to_owned())]);
        }
    }

    #[test]
    fn a_job_that_is_not_an_insert_is_refused_with_the_reason() {
        // The JSON reader accepts at most 128 levels.
        let deep = [&b"}"[..], &b"]".repeat(121), &b"a".repeat(120)].concat();
        let deep = [&b"]}\x8c\x01a"[..], &deep[1..], b"sa"].concat();
        let bomb = packed(&vec![b'N'; UNPACKED_BYTES_MAX + 1]);
        for (data, because) in [
            (&b"no zlib"[..], "cannot be unpacked"),
            (&packed(b"x")[..4], "cannot be unpacked"),
            (&packed(b"garbage"), "cannot be read"),
            (&bomb, "more than 16 MiB unpacked"),
            (&packed(b"\x80\x04N."), "not a call of RQ"),
            (&packed(b"(X\x06\0\0\0a.b.cdN)}t."), "it calls \"a.b.cd\""),
            (&packed(&call(b"N")), "not a list"),
            (&packed(&call(b"]Na")), "an entity is not an object"),
            (&packed(&call(&deep)), "levels"),
            (&packed(&call(b"]}\x8c\x01aC\x01xsa")), "bytes or a set"),
        ] {
            let wrong = job(ID, &fields(&[("data", data)])).expect_err(because);
            assert!(wrong.contains(because), "{because}: {wrong}");
        }
        let data = packed(&call(b"]"));
        for id in [&b""[..], b"x", b"a:b:c:d", b"eA=="] {
            let wrong = job(id, &fields(&[("data", &data)])).expect_err("no id");
            assert!(wrong.contains("its id"), "{wrong}");
        }
        assert!(task(&fields(&[])).is_err());
        assert_eq!(uuid(ID).map(|uuid| uuid.len()), Some(32));
    }

    #[test]
    fn retries_continue_with_the_next_pause() {
        for (left, pause) in [
            (&b"3"[..], 20),
            (b"1", 80),
            (b"0", 20),
            (b"9", 20),
            (b"-1", 20),
        ] {
            let pairs: [(&str, &[u8]); 2] =
                [("retries_left", left), ("retry_intervals", b"[20, 40, 80]")];
            let policy = retry(&fields(&pairs));
            let Backoff::Exponential { base, .. } = policy.backoff else {
                panic!("{policy:?}");
            };
            assert_eq!(base, Duration::from_secs(pause), "{left:?}");
        }
    }

    #[test]
    fn retentions_are_those_of_rq() {
        assert_eq!(keep("-1", 5), KeepFor::Ever);
        assert_eq!(keep("0", 5), KeepFor::Time(Duration::ZERO));
        assert_eq!(keep("", 5), KeepFor::Time(Duration::from_secs(5)));
    }

    #[test]
    fn the_last_recorded_error_becomes_the_failure() {
        let meta = b"\x80\x04}\x8c\x0aexceptions](cb\nA\n)Rcb\nB\nK\x01\x85Res.";
        assert_eq!(last_error(&fields(&[("meta", meta)])), "B(1)");
        for meta in [&b""[..], b"garbage", b"\x80\x04N."] {
            let error = last_error(&fields(&[("meta", meta)]));
            assert!(error.contains("failed in RQ"), "{error}");
        }
    }
}
