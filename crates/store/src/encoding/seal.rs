//! Checksums of stored bytes.

/// Size of a seal in bytes.
pub const SEAL_BYTES: usize = 4;

fn checksum(table: &str, place: &[u8], content: &[u8]) -> [u8; SEAL_BYTES] {
    let at = crc32c::crc32c_append(crc32c::crc32c(table.as_bytes()), place);
    crc32c::crc32c_append(at, content).to_le_bytes()
}

/// Appends the checksum of `content[from..]` as the row of `table` at `place`. The checksum covers table and place,
/// so that a row at the wrong place is detected.
pub fn seal(table: &str, place: &[u8], from: usize, content: &mut Vec<u8>) {
    let sum = checksum(table, place, &content[from..]);
    content.extend_from_slice(&sum);
}

/// The content before the checksum; `None` if the checksum is wrong.
pub fn unseal<'a>(table: &str, place: &[u8], sealed: &'a [u8]) -> Option<&'a [u8]> {
    let (content, sum) = sealed.split_at_checked(sealed.len().checked_sub(SEAL_BYTES)?)?;
    (checksum(table, place, content) == sum).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_row_opens_only_whole_and_at_its_own_place() {
        let mut row = b"content".to_vec();
        seal("jobs", b"7", 0, &mut row);
        assert_eq!(unseal("jobs", b"7", &row), Some(&b"content"[..]));
        assert_eq!(unseal("jobs", b"8", &row), None);
        assert_eq!(unseal("finished", b"7", &row), None);
        assert_eq!(unseal("jobs", b"7", &row[..row.len() - 1]), None);
        for bit in 0..row.len() * 8 {
            let mut torn = row.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal("jobs", b"7", &torn), None);
        }
    }
}
