//! The simulated table and the real sink behind one suite: what the simulation shows of the one holds for
//! the other.

use alluvium_core::seam::Table;
use alluvium_delta::{DeltaConfig, DeltaSink, TableRole};
use alluvium_testkit::conformance::{Places, Subject, TOPIC, pipeline, table_conformance};
use alluvium_testkit::sim::Faults;
use alluvium_testkit::sim::records::rows;
use alluvium_testkit::sim::store::{Role, Store};
use alluvium_testkit::sim::table::SimTable;
use alluvium_testkit::sim::world::{Gate, World};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use std::sync::Arc;

struct Simulated {
    world: Arc<World>,
    store: Arc<Store>,
}

impl Subject for Simulated {
    type Table = SimTable;

    async fn open(&self) -> SimTable {
        SimTable::new(&self.store, &self.world, &Gate::new("table"), Faults::default(), &pipeline(), TOPIC)
    }

    async fn rows(&self) -> Places {
        let mut places = Places::new();
        let log = self.store.log(Role::Rows);
        for row in log.iter().flat_map(|entry| &entry.files).flat_map(|file| &file.batches).flat_map(rows) {
            *places.entry((row.partition, row.offset)).or_default() += 1;
        }
        places
    }

    async fn letters(&self) -> Places {
        let mut places = Places::new();
        for letter in self.store.log(Role::Letters).iter().flat_map(|entry| &entry.letters) {
            *places.entry((letter.partition.0, letter.offset)).or_default() += 1;
        }
        places
    }
}

#[tokio::test(start_paused = true)]
async fn the_simulated_table_conforms() {
    table_conformance(|| Simulated { world: World::new(1, false), store: Arc::default() }).await;
}

struct Real(Arc<dyn ObjectStore>);

impl Subject for Real {
    type Table = DeltaSink;

    async fn open(&self) -> DeltaSink {
        let config = DeltaConfig {
            table: "memory:///rows".to_owned(),
            dead_letters: "memory:///letters".to_owned(),
            pipeline: pipeline(),
            topic: TOPIC.to_owned(),
            partition_by: Vec::new(),
            storage: Vec::new(),
            file_size: 64 << 20,
        };
        DeltaSink::open_with_store(self.0.clone(), config).await.unwrap()
    }

    async fn rows(&self) -> Places {
        let mut places = Places::new();
        let mut scan = self.open().await.reader().scan_rows("_kafka", None).await.unwrap();
        while let Some(batch) = scan.next().await {
            for row in batch.unwrap() {
                *places.entry((row.partition.0, row.offset)).or_default() += 1;
            }
        }
        places
    }

    async fn letters(&self) -> Places {
        let mut places = Places::new();
        let columns = ["partition".to_owned(), "offset".to_owned()];
        let sink = self.open().await;
        sink.load().await.unwrap();
        let batch = sink.reader().first_rows(TableRole::DeadLetters, Some(&columns), usize::MAX).await.unwrap();
        for row in 0..batch.num_rows() {
            let partition = batch.column(0).as_primitive::<Int32Type>().value(row);
            *places.entry((partition, batch.column(1).as_primitive::<Int64Type>().value(row))).or_default() += 1;
        }
        places
    }
}

#[tokio::test]
async fn the_delta_sink_conforms() {
    table_conformance(|| Real(Arc::new(InMemory::new()))).await;
}
