//! A data file's statistics, as Delta's log holds them.
//!
//! Readers skip files by them, so that a bound that is wrong hides rows: every bound here holds in
//! every reader's order of values, or is left out.
//!
//! - Decimals and integers are written digit by digit; nothing passes through a double.
//! - Floating point: no upper bound beside a NaN (Spark holds it to be the greatest value), none
//!   that is infinite (JSON has none), and zero as `-0.0` below and `0.0` above.
//! - Times have milliseconds, as the protocol asks: the lower bound is rounded down, the upper up
//!   (where no year is left above, it is exact).
//! - Text has bounds of at most 64 bytes; binary columns have none.
//! - delta-rs for Python (1.6) takes a bound that is left out for one that nothing meets, when it makes
//!   a pyarrow data set: what can be bounded is.
//! - Lists and maps have nothing, not even a count of nulls.

use crate::partition::{date, decimal, in_years};
use alluvium_core::DataType;
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType as ArrowType, Fields, Schema};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::statistics::Statistics;
use std::cmp::Ordering;
use std::fmt::{self, Write as _};

/// Columns that statistics are kept for, unless the table says otherwise.
const DEFAULT_COLUMNS: usize = 32;
/// A longer bound of a text column is left out.
const MAX_TEXT: usize = 128;

/// Which columns have statistics: a table's own wish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StatsColumns {
    /// `delta.dataSkippingNumIndexedCols`; negative is all.
    pub first: Option<i64>,
    /// `delta.dataSkippingStatsColumns`: paths of columns, or of structs that hold them.
    pub named: Option<Vec<String>>,
}

impl StatsColumns {
    pub(crate) fn of(property: impl Fn(&str) -> Option<String>) -> Self {
        let first = property("delta.dataSkippingNumIndexedCols").and_then(|text| text.trim().parse().ok());
        let named = property("delta.dataSkippingStatsColumns")
            .map(|text| text.split(',').map(|name| name.trim().replace('`', "")).collect());
        Self { first, named }
    }

    fn includes(&self, index: usize, path: &[String]) -> bool {
        if let Some(named) = &self.named {
            let path = path.join(".");
            return named.iter().any(|name| {
                path == *name || path.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('.'))
            });
        }
        let first = self.first.map_or(DEFAULT_COLUMNS, |first| usize::try_from(first).unwrap_or(usize::MAX));
        index < first
    }
}

/// A column that has statistics: a plain value, at the top or in structs.
#[derive(Clone, Debug)]
struct Leaf {
    path: Vec<String>,
    /// Where the column is: its index in the batch, then in each struct.
    place: Vec<usize>,
    /// Its index among the columns of the Parquet file.
    parquet: usize,
    data_type: DataType,
}

/// The columns of a file that have statistics.
#[derive(Clone, Debug)]
pub(crate) struct StatsPlan {
    leaves: Vec<Leaf>,
}

impl StatsPlan {
    pub(crate) fn new(schema: &Schema, columns: &StatsColumns) -> Self {
        let mut walk = Walk { columns, leaves: Vec::new(), seen: 0, parquet: 0 };
        walk.fields(schema.fields(), &[], &[]);
        Self { leaves: walk.leaves }
    }
}

struct Walk<'a> {
    columns: &'a StatsColumns,
    leaves: Vec<Leaf>,
    /// Columns met so far, as a table counts them: a list or a map is one.
    seen: usize,
    /// Columns met so far, as Parquet counts them.
    parquet: usize,
}

impl Walk<'_> {
    fn fields(&mut self, fields: &Fields, path: &[String], place: &[usize]) {
        for (index, field) in fields.iter().enumerate() {
            let path = [path, &[field.name().clone()]].concat();
            let place = [place, &[index]].concat();
            if let ArrowType::Struct(inner) = field.data_type() {
                self.fields(inner, &path, &place);
                continue;
            }
            let (seen, parquet) = (self.seen, self.parquet);
            self.seen += 1;
            self.parquet += parquet_columns(field.data_type());
            let data_type = DataType::from_arrow(field.data_type()).filter(|data_type| !data_type.is_nested());
            if let Some(data_type) = data_type.filter(|_| self.columns.includes(seen, &path)) {
                self.leaves.push(Leaf { path, place, parquet, data_type });
            }
        }
    }
}

