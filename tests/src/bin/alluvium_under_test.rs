//! `alluvium`, but when it reaches a point for the n-th time it kills itself
//! (`ALLUVIUM_KILL_AT=commit:before#2`) or freezes (`ALLUVIUM_FREEZE_AT`), and it writes down the points
//! that it reaches (`ALLUVIUM_POINTS=FILE`).

use alluvium_core::Hook;
use alluvium_core::edge::Point;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() -> ExitCode {
    alluvium::main(Hook::new(watch()))
}

fn watch() -> impl Fn(Point) + Send + Sync {
    let (kill, freeze) = (Trap::from("ALLUVIUM_KILL_AT"), Trap::from("ALLUVIUM_FREEZE_AT"));
    let file = std::env::var_os("ALLUVIUM_POINTS");
    let file = file.and_then(|path| File::options().create(true).append(true).open(path).ok());
    move |here| {
        let here = here.to_string();
        if let Some(mut file) = file.as_ref() {
            // One write a line: several threads come here.
            let _full = file.write_all(format!("{here}\n").as_bytes()).is_err();
        }
        if freeze.as_ref().is_some_and(|freeze| freeze.is_sprung(&here)) {
            // To this very thread, which then does not pass the point; the others stop with it.
            let _gone = signal::raise(Signal::SIGSTOP).is_err();
        }
        if kill.as_ref().is_some_and(|kill| kill.is_sprung(&here)) {
            // Nothing more may happen in this thread, even if the signal is slow.
            while signal::kill(Pid::this(), Signal::SIGKILL).is_ok() {
                std::thread::park();
            }
        }
    }
}

/// A point, and how often it is to be reached.
struct Trap {
    point: String,
    times: usize,
    reached: AtomicUsize,
}

impl Trap {
    fn from(variable: &str) -> Option<Self> {
        let text = std::env::var(variable).ok()?;
        let (point, times) = text.split_once('#')?;
        Some(Self { point: point.to_owned(), times: times.parse().ok()?, reached: AtomicUsize::new(0) })
    }

    fn is_sprung(&self, here: &str) -> bool {
        self.point == here && self.reached.fetch_add(1, Ordering::SeqCst) + 1 == self.times
    }
}
