//! End to end on the sandbox broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod commands;
mod crash;
mod hostile;
mod life;
