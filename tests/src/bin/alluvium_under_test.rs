//! `alluvium`, but it kills itself (SIGKILL) when it reaches a named point for the n-th time:
//! `ALLUVIUM_KILL_AT=commit:before#2`.

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn main() -> ExitCode {
    alluvium::main(kill_hook())
}

fn kill_hook() -> Option<Arc<dyn Fn(&'static str) + Send + Sync>> {
    let at = std::env::var("ALLUVIUM_KILL_AT").ok()?;
    let (point, times) = at.split_once('#')?;
    let (point, times) = (point.to_owned(), times.parse::<usize>().ok()?);
    let reached = AtomicUsize::new(0);
    Some(Arc::new(move |here| {
        if here == point && reached.fetch_add(1, Ordering::SeqCst) + 1 == times {
            // Nothing more may happen in this thread, even if the signal is slow.
            while signal::kill(Pid::this(), Signal::SIGKILL).is_ok() {
                std::thread::park();
            }
        }
    }))
}
