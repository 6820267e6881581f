#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::contract::{Node, RawNode};
use crate::output::OutputError;
use alluvium_core::data_type::Field;
use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, TimestampMicrosecondType};
use arrow_array::{
    Array, BinaryArray, BooleanArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array,
    ListArray, MapArray, PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::DataType as ArrowType;
use proptest::prelude::*;
use std::sync::Arc;

/// Small pseudo-random numbers from a seed that proptest chooses.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn text(&mut self) -> String {
        const LETTERS: [char; 6] = ['a', 'Z', 'é', '€', '𝄞', '\0'];
        (0..self.below(5)).map(|_| LETTERS[self.below(LETTERS.len())]).collect()
    }

    fn nulls(&mut self, length: usize) -> Option<NullBuffer> {
        if self.below(3) == 0 {
            return None;
        }
        let rate = self.below(4) + 1;
        // Bits that start in the middle of a byte.
        let skip = self.below(9);
        let bits: Vec<bool> = (0..skip + length + 3).map(|_| self.below(rate) == 0).collect();
        Some(NullBuffer::new(BooleanBuffer::from(bits).slice(skip, length)))
    }

    /// Offsets of `length` lists, with values left out before the first and after the last.
    fn offsets(&mut self, length: usize) -> (OffsetBuffer<i32>, usize) {
        let mut at = self.below(4);
        let mut offsets = vec![at as i32];
        for _ in 0..length {
            at += self.below(4);
            offsets.push(at as i32);
        }
        (OffsetBuffer::new(offsets.into()), at + self.below(4))
    }
}

/// An array of the type, sliced out of a larger one, with rubbish under its nulls.
fn array(data_type: &DataType, length: usize, nullable: bool, random: &mut Random) -> ArrayRef {
    let before = random.below(12);
    let whole = whole(data_type, before + length + random.below(12), nullable, random);
    whole.slice(before, length)
}

fn whole(data_type: &DataType, length: usize, nullable: bool, random: &mut Random) -> ArrayRef {
    let nulls = if nullable { random.nulls(length) } else { None };
    let valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    macro_rules! numbers {
        ($array:ty) => {
            Arc::new(<$array>::new((0..length).map(|_| random.next() as _).collect(), nulls))
        };
    }
    match data_type {
        DataType::Boolean => {
            let skip = random.below(9);
            let bits: Vec<bool> = (0..skip + length).map(|_| random.below(2) == 0).collect();
            Arc::new(BooleanArray::new(BooleanBuffer::from(bits).slice(skip, length), nulls))
        }
        DataType::TinyInt => numbers!(Int8Array),
        DataType::SmallInt => numbers!(Int16Array),
        DataType::Int => numbers!(Int32Array),
        DataType::BigInt => numbers!(Int64Array),
        DataType::Float => numbers!(Float32Array),
        DataType::Double => numbers!(Float64Array),
        DataType::Decimal(precision, scale) => {
            let end = 10_i128.pow(u32::from(*precision));
            let mut value = |row| {
                let any = i128::from(random.next() as i64) * i128::from(random.next() as i64);
                if valid(row) { any % end } else { any }
            };
            let values = (0..length).map(&mut value).collect();
            let array = PrimitiveArray::<Decimal128Type>::new(values, nulls.clone());
            Arc::new(array.with_data_type(ArrowType::Decimal128(*precision, *scale as i8)))
        }
        DataType::Date => {
            let mut value = |row| {
                let any = random.next() as i32;
                if valid(row) { any % 700_000 } else { any }
            };
            Arc::new(PrimitiveArray::<Date32Type>::new((0..length).map(&mut value).collect(), nulls.clone()))
        }
        DataType::Timestamp | DataType::TimestampNtz => {
            let mut value = |row| {
                let any = random.next() as i64;
                if valid(row) { any % 62_000_000_000_000_000 } else { any }
            };
            let values = (0..length).map(&mut value).collect();
            let array = PrimitiveArray::<TimestampMicrosecondType>::new(values, nulls.clone());
            Arc::new(array.with_data_type(data_type.to_arrow()))
        }
        DataType::String => {
            let texts: Vec<String> = (0..length).map(|_| random.text()).collect();
            let array = StringArray::from_iter_values(&texts);
            Arc::new(StringArray::new(array.offsets().clone(), array.values().clone(), nulls))
        }
        DataType::Binary => {
            let bytes: Vec<Vec<u8>> =
                (0..length).map(|_| (0..random.below(4)).map(|_| random.next() as u8).collect()).collect();
            let array = BinaryArray::from_iter_values(&bytes);
            Arc::new(BinaryArray::new(array.offsets().clone(), array.values().clone(), nulls))
        }
        DataType::Array(element) => {
            let (offsets, values) = random.offsets(length);
            let values = array(element, values, true, random);
            let ArrowType::List(field) = data_type.to_arrow() else { panic!("a list") };
            Arc::new(ListArray::new(field, offsets, values, nulls))
        }
        DataType::Map(key, value) => {
            let (offsets, entries) = random.offsets(length);
            let columns = vec![array(key, entries, false, random), array(value, entries, true, random)];
            let ArrowType::Map(field, _) = data_type.to_arrow() else { panic!("a map") };
            let ArrowType::Struct(fields) = field.data_type().clone() else { panic!("entries") };
            Arc::new(MapArray::new(field, offsets, StructArray::new(fields, columns, None), nulls, false))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| array(&field.data_type, length, true, random)).collect();
            let ArrowType::Struct(arrow) = data_type.to_arrow() else { panic!("a struct") };
            Arc::new(StructArray::new(arrow, columns, nulls))
        }
    }
}

