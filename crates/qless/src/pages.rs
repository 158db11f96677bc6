//! The two rules by which commands select a page of a list.

use std::ops::Range;

/// The range rule: elements from index `offset` to index `offset + count - 1`, both included. A negative index counts
/// from the end. A count of 0 at offset 0 therefore means 0 to -1, which is everything.
pub(crate) fn by_range(length: usize, offset: i64, count: i64) -> Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let last = offset.saturating_add(count).saturating_sub(1);
    let from_end = |index: i64| match index {
        0.. => index,
        _ => index.saturating_add(length),
    };
    let first = from_end(offset).max(0);
    let end = from_end(last).min(length - 1) + 1;
    indexes(first.min(length), end.max(first.min(length)))
}

/// The limit rule: skips `offset` elements and takes at most `count`. A negative count takes all; a negative offset
/// takes nothing.
pub(crate) fn by_limit(length: usize, offset: i64, count: i64) -> Range<usize> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if offset < 0 {
        return 0..0;
    }
    let first = offset.min(length);
    let end = match count {
        0.. => first.saturating_add(count).min(length),
        _ => length,
    };
    indexes(first, end)
}

fn indexes(first: i64, end: i64) -> Range<usize> {
    usize::try_from(first).unwrap_or(0)..usize::try_from(end).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{by_limit, by_range};

    #[test]
    fn a_range_counts_negative_indexes_from_the_end() {
        assert_eq!(by_range(5, 0, 25), 0..5);
        assert_eq!(by_range(5, 1, 2), 1..3);
        assert_eq!(by_range(5, 0, 0), 0..5);
        assert_eq!(by_range(5, 1, 0), 1..1);
        assert_eq!(by_range(5, -2, 2), 3..5);
        assert_eq!(by_range(5, -2, 3), 3..3);
        assert_eq!(by_range(5, -2, 1), 3..4);
        assert_eq!(by_range(5, -9, 6), 0..2);
        assert_eq!(by_range(5, 7, 3), 5..5);
        assert_eq!(by_range(5, 0, -9), 0..0);
        assert_eq!(by_range(0, 0, 0), 0..0);
        assert_eq!(by_range(5, i64::MAX, i64::MAX), 5..5);
        assert_eq!(by_range(5, i64::MIN, i64::MIN), 0..0);
    }

    #[test]
    fn a_limit_takes_all_if_it_is_negative() {
        assert_eq!(by_limit(5, 0, 25), 0..5);
        assert_eq!(by_limit(5, 1, 2), 1..3);
        assert_eq!(by_limit(5, 0, 0), 0..0);
        assert_eq!(by_limit(5, 2, -1), 2..5);
        assert_eq!(by_limit(5, -1, 3), 0..0);
        assert_eq!(by_limit(5, 7, 3), 5..5);
    }
}
