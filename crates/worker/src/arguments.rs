//! Arguments and results of programs: JSON values.

use bytes::Bytes;
use ganger_client::Delivery;
use serde::de::IgnoredAny;

use crate::text::excerpt;

/// Bytes of a bad value that a message shows.
const SHOWN_BYTES_MAX: usize = 200;

/// Returns the JSON list of a job's arguments, in order and byte for byte as stored.
///
/// The arguments are the positional inputs if the job has any. Otherwise the payload is the only argument, or there
/// is none if the payload is empty.
///
/// # Errors
/// A sentence that names the argument that is not JSON.
pub(crate) fn list(job: &Delivery) -> Result<Vec<u8>, String> {
    if job.inputs.is_empty() {
        if job.payload.is_empty() {
            return Ok(b"[]".to_vec());
        }
        check(&job.payload).map_err(|error| format!("the payload is not JSON: {error}"))?;
        return Ok(join(std::slice::from_ref(&job.payload)));
    }
    for (place, input) in job.inputs.iter().enumerate() {
        check(input).map_err(|error| format!("input {place} is not JSON: {error}"))?;
    }
    Ok(join(&job.inputs))
}

/// Returns the single JSON value that a program wrote; empty output is `null`.
///
/// # Errors
/// A sentence that shows the first bytes of what is not JSON.
pub(crate) fn result(output: &[u8]) -> Result<Bytes, String> {
    let value = output.trim_ascii();
    if value.is_empty() {
        return Ok(Bytes::from_static(b"null"));
    }
    check(value).map_err(|error| format!("standard output is not one JSON value: {error}"))?;
    Ok(Bytes::copy_from_slice(value))
}

fn check(value: &[u8]) -> Result<(), String> {
    match serde_json::from_slice::<IgnoredAny>(value) {
        Ok(_) if std::str::from_utf8(value).is_ok() => Ok(()),
        Ok(_) => Err(format!(
            "it is not UTF-8; it begins {}",
            excerpt(value, SHOWN_BYTES_MAX)
        )),
        Err(error) => Err(format!(
            "{error}; it begins {}",
            excerpt(value, SHOWN_BYTES_MAX)
        )),
    }
}

fn join(values: &[Bytes]) -> Vec<u8> {
    let mut list =
        Vec::with_capacity(2 + values.iter().map(|value| value.len() + 1).sum::<usize>());
    list.push(b'[');
    for (place, value) in values.iter().enumerate() {
        if place > 0 {
            list.push(b',');
        }
        list.extend_from_slice(value);
    }
    list.push(b']');
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_output_is_null() {
        assert_eq!(result(b" \n").as_deref(), Ok(b"null".as_slice()));
    }

    #[test]
    fn a_result_is_kept_as_written_without_surrounding_space() {
        assert_eq!(
            result(b"\n {\"a\":  1e400}\n").as_deref(),
            Ok(b"{\"a\":  1e400}".as_slice())
        );
    }

    #[test]
    fn an_output_that_is_not_one_value_is_shown() {
        for bad in [b"hello".as_slice(), b"1 2", b"{\"a\":}", b"\"\xff\""] {
            let error = result(bad).expect_err("not one JSON value");
            assert!(error.contains("it begins"), "{error}");
        }
    }

    #[test]
    fn deep_nesting_is_a_value_like_any_other() {
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        assert!(result(&deep).is_ok());
    }
}
