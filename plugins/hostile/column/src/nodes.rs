//! Nodes: read, written as they should be, and made wrong.

use crate::{Layout, Node};
use hostile_common::past_memory;

/// The type of a kind of column, in the contract's spelling.
pub fn data_type(kind: &str) -> Result<&'static str, String> {
    Ok(match kind {
        "boolean" => "boolean",
        "int" => "int",
        "bigint" => "bigint",
        "decimal" => "decimal(10,2)",
        "string" => "string",
        "binary" => "binary",
        "list" => "array<bigint>",
        "map" => "map<string,bigint>",
        "struct" => "struct<a:bigint,b:string>",
        "nested" => "array<struct<a:bigint,b:array<string>>>",
        _ => return Err(format!("unknown kind '{kind}'")),
    })
}

/// The values of a bigint node.
pub fn bigints(node: Option<&Node>) -> Vec<Option<i64>> {
    let Some(node) = node else { return Vec::new() };
    let values = node.values.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes));
    values.enumerate().map(|(row, value)| is_valid(node, row).then_some(value)).collect()
}

/// The values of a string node.
pub fn strings(node: Option<&Node>) -> Vec<Option<String>> {
    let Some(node) = node else { return Vec::new() };
    let offsets = node.offsets.as_deref().unwrap_or_default();
    let values = offsets.windows(2).map(|pair| node.values.get(pair[0] as usize..pair[1] as usize));
    let texts = values.map(|value| String::from_utf8_lossy(value.unwrap_or_default()).into_owned());
    texts.enumerate().map(|(row, text)| is_valid(node, row).then_some(text)).collect()
}

fn is_valid(node: &Node, row: usize) -> bool {
    let bit = |bits: &Vec<u8>| bits.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1);
    node.validity.as_ref().is_none_or(bit)
}

/// The column as it should be: numbers are the ids, texts the texts; a list has its value once, a
/// map has one entry.
pub fn column(path: &str, kind: &str, ids: Vec<Option<i64>>, texts: Vec<Option<String>>) -> Result<Vec<Node>, String> {
    let name = path.rsplit('.').next().unwrap_or(path);
    let count = ids.len();
    let numbers = |name: &str| number_node(name, Layout::Fixed8, &ids, |id| id.to_le_bytes().to_vec());
    Ok(match kind {
        "boolean" => {
            let bits = bits(ids.iter().map(|id| id.unwrap_or_default() & 1 == 1));
            vec![Node {
                layout: Layout::Boolean,
                values: bits,
                ..number_node(name, Layout::Fixed8, &ids, |_| Vec::new())
            }]
        }
        "int" => vec![number_node(name, Layout::Fixed4, &ids, |id| (id as i32).to_le_bytes().to_vec())],
        "bigint" => vec![numbers(name)],
        "decimal" => {
            vec![number_node(name, Layout::Fixed16, &ids, |id| i128::from(id % 1_000_000).to_le_bytes().to_vec())]
        }
        "string" => vec![text_node(name, Layout::Utf8, &texts)],
        "binary" => vec![text_node(name, Layout::Bytes, &texts)],
        "list" => vec![list_node(name, Layout::List, count), numbers("element")],
        "map" => {
            let keys: Vec<_> = texts.into_iter().map(|text| Some(text.unwrap_or_default())).collect();
            vec![
                list_node(name, Layout::Map, count),
                struct_node("key_value", 2, count),
                text_node("key", Layout::Utf8, &keys),
                numbers("value"),
            ]
        }
        "struct" => vec![struct_node(name, 2, count), numbers("a"), text_node("b", Layout::Utf8, &texts)],
        "nested" => vec![
            list_node(name, Layout::List, count),
            struct_node("element", 2, count),
            numbers("a"),
            list_node("b", Layout::List, count),
            text_node("element", Layout::Utf8, &texts),
        ],
        _ => return Err(format!("unknown kind '{kind}'")),
    })
}

/// A string column of nulls only.
pub fn all_null(name: &str, count: usize) -> Vec<Node> {
    let mut node = text_node(name, Layout::Utf8, &[]);
    node.length = count as u32;
    node.validity = Some(vec![0; count.div_ceil(8)]);
    node.offsets = Some(vec![0; count + 1]);
    vec![node]
}

fn bits(bits: impl Iterator<Item = bool>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (at, bit) in bits.enumerate() {
        if at % 8 == 0 {
            bytes.push(0);
        }
        if let Some(byte) = bytes.last_mut() {
            *byte |= u8::from(bit) << (at % 8);
        }
    }
    bytes
}

fn number_node(name: &str, layout: Layout, ids: &[Option<i64>], encode: impl Fn(i64) -> Vec<u8>) -> Node {
    Node {
        name: name.to_owned(),
        layout,
        children: 0,
        length: ids.len() as u32,
        validity: Some(bits(ids.iter().map(Option::is_some))),
        offsets: None,
        values: ids.iter().flat_map(|id| encode(id.unwrap_or_default())).collect(),
    }
}

fn text_node(name: &str, layout: Layout, texts: &[Option<String>]) -> Node {
    let mut offsets = vec![0];
    let mut values = Vec::new();
    for text in texts {
        values.extend_from_slice(text.as_deref().unwrap_or_default().as_bytes());
        offsets.push(values.len() as i32);
    }
    Node {
        name: name.to_owned(),
        layout,
        children: 0,
        length: texts.len() as u32,
        validity: Some(bits(texts.iter().map(Option::is_some))),
        offsets: Some(offsets),
        values,
    }
}

