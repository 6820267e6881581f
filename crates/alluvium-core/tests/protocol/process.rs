//! A process of the model: what it does at each of its steps, by the rules.

use crate::model::{Action, Fault, Protocol, Restore, digest};
use crate::rules::{AfterError, Rules};
use crate::state::{At, Entry, Flush, Head, N, Offsets, P, Part, Put, Settled, State, Worker, bit, has};
use alluvium_core::chunk::{NO_TIMESTAMP, Record};
use alluvium_core::commit::{Claim, Fit, Step};
use alluvium_core::letters::Marks;
use alluvium_core::position::{Cursor, Resume, Watermarks, resume};
use alluvium_core::seam::Outcome;
use alluvium_core::{Arrival, Chunk, Partition, Records, Span};

impl<R: Rules> Protocol<R> {
    pub fn work(&self, me: &mut Worker, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Assigned { partition, .. } => me.held[partition] = true,
            Action::Released { partition, .. } => {
                (me.held[partition], me.cursors[partition]) = (false, None);
            }
            Action::Lost { partition, .. } => {
                me.held[partition] = false;
                if me.flush.is_some() {
                    // The flush goes on to its end; nobody waits for its outcome.
                    (me.made, me.cursors, me.dropped) = ([None; P], [None; P], true);
                } else {
                    me.reset();
                }
            }
            Action::Crashes { .. } => *me = Worker::NEW,
            Action::Looks { .. } => me.at = At::Looking,
            Action::Takes { .. } => return self.take(me, action),
            Action::Flushes { .. } => {
                let parts = std::mem::take(&mut me.made);
                let absent = std::array::from_fn(|p| me.cursors[p].is_some_and(|cursor| cursor.was_absent));
                me.flush = Some(Flush { parts, absent, shape: me.shape, is_start: false, failed: false });
                me.at = At::Looking;
            }
            Action::ReadsRowsLog { .. } => me.at = At::Judging(state.rows.head),
            Action::ReadsLettersLog { .. } => {
                let At::Judging(head) = me.at else { return None };
                self.judge(me, state, head);
            }
            Action::Puts { fault, .. } => {
                let At::Putting(put) = me.at.clone() else { return None };
                return self.put(me, state, put, fault);
            }
            Action::Settles { .. } => {
                let At::Settling(settled) = me.at else { return None };
                self.settle(me, settled);
            }
            _ => return None,
        }
        Some(())
    }

    fn look(&self, me: &mut Worker, state: &mut State, head: Head) {
        let fresh = me.cursors.iter().all(Option::is_none) && me.made.iter().all(Option::is_none);
        if fresh {
            me.shape = head.shape;
        }
        let others = head.at.iter().any(Option::is_some);
        for partition in (0..self.partitions()).filter(|p| me.held[*p]) {
            me.seen[partition] |= R::REMEMBERS && head.at[partition].is_some();
            if me.cursors[partition].is_some() {
                continue;
            }
            let watermarks = Watermarks { low: 0, high: state.high[partition] };
            me.cursors[partition] = match resume(head.at[partition], watermarks) {
                Resume::At(next) => Some(Cursor::at(next)),
                _ => R::begin(self.policy, others, watermarks),
            };
            if let Some(cursor) = me.cursors[partition] {
                state.began[partition].get_or_insert(cursor.next);
            }
        }
        let undecided = (0..self.partitions()).any(|p| me.held[p] && me.cursors[p].is_none());
        (me.flush, me.at) = if undecided {
            let start = |p: usize| (p < self.partitions()).then(|| state.high[p]);
            let parts = std::array::from_fn(|p| start(p).map(Part::empty));
            let start = Flush { parts, absent: [true; P], shape: me.shape, is_start: true, failed: false };
            (Some(start), At::Looking)
        } else {
            (None, At::Idle)
        };
    }

    /// Takes the next step of what the process is at, on the snapshots it has read.
    fn judge(&self, me: &mut Worker, state: &mut State, head: Head) {
        let marks = Marks { named: head.named, written: state.letters.written };
        let Some(flush) = &me.flush else {
            match marks.owed() {
                Some(mark) => me.at = At::Putting(letters_of(head, mark, state)),
                None => self.look(me, state, head),
            }
            return;
        };
        let claims = claims::<R>(me, flush, &head);
        let fit = self.fit(flush, &head);
        let step = match R::next_step(marks, &claims, fit.clone()) {
            Step::Done(_) if flush.failed && matches!(R::after_error(), AfterError::Repeats) => Step::Rows,
            step => step,
        };
        let to_be_written = missing::<R>(flush, state);
        let has_letters = to_be_written.iter().any(|letters| *letters != 0);
        me.at = match step {
            Step::Letters => match marks.owed() {
                Some(mark) => At::Putting(letters_of(head, mark, state)),
                None => At::Idle,
            },
            Step::Growth(()) => At::Putting(Put { version: head.version + 1, entry: Entry::Growth }),
            Step::Rows if R::LETTERS_FIRST && has_letters => {
                let ends = std::array::from_fn(|p| flush.parts[p].map(|part| part.to));
                let entry = Entry::Letters { mark: None, letters: to_be_written, ends };
                At::Putting(Put { version: state.letters.version + 1, entry })
            }
            Step::Rows => {
                let mark = has_letters.then(|| R::next_mark(marks, i64::from(head.version) + 1));
                let entry = Entry::Rows { parts: flush.parts, letters: to_be_written, mark };
                At::Putting(Put { version: head.version + 1, entry })
            }
            Step::Done(outcome) => At::Settling(Settled::from(&outcome)),
        };
    }

    fn fit(&self, flush: &Flush, head: &Head) -> Fit<()> {
        let needs = |(p, offset): (usize, i64)| flush.parts[p].is_some_and(|part| has(part.kept, offset));
        if flush.shape != head.shape {
            Fit::Moved { column: "changed".to_owned() }
        } else if self.wide.is_some_and(needs) && !head.wide {
            Fit::Grows(())
        } else {
            Fit::Fits
        }
    }

    fn put(&self, me: &mut Worker, state: &mut State, mut put: Put, fault: Fault) -> Option<()> {
        let newest = match put.entry {
            Entry::Letters { .. } => state.letters.version,
            _ => state.rows.head.version,
        };
        if R::REBASES {
            put.version = newest + 1;
        }
        // A version that is taken is lost, whatever else happens.
        if put.version <= newest && fault != Fault::None {
            return None;
        }
        let wrote_rows = matches!(put.entry, Entry::Rows { mark: None, .. });
        match fault {
            Fault::None => {
                let landed = state.land(&put);
                // Letters of this commit are written before it is done: it looks again.
                me.at = if landed && wrote_rows { At::Settling(Settled::Committed) } else { At::Looking };
                return Some(());
            }
            Fault::LandsAndFails => {
                state.land(&put);
            }
            Fault::Fails => {}
            Fault::FailsAndLandsLater => {
                state.flying.push(put);
                state.flying.sort_by_cached_key(digest);
            }
        }
        if let Some(flush) = &mut me.flush {
            flush.failed |= matches!(R::after_error(), AfterError::Repeats);
        }
        me.at = At::Looking;
        Some(())
    }

    fn settle(&self, me: &mut Worker, settled: Settled) {
        let outcome = match settled {
            Settled::Committed => Outcome::Committed { version: 0 },
            Settled::AlreadyCommitted => Outcome::AlreadyCommitted,
            Settled::Fenced => Outcome::Fenced { found: Vec::new() },
            Settled::SchemaMoved => Outcome::SchemaMoved { column: String::new() },
        };
        let Some(flush) = me.flush.take() else { return };
        me.at = At::Idle;
        if flush.is_start && !me.dropped {
            // Whatever became of it, the table says where to read.
            me.at = At::Looking;
        } else if me.dropped || !R::holds(&outcome) {
            me.reset();
        } else {
            for partition in (0..self.partitions()).filter(|p| flush.parts[*p].is_some()) {
                me.seen[partition] |= R::REMEMBERS;
                if let Some(cursor) = &mut me.cursors[partition] {
                    cursor.was_absent = false;
                }
            }
        }
    }

    fn take(&self, me: &mut Worker, action: Action) -> Option<()> {
        let Action::Takes { partition, from, to, rejected, filtered, .. } = action else { return None };
        let cursor = me.cursors[partition].as_mut()?;
        let Arrival::Next(chunk) = R::arrive(chunk(partition, from, to), cursor.next) else { return None };
        let end = chunk.span().to();
        let all: Offsets = chunk.records().offsets().iter().fold(0, |all, offset| all | bit(*offset));
        let part = me.made[partition].get_or_insert(Part::empty(cursor.next));
        part.to = end;
        part.kept |= all & !rejected & !filtered;
        part.rejected |= all & rejected;
        part.filtered |= all & filtered;
        cursor.next = end;
        Some(())
    }

    /// Whether this process alone brings everything to its end, without a fault, a restart, or help.
    pub fn finishes(&self, state: &State, worker: usize) -> bool {
        let mut state = state.clone();
        for _ in 0..100 {
            if self.is_done(&state) {
                return true;
            }
            let Some(action) = self.good_step(&state, worker) else { return false };
            if self.act(&mut state, action).is_none() {
                return false;
            }
        }
        false
    }

    fn good_step(&self, state: &State, worker: usize) -> Option<Action> {
        let me = &state.workers[worker];
        let all = || 0..self.partitions();
        match &me.at {
            At::Looking => return Some(Action::ReadsRowsLog { worker }),
            At::Judging(_) => return Some(Action::ReadsLettersLog { worker }),
            At::Putting(_) => return Some(Action::Puts { worker, fault: Fault::None }),
            At::Settling(_) => return Some(Action::Settles { worker }),
            At::Idle => {}
        }
        if let Some(partition) = all().find(|p| !me.held[*p]) {
            return Some(Action::Assigned { worker, partition });
        }
        if all().any(|p| me.cursors[p].is_none()) {
            return Some(Action::Looks { worker });
        }
        if let Some(partition) = all().find(|p| state.high[*p] < self.end(*p)) {
            return Some(Action::Produced { partition });
        }
        let unread = |p: &usize| me.cursors[*p].is_some_and(|cursor| cursor.next < self.end(*p));
        if let Some(partition) = all().find(unread) {
            let (from, to) = (me.cursors[partition]?.next, self.end(partition));
            let (rejected, filtered) = *self.turns(partition, from, to).first()?;
            return Some(Action::Takes { worker, partition, from, to, rejected, filtered });
        }
        if me.made.iter().any(Option::is_some) {
            return Some(Action::Flushes { worker });
        }
        // Who has nothing to commit does not see that a table was restored, until the group or a record
        // makes it look.
        let restored = self.restore != Restore::Nothing && state.restores == 0;
        restored.then_some(Action::Lost { worker, partition: 0 })
    }
}

