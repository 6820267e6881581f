//! Typed views of a column's values. `get` copies or borrows a value; it never allocates.

use super::Column;
use crate::bindings::column::Node;
use crate::{Date, Decimal, Timestamp};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// Which values are there; none at all means that every one is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Validity<'a>(Option<Cow<'a, [u8]>>);

impl<'a> Validity<'a> {
    /// `None` when there are too few bits.
    pub(crate) fn new(node: &'a Node) -> Option<Self> {
        match &node.validity {
            None => Some(Self(None)),
            Some(bits) => bits.get(..(node.length as usize).div_ceil(8)).map(|bits| Self(Some(Cow::Borrowed(bits)))),
        }
    }

    /// There only where both are.
    pub(crate) fn and(self, above: Option<&Validity<'_>>, length: usize) -> Self {
        let Some(Validity(Some(above))) = above else { return self };
        let above = above.iter().copied().chain(std::iter::repeat(0)).take(length.div_ceil(8));
        Self(Some(Cow::Owned(match &self.0 {
            None => above.collect(),
            Some(own) => above.zip(own.iter()).map(|(above, own)| above & own).collect(),
        })))
    }

    #[inline]
    pub(crate) fn is_valid(&self, row: usize) -> bool {
        match &self.0 {
            None => true,
            Some(bits) => bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1),
        }
    }
}

/// Whether there is one offset more than `length`, none falls, and all lie within `end`.
pub(crate) fn check_offsets(offsets: &[i32], length: usize, end: usize) -> Option<()> {
    let (first, last) = (*offsets.first()?, *offsets.last()?);
    let rising = offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    let inside = first >= 0 && usize::try_from(last).ok()? <= end;
    (offsets.len() - 1 == length && rising && inside).then_some(())
}

#[inline]
fn range(offsets: &[i32], row: usize) -> Option<Range<usize>> {
    let (start, end) = (*offsets.get(row)?, *offsets.get(row + 1)?);
    Some(start as usize..end as usize)
}

/// A value of a fixed number of bytes.
pub trait Primitive: Copy + fmt::Debug + 'static {
    /// Its bytes, little endian.
    type Bytes: Copy + fmt::Debug + AsRef<[u8]>;
    #[doc(hidden)]
    fn chunks(bytes: &[u8]) -> &[Self::Bytes];
    #[doc(hidden)]
    fn load(bytes: Self::Bytes) -> Self;
    #[doc(hidden)]
    fn store(self) -> Self::Bytes;
}

macro_rules! primitives {
    ($($type:ty, $bytes:literal, $load:expr, $store:expr;)*) => {$(
        impl Primitive for $type {
            type Bytes = [u8; $bytes];

            #[inline]
            fn chunks(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }

            #[inline]
            fn load(bytes: Self::Bytes) -> Self {
                ($load)(bytes)
            }

            #[inline]
            fn store(self) -> Self::Bytes {
                ($store)(self)
            }
        }
    )*};
}

primitives! {
    i8, 1, i8::from_le_bytes, i8::to_le_bytes;
    i16, 2, i16::from_le_bytes, i16::to_le_bytes;
    i32, 4, i32::from_le_bytes, i32::to_le_bytes;
    i64, 8, i64::from_le_bytes, i64::to_le_bytes;
    i128, 16, i128::from_le_bytes, i128::to_le_bytes;
    f32, 4, f32::from_le_bytes, f32::to_le_bytes;
    f64, 8, f64::from_le_bytes, f64::to_le_bytes;
    Date, 4, |bytes| Date::from_days(i32::from_le_bytes(bytes)), |date: Date| date.days().to_le_bytes();
    Timestamp, 8, |bytes| Timestamp::from_micros(i64::from_le_bytes(bytes)), |time: Timestamp| time.micros().to_le_bytes();
}

/// Values of a fixed number of bytes.
#[derive(Clone, Debug)]
pub struct Fixed<'a, T: Primitive> {
    pub(crate) values: &'a [T::Bytes],
    pub(crate) validity: Validity<'a>,
}

/// Values of a `tinyint` column.
pub type TinyInts<'a> = Fixed<'a, i8>;
/// Values of a `smallint` column.
pub type SmallInts<'a> = Fixed<'a, i16>;
/// Values of an `int` column.
pub type Ints<'a> = Fixed<'a, i32>;
/// Values of a `bigint` column.
pub type BigInts<'a> = Fixed<'a, i64>;
/// Values of a `float` column.
pub type Floats<'a> = Fixed<'a, f32>;
/// Values of a `double` column.
pub type Doubles<'a> = Fixed<'a, f64>;
/// Values of a `date` column.
pub type Dates<'a> = Fixed<'a, Date>;
/// Values of a `timestamp` or `timestamp_ntz` column.
pub type Timestamps<'a> = Fixed<'a, Timestamp>;

