//! The model: any process may do its next step at any time, or end; entries may land, fail, land and
//! fail, or land late; other engines commit in between; the group hands out partitions as it likes,
//! also to several at once.

use crate::rules::Rules;
use crate::state::{At, Entry, Head, Letters, N, Offsets, P, Put, Rows, Settled, State, Worker, bit, has};
use alluvium_core::position::StartPolicy;
use stateright::{Model, Property};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::marker::PhantomData;

/// Each offset is at most once a row, a dead letter, or filtered.
pub const TWICE: &str = "no offset twice, and none both a row and a dead letter";
pub const SKIPPED: &str = "none skipped";
pub const AHEAD: &str = "no row past the position";
/// From every state each process by itself, without a restart, a fault or help, reaches the end. What
/// `eventually` would say cannot be asked: a process may sleep, or fail, for ever.
pub const STUCK: &str = "always able to go on";

/// What becomes of a record in one try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Row,
    Letter,
    Filtered,
}

/// How large a world is looked at.
#[derive(Clone, Debug)]
pub struct Protocol<R> {
    pub workers: usize,
    /// For each partition, for each record: what can become of it.
    pub records: Vec<Vec<&'static [Fate]>>,
    pub policy: StartPolicy,
    /// A record whose row needs one more column.
    pub wide: Option<(usize, i64)>,
    /// Commits of other engines.
    pub others: u8,
    pub restore: Restore,
    /// Entries that may be on their way at a time.
    pub flying: usize,
    /// Whether processes are told apart: needed only to read a path.
    pub named: bool,
    pub rules: PhantomData<R>,
}

/// What may be restored, once, with the positions of that time. (A RESTORE as Spark and delta-rs write
/// it leaves positions as they are: to the pipeline it is a DELETE.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restore {
    Nothing,
    /// The rows' table alone, at any time, as a commit. No row is doubled, and nothing is skipped; but
    /// letters that are on their way at that very moment belong to commits that are undone, and can be
    /// in their table twice. Whoever wants more stops the pipeline first.
    Rows,
    /// Both tables from one backup, while no process runs.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    None,
    LandsAndFails,
    Fails,
    FailsAndLandsLater,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Other {
    /// An OPTIMIZE, a DELETE, or another pipeline's commit: versions move, positions stay.
    Commits,
    /// The same in the dead letters' table.
    CommitsToLetters,
    /// The column that rows will need is added by another.
    AddsColumn,
    /// It is gone again, as after a RESTORE.
    DropsColumn,
    /// A column changes its type.
    ChangesColumn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    Assigned {
        worker: usize,
        partition: usize,
    },
    /// Taken away in good order: all was committed.
    Released {
        worker: usize,
        partition: usize,
    },
    /// Taken away without asking, or in the middle of its work.
    Lost {
        worker: usize,
        partition: usize,
    },
    Crashes {
        worker: usize,
    },
    /// Asks the table where to read.
    Looks {
        worker: usize,
    },
    Takes {
        worker: usize,
        partition: usize,
        from: i64,
        to: i64,
        rejected: Offsets,
        filtered: Offsets,
    },
    Flushes {
        worker: usize,
    },
    ReadsRowsLog {
        worker: usize,
    },
    ReadsLettersLog {
        worker: usize,
    },
    Puts {
        worker: usize,
        fault: Fault,
    },
    Settles {
        worker: usize,
    },
    LandsLate {
        flying: usize,
    },
    Other(Other),
    Saved,
    Restored,
    Produced {
        partition: usize,
    },
}

impl<R: Rules> Protocol<R> {
    pub fn partitions(&self) -> usize {
        self.records.len()
    }

    pub fn end(&self, partition: usize) -> i64 {
        self.records[partition].len() as i64
    }

    /// Whether everything is where it belongs.
    pub fn is_done(&self, state: &State) -> bool {
        let read = (0..self.partitions()).all(|p| state.rows.head.at[p] == Some(self.end(p)));
        read && state.letters.written >= state.rows.head.named
    }