/// Each list has one element.
fn list_node(name: &str, layout: Layout, count: usize) -> Node {
    let offsets = Some((0..=count as i32).collect());
    Node {
        name: name.to_owned(),
        layout,
        children: 1,
        length: count as u32,
        validity: None,
        offsets,
        values: Vec::new(),
    }
}

fn struct_node(name: &str, children: u32, count: usize) -> Node {
    let (layout, length) = (Layout::Struct, count as u32);
    Node { name: name.to_owned(), layout, children, length, validity: None, offsets: None, values: Vec::new() }
}

/// Makes one node wrong, or the tree as a whole.
pub fn corrupt(mode: &str, index: usize, size: usize, nodes: &mut Vec<Node>) -> Result<(), String> {
    match mode {
        "nodes-missing" => {
            nodes.pop();
        }
        "nodes-none" => nodes.clear(),
        "nodes-extra" => nodes.push(text_node("extra", Layout::Utf8, &[])),
        "nodes-deep" => deep(nodes, 100_000),
        "nodes-bomb" => {
            let leaf = text_node("leaf", Layout::Utf8, &[]);
            nodes.extend(vec![leaf; 200_000]);
        }
        _ => corrupt_node(mode, size, nodes.get_mut(index).ok_or("the column has no such node")?)?,
    }
    Ok(())
}

/// A chain of lists, each with one element, `depth` levels deep.
fn deep(nodes: &mut Vec<Node>, depth: usize) {
    let length = nodes.first().map_or(0, |node| node.length as usize);
    let leaf = number_node("element", Layout::Fixed8, &vec![Some(1); length], |id| id.to_le_bytes().to_vec());
    *nodes = vec![list_node("out", Layout::List, length); depth];
    nodes.push(leaf);
}

fn corrupt_node(mode: &str, size: usize, node: &mut Node) -> Result<(), String> {
    let length = node.length as usize;
    let end = node.values.len() as i32;
    let offsets = node.offsets.get_or_insert_default();
    match mode {
        "layout-boolean" => node.layout = Layout::Boolean,
        "layout-fixed16" => node.layout = Layout::Fixed16,
        "layout-bytes" => node.layout = Layout::Bytes,
        "layout-utf8" => node.layout = Layout::Utf8,
        "layout-list" => node.layout = Layout::List,
        "layout-struct" => node.layout = Layout::Struct,
        "name-other" => node.name = "another".to_owned(),
        "name-10mb" => node.name = "x".repeat(10 << 20),
        "name-utf8" => node.name = hostile_common::not_utf8(),
        "children-one-more" => node.children += 1,
        "children-one-less" => node.children = node.children.saturating_sub(1),
        "children-max" => node.children = u32::MAX,
        "length-short" => node.length = node.length.saturating_sub(1),
        "length-long" => node.length += 1,
        "length-max" => node.length = u32::MAX,
        "length-zero" => node.length = 0,
        "validity-short" => node.validity = Some(vec![0xff; length.div_ceil(8).saturating_sub(1)]),
        "validity-empty" => node.validity = Some(Vec::new()),
        "validity-long" => node.validity = Some(vec![0xff; length.div_ceil(8) + 9]),
        "validity-none-there" => node.validity = Some(vec![0; length.div_ceil(8)]),
        "values-short" => {
            node.values.pop();
        }
        "values-empty" => node.values.clear(),
        "values-long" => node.values.extend_from_slice(&[7; 33]),
        "values-bomb" => node.values.resize(size, b'x'),
        "values-past-memory" => node.values = past_memory(b'x'),
        "offsets-missing" => node.offsets = None,
        "offsets-empty" => offsets.clear(),
        "offsets-short" => {
            offsets.pop();
        }
        "offsets-long" => offsets.push(end),
        "offsets-falling" => offsets.reverse(),
        "offsets-dip" => {
            if let Some(middle) = offsets.get_mut(length / 2) {
                *middle = -1;
            }
        }
        "offsets-negative" => offsets.iter_mut().for_each(|offset| *offset -= 1),
        "offsets-past" => offsets.iter_mut().skip(1).for_each(|offset| *offset += 1_000_000),
        "offsets-past-memory" => *offsets = past_memory(0),
        "offsets-max" => offsets.iter_mut().skip(1).for_each(|offset| *offset = i32::MAX),
        "offsets-start" => {
            if let Some(first) = offsets.first_mut() {
                *first = 1;
            }
        }
        "offsets-unasked" => {
            offsets.clear();
            offsets.extend(0..=length as i32);
        }
        "utf8-invalid" => node.values.iter_mut().for_each(|byte| *byte = 0xff),
        "utf8-surrogate" => fill(&mut node.values, &[0xed, 0xa0, 0x80]),
        // Whole, the bytes are UTF-8; an offset lies inside a character.
        "utf8-cut" => {
            node.values = "é".repeat(length + 1).into_bytes();
            offsets.clear();
            offsets.extend((0..=length as i32).map(|at| at * 2 + i32::from(at > 0)));
        }
        "decimal-too-large" => fill(&mut node.values, &i128::MAX.to_le_bytes()),
        _ => return Err(format!("unknown mode '{mode}'")),
    }
    // Fixed layouts have no offsets, unless that is what is wrong.
    if node.offsets.as_ref().is_some_and(Vec::is_empty) && mode != "offsets-empty" {
        node.offsets = None;
    }
    Ok(())
}

fn fill(values: &mut [u8], pattern: &[u8]) {
    for (byte, value) in values.iter_mut().zip(pattern.iter().cycle()) {
        *byte = *value;
    }
}
