//! Dead letters: looked at, and replayed.

mod beside;
mod case;
mod replay;
mod show;