    fn fates(&self, partition: usize, offset: i64) -> &'static [Fate] {
        self.records[partition][offset as usize]
    }

    /// Every way in which the records `[from, to)` can turn out: those rejected, and those filtered.
    pub fn turns(&self, partition: usize, from: i64, to: i64) -> Vec<(Offsets, Offsets)> {
        let mut turns = vec![(0, 0)];
        for offset in from..to {
            let with = |(rejected, filtered): (Offsets, Offsets)| {
                self.fates(partition, offset).iter().map(move |fate| match fate {
                    Fate::Row => (rejected, filtered),
                    Fate::Letter => (rejected | bit(offset), filtered),
                    Fate::Filtered => (rejected, filtered | bit(offset)),
                })
            };
            turns = turns.into_iter().flat_map(with).collect();
        }
        turns
    }

    fn worker_actions(&self, state: &State, worker: usize, actions: &mut Vec<Action>) {
        let me = &state.workers[worker];
        if *me != Worker::NEW {
            actions.push(Action::Crashes { worker });
        }
        let idle = me.at == At::Idle;
        let made = me.made.iter().any(Option::is_some);
        for partition in 0..self.partitions() {
            if !me.held[partition] {
                actions.push(Action::Assigned { worker, partition });
                continue;
            }
            if idle && !made {
                actions.push(Action::Released { worker, partition });
            } else if !me.dropped {
                actions.push(Action::Lost { worker, partition });
            }
            let Some(cursor) = me.cursors[partition].filter(|_| !me.dropped) else { continue };
            let (next, high) = (cursor.next, state.high[partition]);
            // What follows, in one chunk or several; what overlaps; what leaves a gap.
            let mut chunks: Vec<_> = (next + 1..=high).map(|to| (next, to)).collect();
            chunks.extend([(next - 1, high), (next + 1, high)]);
            for (from, to) in chunks.into_iter().filter(|(from, to)| *from >= 0 && from < to) {
                for (rejected, filtered) in self.turns(partition, next.max(from), to) {
                    actions.push(Action::Takes { worker, partition, from, to, rejected, filtered });
                }
            }
        }
        match &me.at {
            At::Idle => {
                if (0..self.partitions()).any(|p| me.held[p] && me.cursors[p].is_none()) {
                    actions.push(Action::Looks { worker });
                }
                if made {
                    actions.push(Action::Flushes { worker });
                }
            }
            At::Looking => actions.push(Action::ReadsRowsLog { worker }),
            At::Judging(_) => actions.push(Action::ReadsLettersLog { worker }),
            At::Putting(_) => {
                for fault in [Fault::None, Fault::LandsAndFails, Fault::Fails, Fault::FailsAndLandsLater] {
                    if fault != Fault::FailsAndLandsLater || state.flying.len() < self.flying {
                        actions.push(Action::Puts { worker, fault });
                    }
                }
            }
            At::Settling(_) => actions.push(Action::Settles { worker }),
        }
    }

    fn others(&self, state: &mut State, other: Other) -> Option<()> {
        state.others = state.others.checked_sub(1)?;
        let head = &mut state.rows.head;
        match other {
            Other::CommitsToLetters => state.letters.version += 1,
            Other::Commits => head.version += 1,
            Other::AddsColumn | Other::DropsColumn if head.wide == (other == Other::AddsColumn) => return None,
            Other::AddsColumn | Other::DropsColumn => {
                head.wide = !head.wide;
                head.version += 1;
            }
            Other::ChangesColumn => {
                head.shape += 1;
                head.version += 1;
            }
        }
        state.forget_taken();
        Some(())
    }

    fn restore(&self, state: &mut State) -> Option<()> {
        state.restores -= 1;
        let letters = |put: &Put| matches!(put.entry, Entry::Letters { .. });
        let written = state.letters.written;
        let is_paying = |worker: &Worker| match &worker.at {
            At::Judging(head) => head.named > written,
            At::Putting(put) => letters(put),
            _ => false,
        };
        state.torn = state.workers.iter().any(is_paying) || state.flying.iter().any(letters);
        let version = state.rows.head.version;
        let (rows, letters) = *state.saved.take()?;
        state.rows = rows;
        match self.restore {
            Restore::Both => state.letters = letters,
            _ => state.rows.head.version = version + 1,
        }
        state.forget_taken();
        Some(())
    }

    pub fn act(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::LandsLate { flying } => {
                let put = state.flying.get(flying)?.clone();
                state.land(&put).then_some(())
            }
            Action::Other(other) => self.others(state, other),
            Action::Saved => {
                state.saved = Some(Box::new((state.rows.clone(), state.letters.clone())));
                Some(())
            }
            Action::Restored => self.restore(state),
            Action::Produced { partition } => {
                state.high[partition] += 1;
                Some(())
            }
            Action::Assigned { worker, .. }
            | Action::Released { worker, .. }
            | Action::Lost { worker, .. }
            | Action::Crashes { worker }
            | Action::Looks { worker }
            | Action::Takes { worker, .. }
            | Action::Flushes { worker }
            | Action::ReadsRowsLog { worker }
            | Action::ReadsLettersLog { worker }
            | Action::Puts { worker, .. }
            | Action::Settles { worker } => {
                let mut me = std::mem::replace(&mut state.workers[worker], Worker::NEW);
                let done = self.work(&mut me, state, action);
                state.workers[worker] = me;
                done
            }
        }
    }
}

