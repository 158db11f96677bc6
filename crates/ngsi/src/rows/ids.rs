//! The ids of rows. They are derived from the task's UUID and an index, so that a repeated task can find its rows.

use sha2::{Digest, Sha256};

use crate::hexadecimal::hexadecimal;

/// Returns the id that the rows of a group share if they had to be saved as JSON: 32 hexadecimal digits. `uuid` is the
/// task's, `index` that of the group among the task's groups.
pub fn failed_batch_id(uuid: &str, index: usize) -> String {
    hexadecimal(&digest("failed batch", uuid, index))
}

/// Returns the `instanceid` of an entity's row: `urn:ngsi-ld:` and a UUID. `uuid` is the task's, `entity` the entity's
/// index in its payload.
pub fn instance_id(uuid: &str, entity: usize) -> String {
    let mut bytes = digest("instance", uuid, entity);
    // RFC 9562: version 8 is for UUIDs of a custom format; the variant is that of the RFC.
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits = hexadecimal(&bytes);
    format!(
        "urn:ngsi-ld:{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}

/// Returns the first half of a hash over purpose, UUID and index, separated by a byte that none of them contains.
fn digest(purpose: &str, uuid: &str, index: usize) -> [u8; 16] {
    let hash = Sha256::new()
        .chain_update(purpose)
        .chain_update([0])
        .chain_update(uuid)
        .chain_update([0])
        .chain_update(index.to_string())
        .finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    half
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const UUID: &str = "27484433be1d4c09ae947d67f8f29898";

    #[test]
    fn an_instance_id_is_a_uuid_of_version_8() {
        for entity in 0..100 {
            let id = instance_id(UUID, entity);
            let uuid = id.strip_prefix("urn:ngsi-ld:").expect("the prefix");
            let parts: Vec<&str> = uuid.split('-').collect();
            assert_eq!(
                parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
                [8, 4, 4, 4, 12]
            );
            assert!(
                parts
                    .concat()
                    .bytes()
                    .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            );
            assert!(parts[2].starts_with('8') && parts[3].starts_with(['8', '9', 'a', 'b']));
        }
    }

    #[test]
    fn a_failed_batch_id_is_32_hexadecimal_digits() {
        let id = failed_batch_id(UUID, 1);
        assert_eq!(id.len(), 32);
        assert!(
            id.bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        );
    }

    #[test]
    fn ids_depend_on_uuid_index_and_purpose() {
        assert_eq!(instance_id(UUID, 3), instance_id(UUID, 3));
        assert_eq!(failed_batch_id(UUID, 3), failed_batch_id(UUID, 3));
        let mut seen = HashSet::new();
        for index in 0..100 {
            for uuid in [UUID, "27484433be1d4c09ae947d67f8f2989"] {
                assert!(seen.insert(instance_id(uuid, index)));
                assert!(seen.insert(failed_batch_id(uuid, index)));
            }
        }
    }

    /// A task that a newer release repeats must find the rows of the older one. The ids were computed independently.
    #[test]
    fn ids_do_not_change_from_release_to_release() {
        assert_eq!(
            instance_id(UUID, 0),
            "urn:ngsi-ld:00d50777-b7d7-891b-b5bb-0bb39ec35a5b"
        );
        assert_eq!(failed_batch_id(UUID, 0), "c71b5008043e860165c0ef5a225adcc7");
    }
}
