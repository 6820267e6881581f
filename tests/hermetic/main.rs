//! End to end on the sandbox broker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod anew;
mod asked;
mod commands;
mod crash;
mod disk;
mod group;
mod growth;
mod hostile;
mod letters;
mod life;
mod mapping;
mod refused;
mod schema;
mod scripted;
mod shutdown;
mod verify;