fn parquet_columns(data_type: &ArrowType) -> usize {
    match data_type {
        ArrowType::Struct(fields) => fields.iter().map(|field| parquet_columns(field.data_type())).sum(),
        ArrowType::List(inner) | ArrowType::LargeList(inner) | ArrowType::Map(inner, _) => {
            parquet_columns(inner.data_type())
        }
        _ => 1,
    }
}

/// What Parquet's own statistics cannot tell of a file's rows: all about floating point.
#[derive(Clone, Debug)]
pub(crate) struct Gathered {
    floats: Vec<FloatStats>,
}

#[derive(Clone, Debug, Default)]
struct FloatStats {
    nulls: u64,
    nan: bool,
    bounds: Option<(f64, f64)>,
}

impl Gathered {
    pub(crate) fn new(plan: &StatsPlan) -> Self {
        Self { floats: vec![FloatStats::default(); plan.leaves.len()] }
    }

    pub(crate) fn add(&mut self, plan: &StatsPlan, batch: &RecordBatch) {
        for (leaf, stats) in plan.leaves.iter().zip(&mut self.floats) {
            if matches!(leaf.data_type, DataType::Float | DataType::Double) {
                stats.add(batch, &leaf.place);
            }
        }
    }
}

impl FloatStats {
    fn add(&mut self, batch: &RecordBatch, place: &[usize]) {
        let Some((first, inner)) = place.split_first() else { return };
        let mut array: &ArrayRef = batch.column(*first);
        let mut nulls = array.logical_nulls();
        for index in inner {
            let Some(parent) = array.as_struct_opt() else { return };
            array = parent.column(*index);
            nulls = NullBuffer::union(nulls.as_ref(), array.logical_nulls().as_ref());
        }
        if let Some(array) = array.as_primitive_opt::<Float64Type>() {
            self.add_values(array, nulls.as_ref(), |value| value);
        } else if let Some(array) = array.as_primitive_opt::<Float32Type>() {
            self.add_values(array, nulls.as_ref(), f64::from);
        }
    }

    fn add_values<T: ArrowPrimitiveType>(
        &mut self,
        array: &PrimitiveArray<T>,
        nulls: Option<&NullBuffer>,
        widen: impl Fn(T::Native) -> f64,
    ) {
        self.nulls += nulls.map_or(0, |nulls| nulls.null_count() as u64);
        for (row, value) in array.values().iter().enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            let value = widen(*value);
            if value.is_nan() {
                self.nan = true;
                continue;
            }
            let (low, high) = self.bounds.unwrap_or((value, value));
            self.bounds = Some((low.min(value), high.max(value)));
        }
    }

    fn bounds(&self) -> (Option<String>, Option<String>) {
        let Some((low, high)) = self.bounds else { return (None, None) };
        let low = if low == 0.0 { -0.0 } else { low };
        let high = if high == 0.0 { 0.0 } else { high };
        let json = |value: f64| serde_json::Number::from_f64(value).map(|number| number.to_string());
        (json(low), if self.nan { None } else { json(high) })
    }
}

/// The statistics of a finished file, as JSON text.
pub(crate) fn stats(plan: &StatsPlan, gathered: &Gathered, metadata: &ParquetMetaData) -> String {
    let (mut least, mut greatest, mut nulls) = (Tree::default(), Tree::default(), Tree::default());
    for (leaf, floats) in plan.leaves.iter().zip(&gathered.floats) {
        let (bounds, null_count) = match leaf.data_type {
            DataType::Float | DataType::Double => (floats.bounds(), Some(floats.nulls)),
            _ => (bounds(leaf, metadata), null_count(leaf, metadata)),
        };
        least.insert(&leaf.path, bounds.0);
        greatest.insert(&leaf.path, bounds.1);
        nulls.insert(&leaf.path, null_count.map(|count| count.to_string()));
    }
    let rows = metadata.file_metadata().num_rows();
    let mut text = format!("{{\"numRecords\":{rows}");
    for (name, tree) in [("minValues", least), ("maxValues", greatest), ("nullCount", nulls)] {
        text.push_str(&format!(",\"{name}\":{tree}"));
    }
    text.push('}');
    text
}

/// A JSON object of values and further objects.
#[derive(Debug, Default)]
struct Tree {
    children: Vec<(String, Node)>,
}

