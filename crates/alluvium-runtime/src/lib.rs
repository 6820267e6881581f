//! alluvium-runtime
