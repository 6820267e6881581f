//! The whole runtime in simulated worlds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod driver;
mod tables;
mod worlds;