#[derive(Debug)]
enum Node {
    /// A value's JSON text.
    Value(String),
    Tree(Tree),
}

impl Tree {
    fn insert(&mut self, path: &[String], value: Option<String>) {
        let (Some((name, inner)), Some(value)) = (path.split_first(), value) else { return };
        if inner.is_empty() {
            self.children.push((name.clone(), Node::Value(value)));
            return;
        }
        match self.children.last_mut() {
            Some((last, Node::Tree(tree))) if last == name => tree.insert(inner, Some(value)),
            _ => {
                let mut tree = Tree::default();
                tree.insert(inner, Some(value));
                self.children.push((name.clone(), Node::Tree(tree)));
            }
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('{')?;
        for (index, (name, node)) in self.children.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{}:", quoted(name))?;
            match node {
                Node::Value(text) => f.write_str(text)?,
                Node::Tree(tree) => tree.fmt(f)?,
            }
        }
        f.write_char('}')
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn column_statistics<'a>(
    leaf: &'a Leaf,
    metadata: &'a ParquetMetaData,
) -> impl Iterator<Item = (i64, Option<&'a Statistics>)> {
    metadata.row_groups().iter().map(|group| {
        let column = group.columns().get(leaf.parquet);
        (group.num_rows(), column.and_then(|column| column.statistics()))
    })
}

fn null_count(leaf: &Leaf, metadata: &ParquetMetaData) -> Option<u64> {
    column_statistics(leaf, metadata).map(|(_, statistics)| statistics?.null_count_opt()).sum()
}

/// A bound in the form that it is compared in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Bound {
    /// A boolean (0 or 1), an integer, a decimal's digits, days or microseconds.
    Number(i128),
    Text(Vec<u8>),
}

/// The least and the greatest value over all row groups, each as JSON text.
fn bounds(leaf: &Leaf, metadata: &ParquetMetaData) -> (Option<String>, Option<String>) {
    let (mut least, mut greatest): (Option<Bound>, Option<Bound>) = (None, None);
    for (rows, statistics) in column_statistics(leaf, metadata) {
        let Some(statistics) = statistics else { return (None, None) };
        if statistics.null_count_opt().is_some_and(|nulls| i64::try_from(nulls) == Ok(rows)) {
            continue;
        }
        let Some((low, high)) = group_bounds(statistics) else { return (None, None) };
        least = Some(least.map_or(low.clone(), |least| least.min(low)));
        greatest = Some(greatest.map_or(high.clone(), |greatest| greatest.max(high)));
    }
    let low = least.and_then(|bound| json(&leaf.data_type, &bound, Ordering::Less));
    (low, greatest.and_then(|bound| json(&leaf.data_type, &bound, Ordering::Greater)))
}

fn group_bounds(statistics: &Statistics) -> Option<(Bound, Bound)> {
    let number = |value: i64| Bound::Number(value.into());
    match statistics {
        Statistics::Boolean(values) => {
            Some((number(i64::from(*values.min_opt()?)), number(i64::from(*values.max_opt()?))))
        }
        Statistics::Int32(values) => Some((number((*values.min_opt()?).into()), number((*values.max_opt()?).into()))),
        Statistics::Int64(values) => Some((number(*values.min_opt()?), number(*values.max_opt()?))),
        Statistics::FixedLenByteArray(values) => {
            Some((big_endian(values.min_opt()?.data())?, big_endian(values.max_opt()?.data())?))
        }
        Statistics::ByteArray(values) => {
            let text = |bytes: &[u8]| Bound::Text(bytes.to_vec());
            Some((text(values.min_opt()?.data()), text(values.max_opt()?.data())))
        }
        _ => None,
    }
}

/// A signed number of up to 16 bytes.
fn big_endian(bytes: &[u8]) -> Option<Bound> {
    let fill = if *bytes.first()? & 0x80 == 0 { 0 } else { 0xff };
    let mut number = [fill; 16];
    let start = number.len().checked_sub(bytes.len())?;
    number.get_mut(start..)?.copy_from_slice(bytes);
    Some(Bound::Number(i128::from_be_bytes(number)))
}

