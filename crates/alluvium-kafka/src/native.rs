//! Messages of many partitions in one queue, taken many at a time.
//!
//! The safe wrapper hands out one message per call at twice the cost, and its errors lack what a
//! span needs: the offset at which a partition ended, the partition that an error belongs to. So
//! this module, the only unsafe one, calls librdkafka itself for just that.
//!
//! What makes it sound:
//! - A [`MessageQueue`] borrows its consumer, so librdkafka's client outlives it.
//! - A [`Message`] owns its pointer, cannot be copied, and is destroyed by its drop, once. It holds
//!   a reference to the buffers that its bytes lie in.
//! - librdkafka's functions used here may be called from any thread; nothing here is `Send`.
//!
//! What it costs: librdkafka takes the errors of a batch for records when it notes how far we have
//! read. It uses that note only to go on after a rebalance, and the reader seeks then.
//!
//! It also asks for a topic's id, and has the one knob of the mock cluster: the wrapper lacks both.

use alluvium_core::TopicId;
use rdkafka::{
    bindings as sys,
    client::{Client, ClientContext},
    consumer::{BaseConsumer, Consumer, ConsumerContext},
    error::{KafkaError, RDKafkaErrorCode},
};
use std::{
    ffi::{CStr, c_int, c_void},
    marker::PhantomData,
    ptr::{self, NonNull},
    time::Duration,
};

/// Receives the messages of the partitions that are forwarded to it.
pub(crate) struct MessageQueue<'c> {
    client: NonNull<sys::rd_kafka_t>,
    queue: NonNull<sys::rd_kafka_queue_t>,
    batch: Vec<Message>,
    consumer: PhantomData<&'c ()>,
}

/// A record, or an error of a partition.
#[repr(transparent)]
pub(crate) struct Message(NonNull<sys::rd_kafka_message_t>);

impl<'c> MessageQueue<'c> {
    /// An empty queue of a consumer's client; `None` when librdkafka makes none.
    pub(crate) fn new<C: ConsumerContext>(consumer: &'c BaseConsumer<C>) -> Option<Self> {
        let client = NonNull::new(consumer.client().native_ptr())?;
        // SAFETY: the client is alive for 'c.
        let queue = NonNull::new(unsafe { sys::rd_kafka_queue_new(client.as_ptr()) })?;
        Some(Self { client, queue, batch: Vec::new(), consumer: PhantomData })
    }

    /// Sends a partition's messages here. To be called before each assignment of the partition, as
    /// stopping it undoes this. Returns whether the partition is known to the client.
    pub(crate) fn forward(&self, topic: &CStr, partition: i32) -> bool {
        // SAFETY: the client is alive; `topic` ends with a NUL; the returned handle is ours, and
        // destroying it leaves the partition's queue and its forwarding as they are.
        unsafe {
            let source = sys::rd_kafka_queue_get_partition(self.client.as_ptr(), topic.as_ptr(), partition);
            if source.is_null() {
                return false;
            }
            sys::rd_kafka_queue_forward(source, self.queue.as_ptr());
            sys::rd_kafka_queue_destroy(source);
        }
        true
    }

    /// Takes up to `most` messages (at least 1), waiting up to `timeout` for that many. Also tells
    /// librdkafka that this member is alive.
    pub(crate) fn poll(&mut self, most: usize, timeout: Duration) -> std::vec::Drain<'_, Message> {
        let most = most.max(1);
        let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
        self.batch.clear();
        self.batch.reserve(most);
        let room = self.batch.as_mut_ptr().cast::<*mut sys::rd_kafka_message_t>();
        // SAFETY: `room` has space for `most` pointers, and a `Message` is one non-null pointer.
        // The first `taken` are written, each a message that is ours to destroy.
        unsafe {
            let taken = sys::rd_kafka_consume_batch_queue(self.queue.as_ptr(), milliseconds, room, most);
            self.batch.set_len(usize::try_from(taken).unwrap_or(0).min(most));
        }
        self.batch.drain(..)
    }
}

