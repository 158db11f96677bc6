//! References to jobs in documents, and the shards that they may name.

use ganger_types::command::Dependency;
use ganger_types::{JobId, JobRef, RefError, ShardId};

use crate::error::DocumentError;
use crate::names::{JobReference, show};

/// The shards that references may name, for the side that parses the document.
pub trait Shards {
    /// The shard of plain ids.
    fn own(&self) -> &ShardId;

    /// Why a shard cannot be used; `None` if it can.
    fn why_unknown(&self, shard: &ShardId) -> Option<String>;

    /// The shard that runs a new job, and the id of the job if it has one. The field `shard` decides, else the id,
    /// else [`Shards::own`].
    ///
    /// # Errors
    /// If the shard is unknown, the id is invalid, or both name different shards.
    fn home(
        &self,
        shard: Option<&str>,
        id: Option<&JobReference>,
        pointer: &str,
    ) -> Result<(ShardId, Option<JobId>), DocumentError> {
        let named = shard
            .map(|text| self.shard_named(text, &format!("{pointer}/shard")))
            .transpose()?;
        let base = named.clone().unwrap_or_else(|| self.own().clone());
        let Some(id) = id else {
            return Ok((base, None));
        };
        let pointer = format!("{pointer}/id");
        let job = self.job(id, &base, &pointer)?;
        if named.is_some_and(|named| named != job.shard) {
            let detail = format!(
                "{pointer}: {} is an id of shard {}, but the job is for shard {base}: an id of that shard with a slash in it is written {base}/{}",
                show(&id.0),
                job.shard,
                show(&id.0)
            );
            return Err(DocumentError::new("invalid_value", detail).at(pointer));
        }
        Ok((job.shard, Some(job.id)))
    }

    /// An existing job that a job of the shard `home` waits for; a plain id means the same shard.
    ///
    /// # Errors
    /// If the reference is invalid or its shard unknown.
    fn dependency(
        &self,
        job: &JobReference,
        home: &ShardId,
        pointer: &str,
    ) -> Result<Dependency, DocumentError> {
        let job = self.job(job, home, pointer)?;
        Ok(dependency(job, home))
    }

    /// The jobs of [`Shards::own`] in a list of references at `pointer`.
    ///
    /// # Errors
    /// If a reference is invalid or names another shard.
    fn own_jobs(&self, jobs: &[JobReference], pointer: &str) -> Result<Vec<JobId>, DocumentError> {
        let each = jobs.iter().enumerate();
        each.map(|(place, job)| {
            JobRef::read_local(&job.0, self.own()).map_err(|error| {
                let pointer = format!("{pointer}/{place}");
                DocumentError::new(error.code(), format!("{pointer}: {error}")).at(pointer)
            })
        })
        .collect()
    }

    /// The known shard with this id.
    ///
    /// # Errors
    /// If the text is not the name of a shard, or the shard is unknown.
    fn shard_named(&self, text: &str, pointer: &str) -> Result<ShardId, DocumentError> {
        self.read_shard(text).map_err(|reason| {
            DocumentError::new("unknown_shard", format!("{pointer}: {reason}")).at(pointer)
        })
    }

    /// As [`Shards::shard_named`], for messages that name the place themselves.
    ///
    /// # Errors
    /// The reason, for people.
    fn read_shard(&self, text: &str) -> Result<ShardId, String> {
        let shard = ShardId::new(text).ok_or_else(|| {
            format!(
                "no shard is called {text:?}: shards have 1 to 64 characters of A-Z a-z 0-9 . _ -"
            )
        })?;
        self.why_unknown(&shard).map_or(Ok(shard), Err)
    }

    /// The job of a reference; a plain id means the shard `base`.
    ///
    /// # Errors
    /// If the reference is invalid or its shard unknown.
    fn job(
        &self,
        job: &JobReference,
        base: &ShardId,
        pointer: &str,
    ) -> Result<JobRef, DocumentError> {
        let refused =
            |code, reason| DocumentError::new(code, format!("{pointer}: {reason}")).at(pointer);
        let job = JobRef::read(&job.0, base)
            .map_err(|error| refused("invalid_value", error.to_string()))?;
        if self.why_unknown(&job.shard).is_none() {
            return Ok(job);
        }
        let here = base.clone();
        let error = RefError::UnknownShard { job, here };
        Err(refused(error.code(), error.to_string()))
    }
}

/// The dependency on a job, as seen from the shard `home`.
pub(crate) fn dependency(job: JobRef, home: &ShardId) -> Dependency {
    if job.shard == *home {
        Dependency::Job(job.id)
    } else {
        Dependency::Remote {
            job,
            is_member: false,
        }
    }
}
