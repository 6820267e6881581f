//! The id of the topic that positions belong to, as the table's log keeps it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use alluvium_core::TopicId;
use alluvium_core::seam::Table;
use alluvium_delta::{DeltaSink, TableRole};
use common::*;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::sync::Arc;

fn id(number: u64) -> Option<TopicId> {
    TopicId::from_halves(1, number)
}

async fn found(sink: &DeltaSink) -> Option<TopicId> {
    sink.load().await.unwrap().topic_id
}

/// Commits the next offset of partition 0, with changes to what the commit says of itself.
async fn commit(sink: &DeltaSink, change: impl FnOnce(&mut alluvium_core::CommitInfo)) {
    let at = positions(sink).await.first().map_or(0, |(_, at)| *at);
    let mut flush = flush(sink, &[(0, at, at + 1)]);
    change(&mut flush.info);
    assert!(is_committed(&sink.commit(&mut flush).await.unwrap()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_commit_of_the_pipeline_that_names_an_id_counts() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    assert_eq!(found(&sink).await, None);
    commit(&sink, |_| {}).await;
    assert_eq!(found(&sink).await, None);
    let follower = open(&store).await;
    commit(&sink, |info| info.topic_id = id(1)).await;
    // Others, and those that do not know.
    commit(&sink, |info| (info.topic_id, info.pipeline) = (id(2), "acme/others".to_owned())).await;
    commit(&sink, |info| (info.topic_id, info.generation) = (id(3), 2)).await;
    commit(&sink, |info| (info.topic_id, info.topic) = (id(4), "others".to_owned())).await;
    commit(&sink, |_| {}).await;
    for sink in [&sink, &follower, &open(&store).await] {
        assert_eq!(found(sink).await, id(1));
    }
    commit(&sink, |info| info.topic_id = id(5)).await;
    for sink in [&sink, &follower, &open(&store).await] {
        assert_eq!(found(sink).await, id(5));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_cleaned_up_behind_a_checkpoint_counts_as_unknown() {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let sink = open(&store).await;
    commit(&sink, |info| info.topic_id = id(1)).await;
    commit(&sink, |_| {}).await;
    sink.maintain(TableRole::Rows).await.unwrap();
    assert_eq!(found(&open(&store).await).await, id(1));
    store.delete(&Path::from("rows/_delta_log/00000000000000000000.json")).await.unwrap();
    let again = open(&store).await;
    assert_eq!(found(&again).await, None);
    assert_eq!(positions(&again).await, [(0, 2)]);
    commit(&again, |info| info.topic_id = id(1)).await;
    assert_eq!(found(&open(&store).await).await, id(1));
}
