//! The producers, which keep going whatever happens to the broker, and write down what they know.

use crate::ledger::{Ledger, value};
use alluvium_kafka::{Delivery, NewRecord, Producer};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Records a batch, and the time between two: about a thousand records a second.
const BATCH: u64 = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// What the producers share.
#[derive(Debug)]
pub struct Shared {
    pub brokers: String,
    pub topic: String,
    pub ledger: Mutex<Ledger>,
    /// The number of the next record.
    next: AtomicU64,
    pub partitions: AtomicUsize,
    stop: AtomicBool,
}

pub struct Producing {
    pub shared: Arc<Shared>,
    tasks: Vec<JoinHandle<()>>,
}

impl Producing {
    /// Starts one that writes plainly, and two that write transactions.
    pub fn start(brokers: &str, topic: &str, partitions: usize, seed: u64) -> Self {
        let shared = Arc::new(Shared {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            ledger: Mutex::default(),
            next: AtomicU64::new(0),
            partitions: AtomicUsize::new(partitions),
            stop: AtomicBool::new(false),
        });
        let random = |number| StdRng::seed_from_u64(seed ^ number);
        let mut tasks = vec![tokio::spawn(plain(shared.clone(), random(1)))];
        tasks.extend([2, 3].map(|number| tokio::spawn(transactions(shared.clone(), random(number), number))));
        Self { shared, tasks }
    }

    /// Lets the producers finish what they began.
    pub async fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for task in self.tasks.drain(..) {
            task.await.expect("a producer goes on whatever happens");
        }
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().expect("nobody panics with the ledger in hand")
    }

    fn settings() -> [(String, String); 1] {
        // New partitions are written to soon.
        [("topic.metadata.refresh.interval.ms".to_owned(), "1000".to_owned())]
    }

    /// Sends the next record to some partition; `None` when it is not even queued.
    async fn send(&self, producer: &Producer, random: &mut StdRng) -> (u64, Option<Delivery>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let partition = random.random_range(0..self.partitions.load(Ordering::Acquire)) as i32;
        let (key, value) = (number.to_string(), value(number));
        let record = NewRecord {
            topic: &self.topic,
            partition: Some(partition),
            key: Some(key.as_bytes()),
            value: value.as_deref(),
            ..NewRecord::default()
        };
        (number, producer.enqueue(record).await.ok())
    }
}

/// Writes records one by one.
async fn plain(shared: Arc<Shared>, mut random: StdRng) {
    let producer = Producer::connect(&shared.brokers, &Shared::settings()).expect("a producer");
    let (sent, mut deliveries) = tokio::sync::mpsc::unbounded_channel::<(u64, Delivery)>();
    let noting = tokio::spawn({
        let shared = shared.clone();
        async move {
            while let Some((number, delivery)) = deliveries.recv().await {
                let delivered = delivery.await;
                let mut ledger = shared.ledger();
                match delivered {
                    Ok(delivered) => ledger.acknowledged((delivered.partition, delivered.offset), number),
                    Err(_) => drop(ledger.unknown.insert(number)),
                }
            }
        }
    });
    while !shared.is_stopped() {
        // Bursts now and then.
        let batch = if random.random_bool(0.01) { BATCH * 50 } else { BATCH };
        for _ in 0..batch {
            if let (number, Some(delivery)) = shared.send(&producer, &mut random).await {
                sent.send((number, delivery)).expect("somebody notes it");
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
    drop(sent);
    noting.await.expect("what was sent is noted");
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Committed,
    Aborted,
    /// The commit was asked for, and nobody said what came of it.
    Unknown,
}

/// Writes transactions, of which some are aborted.
async fn transactions(shared: Arc<Shared>, mut random: StdRng, number: u64) {
    let id = format!("torture-{number}");
    let mut producer: Option<Producer> = None;
    while !shared.is_stopped() {
        let Some(open) = &producer else {
            // Ends what one before left open. Waits for a broker that is away.
            match Producer::transactional(&shared.brokers, &id, &Shared::settings()).await {
                Ok(made) => producer = Some(made),
                Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            }
            continue;
        };
        if open.begin().await.is_err() {
            producer = None;
            continue;
        }
        let mut sent = Vec::new();
        for _ in 0..random.random_range(1..100) {
            sent.push(shared.send(open, &mut random).await);
        }
        // Some stay open for a while: nothing behind them can be read meanwhile.
        let wait = if random.random_bool(0.05) { 3_000 } else { random.random_range(0..400) };
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let commit = random.random_bool(0.7);
        let (ended, reusable) = end(open, commit).await;
        if !reusable {
            producer = None;
        }
        note(&shared, sent, ended).await;
    }
}

/// Ends a transaction. What was never asked to be committed is aborted, if only when the next producer
/// of its id comes.
async fn end(producer: &Producer, commit: bool) -> (Ended, bool) {
    if commit && producer.commit().await.is_ok() {
        return (Ended::Committed, true);
    }
    match (producer.abort().await, commit) {
        (Ok(()), _) => (Ended::Aborted, true),
        (Err(_), false) => (Ended::Aborted, false),
        (Err(_), true) => (Ended::Unknown, false),
    }
}

async fn note(shared: &Shared, sent: Vec<(u64, Option<Delivery>)>, ended: Ended) {
    for (number, delivery) in sent {
        let delivered = match delivery {
            Some(delivery) => delivery.await.ok(),
            None => None,
        };
        let mut ledger = shared.ledger();
        match (ended, delivered) {
            (Ended::Committed, Some(delivered)) => {
                ledger.acknowledged((delivered.partition, delivered.offset), number);
            }
            (Ended::Aborted, _) => drop(ledger.aborted.insert(number)),
            _ => drop(ledger.unknown.insert(number)),
        }
    }
}
