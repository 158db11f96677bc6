//! References to jobs, as clients write them: `shard/id`, or the plain id, which means the shard that is asked.

use std::fmt;

use crate::id::{JobId, ShardId};
use crate::name::NameError;

/// A job on any shard. Its text form is `shard/id`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobRef {
    /// The shard that holds the job.
    pub shard: ShardId,
    /// The id of the job on that shard.
    pub id: JobId,
}

/// Why a reference does not name a job of this server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// The id is too long.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The shard is not served here.
    #[error(
        "shard {} of {job} is not served here, this is shard {here}: ask the server that has it; an id of this shard with a slash in it is written {here}/{job}",
        job.shard
    )]
    UnknownShard {
        /// The reference that names the shard.
        job: JobRef,
        /// The shard that was asked.
        here: ShardId,
    },
}

impl RefError {
    /// The stable code, as documented in `docs/errors.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Name(_) => "invalid_value",
            Self::UnknownShard { .. } => "unknown_shard",
        }
    }
}

impl JobRef {
    /// Reads `shard/id`, or the plain id of a job of `here`.
    ///
    /// The text before the first slash is a shard id whenever it has the form of one, whether or not that shard
    /// exists. A reference therefore means the same job before and after a shard is added. An id that contains a
    /// slash is written with its shard, unless its beginning cannot be a shard id, as in a URL.
    ///
    /// # Errors
    /// If the id is longer than 255 bytes. The shard does not count.
    pub fn read(text: &[u8], here: &ShardId) -> Result<Self, NameError> {
        let (shard, id) = split(text).unwrap_or_else(|| (here.clone(), text));
        Ok(Self {
            shard,
            id: JobId::new(id)?,
        })
    }

    /// The reference as a job id, for lists that show jobs of this shard and of others. If `shard/id` is too long, it
    /// is the id alone.
    pub fn to_name(&self) -> JobId {
        let mut name = self.shard.as_str().as_bytes().to_vec();
        name.push(b'/');
        name.extend_from_slice(self.id.as_bytes());
        JobId::new(name).unwrap_or_else(|_| self.id.clone())
    }

    /// Reads either form of a reference to a job of `here`.
    ///
    /// # Errors
    /// If the id is too long, or the job is of another shard.
    pub fn read_local(text: &[u8], here: &ShardId) -> Result<JobId, RefError> {
        let job = Self::read(text, here)?;
        if job.shard == *here {
            Ok(job.id)
        } else {
            let here = here.clone();
            Err(RefError::UnknownShard { job, here })
        }
    }
}

/// Reads the id of a leased job as its delivery named it: the plain id, whatever it contains, or `shard/id`. A worker
/// sends back the id that it received and needs no rule about slashes.
///
/// # Errors
/// If it is longer than 255 bytes. The shard does not count.
pub fn read_held(text: &[u8], here: &ShardId) -> Result<JobId, NameError> {
    let id = text
        .strip_prefix(here.as_str().as_bytes())
        .and_then(|rest| rest.strip_prefix(b"/"))
        .filter(|id| !id.is_empty());
    JobId::new(id.unwrap_or(text))
}

impl fmt::Display for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.shard, self.id)
    }
}

/// Shard and id; `None` if the text does not have both.
fn split(text: &[u8]) -> Option<(ShardId, &[u8])> {
    let slash = text.iter().position(|byte| *byte == b'/')?;
    let shard = ShardId::new(std::str::from_utf8(&text[..slash]).ok()?)?;
    let id = &text[slash + 1..];
    (!id.is_empty()).then_some((shard, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(text: &str) -> ShardId {
        ShardId::new(text).expect("a shard's name")
    }

    fn read(text: &str) -> String {
        let job = JobRef::read(text.as_bytes(), &shard("1")).expect("short enough");
        format!("{}|{}", job.shard, job.id)
    }

    #[test]
    fn a_plain_id_is_of_the_shard_that_is_asked() {
        assert_eq!(read("a"), "1|a");
        assert_eq!(read("1/a"), "1|a");
        assert_eq!(read("2/a"), "2|a");
        assert_eq!(read("eu-west.3/a"), "eu-west.3|a");
    }

    #[test]
    fn an_id_with_a_slash_is_written_with_its_shard() {
        assert_eq!(read("1/reports/2026"), "1|reports/2026");
        assert_eq!(read("reports/2026"), "reports|2026");
        // No shard is called so: the whole is the id.
        assert_eq!(read("https://example.com/a"), "1|https://example.com/a");
        assert_eq!(read("/a"), "1|/a");
        assert_eq!(read("1/"), "1|1/");
    }

    #[test]
    fn the_text_form_reads_back() {
        let job = JobRef::read(b"2/a/b", &shard("1")).expect("short enough");
        assert_eq!(job.to_string(), "2/a/b");
        assert_eq!(
            JobRef::read(job.to_string().as_bytes(), &shard("9")),
            Ok(job)
        );
    }

    #[test]
    fn a_job_of_another_shard_is_not_a_local_one() {
        let error = JobRef::read_local(b"2/a", &shard("1")).expect_err("another shard");
        assert_eq!(error.code(), "unknown_shard");
        assert!(error.to_string().contains("written 1/2/a"), "{error}");
        assert_eq!(
            JobRef::read_local(b"1/2/a", &shard("1")),
            Ok(JobId::new("2/a").expect("short"))
        );
    }

    #[test]
    fn a_worker_gives_back_the_id_that_it_got() {
        let held = |text: &str| {
            read_held(text.as_bytes(), &shard("1"))
                .expect("short enough")
                .to_string()
        };
        assert_eq!(held("a"), "a");
        assert_eq!(held("1/a"), "a");
        assert_eq!(held("reports/2026"), "reports/2026");
        assert_eq!(held("1/"), "1/");
    }

    #[test]
    fn the_shard_does_not_count_against_the_limit() {
        let long = "x".repeat(255);
        let fits = format!("shard/{long}");
        assert!(JobRef::read(fits.as_bytes(), &shard("1")).is_ok());
        let error = JobRef::read_local(format!("{fits}x").as_bytes(), &shard("1"));
        assert_eq!(error.expect_err("256 bytes").code(), "invalid_value");
    }
}
