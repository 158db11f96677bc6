//! The environment of a program: a few standard variables, its job, and the variables that the settings pass on. No
//! other variable of the worker is visible (`rel S3`).
//!
//! `GANGER_TASK_ID`, `GANGER_METHOD` and `GANGER_SERVER` are the names of enq, for programs that were written for it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use ganger_client::Delivery;

use crate::{Error, Settings};

/// Names that are never passed on, even if asked for.
const SECRET: [&str; 2] = ["GANGER_TOKEN", "GANGER_TOKEN_FILE"];

/// The variables that are the same for all runs of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Environment {
    common: Vec<CString>,
}

impl Environment {
    /// Collects the variables from the worker's settings and its own environment.
    ///
    /// # Errors
    /// If a variable to be passed on is a secret.
    pub(crate) fn new(settings: &Settings, worker: &str) -> Result<Self, Error> {
        // Of the nodes of a cluster, the first: programs call one address.
        let first = settings.server.url.split(',').next().unwrap_or_default();
        let server = without_user(first.trim());
        let mut common = vec![
            inherited(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            ),
            inherited("LANG", "C.UTF-8"),
            variable("GANGER_URL", server.as_bytes()),
            variable("GANGER_SERVER", server.as_bytes()),
            variable("GANGER_NAMESPACE", settings.server.namespace.as_bytes()),
            variable("GANGER_WORKER", worker.as_bytes()),
        ];
        for name in &settings.pass_env {
            if SECRET.contains(&name.as_str()) {
                return Err(Error::SecretVariable { name: name.clone() });
            }
            if let Some(value) = std::env::var_os(name) {
                common.push(variable(name, value.as_bytes()));
            }
        }
        Ok(Self { common })
    }

    /// Returns the variables for a program in its working directory.
    pub(crate) fn for_program(&self, directory: &Path, program: &Path, kind: &str) -> Vec<CString> {
        let directory = directory.as_os_str().as_bytes();
        let mut all = self.common.clone();
        all.extend([
            variable("HOME", directory),
            variable("TMPDIR", directory),
            variable("PWD", directory),
            variable("GANGER_KIND", kind.as_bytes()),
            variable("GANGER_METHOD", kind.as_bytes()),
            variable("GANGER_PROGRAM", program.as_os_str().as_bytes()),
        ]);
        all
    }

    /// Returns the variables that describe one job; absent times are left out.
    pub(crate) fn of_job(job: &Delivery) -> Vec<CString> {
        let mut all = vec![
            variable("GANGER_JOB_ID", global_id(job).as_bytes()),
            variable("GANGER_TASK_ID", global_id(job).as_bytes()),
            variable("GANGER_ATTEMPT", job.attempt.to_string().as_bytes()),
            variable(
                "GANGER_RETRIES_LEFT",
                job.retries_left.to_string().as_bytes(),
            ),
            variable("GANGER_QUEUE", job.queue.as_bytes()),
        ];
        all.extend(deadline(job).map(|text| variable("GANGER_DEADLINE", text.as_bytes())));
        all.extend(job.timeout.map(|time| {
            variable(
                "GANGER_TIMEOUT",
                format!("{:.3}", time.as_secs_f64()).as_bytes(),
            )
        }));
        all.extend(
            job.graph
                .as_ref()
                .map(|graph| variable("GANGER_GRAPH", graph.as_bytes())),
        );
        all
    }
}

/// Returns the global id of a job: `shard/id`.
pub(crate) fn global_id(job: &Delivery) -> String {
    format!("{}/{}", job.shard, job.lease.job)
}

/// Returns the job's deadline in seconds since the Unix epoch; `None` if it has none.
pub(crate) fn deadline(job: &Delivery) -> Option<String> {
    let since = job.deadline?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{}.{:03}", since.as_secs(), since.subsec_millis()))
}

fn inherited(name: &str, otherwise: &str) -> CString {
    match std::env::var_os(name) {
        Some(value) if !value.is_empty() => variable(name, value.as_bytes()),
        _ => variable(name, otherwise.as_bytes()),
    }
}

/// Builds a variable; a NUL, which an environment cannot hold, becomes a question mark.
fn variable(name: &str, value: &[u8]) -> CString {
    let mut text = name.as_bytes().to_vec();
    text.push(b'=');
    text.extend(
        value
            .iter()
            .map(|byte| if *byte == 0 { b'?' } else { *byte }),
    );
    CString::new(text).unwrap_or_default()
}

/// Removes user and password from a URL.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or(("", url), |(scheme, rest)| (scheme, rest));
    let host_end = rest.find('/').unwrap_or(rest.len());
    let host_start = rest[..host_end].rfind('@').map_or(0, |at| at + 1);
    let scheme = if scheme.is_empty() {
        String::new()
    } else {
        format!("{scheme}://")
    };
    format!("{scheme}{}", &rest[host_start..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_the_address_is_not_passed_on() {
        assert_eq!(
            without_user("http://me:secret@host:1/x@y"),
            "http://host:1/x@y"
        );
        assert_eq!(without_user("localhost:3733"), "localhost:3733");
    }

    #[test]
    fn a_secret_is_not_passed_on_even_if_asked_for() {
        let settings = Settings {
            pass_env: vec!["GANGER_TOKEN".into()],
            ..Settings::default()
        };
        assert!(matches!(
            Environment::new(&settings, "w"),
            Err(Error::SecretVariable { .. })
        ));
    }
}
