//! alluvium-schema