/// The claims of a flush, as the sink makes them.
fn claims<R: Rules>(me: &Worker, flush: &Flush, head: &Head) -> Vec<Claim> {
    let claim = |p: usize| {
        let part = flush.parts[p]?;
        Some(Claim {
            partition: Partition(p as i32),
            span: Span::new(part.from, part.to).ok()?,
            stored: head.at[p],
            may_be_absent: R::may_be_absent(flush.absent[p], me.seen[p]),
        })
    };
    (0..P).filter_map(claim).collect()
}

/// The letters of a flush that their table does not hold.
fn missing<R: Rules>(flush: &Flush, state: &State) -> [Offsets; P] {
    let rejected = |p: usize| flush.parts[p].map_or(0, |part| part.rejected);
    let places: Vec<_> = (0..P)
        .flat_map(|p| {
            (0..N as i64).filter(move |offset| has(rejected(p), *offset)).map(move |o| (Partition(p as i32), o))
        })
        .collect();
    let stored = |partition: Partition| state.letters.at[partition.0 as usize];
    let present = |(partition, offset): (Partition, i64)| state.is_letter_present(partition.0 as usize, offset);
    let mut missing = [0; P];
    for index in R::missing(&places, &stored, &present) {
        let (partition, offset) = places[index];
        missing[partition.0 as usize] |= bit(offset);
    }
    missing
}

/// The entry that pays what the rows' log owes.
fn letters_of(head: Head, mark: i64, state: &State) -> Put {
    let ends = std::array::from_fn(|p| head.at[p].filter(|_| head.letters[p] != 0));
    let entry = Entry::Letters { mark: Some(mark), letters: head.letters, ends };
    Put { version: state.letters.version + 1, entry }
}

fn chunk(partition: usize, from: i64, to: i64) -> Chunk {
    let mut records = Records::default();
    for offset in from..to {
        let record = Record { offset, timestamp: NO_TIMESTAMP, key: None, value: None, headers: None };
        records.push(record).unwrap();
    }
    Chunk::new(Partition(partition as i32), Span::new(from, to).unwrap(), records).unwrap()
}
