//! Formats whole numbers of any size in decimal digits.

use std::fmt::Write as _;

/// Base of the conversion: nine decimal digits at a time.
const GROUP: u64 = 1_000_000_000;

/// Returns the decimal digits of a little-endian number in two's complement; an empty slice is 0.
pub(super) fn of(bytes: &[u8]) -> String {
    let is_negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut limbs = magnitude(bytes, is_negative);
    let mut groups = Vec::new();
    while !limbs.is_empty() {
        let mut rest = 0_u64;
        for limb in limbs.iter_mut().rev() {
            let value = rest << 32 | u64::from(*limb);
            // Less than 2^32, because the remainder is less than the divisor.
            *limb = u32::try_from(value / GROUP).unwrap_or(u32::MAX);
            rest = value % GROUP;
        }
        groups.push(rest);
        trim(&mut limbs);
    }
    let mut text = if is_negative { "-" } else { "" }.to_owned();
    text.push_str(&groups.pop().unwrap_or(0).to_string());
    for group in groups.iter().rev() {
        write!(text, "{group:09}").expect("strings take everything");
    }
    text
}

/// Returns the absolute value in 32-bit limbs, little-endian, without leading zeros.
fn magnitude(bytes: &[u8], is_negative: bool) -> Vec<u32> {
    let padding = if is_negative { 0xff } else { 0 };
    let mut limbs = Vec::with_capacity(bytes.len() / 4 + 1);
    let mut carry = is_negative;
    for chunk in bytes.chunks(4) {
        let mut four = [padding; 4];
        four[..chunk.len()].copy_from_slice(chunk);
        let limb = u32::from_le_bytes(four);
        let limb = if is_negative { !limb } else { limb };
        let (limb, is_over) = limb.overflowing_add(u32::from(carry));
        carry = is_over;
        limbs.push(limb);
    }
    trim(&mut limbs);
    limbs
}

fn trim(limbs: &mut Vec<u32>) {
    while limbs.last() == Some(&0) {
        limbs.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn whole_numbers_of_any_size_are_written() {
        for (bytes, text) in [
            (&b""[..], "0"),
            (b"\0\0\0\0\0", "0"),
            (b"\xff", "-1"),
            (b"\x00\x80", "-32768"),
            (b"\0\0\0\x80", "-2147483648"),
            (
                b"\x00\x00\x10\x63\x2d\x5e\xc7\x6b\x05",
                "100000000000000000000",
            ),
            (b"\x00\xca\x9a\x3b", "1000000000"),
        ] {
            assert_eq!(of(bytes), text);
        }
        assert_eq!(of(&[0x7f; 2_048]).len(), 4_932);
    }
}