impl Drop for MessageQueue<'_> {
    fn drop(&mut self) {
        // SAFETY: the queue is ours and its client still alive. What is left in it goes with it.
        unsafe { sys::rd_kafka_queue_destroy(self.queue.as_ptr()) };
    }
}

impl Message {
    fn raw(&self) -> &sys::rd_kafka_message_t {
        // SAFETY: the message is alive until our drop, and nobody writes to it.
        unsafe { self.0.as_ref() }
    }

    /// [`RDKafkaErrorCode::NoError`] for a record.
    pub(crate) fn code(&self) -> RDKafkaErrorCode {
        self.raw().err.into()
    }

    pub(crate) fn partition(&self) -> i32 {
        self.raw().partition
    }

    /// A record's offset, or the one that an error is about.
    pub(crate) fn offset(&self) -> i64 {
        self.raw().offset
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        // SAFETY: librdkafka's pointer and length of the key, alive as long as the message.
        unsafe { bytes(self.raw().key, self.raw().key_len) }
    }

    /// A record's value. An error has its description here, hence [`Message::reason`].
    pub(crate) fn value(&self) -> Option<&[u8]> {
        // SAFETY: librdkafka's pointer and length of the payload, alive as long as the message.
        unsafe { bytes(self.raw().payload, self.raw().len) }
    }

    /// Milliseconds since the epoch; -1 for none.
    pub(crate) fn timestamp(&self) -> i64 {
        // SAFETY: the message is alive; the kind of the timestamp may be left out.
        unsafe { sys::rd_kafka_message_timestamp(self.0.as_ptr(), ptr::null_mut()) }
    }

    /// librdkafka's words for an error.
    pub(crate) fn reason(&self) -> String {
        // SAFETY: the message is alive; the answer is null, static, or part of the message.
        unsafe {
            let reason = sys::rd_kafka_message_errstr(self.0.as_ptr());
            if reason.is_null() { String::new() } else { CStr::from_ptr(reason).to_string_lossy().into_owned() }
        }
    }

    /// A record's headers in order: name, and value unless null. Names can be any bytes.
    pub(crate) fn headers(&self) -> Vec<(&[u8], Option<&[u8]>)> {
        let mut found = Vec::new();
        let mut headers = ptr::null_mut();
        // SAFETY: the message is alive and keeps its headers; each call fills all three outputs
        // when it succeeds: a name that ends with a NUL, a pointer with its length.
        unsafe {
            let none = sys::rd_kafka_message_headers(self.0.as_ptr(), &raw mut headers);
            if RDKafkaErrorCode::from(none) != RDKafkaErrorCode::NoError || headers.is_null() {
                return found;
            }
            for index in 0.. {
                let (mut name, mut value, mut length) = (ptr::null(), ptr::null(), 0);
                let end = sys::rd_kafka_header_get_all(headers, index, &raw mut name, &raw mut value, &raw mut length);
                if RDKafkaErrorCode::from(end) != RDKafkaErrorCode::NoError {
                    break;
                }
                found.push((CStr::from_ptr(name).to_bytes(), bytes(value, length)));
            }
        }
        found
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: the pointer came from librdkafka as ours, and this is the only place that gives it back.
        unsafe { sys::rd_kafka_message_destroy(self.0.as_ptr()) };
    }
}

/// # Safety
/// `start` is null, or `length` bytes from it are alive and unchanged for `'a`.
unsafe fn bytes<'a>(start: *const c_void, length: usize) -> Option<&'a [u8]> {
    let start = NonNull::new(start.cast_mut().cast::<u8>())?;
    // SAFETY: promised by the caller.
    Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
}

/// Something of librdkafka's that is ours to destroy.
struct Owned<T>(NonNull<T>, unsafe extern "C" fn(*mut T));

