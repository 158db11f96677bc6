//! Fingerprints: hashes that tell a repeated submission from another one under the same id or key.
//!
//! A fingerprint is a multiply-and-rotate hash over the fields in a fixed order, lengths first. It is stored, so
//! neither the order nor the hash may change. It protects clients from their own mistakes, not from forgery.

use std::time::Duration;

use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput, NewJob, Start};
use ganger_types::time::micros;
use ganger_types::{Backoff, FailurePolicy, ShardId};

const SEED: u64 = 0xCBF2_9CE4_8422_2325;

pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of a submission.
    pub(crate) fn of_submission(cmd: &Enqueue) -> u64 {
        let mut print = Self(SEED);
        print.number(u64::try_from(cmd.jobs.len()).unwrap_or(u64::MAX));
        print.number(u64::from(cmd.graph));
        cmd.jobs.iter().for_each(|job| print.job(job));
        print.0
    }

    /// The fingerprint of a submission over several shards.
    pub(crate) fn of_sharded(jobs: &[(ShardId, NewJob)]) -> u64 {
        let mut print = Self(SEED);
        print.number(u64::try_from(jobs.len()).unwrap_or(u64::MAX));
        for (shard, job) in jobs {
            print.bytes(shard.as_str().as_bytes());
            print.job(job);
        }
        print.0
    }

    /// Returns the fingerprint of one job.
    pub(crate) fn of_job(job: &NewJob) -> u64 {
        let mut print = Self(SEED);
        print.job(job);
        print.0
    }

    /// Hashes eight bytes at a time; every caller has hashed the length before.
    fn raw(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let mixed = self.0.rotate_left(23) ^ u64::from_le_bytes(word);
            self.0 = mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    fn number(&mut self, number: u64) {
        self.raw(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.raw(bytes);
    }

    fn duration(&mut self, duration: Option<Duration>) {
        self.number(duration.map_or(u64::MAX, micros));
    }

    fn edge(&mut self, edge: &NewEdge) {
        match &edge.dependency {
            Dependency::Member(place) => {
                self.number(1);
                self.number(u64::from(*place));
            }
            Dependency::Job(id) => {
                self.number(2);
                self.bytes(id.as_bytes());
            }
            Dependency::Remote { job, .. } => {
                self.number(3);
                self.bytes(job.shard.as_str().as_bytes());
                self.bytes(job.id.as_bytes());
            }
        }
        self.number(match edge.policy {
            FailurePolicy::Fail => 1,
            FailurePolicy::Wait => 2,
            FailurePolicy::Ignore => 3,
        });
    }

    fn job(&mut self, job: &NewJob) {
        self.bytes(job.id.as_ref().map_or(&[], |id| id.as_bytes()));
        self.bytes(job.queue.as_bytes());
        self.bytes(job.kind.as_bytes());
        self.bytes(&job.payload);
        self.number(u64::try_from(job.inputs.len()).unwrap_or(u64::MAX));
        for input in &job.inputs {
            match input {
                NewInput::Value(bytes) => self.bytes(bytes),
                NewInput::Result(edge) => self.edge(edge),
            }
        }
        job.after.iter().for_each(|edge| self.edge(edge));
        self.raw(&job.priority.millionths().to_le_bytes());
        match job.start {
            Start::Now => self.number(0),
            Start::After(delay) => self.duration(Some(delay)),
            Start::At(at) => self.number(at.0),
        }
        self.number(job.deadline.map_or(0, |deadline| deadline.0));
        self.duration(job.timeout);
        if let Some(retry) = &job.retry {
            self.number(u64::from(retry.retries_max));
            self.number(u64::from(retry.jitter_percent));
            match &retry.backoff {
                Backoff::Fixed(pause) => self.duration(Some(*pause)),
                Backoff::List(pauses) => {
                    for pause in pauses {
                        self.duration(Some(*pause));
                    }
                }
                Backoff::Exponential { base, cap } => {
                    self.duration(Some(*base));
                    self.duration(Some(*cap));
                }
            }
            // An absent value is not hashed, so that a repeat of a submission from before this field existed is
            // recognised.
            if let Some(lease_expirations_max) = retry.lease_expirations_max {
                self.bytes(b"lease_expirations_max");
                self.number(u64::from(lease_expirations_max));
            }
        }
        job.tags.iter().for_each(|tag| self.bytes(tag.as_bytes()));
        for (key, value) in &job.labels {
            self.bytes(key.as_bytes());
            self.bytes(value.as_bytes());
        }
        self.bytes(
            job.unique
                .as_ref()
                .map_or(&[], |unique| unique.key.as_bytes()),
        );
        // An absent name is not hashed, so that a repeat of a submission from before names were stored is recognised.
        if let Some(name) = &job.name {
            self.bytes(b"name");
            self.bytes(name.as_bytes());
        }
    }
}
