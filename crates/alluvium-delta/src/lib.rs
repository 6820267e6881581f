//! alluvium-delta