impl<T> Owned<T> {
    /// # Safety
    /// `made` is null, or ours to destroy by `destroy`, which takes everything that [`Owned::raw`] can name.
    unsafe fn new(made: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Result<Self, KafkaError> {
        let made = NonNull::new(made).ok_or(KafkaError::AdminOpCreation("librdkafka made nothing".to_owned()))?;
        Ok(Self(made, destroy))
    }

    fn raw(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: promised when it was made; this is the only place that destroys it.
        unsafe { (self.1)(self.raw()) };
    }
}

/// Asks a broker for the id of a topic; `None` when it knows of none. Waits up to `timeout`. Without a
/// broker it is one that calls itself the controller.
pub(crate) fn topic_id<C: ClientContext>(
    client: &Client<C>,
    topic: &CStr,
    broker: Option<i32>,
    timeout: Duration,
) -> Result<Option<TopicId>, KafkaError> {
    let milliseconds = c_int::try_from(timeout.as_millis()).unwrap_or(c_int::MAX);
    let check = |code: sys::rd_kafka_resp_err_t| match RDKafkaErrorCode::from(code) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(KafkaError::MetadataFetch(code)),
    };
    let (client, mut text) = (client.native_ptr(), [0; 512]);
    let mut names = [topic.as_ptr()];
    let mut count = 0;
    // SAFETY: the client is alive, and what is made of it is destroyed before this returns, in the
    // reverse order. `names` holds one string that ends with a NUL, of which librdkafka makes a copy;
    // `text` has the length that is told. The answer's parts live as long as the event that holds it.
    unsafe {
        let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
        let options = sys::rd_kafka_AdminOptions_new(client, operation);
        let options = Owned::new(options, sys::rd_kafka_AdminOptions_destroy)?;
        let length = text.len();
        check(sys::rd_kafka_AdminOptions_set_request_timeout(
            options.raw(),
            milliseconds.clamp(1, 3_600_000),
            text.as_mut_ptr(),
            length,
        ))?;
        if let Some(broker) = broker {
            check(sys::rd_kafka_AdminOptions_set_broker(options.raw(), broker, text.as_mut_ptr(), length))?;
        }
        let queue = Owned::new(sys::rd_kafka_queue_new(client), sys::rd_kafka_queue_destroy)?;
        let topics = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let topics = Owned::new(topics, sys::rd_kafka_TopicCollection_destroy)?;
        sys::rd_kafka_DescribeTopics(client, topics.raw(), options.raw(), queue.raw());
        // The request's own timeout answers first.
        let event = sys::rd_kafka_queue_poll(queue.raw(), milliseconds.saturating_add(1000));
        if event.is_null() {
            return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut));
        }
        let event = Owned::new(event, sys::rd_kafka_event_destroy)?;
        check(sys::rd_kafka_event_error(event.raw()))?;
        let answer = sys::rd_kafka_event_DescribeTopics_result(event.raw());
        if answer.is_null() {
            return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::BadMessage));
        }
        let found = sys::rd_kafka_DescribeTopics_result_topics(answer, &raw mut count);
        if found.is_null() || count == 0 {
            return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition));
        }
        check(sys::rd_kafka_error_code(sys::rd_kafka_TopicDescription_error(*found)))?;
        let id = sys::rd_kafka_TopicDescription_topic_id(*found);
        if id.is_null() {
            return Ok(None);
        }
        let half = |bits: i64| u64::from_ne_bytes(bits.to_ne_bytes());
        let most = half(sys::rd_kafka_Uuid_most_significant_bits(id));
        Ok(TopicId::from_halves(most, half(sys::rd_kafka_Uuid_least_significant_bits(id))))
    }
}

unsafe extern "C" {
    /// Part of the bundled librdkafka's public header, and missing in the bindings.
    fn rd_kafka_mock_group_initial_rebalance_delay_ms(cluster: *mut sys::rd_kafka_mock_cluster_t, delay: c_int);
}

/// Lets a new group of a client's mock cluster start at once, rather than after three seconds.
/// Does nothing for a client without one.
pub(crate) fn start_groups_at_once<C: ClientContext>(client: &Client<C>) {
    // SAFETY: the client is alive, and so is its mock cluster, which it owns; the call takes its lock.
    unsafe {
        let cluster = sys::rd_kafka_handle_mock_cluster(client.native_ptr());
        if !cluster.is_null() {
            rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0);
        }
    }
}
