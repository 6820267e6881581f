//! Proof from a log alone that no offset is missing or doubled.
