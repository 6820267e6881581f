//! Several members, and what happens between them.

use crate::{
    broker::{Broker, record},
    reading::{LIMIT, Reading, Seen},
};
use alluvium_core::{
    Partition,
    seam::{Event, Source},
};
use alluvium_kafka::{Error, KafkaSource};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// The sandbox always waits for members a second less than a session.
fn hand_over_limit(broker: &Broker) -> Duration {
    Duration::from_secs(if broker.is_real() { 4 } else { 8 })
}

pub async fn two_members_share_and_hand_over(broker: &Broker) {
    let topic = broker.topic(4).await;
    for partition in 0..4 {
        broker.fill(&topic, partition, 0..1000).await;
    }
    let mut first = Reading::new(broker.source(&topic));
    first.until_at(&[(0, 1000), (1, 1000), (2, 1000), (3, 1000)]).await;
    // The second gets half, and the first keeps its half without interruption.
    let mut second = Reading::new(broker.source(&topic));
    second.positions = first.positions.clone();
    let shared = async {
        let limit = Instant::now() + LIMIT;
        while first.assigned.len() != 2 || second.assigned.len() != 2 {
            assert!(Instant::now() < limit, "{:?} {:?}", first.assigned, second.assigned);
            drop(timeout(Duration::from_millis(20), first.step()).await);
            drop(timeout(Duration::from_millis(20), second.step()).await);
        }
    };
    shared.await;
    assert_eq!(
        first.revoked.iter().map(|(partitions, lost)| (partitions.len(), *lost)).collect::<Vec<_>>(),
        [(2, false)]
    );
    for partition in 0..4 {
        broker.fill(&topic, partition, 1000..1500).await;
    }
    let ends = |reading: &Reading| reading.assigned.keys().map(|p| (p.0, 1500)).collect::<Vec<_>>();
    let (first_ends, second_ends) = (ends(&first), ends(&second));
    first.until_at(&first_ends).await;
    second.until_at(&second_ends).await;
    for partition in 0..4 {
        let mut offsets = [first.offsets(partition), second.offsets(partition)].concat();
        offsets.sort_unstable();
        assert_eq!(offsets, (0..1500).collect::<Vec<_>>());
    }
    // Closing hands over at once, without waiting for a session to time out.
    first.positions.extend(second.positions.clone());
    let started = Instant::now();
    second.source.close().await;
    let closed = started.elapsed();
    assert!(closed < Duration::from_secs(4), "closing took {closed:?}");
    first.until("taking over", |first| first.assigned.len() == 4).await;
    let taken = started.elapsed();
    assert!(taken < hand_over_limit(broker), "taking over took {taken:?}");
    for partition in 0..4 {
        broker.fill(&topic, partition, 1500..1510).await;
    }
    first.until_at(&[(0, 1510), (1, 1510), (2, 1510), (3, 1510)]).await;
}

pub async fn an_unanswered_assignment_waits_for_a_seek(broker: &Broker) {
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..100).await;
    broker.fill(&topic, 1, 0..100).await;
    let mut reading = Reading::new(broker.source(&topic));
    match reading.source.next().await.unwrap() {
        Event::Assigned { partitions, ack } => {
            assert_eq!(partitions.len(), 2);
            ack.send(vec![(Partition(1), 10)]);
        }
        other => panic!("{other:?}"),
    }
    reading.assigned.insert(Partition(1), 10);
    reading.until_at(&[(1, 100)]).await;
    assert_eq!(reading.for_a_while(Duration::from_secs(1)).await, []);
    reading.source.seek(&[(Partition(0), 40)]).unwrap();
    reading.assigned.insert(Partition(0), 40);
    reading.until_at(&[(0, 100)]).await;
    assert_eq!(reading.offsets(0), (40..100).collect::<Vec<_>>());
    // Such a partition can be revoked like others.
    let mut other = Reading::new(broker.source(&topic));
    let limit = Instant::now() + LIMIT;
    while other.assigned.len() != 1 {
        assert!(Instant::now() < limit);
        drop(timeout(Duration::from_millis(20), reading.step()).await);
        drop(timeout(Duration::from_millis(20), other.step()).await);
    }
    // An acknowledgement that is dropped takes nothing, and lets the group go on.
    let mut third = broker.source(&broker.topic(1).await);
    match third.next().await.unwrap() {
        Event::Assigned { ack, .. } => drop(ack),
        other => panic!("{other:?}"),
    }
    assert!(timeout(Duration::from_secs(1), third.next()).await.is_err());
    third.close().await;
}