fn data_types() -> impl Strategy<Value = DataType> {
    let leaf = prop_oneof![
        Just(DataType::Boolean),
        Just(DataType::TinyInt),
        Just(DataType::SmallInt),
        Just(DataType::Int),
        Just(DataType::BigInt),
        Just(DataType::Float),
        Just(DataType::Double),
        (1_u8..=38, 0_u8..=9).prop_map(|(precision, scale)| DataType::Decimal(precision, scale.min(precision))),
        Just(DataType::String),
        Just(DataType::Binary),
        Just(DataType::Date),
        Just(DataType::Timestamp),
        Just(DataType::TimestampNtz),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|element| DataType::Array(Box::new(element))),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| DataType::Map(Box::new(key), Box::new(value))),
            prop::collection::vec(inner, 1..4).prop_map(|types| {
                let field = |(number, data_type)| Field { name: format!("f{number}"), data_type };
                DataType::Struct(types.into_iter().enumerate().map(field).collect())
            }),
        ]
    })
}

/// What a plugin that hands its input through would return.
fn echo(node: &Node<'_>) -> RawNode {
    RawNode {
        name: node.name.to_owned(),
        layout: node.layout,
        children: node.children,
        length: node.length,
        validity: node.validity.as_ref().map(|bits| bits.to_vec()),
        offsets: node.offsets.as_ref().map(|offsets| offsets.to_vec()),
        values: node.values.to_vec(),
    }
}

fn nodes_of(data_type: &DataType, array: &dyn Array) -> Vec<RawNode> {
    let mut nodes = Vec::new();
    lower_column("column", data_type, &data_type.to_arrow(), array, &mut nodes).unwrap();
    nodes.iter().map(echo).collect()
}

fn lift_all(data_type: &DataType, length: usize, nodes: Vec<RawNode>) -> Result<ArrayRef, OutputError> {
    let mut nodes = Nodes::new(nodes);
    let array = lift_column("column", data_type, &data_type.to_arrow(), length, &mut nodes)?;
    nodes.finish()?;
    Ok(array)
}

