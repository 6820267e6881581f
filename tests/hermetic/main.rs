//! End to end on the sandbox broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod anew;
mod commands;
mod crash;
mod group;
mod hostile;
mod life;
mod scripted;