/// A bound's JSON text: one below all values (`Less`) or above them (`Greater`).
fn json(data_type: &DataType, bound: &Bound, side: Ordering) -> Option<String> {
    match (data_type, bound) {
        (DataType::Boolean, Bound::Number(number)) => Some((*number != 0).to_string()),
        (DataType::TinyInt | DataType::SmallInt | DataType::Int | DataType::BigInt, Bound::Number(number)) => {
            Some(number.to_string())
        }
        (DataType::Decimal(_, scale), Bound::Number(number)) => Some(decimal(*number, i8::try_from(*scale).ok()?)),
        (DataType::Date, Bound::Number(days)) => Some(quoted(&date(i32::try_from(*days).ok()?)?)),
        (DataType::Timestamp, Bound::Number(micros)) => Some(quoted(&format!("{}Z", millis(*micros, side)?))),
        (DataType::TimestampNtz, Bound::Number(micros)) => Some(quoted(&millis(*micros, side)?)),
        (DataType::String, Bound::Text(bytes)) if bytes.len() <= MAX_TEXT => {
            std::str::from_utf8(bytes).ok().map(quoted)
        }
        _ => None,
    }
}

/// `1970-01-01T00:00:00.000`, rounded away from the values that it bounds.
fn millis(micros: i128, side: Ordering) -> Option<String> {
    let micros = i64::try_from(micros).ok()?;
    let up = i64::from(side == Ordering::Greater && micros.rem_euclid(1000) != 0);
    let rounded = chrono::DateTime::from_timestamp_millis(micros.div_euclid(1000) + up)?;
    if in_years(rounded.date_naive()) {
        return Some(rounded.format("%Y-%m-%dT%H:%M:%S%.3f").to_string());
    }
    let exact = chrono::DateTime::from_timestamp_micros(micros)?;
    in_years(exact.date_naive()).then(|| exact.format("%Y-%m-%dT%H:%M:%S%.6f").to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use arrow_array::{Decimal128Array, Int64Array, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use std::sync::Arc;

    /// Statistics of a file with a row group for each two rows.
    fn of_row_groups(column: ArrayRef) -> serde_json::Value {
        let batch = RecordBatch::try_from_iter_with_nullable([("c", column, true)]).unwrap();
        let plan = StatsPlan::new(&batch.schema(), &StatsColumns::default());
        let mut gathered = Gathered::new(&plan);
        gathered.add(&plan, &batch);
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(2)).build();
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        let metadata = writer.finish().unwrap();
        assert!(metadata.num_row_groups() > 1);
        serde_json::from_str(&stats(&plan, &gathered, &metadata)).unwrap()
    }

    #[test]
    fn bounds_hold_over_all_row_groups() {
        let numbers = Int64Array::from(vec![Some(5), None, None, None, Some(-3), Some(9), Some(0)]);
        let stats = of_row_groups(Arc::new(numbers));
        assert_eq!((&stats["minValues"]["c"], &stats["maxValues"]["c"]), (&(-3).into(), &9.into()));
        assert_eq!((&stats["nullCount"]["c"], &stats["numRecords"]), (&3.into(), &7.into()));

        // Byte by byte, a negative number would be above a positive one.
        let huge = [1, -1, 10i128.pow(30), -10i128.pow(30)].map(Some);
        let huge = Decimal128Array::from(huge.to_vec()).with_precision_and_scale(38, 0).unwrap();
        let stats = of_row_groups(Arc::new(huge));
        assert_eq!(stats["minValues"]["c"].to_string(), "-1e+30");
        assert_eq!(stats["maxValues"]["c"].to_string(), "1e+30");

        let texts = StringArray::from(vec![Some("b"), Some("ü"), Some("a"), None]);
        let stats = of_row_groups(Arc::new(texts));
        assert_eq!((&stats["minValues"]["c"], &stats["maxValues"]["c"]), (&"a".into(), &"ü".into()));
    }

    #[test]
    fn numbers_of_few_bytes_keep_their_sign() {
        assert_eq!(big_endian(&[0xff]), Some(Bound::Number(-1)));
        assert_eq!(big_endian(&[0x7f, 0xff]), Some(Bound::Number(32_767)));
        assert_eq!(big_endian(&i128::MIN.to_be_bytes()), Some(Bound::Number(i128::MIN)));
        assert_eq!(big_endian(&[]), None);
        assert_eq!(big_endian(&[0; 17]), None);
    }
}
