//! Runs a plugin on this machine.
