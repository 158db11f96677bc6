//! Where the jobs of a submission run, and where those are that they wait for.

use ganger_router::{RouteError, Router};
use ganger_types::command::Dependency;
use ganger_types::{JobId, JobRef, RefError, ShardId};

use super::At;
use crate::authorization;
use crate::problem::Problem;

/// The shards that a request may name.
#[derive(Clone, Copy)]
pub(crate) struct Shards<'a> {
    /// The one that is asked.
    pub(crate) here: &'a ShardId,
    /// Finds the others; without one there are none.
    pub(crate) router: Option<&'a Router>,
}

impl Shards<'_> {
    /// The shard that a job is for, and its id if one is given: as its field `shard` says, or its id, or else
    /// the one that is asked.
    pub(super) fn home(
        self,
        at: At<'_>,
        shard: &str,
        id: Option<&str>,
    ) -> Result<(ShardId, Option<JobId>), Problem> {
        let named = (!shard.is_empty())
            .then(|| self.named(at.field("shard"), shard))
            .transpose()?;
        let base = named.as_ref().unwrap_or(self.here);
        let Some(text) = id else {
            return Ok((base.clone(), None));
        };
        let job = self.reference(at.field("id"), text, base)?;
        if named.is_some() && job.shard != *base {
            let reason = format!(
                "{text} is an id of shard {}, but the job is for shard {base}: an id of that shard with a slash in it is written {base}/{text}",
                job.shard
            );
            return Err(Problem::invalid(at.field("id"), reason));
        }
        Ok((job.shard, Some(job.id)))
    }

    /// An existing job that a job of `home` waits for; a plain id is of the same shard.
    pub(super) fn dependency(
        self,
        at: At<'_>,
        text: &str,
        home: &ShardId,
    ) -> Result<Dependency, Problem> {
        let job = self.reference(at, text, home)?;
        Ok(if job.shard == *home {
            Dependency::Job(job.id)
        } else {
            Dependency::Remote {
                job,
                is_member: false,
            }
        })
    }

    fn named(self, at: At<'_>, text: &str) -> Result<ShardId, Problem> {
        let refused = |reason: String| Problem::new("unknown_shard", format!("{at}: {reason}"));
        let shard = ShardId::new(text).ok_or_else(|| {
            refused(format!(
                "no shard is called {text:?}: shards have 1 to 64 characters of A-Z a-z 0-9 . _ -"
            ))
        })?;
        if self.has(&shard) {
            return Ok(shard);
        }
        Err(refused(match self.router {
            Some(router) => {
                let known = router.known();
                RouteError::Unknown { shard, known }.to_string()
            }
            None => format!(
                "shard {text:?} is not served here: this server has shard {:?}",
                self.here.as_str()
            ),
        }))
    }

    /// A job of a shard that there is.
    fn reference(self, at: At<'_>, text: &str, base: &ShardId) -> Result<JobRef, Problem> {
        if text.is_empty() {
            return Err(Problem::missing(at, "give the id of a job, or shard/id"));
        }
        authorization::note(|| format!("job {}", text.escape_debug()));
        let job =
            JobRef::read(text.as_bytes(), base).map_err(|error| Problem::invalid(at, error))?;
        if self.has(&job.shard) {
            return Ok(job);
        }
        let here = base.clone();
        let error = RefError::UnknownShard { job, here };
        Err(Problem::new(error.code(), format!("{at}: {error}")))
    }

    fn has(self, shard: &ShardId) -> bool {
        shard == self.here || self.router.is_some_and(|router| router.knows(shard))
    }
}