pub async fn a_revocation_waits_for_its_answer(broker: &Broker) {
    let topic = broker.topic(2).await;
    broker.fill(&topic, 0, 0..10).await;
    broker.fill(&topic, 1, 0..10).await;
    let mut first = Reading::new(broker.source(&topic));
    first.until_at(&[(0, 10), (1, 10)]).await;
    let mut second = Reading::new(broker.source(&topic));
    second.positions = first.positions.clone();
    let (revoked, ack) = loop {
        match timeout(LIMIT, first.source.next()).await.unwrap().unwrap() {
            Event::Revoked { partitions, lost: false, ack } => break (partitions, ack),
            Event::Chunk(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(revoked.len(), 1);
    // Records come meanwhile: none of the revoked partition may show, and the other does not get it.
    for partition in 0..2 {
        broker.fill(&topic, partition, 10..20).await;
    }
    first.assigned.remove(&revoked[0]);
    let seen = second.for_a_while(Duration::from_millis(1500)).await;
    assert!(!seen.iter().any(|seen| matches!(seen, Seen::Assigned(_))), "{seen:?}");
    first.for_a_while(Duration::from_millis(200)).await;
    ack.send(());
    let kept = first.assigned.keys().map(|p| (p.0, 20)).collect::<Vec<_>>();
    let moved = [(revoked[0].0, 20)];
    tokio::join!(first.until_at(&kept), second.until_at(&moved));
    assert_eq!(second.offsets(revoked[0].0), (10..20).collect::<Vec<_>>());
}

pub async fn a_dropped_source_leaves_its_group(broker: &Broker) {
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..10).await;
    let mut first = Reading::new(broker.source(&topic));
    first.until_at(&[(0, 10)]).await;
    let mut second = Reading::new(broker.source(&topic));
    second.for_a_while(Duration::from_millis(500)).await;
    drop(first);
    let started = Instant::now();
    second.until_at(&[(0, 10)]).await;
    assert!(started.elapsed() < hand_over_limit(broker), "{:?}", started.elapsed());
}

pub async fn an_assignment_that_nobody_answers_is_given_up(broker: &Broker) {
    let topic = broker.topic(1).await;
    broker.fill(&topic, 0, 0..10).await;
    let settings = [("max.poll.interval.ms", "6000")];
    let mut reading = Reading::new(KafkaSource::connect(broker.config(&topic, &settings)).unwrap());
    let Event::Assigned { ack, .. } = reading.source.next().await.unwrap() else { panic!("no assignment") };
    let started = Instant::now();
    let error = timeout(LIMIT, reading.source.next()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::AssignTimeout { .. }), "{error:?}");
    assert!(started.elapsed() > Duration::from_secs(5));
    // Too late.
    ack.send(vec![(Partition(0), 0)]);
    assert_eq!(reading.for_a_while(Duration::from_secs(1)).await, []);
    reading.source.seek(&[(Partition(0), 3)]).unwrap();
    reading.assigned.insert(Partition(0), 3);
    reading.until_at(&[(0, 10)]).await;
    assert_eq!(reading.offsets(0), (3..10).collect::<Vec<_>>());
}

/// Each rebalance interrupts fetching, mostly at the end of partitions, while records trickle in.
pub async fn nothing_is_left_out_while_members_come_and_go(broker: &Broker) {
    const PARTITIONS: i32 = 3;
    let topic = broker.topic(PARTITIONS).await;
    let settings = [("session.timeout.ms", "2000"), ("heartbeat.interval.ms", "300")];
    // Real brokers take no session of less than six seconds, and need none.
    let settings = if broker.is_real() { &settings[1..] } else { &settings[..] };
    let connect = || Reading::new(KafkaSource::connect(broker.config(&topic, settings)).unwrap());
    let producer = broker.producer();
    let written = Arc::new(AtomicBool::new(false));
    let writing = {
        let (topic, written) = (topic.clone(), Arc::clone(&written));
        tokio::spawn(async move {
            let mut count = 0;
            while !written.load(Ordering::Relaxed) {
                for partition in 0..PARTITIONS {
                    producer.produce(record(&topic, partition, "x")).await.unwrap();
                }
                count += 1;
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
            count
        })
    };
    let mut first = connect();
    first.until("reading", |first| first.positions.len() == 3).await;
    for _ in 0..4 {
        let mut second = connect();
        second.positions.clone_from(&first.positions);
        let limit = Instant::now() + LIMIT;
        let mut shared = 0;
        while shared < 60 {
            assert!(Instant::now() < limit, "{:?} {:?}", first.assigned, second.assigned);
            for (one, other) in [(0, 1), (1, 0)] {
                let pair = [&mut first, &mut second];
                let [a, b] = pair;
                let (stepping, waiting) = if one < other { (a, b) } else { (b, a) };
                // As a table would, which both commit to before they let go.
                for (partition, position) in &waiting.positions {
                    let known = stepping.positions.entry(*partition).or_insert(0);
                    *known = (*known).max(*position);
                }
                drop(timeout(Duration::from_millis(5), stepping.step()).await.map(Result::unwrap));
            }
            shared += i32::from(!first.assigned.is_empty() && !second.assigned.is_empty());
        }
        second.source.close().await;
        for (partition, position) in &second.positions {
            let known = first.positions.entry(*partition).or_insert(0);
            *known = (*known).max(*position);
        }
        first.records.append(&mut second.records);
        first.until("taking over", |first| first.assigned.len() == 3).await;
    }
    written.store(true, Ordering::Relaxed);
    let count = writing.await.unwrap();
    first.until_at(&[(0, count), (1, count), (2, count)]).await;
    for partition in 0..PARTITIONS {
        let offsets = first.offsets(partition);
        let missing: Vec<_> = (0..count).filter(|offset| !offsets.contains(offset)).collect();
        assert_eq!((missing, offsets.len()), (Vec::new(), count as usize), "partition {partition}");
    }
}
