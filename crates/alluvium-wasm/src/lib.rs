//! alluvium-wasm
