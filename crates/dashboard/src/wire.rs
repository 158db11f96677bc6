//! Records in the answers to questions of other servers: in their stored form, which has a version and is read by every
//! newer program.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ganger_store::encoding::{Record, decode, encode};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A record in its stored form, as text.
#[derive(Clone, Debug)]
pub(crate) struct Stored<R>(pub(crate) R);

impl<R: Record> Serialize for Stored<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(encode(&self.0)))
    }
}

impl<'de, R: Record> Deserialize<'de> for Stored<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = BASE64_STANDARD.decode(text).map_err(D::Error::custom)?;
        decode(&bytes).map(Self).map_err(D::Error::custom)
    }
}

/// Jobs as pairs of a record and a lease.
pub(crate) mod jobs {
    use ganger_types::{JobRecord, LeaseRecord, StoredJob};
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::Stored;

    type Pair = (Stored<JobRecord>, Option<Stored<LeaseRecord>>);

    pub(crate) fn serialize<S: Serializer>(
        jobs: &[StoredJob],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            jobs.iter()
                .cloned()
                .map(|job| -> Pair { (Stored(job.record), job.lease.map(Stored)) }),
        )
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<StoredJob>, D::Error> {
        let pairs = Vec::<Pair>::deserialize(deserializer)?;
        let jobs = pairs.into_iter().map(|(record, lease)| StoredJob {
            record: record.0,
            lease: lease.map(|lease| lease.0),
        });
        Ok(jobs.collect())
    }
}
