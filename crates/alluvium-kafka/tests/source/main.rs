//! The source against brokers: one suite, on the sandbox and on a real Apache Kafka, and what only
//! one of the two can show.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod broker;
mod groups;
mod process;
mod reading;
mod real;
mod sandbox;
mod suite;

use broker::Broker;

/// Runs functions of the suite on both kinds of broker.
macro_rules! on_both {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        mod on_sandbox {
            $($(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$module::$name(&super::Broker::sandbox()).await;
            })+)+
        }
        mod on_real {
            $($(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$module::$name(&super::Broker::real()).await;
            })+)+
        }
    };
}

on_both! {
    suite:
        reads_all_from_the_positions_given,
        records_arrive_whole,
        header_names_that_are_no_text,
        seeks_reread_exactly,
        a_paused_source_stays_in_its_group,
        a_slow_owner_keeps_its_partitions_and_memory_stays_bounded,
        large_records,
        watermarks_and_offsets_by_time,
        a_topic_has_an_id_of_its_own,
        positions_outside_the_log_are_told,
        an_error_about_a_position_left_since_is_not_told,
        missing_topics_and_partitions_are_named,
        unreachable_brokers_are_named,
        group_offsets_are_written_and_never_read;
    groups:
        two_members_share_and_hand_over,
        an_unanswered_assignment_waits_for_a_seek,
        a_revocation_waits_for_its_answer,
        a_dropped_source_leaves_its_group,
        an_assignment_that_nobody_answers_is_given_up,
        nothing_is_left_out_while_members_come_and_go;
    process:
        partitions_of_a_killed_process_come_back_within_ten_seconds;
}
