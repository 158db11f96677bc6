//! Maps of names and numbers as lists of pairs: a name need not be text, as keys of JSON must be.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<K: Serialize, S: Serializer>(
    map: &BTreeMap<K, u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(map)
}

pub(crate) fn deserialize<'de, K: Deserialize<'de> + Ord, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<K, u64>, D::Error> {
    let pairs = Vec::<(K, u64)>::deserialize(deserializer)?;
    Ok(pairs.into_iter().collect())
}
