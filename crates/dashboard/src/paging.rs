//! Lists that are sorted in memory: the rows of a page, links to the pages beside it, headings that sort.

use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::count;
use crate::links::Address;
use crate::params::Params;

/// Rows of a page.
pub(crate) const ROWS: usize = 100;
/// Largest value of the parameter `after`.
const SKIPPED_MAX: usize = 1_000_000;

/// Which rows of a list a page shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Number of rows on the pages before.
    pub(crate) skipped: usize,
    /// Number of rows on the page.
    pub(crate) shown: usize,
    /// Number of rows on all pages.
    pub(crate) matching: usize,
}

/// Takes the rows of the page that the parameter `after` asks for.
pub(crate) fn take<T>(rows: Vec<T>, params: &Params) -> Result<(Vec<T>, Slice), Fault> {
    let matching = rows.len();
    let skipped = params.number("after", 0, SKIPPED_MAX)?.unwrap_or(0);
    let skipped = skipped.min(matching);
    let rows: Vec<T> = rows.into_iter().skip(skipped).take(ROWS).collect();
    let slice = Slice {
        skipped,
        shown: rows.len(),
        matching,
    };
    Ok((rows, slice))
}

/// Reads the parameter `desc`: whether the last row comes first; `None` if the address leaves it open.
pub(crate) fn descending(params: &Params) -> Result<Option<bool>, Fault> {
    let words = [("1", true), ("true", true), ("0", false), ("false", false)];
    params.word("desc", &words)
}

impl Slice {
    /// Links to the pages before and after this one. `address` has all other parameters of the list.
    pub(crate) fn links(&self, address: &Address) -> Markup {
        let end = self.skipped + self.shown;
        if self.skipped == 0 && end == self.matching {
            return html! {};
        }
        let to = |skip: usize| address.clone().with("after", &skip.to_string());
        let number = |number: usize| count(u64::try_from(number).unwrap_or(0));
        html! {
            nav.pages aria-label="Pages" {
                @if self.skipped > 0 { a.button href=(to(self.skipped.saturating_sub(ROWS))) data-page="newer" { "Previous" } }
                @if end < self.matching { a.button href=(to(end)) data-page="older" { "Next" } }
                @if self.shown > 0 { span.soft { (number(self.skipped + 1)) " to " (number(end)) " of " (number(self.matching)) } }
            }
        }
    }
}

/// A heading of a column that sorts the list by it, and turns the order if the list is sorted so already.
///
/// `sorted` is whether the list is in descending order of this column; `None` if it is sorted by another. A column of
/// numbers begins with the largest.
pub(crate) fn heading(
    address: Address,
    (word, name): (&str, &str),
    sorted: Option<bool>,
    is_number: bool,
) -> Markup {
    let turned = sorted.map_or(is_number, |is_descending| !is_descending);
    let address = address.with("sort", name);
    let address = address.with("desc", if turned { "1" } else { "0" });
    let order = sorted.map(|is_descending| {
        if is_descending {
            ("descending", " \u{2193}")
        } else {
            ("ascending", " \u{2191}")
        }
    });
    html! {
        th class=[is_number.then_some("number")] scope="col" aria-sort=[order.map(|order| order.0)] {
            a href=(address) { (word) @if let Some((_, arrow)) = order { span aria-hidden="true" { (arrow) } } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_hundred_rows_and_none_behind_the_end() {
        let page = |query: &str| {
            let params = Params::read(query, &["after"]).expect("known");
            take((0..250).collect(), &params)
        };
        let (rows, slice) = page("after=100").expect("a page");
        assert_eq!((rows[0], rows.len()), (100, 100));
        assert_eq!(
            (slice.skipped, slice.shown, slice.matching),
            (100, 100, 250)
        );
        assert_eq!(page("").expect("a page").0[0], 0);
        assert_eq!(page("after=999").expect("a page").1.shown, 0);
        assert!(page("after=x").is_err());
    }
}