impl<R: Rules> Model for Protocol<R> {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let head = Head { version: 0, at: [None; P], wide: false, shape: 0, named: None, letters: [0; P] };
        let high = |p: usize| if self.policy == StartPolicy::Latest { 1 } else { self.end(p) };
        vec![State {
            rows: Rows { head, found: [[0; N]; P], filtered: [0; P] },
            letters: Letters { version: 0, at: [None; P], written: None, found: [[0; N]; P] },
            flying: Vec::new(),
            workers: vec![Worker::NEW; self.workers],
            high: std::array::from_fn(|p| if p < self.partitions() { high(p) } else { 0 }),
            began: [None; P],
            saved: None,
            others: self.others,
            restores: u8::from(self.restore != Restore::Nothing),
            torn: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for worker in 0..self.workers {
            // Processes that are alike do alike.
            let first = state.workers.iter().position(|other| *other == state.workers[worker]);
            if self.named || first == Some(worker) {
                self.worker_actions(state, worker, actions);
            }
        }
        actions.extend((0..state.flying.len()).map(|flying| Action::LandsLate { flying }));
        if state.others > 0 {
            actions.push(Action::Other(Other::Commits));
            actions.push(Action::Other(Other::CommitsToLetters));
            if self.wide.is_some() {
                actions.extend([Other::AddsColumn, Other::DropsColumn, Other::ChangesColumn].map(Action::Other));
            }
        }
        if state.restores > 0 {
            let at_rest = state.flying.is_empty() && state.workers.iter().all(|worker| *worker == Worker::NEW);
            if state.saved.is_none() {
                actions.push(Action::Saved);
            } else if at_rest || self.restore == Restore::Rows {
                actions.push(Action::Restored);
            }
        }
        let growing = |p: &usize| state.high[*p] < self.end(*p);
        actions.extend((0..self.partitions()).filter(growing).map(|partition| Action::Produced { partition }));
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.act(&mut next, action)?;
        if !self.named {
            next.workers.sort_by_cached_key(digest);
        }
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties: Vec<Property<Self>> = vec![
            Property::always(TWICE, |model, state| model.places(state).all(|place| place.times() <= 1)),
            Property::always(SKIPPED, |model, state| {
                model.places(state).all(|place| !place.is_read || place.times() >= 1)
            }),
            Property::always(AHEAD, |model, state| model.places(state).all(|place| place.is_read || place.rows == 0)),
            Property::always(STUCK, |model, state| (0..model.workers).all(|worker| model.finishes(state, worker))),
            // What was looked at is not an empty world.
            Property::sometimes("all is done", |model, state| model.is_done(state)),
            Property::sometimes("one was committed before", |_, state| settles(state, Settled::AlreadyCommitted)),
        ];
        if self.records.iter().any(|records| records.len() > 1) {
            properties.push(Property::sometimes("one is fenced", |_, state| settles(state, Settled::Fenced)));
        }
        if self.wide.is_some() && self.others > 0 {
            properties.push(Property::sometimes("rows no longer fit", |_, state| settles(state, Settled::SchemaMoved)));
        }
        properties
    }
}

/// Puts what is alike in one order, so that states that differ in names alone are one.
pub fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn settles(state: &State, settled: Settled) -> bool {
    state.workers.iter().any(|worker| worker.at == At::Settling(settled))
}

/// How often an offset is a dead letter, those included that are owed.
fn letters(state: &State, partition: usize, offset: i64) -> u8 {
    state.letters.found[partition][offset as usize] + u8::from(state.owes(partition, offset))
}

/// Where one offset is.
struct Place {
    rows: u8,
    letters: u8,
    filtered: u8,
    /// Whether it lies below the stored position, and not below the first.
    is_read: bool,
}

impl Place {
    fn times(&self) -> u8 {
        self.rows + self.letters + self.filtered
    }
}

impl<R: Rules> Protocol<R> {
    fn places<'a>(&'a self, state: &'a State) -> impl Iterator<Item = Place> + 'a {
        let place = |(p, offset): (usize, i64)| Place {
            rows: state.rows.found[p][offset as usize],
            letters: if state.torn { letters(state, p, offset).min(1) } else { letters(state, p, offset) },
            filtered: u8::from(has(state.rows.filtered[p], offset)),
            is_read: state.rows.head.at[p].is_some_and(|at| offset < at)
                && state.began[p].is_some_and(|at| offset >= at),
        };
        (0..self.partitions()).flat_map(|p| (0..self.end(p)).map(move |offset| (p, offset))).map(place)
    }
}
