//! alluvium-config