impl<T: Primitive> Fixed<'_, T> {
    /// The value; `None` when it is null, or when there is no such row.
    #[inline]
    pub fn get(&self, row: impl Into<usize>) -> Option<T> {
        let row = row.into();
        let value = *self.values.get(row)?;
        self.validity.is_valid(row).then(|| T::load(value))
    }
}

/// Values of a `boolean` column.
#[derive(Clone, Debug)]
pub struct Booleans<'a> {
    pub(crate) length: usize,
    pub(crate) bits: &'a [u8],
    pub(crate) validity: Validity<'a>,
}

impl Booleans<'_> {
    /// The value; `None` when it is null, or when there is no such row.
    #[inline]
    pub fn get(&self, row: impl Into<usize>) -> Option<bool> {
        let row = row.into();
        let byte = *self.bits.get(row / 8)?;
        (row < self.length && self.validity.is_valid(row)).then_some(byte >> (row % 8) & 1 == 1)
    }
}

/// Values of a `decimal` column.
#[derive(Clone, Debug)]
pub struct Decimals<'a> {
    pub(crate) unscaled: Fixed<'a, i128>,
    pub(crate) scale: u8,
}

impl Decimals<'_> {
    /// The value; `None` when it is null, or when there is no such row.
    #[inline]
    pub fn get(&self, row: impl Into<usize>) -> Option<Decimal> {
        Some(Decimal::new(self.unscaled.get(row)?, self.scale))
    }

    /// How many digits stand after the point, in every value.
    pub fn scale(&self) -> u8 {
        self.scale
    }
}

/// Values of a `string` column.
#[derive(Clone, Debug)]
pub struct Strings<'a> {
    pub(crate) offsets: &'a [i32],
    pub(crate) text: &'a str,
    pub(crate) validity: Validity<'a>,
}

impl<'a> Strings<'a> {
    /// The value; `None` when it is null, or when there is no such row.
    #[inline]
    pub fn get(&self, row: impl Into<usize>) -> Option<&'a str> {
        let row = row.into();
        let range = range(self.offsets, row)?;
        if self.validity.is_valid(row) { self.text.get(range) } else { None }
    }
}

/// Values of a `binary` column.
#[derive(Clone, Debug)]
pub struct Binaries<'a> {
    pub(crate) offsets: &'a [i32],
    pub(crate) bytes: &'a [u8],
    pub(crate) validity: Validity<'a>,
}

impl<'a> Binaries<'a> {
    /// The value; `None` when it is null, or when there is no such row.
    #[inline]
    pub fn get(&self, row: impl Into<usize>) -> Option<&'a [u8]> {
        let row = row.into();
        let range = range(self.offsets, row)?;
        if self.validity.is_valid(row) { self.bytes.get(range) } else { None }
    }
}

/// Values of an `array` column.
#[derive(Clone, Debug)]
pub struct Lists<'a> {
    pub(crate) offsets: &'a [i32],
    pub(crate) elements: Column<'a>,
    pub(crate) validity: Validity<'a>,
}

impl<'a> Lists<'a> {
    /// Which of [`Lists::elements`] make up the list; `None` when it is null, or when there is no such row.
    #[inline]
    pub fn get(&self, row: impl Into<usize>) -> Option<Range<usize>> {
        let row = row.into();
        let range = range(self.offsets, row)?;
        self.validity.is_valid(row).then_some(range)
    }

    /// The elements of all lists.
    pub fn elements(&self) -> &Column<'a> {
        &self.elements
    }
}

/// Values of a `map` column.
#[derive(Clone, Debug)]
pub struct Maps<'a> {
    pub(crate) offsets: &'a [i32],
    pub(crate) keys: Column<'a>,
    pub(crate) values: Column<'a>,
    pub(crate) validity: Validity<'a>,
}

impl<'a> Maps<'a> {
    /// Which of [`Maps::keys`] and [`Maps::values`] make up the map; `None` when it is null, or
    /// when there is no such row.
    #[inline]
    pub fn get(&self, row: impl Into<usize>) -> Option<Range<usize>> {
        let row = row.into();
        let range = range(self.offsets, row)?;
        self.validity.is_valid(row).then_some(range)
    }

    /// The keys of all maps.
    pub fn keys(&self) -> &Column<'a> {
        &self.keys
    }

    /// The values of all maps.
    pub fn values(&self) -> &Column<'a> {
        &self.values
    }
}
