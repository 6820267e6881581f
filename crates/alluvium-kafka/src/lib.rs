//! alluvium-kafka
