//! The processes of the group.

use crate::schedule::{MEMBERS, Trap};
use alluvium_tests::process::Signal;
use alluvium_tests::{Process, Workbench};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

/// How long a process that was asked to end may take: its grace time, and leaving the group.
const END: Duration = Duration::from_secs(40);
/// How long a process that ended by itself stays away.
const AWAY: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Member {
    process: Option<Process>,
    frozen: bool,
    lives: u32,
    /// How long it stays frozen where it freezes itself, and until when.
    trap: Option<Duration>,
    thaw: Option<Instant>,
    /// When it is started again after it ended by itself.
    again: Option<Instant>,
    /// Earlier processes that are ending in order.
    leaving: Vec<(Process, Instant)>,
}

/// What became of the processes.
#[derive(Debug, Default)]
pub struct Counts {
    pub started: u32,
    pub killed: u32,
    pub frozen: u32,
    pub terminated: u32,
    /// At a point of their own.
    pub killed_at_points: u32,
    pub frozen_at_points: u32,
    /// Ended by themselves with an error, after which they were started again.
    pub gave_up: u32,
}

pub struct Members<'a> {
    bench: &'a Workbench,
    members: [Member; MEMBERS],
    pub counts: Counts,
    /// What the processes should not have done.
    pub faults: Vec<String>,
}

impl<'a> Members<'a> {
    pub fn new(bench: &'a Workbench) -> Self {
        Self { bench, members: Default::default(), counts: Counts::default(), faults: Vec::new() }
    }

    pub fn start(&mut self, member: usize, trap: Option<&Trap>) {
        let name = format!("member-{member}-{}", self.members[member].lives);
        let (environment, frozen) = match trap {
            None => (vec![], None),
            Some(Trap::Kill(at)) => (vec![("ALLUVIUM_KILL_AT", at.as_str())], None),
            Some(Trap::Freeze(at, milliseconds)) => {
                (vec![("ALLUVIUM_FREEZE_AT", at.as_str())], Some(Duration::from_millis(*milliseconds)))
            }
        };
        let process = self.bench.run(&name, &[], &environment);
        let state = &mut self.members[member];
        state.lives += 1;
        (state.frozen, state.again, state.trap, state.thaw) = (false, None, frozen, None);
        self.counts.started += 1;
        if state.process.replace(process).is_some() {
            self.faults.push(format!("member {member} was started twice: the schedule is wrong"));
        }
    }

    pub fn kill(&mut self, member: usize) {
        self.members[member].again = None;
        if let Some(mut process) = self.members[member].process.take() {
            process.signal(Signal::SIGKILL);
            process.wait(END);
            self.counts.killed += 1;
        }
    }

    pub fn freeze(&mut self, member: usize) {
        if let Some(process) = &self.members[member].process {
            process.signal(Signal::SIGSTOP);
            self.members[member].frozen = true;
            self.counts.frozen += 1;
        }
    }

    pub fn thaw(&mut self, member: usize) {
        if let Some(process) = &self.members[member].process {
            process.signal(Signal::SIGCONT);
            self.members[member].frozen = false;
        }
    }

    pub fn terminate(&mut self, member: usize) {
        self.members[member].again = None;
        if let Some(process) = self.members[member].process.take() {
            process.signal(Signal::SIGTERM);
            process.signal(Signal::SIGCONT);
            self.members[member].leaving.push((process, Instant::now()));
            self.counts.terminated += 1;
        }
    }

    /// Notes what has ended meanwhile; what ended by itself is started again a little later, as whatever
    /// watches over processes would do.
    pub fn look(&mut self) {
        for member in 0..MEMBERS {
            if let Some(process) = &mut self.members[member].process
                && let Some(status) = process.ended()
            {
                match status.code() {
                    None if status.signal() == Some(9) => self.counts.killed_at_points += 1,
                    Some(1) if is_outside(&process.err()) => self.counts.gave_up += 1,
                    _ => {
                        self.faults.push(format!("member {member} ended by itself: {status}\n{}", tail(&process.err())))
                    }
                }
                self.members[member].process = None;
                self.members[member].again = Some(Instant::now() + AWAY);
            }
            self.look_frozen(member);
            if self.members[member].again.is_some_and(|again| again <= Instant::now()) {
                self.start(member, None);
            }
            let mut leaving = std::mem::take(&mut self.members[member].leaving);
            leaving.retain_mut(|(process, since)| self.is_leaving(member, process, *since));
            self.members[member].leaving = leaving;
        }
    }

    /// Thaws a process that froze itself, some time later.
    fn look_frozen(&mut self, member: usize) {
        let Member { process: Some(process), frozen: false, trap: Some(trap), thaw, .. } = &mut self.members[member]
        else {
            return;
        };
        match thaw {
            None if process.is_frozen() => {
                *thaw = Some(Instant::now() + *trap);
                self.counts.frozen_at_points += 1;
            }
            Some(until) if *until <= Instant::now() => {
                process.signal(Signal::SIGCONT);
                (self.members[member].trap, self.members[member].thaw) = (None, None);
            }
            _ => {}
        }
    }

    fn is_leaving(&mut self, member: usize, process: &mut Process, since: Instant) -> bool {
        let Some(status) = process.ended() else {
            if process.is_frozen() {
                // At its own point, on its way out.
                process.signal(Signal::SIGCONT);
            }
            if since.elapsed() < END {
                return true;
            }
            self.faults.push(format!("member {member} did not end within {END:?}\n{}", tail(&process.err())));
            return false;
        };
        match status.code() {
            Some(0) => {}
            // Killed at its own point, or by SIGTERM before it could know better.
            None if status.signal() == Some(9) => self.counts.killed_at_points += 1,
            Some(1) if is_outside(&process.err()) => self.counts.gave_up += 1,
            _ => self.faults.push(format!("member {member} ended badly: {status}\n{}", tail(&process.err()))),
        }
        false
    }

    /// Lets all work: none is frozen, none is away.
    pub fn all_work(&mut self) {
        for member in 0..MEMBERS {
            self.thaw(member);
            if self.members[member].process.is_none() {
                self.start(member, None);
            }
        }
    }

    /// How often a process said that another had moved its positions, and how often it had lost them.
    pub fn fenced(&self) -> (usize, usize) {
        let logs = std::fs::read_dir(self.bench.dir()).unwrap().map(|entry| entry.unwrap().path());
        let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "err"));
        logs.fold((0, 0), |(fenced, lost), path| {
            let text = std::fs::read_to_string(path).unwrap_or_default();
            (fenced + text.matches("another process moved").count(), lost + text.matches("lost=true").count())
        })
    }

    /// Ends all in order.
    pub async fn end(&mut self) {
        (0..MEMBERS).for_each(|member| self.terminate(member));
        while self.members.iter().any(|member| !member.leaving.is_empty()) {
            self.look();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Whether a process ended for want of a broker, or of time to commit: what a broker that is away at the
/// wrong moment can bring about. Nothing is lost by it.
fn is_outside(err: &str) -> bool {
    err.contains("cannot be reached") || err.contains("within the grace time")
}

fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
