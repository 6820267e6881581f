//! How Parquet files are encoded.

use parquet::basic::{Compression, Encoding, Type, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::SchemaDescriptor;

/// A dictionary larger than this makes way for the fallback encoding. The default of 1 MiB costs
/// twice the time on columns of many values.
const DICTIONARY_LIMIT: usize = 64 * 1024;
/// A row group is closed at this many encoded bytes, so that wide rows do not fill the memory.
const ROW_GROUP_BYTES: usize = 64 * 1024 * 1024;

/// Settings that need no knowledge of the data: zstd, small dictionaries, and behind them delta
/// encodings in version 1 pages. Spark 4.2 with Delta 4.4, DuckDB 1.5, Polars 2.1, pyarrow 26 and
/// delta-rs 1.6 for Python read every type of them right (see `examples/write_types.rs`).
pub(crate) fn writer_properties(schema: &SchemaDescriptor) -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(true)
        .set_dictionary_page_size_limit(DICTIONARY_LIMIT)
        .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true);
    for column in schema.columns() {
        let path = column.path().clone();
        properties = match column.physical_type() {
            Type::INT32 | Type::INT64 => properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            Type::BYTE_ARRAY => properties.set_column_encoding(path, Encoding::DELTA_BYTE_ARRAY),
            // The writer leaves NaN out of the statistics, and a reader that holds NaN to be the
            // greatest value would then skip rows.
            Type::FLOAT | Type::DOUBLE => properties.set_column_statistics_enabled(path, EnabledStatistics::None),
            _ => properties,
        };
    }
    properties.build()
}
