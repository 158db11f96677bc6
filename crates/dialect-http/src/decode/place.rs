//! Where the jobs of a submission run, and where those are that they wait for.

use ganger_router::RouteError;
use ganger_types::command::Dependency;
use ganger_types::{JobId, JobRef, RefError, ShardId};

use crate::api::Api;
use crate::names::{JobReference, show};
use crate::problem::Problem;

impl Api {
    /// The shard that a job is for, and its id if one is given: as its field `shard` says, or its id, or else
    /// this one.
    pub(super) fn home(
        &self,
        shard: Option<&str>,
        id: Option<&JobReference>,
        pointer: &str,
    ) -> Result<(ShardId, Option<JobId>), Problem> {
        let named = shard
            .map(|text| self.shard_named(text, &format!("{pointer}/shard")))
            .transpose()?;
        let base = named.clone().unwrap_or_else(|| self.shard().id().clone());
        let Some(id) = id else {
            return Ok((base, None));
        };
        let pointer = format!("{pointer}/id");
        let job = self.reference(id, &base, &pointer)?;
        if named.is_some_and(|named| named != job.shard) {
            let detail = format!(
                "{pointer}: {} is an id of shard {}, but the job is for shard {base}: an id of that shard with a slash in it is written {base}/{}",
                show(&id.0),
                job.shard,
                show(&id.0)
            );
            return Err(Problem::new("invalid_value", detail).at(pointer));
        }
        Ok((job.shard, Some(job.id)))
    }

    /// An existing job that a job of `home` waits for; a plain id is of the same shard.
    pub(super) fn dependency(
        &self,
        job: &JobReference,
        home: &ShardId,
        pointer: &str,
    ) -> Result<Dependency, Problem> {
        let job = self.reference(job, home, pointer)?;
        Ok(dependency(job, home))
    }

    /// A shard that there is.
    fn shard_named(&self, text: &str, pointer: &str) -> Result<ShardId, Problem> {
        let refused =
            |reason| Problem::new("unknown_shard", format!("{pointer}: {reason}")).at(pointer);
        let shard = ShardId::new(text).ok_or_else(|| {
            refused(format!(
                "no shard is called {text:?}: shards have 1 to 64 characters of A-Z a-z 0-9 . _ -"
            ))
        })?;
        match self.why_unknown(&shard) {
            Some(reason) => Err(refused(reason)),
            None => Ok(shard),
        }
    }

    /// A job of a shard that there is.
    fn reference(
        &self,
        job: &JobReference,
        base: &ShardId,
        pointer: &str,
    ) -> Result<JobRef, Problem> {
        let refused = |code, reason| Problem::new(code, format!("{pointer}: {reason}")).at(pointer);
        let job = JobRef::read(&job.0, base)
            .map_err(|error| refused("invalid_value", error.to_string()))?;
        if self.is_known(&job.shard) {
            return Ok(job);
        }
        let here = base.clone();
        let error = RefError::UnknownShard { job, here };
        Err(refused(error.code(), error.to_string()))
    }

    fn is_known(&self, shard: &ShardId) -> bool {
        self.why_unknown(shard).is_none()
    }

    /// What to say of a shard that cannot be meant, if so.
    pub(super) fn why_unknown(&self, shard: &ShardId) -> Option<String> {
        let here = self.shard().id();
        if shard == here {
            return None;
        }
        let Some(router) = &self.settings().router else {
            return Some(format!(
                "shard {:?} is not served here: this server has shard {:?}",
                shard.as_str(),
                here.as_str()
            ));
        };
        let is_known = router.handle(shard).is_some() || router.topology().address(shard).is_some();
        (!is_known).then(|| {
            let (shard, known) = (shard.clone(), router.known());
            RouteError::Unknown { shard, known }.to_string()
        })
    }
}

/// A job as one of `home` waits for it.
pub(super) fn dependency(job: JobRef, home: &ShardId) -> Dependency {
    if job.shard == *home {
        Dependency::Job(job.id)
    } else {
        Dependency::Remote {
            job,
            is_member: false,
        }
    }
}