/// Damages one thing in one node.
fn damage(nodes: &mut Vec<RawNode>, random: &mut Random) {
    let at = random.below(nodes.len());
    let layouts = [
        Layout::Boolean,
        Layout::Fixed1,
        Layout::Fixed4,
        Layout::Fixed16,
        Layout::Bytes,
        Layout::Utf8,
        Layout::List,
        Layout::Map,
        Layout::Struct,
    ];
    let numbers = [0, 1, 2, 7, 8, 9, 1000, u32::MAX - 1, u32::MAX];
    let number = numbers[random.below(numbers.len())];
    match random.below(13) {
        0 => drop(nodes.remove(at)),
        1 => nodes.insert(at, nodes[at].clone()),
        2 => nodes[at].layout = layouts[random.below(layouts.len())],
        3 => nodes[at].children = number,
        4 => nodes[at].length = number,
        5 => nodes[at].length = nodes[at].length.wrapping_add(1),
        6 => nodes[at].validity = Some(vec![random.next() as u8; random.below(8)]),
        7 => nodes[at].offsets = None,
        8 => {
            if let Some(offset) = nodes[at].offsets.as_mut().and_then(|offsets| {
                let index = random.below(offsets.len());
                offsets.get_mut(index)
            }) {
                let wild = [-1, i32::MIN, i32::MAX, 1, *offset + 1, *offset - 1];
                *offset = wild[random.below(wild.len())];
            }
        }
        9 => {
            let length = random.below(nodes[at].values.len() + 2);
            nodes[at].values.resize(length, 0xFF);
        }
        10 => {
            let index = random.below(nodes[at].values.len());
            if let Some(byte) = nodes[at].values.get_mut(index) {
                *byte = random.next() as u8;
            }
        }
        11 => nodes[at].name.push('x'),
        _ => {
            let other = random.below(nodes.len());
            nodes.swap(at, other);
        }
    }
    if nodes.is_empty() {
        nodes.push(RawNode {
            name: String::new(),
            layout: Layout::Boolean,
            children: 0,
            length: 0,
            validity: None,
            offsets: None,
            values: Vec::new(),
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn arrays_survive_the_way_through_nodes(data_type in data_types(), length in 0_usize..40, seed: u64) {
        let array = array(&data_type, length, true, &mut Random(seed));
        let back = lift_all(&data_type, length, nodes_of(&data_type, &array)).unwrap();
        prop_assert_eq!(back.data_type(), &data_type.to_arrow());
        prop_assert!(back.to_data().validate_full().is_ok());
        prop_assert_eq!(back.as_ref(), array.as_ref());
    }

    #[test]
    fn what_a_plugin_sees_depends_on_the_values_alone(data_type in data_types(), length in 0_usize..20, seed: u64) {
        // The same values, once as a slice and once copied into arrays of their own.
        let array = array(&data_type, length, true, &mut Random(seed));
        let nodes = nodes_of(&data_type, &array);
        let (head, tail) = (array.slice(0, length / 2), array.slice(length / 2, length - length / 2));
        let copied = concat(&[head, tail]).unwrap();
        let again = nodes_of(&data_type, &copied);
        let shape = |nodes: &[RawNode]| -> Vec<_> {
            let unhidden = |node: &RawNode| node.offsets.as_ref().is_none_or(|offsets| offsets[0] == 0);
            nodes.iter().map(|node| (node.layout, node.length, node.validity.clone(), unhidden(node))).collect()
        };
        prop_assert!(nodes.iter().all(|node| node.offsets.as_ref().is_none_or(|offsets| offsets[0] == 0)));
        prop_assert_eq!(shape(&nodes), shape(&again));
    }

    #[test]
    fn no_node_makes_a_panic_or_a_bad_array(
        data_type in data_types(), length in 0_usize..20, seed: u64, times in 1_usize..4,
    ) {
        let mut random = Random(seed);
        let array = array(&data_type, length, true, &mut random);
        let mut nodes = nodes_of(&data_type, &array);
        for _ in 0..times {
            damage(&mut nodes, &mut random);
        }
        if let Ok(lifted) = lift_all(&data_type, length, nodes) {
            prop_assert_eq!(lifted.len(), length);
            prop_assert_eq!(lifted.data_type(), &data_type.to_arrow());
            prop_assert!(lifted.to_data().validate_full().is_ok());
        }
    }
}

fn node(layout: Layout, length: u32, values: &[u8]) -> RawNode {
    RawNode {
        name: "column".to_owned(),
        layout,
        children: 0,
        length,
        validity: None,
        offsets: None,
        values: values.to_vec(),
    }
}

fn refusal(data_type: &str, length: usize, nodes: Vec<RawNode>) -> String {
    lift_all(&DataType::parse(data_type).unwrap(), length, nodes).unwrap_err().to_string()
}

#[test]
fn each_lie_is_named() {
    let text = |offsets: Option<&[i32]>, values: &[u8]| RawNode {
        offsets: offsets.map(<[i32]>::to_vec),
        ..node(Layout::Utf8, 2, values)
    };
    let cases = [
        (refusal("int", 1, vec![]), "column column is missing: there are too few nodes"),
        (
            refusal("int", 1, vec![node(Layout::Fixed8, 1, &[0; 8])]),
            "column column has the layout fixed8; its type needs fixed4",
        ),
        (refusal("int", 2, vec![node(Layout::Fixed4, 1, &[0; 4])]), "column column has 1 values instead of 2"),
        (refusal("int", 2, vec![node(Layout::Fixed4, 2, &[0; 7])]), "column column has 7 bytes of values instead of 8"),
        (
            refusal("boolean", 9, vec![node(Layout::Boolean, 9, &[0])]),
            "column column has 1 bytes of values instead of 2",
        ),
        (
            refusal("int", 9, vec![RawNode { validity: Some(vec![0]), ..node(Layout::Fixed4, 9, &[0; 36]) }]),
            "column column has a validity bitmap of 1 bytes instead of 2",
        ),
        (
            refusal("int", 1, vec![node(Layout::Fixed4, 1, &[0; 4]), node(Layout::Fixed4, 1, &[0; 4])]),
            "there are 1 more nodes than the columns it writes need",
        ),
        (refusal("string", 2, vec![text(None, b"ab")]), "column column has no offsets; its type needs them"),
        (refusal("string", 2, vec![text(Some(&[0, 2]), b"ab")]), "column column has 2 offsets instead of 3"),
        (
            refusal("string", 2, vec![text(Some(&[0, 3, 2]), b"abc")]),
            "column column has offset 2 at row 2, outside 0 to 3 or below the one before",
        ),
        (
            refusal("string", 2, vec![text(Some(&[-1, 0, 2]), b"ab")]),
            "column column has offset -1 at row 0, outside 0 to 2 or below the one before",
        ),
        (refusal("string", 2, vec![text(Some(&[0, 1, 2]), "é".as_bytes())]), "column column is not UTF-8 at row 0"),
        (refusal("string", 2, vec![text(Some(&[0, 1, 2]), b"a\xFF")]), "column column is not UTF-8 at row 1"),
        (
            refusal("decimal(3,1)", 1, vec![node(Layout::Fixed16, 1, &1000_i128.to_le_bytes())]),
            "column column has at row 0 a number that does not fit decimal(3,1)",
        ),
        (
            refusal("date", 1, vec![node(Layout::Fixed4, 1, &2_932_897_i32.to_le_bytes())]),
            "column column has at row 0 a date outside the years 1 to 9999",
        ),
        (
            refusal("timestamp", 1, vec![node(Layout::Fixed8, 1, &i64::MIN.to_le_bytes())]),
            "column column has at row 0 a timestamp outside the years 1 to 9999",
        ),
        (
            refusal(
                "struct<a:int,b:int>",
                1,
                vec![
                    RawNode { children: 2, ..node(Layout::Struct, 1, &[]) },
                    RawNode { name: "b".to_owned(), ..node(Layout::Fixed4, 1, &[0; 4]) },
                    RawNode { name: "a".to_owned(), ..node(Layout::Fixed4, 1, &[0; 4]) },
                ],
            ),
            "column column.b stands where field a is expected",
        ),
        (
            refusal(
                "map<int,int>",
                1,
                vec![
                    RawNode { children: 1, offsets: Some(vec![0, 1]), ..node(Layout::Map, 1, &[]) },
                    RawNode { children: 2, ..node(Layout::Struct, 1, &[]) },
                    RawNode { validity: Some(vec![0]), ..node(Layout::Fixed4, 1, &[0; 4]) },
                    node(Layout::Fixed4, 1, &[0; 4]),
                ],
            ),
            "column column.key_value has a null entry or key at row 0; a map has none",
        ),
    ];
    for (found, expected) in cases {
        assert_eq!(found, expected);
    }
}

#[test]
fn values_under_nulls_are_not_judged() {
    let node = RawNode { validity: Some(vec![0b10]), ..node(Layout::Fixed4, 2, &[0xFF, 0xFF, 0xFF, 0x7F, 1, 0, 0, 0]) };
    let array = lift_all(&DataType::Date, 2, vec![node]).unwrap();
    assert!(array.is_null(0));
    assert_eq!(array.as_primitive::<Date32Type>().value(1), 1);
}

#[test]
fn bits_past_the_end_are_not_shown() {
    let bits = BooleanBuffer::from(vec![true; 16]);
    let array = BooleanArray::new(bits.clone(), Some(NullBuffer::new(BooleanBuffer::from(vec![false; 16]))));
    let nodes = nodes_of(&DataType::Boolean, &array.slice(3, 4));
    assert_eq!((nodes[0].values.as_slice(), nodes[0].validity.as_deref()), ([0b1111].as_slice(), Some([0].as_slice())));
}

#[test]
fn another_type_than_the_access_s_is_an_error() {
    let array = Int32Array::from(vec![1]);
    let error = lower_column("a.b", &DataType::BigInt, &ArrowType::Int64, &array, &mut Vec::new()).unwrap_err();
    assert_eq!(error.to_string(), "column a.b has type Int32 instead of Int64");
}
