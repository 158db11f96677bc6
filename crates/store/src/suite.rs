//! The test suite that every store passes.
//!
//! The crate of a store implements [`StoreFixture`] and calls `ganger_store::suite_tests!(its_fixture())`.

#![expect(
    clippy::missing_panics_doc,
    reason = "a case of a test suite panics if it fails"
)]

mod commits;
mod external;
mod graphs;
mod listings;
mod lists;
mod moves;
mod queries;
mod rows;
pub mod sample;
mod script;
mod shards;
mod writers;

use crate::store::Store;

pub use commits::*;
pub use external::*;
pub use graphs::*;
pub use listings::*;
pub use lists::*;
pub use moves::*;
pub use queries::*;
pub use rows::*;
pub use script::Script;
pub use shards::*;
pub use writers::*;

/// Creates and reopens the stores under test.
pub trait StoreFixture {
    /// Type of the store under test.
    type Store: Store;

    /// Creates a new, empty store, which is not open yet.
    fn fresh(&mut self) -> Self::Store;

    /// Returns the same store after a crash: drops `store` without closing it. The store is not open yet.
    fn again(&mut self, store: Self::Store) -> Self::Store;
}

/// Where a store is tested that several processes may open at a time.
pub trait SharedStoreFixture: StoreFixture {
    /// Another writer of the same store, not opened yet.
    fn another(&mut self, store: &Self::Store) -> Self::Store;
}

/// A case of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Case<G> {
    /// Name of its function.
    pub name: &'static str,
    /// Runs it, with what it needs.
    pub run: fn(&mut G),
}

/// Passes the names of all cases, and what was given, to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! suite_names {
    ($next:ident $given:tt) => {
        $crate::$next! { $given
            a_new_store_is_empty,
            a_commit_is_there_after_a_crash,
            only_the_newest_epoch_may_commit,
            commits_follow_each_other_without_gaps,
            a_refused_commit_leaves_nothing_behind,
            every_kind_of_row_is_given_back_as_it_was_put,
            removed_rows_are_gone_after_a_crash,
            statistics_older_than_yesterday_stay_in_the_store,
            rows_are_loaded_in_their_order,
            a_job_that_came_and_ended_in_one_commit_is_finished,
            a_finished_job_keeps_payload_inputs_and_log,
            a_retried_job_is_live_without_its_result,
            a_removed_job_leaves_nothing_behind,
            payloads_read_together_are_those_read_one_by_one,
            a_job_retried_and_finished_in_one_commit_has_its_new_result,
            a_rewritten_finished_job_keeps_its_result,
            a_lease_shows_its_job_as_running,
            listings_follow_every_filter,
            listings_follow_changed_tags_and_labels,
            pages_meet_without_gap_or_overlap_both_ways,
            a_filtered_page_knows_whether_there_is_more,
            a_budget_ends_a_page_and_its_cursor_goes_on,
            a_count_within_a_budget_says_whether_it_is_exact,
            jobs_are_listed_by_their_ends,
            values_of_the_index_are_counted,
            the_length_of_a_log_is_known,
            jobs_are_found_by_given_and_made_ids,
            dependents_are_found_from_their_dependency,
            inputs_come_in_order_of_slots,
            a_graph_is_read_in_pages_with_all_its_edges,
            graphs_are_named_from_the_last_to_the_first,
            a_log_is_read_piece_by_piece,
            expired_jobs_by_age_come_oldest_first_without_those_that_keep_themselves,
            expired_jobs_by_count_are_the_first_that_ended,
            expired_jobs_by_own_time_are_those_whose_time_has_passed,
            rows_about_other_shards_are_given_back_in_order,
            rows_about_other_shards_are_replaced_and_removed,
            the_jobs_of_a_part_are_read_with_its_record_of_now,
            the_removal_of_a_part_takes_its_jobs_along,
            inputs_from_other_shards_are_loaded_while_they_are_missing,
            raw_keys_and_elements_are_given_back_in_order,
            raw_keys_and_elements_are_replaced_and_removed,
            rows_of_qless_are_given_back_as_they_were_put,
            rows_of_qless_are_replaced_and_removed,
        }
    };
}

/// Likewise the cases for stores with several writers.
#[doc(hidden)]
#[macro_export]
macro_rules! shared_suite_names {
    ($next:ident $given:tt) => {
        $crate::$next! { $given
            the_last_one_to_take_a_store_owns_it,
            a_store_is_taken_back_under_a_new_epoch,
            a_store_that_somebody_else_took_is_not_taken_back,
            a_commit_is_there_for_the_next_owner,
            a_lost_owner_neither_repeats_nor_skips_a_commit,
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! suite_each_test {
    ({ $fixture:expr } $($case:ident,)*) => {
        $(#[test] fn $case() { $crate::suite::$case(&mut $fixture); })*
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! suite_list {
    ({ $fixture:ty } $($case:ident,)*) => {
        vec![$($crate::suite::Case::<$fixture> {
            name: stringify!($case),
            run: $crate::suite::$case::<$fixture>,
        },)*]
    };
}

/// Makes a test of every case of the suite. The argument makes a [`StoreFixture`].
#[macro_export]
macro_rules! suite_tests {
    ($fixture:expr) => {
        $crate::suite_names! { suite_each_test { $fixture } }
    };
}

/// Makes a test of every case for stores with several writers. The argument makes a [`SharedStoreFixture`].
#[macro_export]
macro_rules! shared_suite_tests {
    ($fixture:expr) => {
        $crate::shared_suite_names! { suite_each_test { $fixture } }
    };
}

/// Returns all cases of the suite, for stores whose surroundings are expensive to make.
pub fn cases<G: StoreFixture>() -> Vec<Case<G>> {
    crate::suite_names! { suite_list { G } }
}

/// Returns all cases for stores with several writers.
pub fn shared_cases<G: SharedStoreFixture>() -> Vec<Case<G>> {
    crate::shared_suite_names! { suite_list { G } }
}
