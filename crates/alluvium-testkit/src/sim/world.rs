//! The world's dice, its protocol of events, and the lives of its processes.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// One seeded source of chance for all that happens, and what has happened.
#[derive(Debug)]
pub struct World {
    inner: Mutex<Inner>,
    start: Instant,
}

#[derive(Debug)]
struct Inner {
    dice: StdRng,
    hash: DefaultHasher,
    lines: Option<Vec<String>>,
    violations: Vec<String>,
    calm: bool,
    /// Until when tables do not answer.
    outage: Option<Instant>,
}

/// What a run leaves: equal for equal seeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protocol {
    /// Of all events with their times.
    pub hash: u64,
    /// What spoke against the promises.
    pub violations: Vec<String>,
    /// The events, when they were asked for.
    pub lines: Vec<String>,
}

impl World {
    /// A world under the runtime's paused clock; it keeps its events as text with `traced`.
    pub fn new(seed: u64, traced: bool) -> Arc<Self> {
        let inner = Inner {
            dice: StdRng::seed_from_u64(seed),
            hash: DefaultHasher::new(),
            lines: traced.then(Vec::new),
            violations: Vec::new(),
            calm: false,
            outage: None,
        };
        Arc::new(Self { inner: Mutex::new(inner), start: Instant::now() })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something of this chance (0 to 1) happens.
    pub fn happens(&self, chance: f64) -> bool {
        chance > 0.0 && self.lock().dice.random_bool(chance.min(1.0))
    }

    /// Whether a fault of this chance strikes: none does in a calm world.
    pub fn strikes(&self, chance: f64) -> bool {
        !self.lock().calm && self.happens(chance)
    }

    /// The same for a table: during an outage every one does.
    pub fn is_table_struck(&self, chance: f64) -> bool {
        let is_out = { self.lock().outage.is_some_and(|until| Instant::now() < until) };
        is_out || self.strikes(chance)
    }

    /// From now on tables do not answer for some time.
    pub fn go_out(&self, milliseconds: Range<u64>) {
        let time = Duration::from_millis(self.within(milliseconds));
        self.note(format_args!("tables do not answer for {time:?}"));
        self.lock().outage = Some(Instant::now() + time);
    }

    pub fn below(&self, end: usize) -> usize {
        self.within(0..end.max(1) as u64) as usize
    }

    pub fn within(&self, range: Range<u64>) -> u64 {
        self.lock().dice.random_range(range)
    }

    pub fn pick<T: Copy>(&self, of: &[T]) -> Option<T> {
        of.get(self.below(of.len())).copied()
    }

    /// Waits some milliseconds.
    pub async fn pause(&self, milliseconds: Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.within(milliseconds))).await;
    }

    /// From now on no fault strikes.
    pub fn calm(&self) {
        self.note(format_args!("the world is calm"));
        let mut inner = self.lock();
        (inner.calm, inner.outage) = (true, None);
    }

    /// Writes an event down.
    pub fn note(&self, event: fmt::Arguments<'_>) {
        let at = self.start.elapsed().as_millis();
        let mut inner = self.lock();
        inner.hash.write_u128(at);
        // Formatting into the hash cannot fail.
        let _never = fmt::Write::write_fmt(&mut Hashing(&mut inner.hash), event).is_err();
        if let Some(lines) = &mut inner.lines {
            lines.push(format!("{:>7}.{:03} {event}", at / 1000, at % 1000));
        }
    }

    /// Writes down what must not be.
    pub fn violation(&self, what: String) {
        self.note(format_args!("VIOLATION {what}"));
        self.lock().violations.push(what);
    }

    pub fn protocol(&self) -> Protocol {
        let mut inner = self.lock();
        Protocol {
            hash: inner.hash.finish(),
            violations: inner.violations.clone(),
            lines: inner.lines.take().unwrap_or_default(),
        }
    }
}

struct Hashing<'a>(&'a mut DefaultHasher);

impl fmt::Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Running,
    /// Its operations do not go on for now.
    Frozen,
    /// They never do.
    Dead,
}

/// What all operations of one process pass before and after they wait. Those that wait go on in the
/// order in which they came, which a `watch` channel would leave to chance.
#[derive(Clone, Debug)]
pub struct Gate {
    pub name: Arc<str>,
    life: Arc<Mutex<Life>>,
    changed: Arc<Notify>,
}

impl Gate {
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), life: Arc::new(Mutex::new(Life::Running)), changed: Arc::default() }
    }

    pub fn life(&self) -> Life {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dead stay dead.
    pub fn set(&self, life: Life) {
        let mut now = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != Life::Dead {
            *now = life;
        }
        self.changed.notify_waiters();
    }

    /// Goes on while the process runs: not before it thaws, and never once it is dead.
    pub async fn pass(&self) {
        self.wait_for(Life::Running).await;
    }

    pub async fn died(&self) {
        self.wait_for(Life::Dead).await;
    }

    async fn wait_for(&self, life: Life) {
        loop {
            let changed = self.changed.notified();
            if self.life() == life {
                return;
            }
            changed.await;
        }
    }
}
