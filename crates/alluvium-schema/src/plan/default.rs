//! Defaults of columns that lose fields.

use crate::json::{Fault, Scanner};
use alluvium_core::DataType;

/// The default without the fields that the type has not; the rest byte for byte.
pub(super) fn within(default: &str, data_type: &DataType) -> Option<String> {
    let mut scanner = Scanner::new(default.as_bytes());
    let mut out = Vec::with_capacity(default.len());
    copy(&mut scanner, data_type, &mut out, 1).ok()?;
    String::from_utf8(out).ok()
}

fn copy(scanner: &mut Scanner<'_>, data_type: &DataType, out: &mut Vec<u8>, depth: u32) -> Result<(), Fault> {
    let first = scanner.peek();
    match (data_type, first) {
        (DataType::Struct(_) | DataType::Map(..), b'{') => copy_object(scanner, data_type, out, depth),
        (DataType::Array(element), b'[') => copy_list(scanner, element, out, depth),
        _ => {
            let start = scanner.at;
            scanner.skip_value(depth)?;
            out.extend_from_slice(scanner.slice(start, scanner.at));
            Ok(())
        }
    }
}

fn copy_object(scanner: &mut Scanner<'_>, data_type: &DataType, out: &mut Vec<u8>, depth: u32) -> Result<(), Fault> {
    scanner.enter(depth)?;
    out.push(b'{');
    let mut is_first = true;
    let mut ends = scanner.peek() == b'}';
    if ends {
        scanner.at += 1;
    }
    let mut scratch = Vec::new();
    while !ends {
        scanner.peek();
        let start = scanner.at;
        let key = scanner.string()?;
        let key_text = scanner.slice(start, scanner.at);
        scanner.colon()?;
        let value = match data_type {
            DataType::Map(_, value) => Some(value.as_ref()),
            DataType::Struct(fields) => {
                let name = key.unescaped(&mut scratch);
                fields.iter().find(|field| field.name.as_bytes() == name).map(|field| &field.data_type)
            }
            _ => None,
        };
        if let Some(value) = value {
            if !std::mem::take(&mut is_first) {
                out.push(b',');
            }
            out.extend_from_slice(key_text);
            out.push(b':');
            copy(scanner, value, out, depth + 1)?;
        } else {
            scanner.skip_value(depth + 1)?;
        }
        ends = scanner.object_ends()?;
    }
    out.push(b'}');
    Ok(())
}

fn copy_list(scanner: &mut Scanner<'_>, element: &DataType, out: &mut Vec<u8>, depth: u32) -> Result<(), Fault> {
    scanner.enter(depth)?;
    out.push(b'[');
    let mut ends = scanner.peek() == b']';
    if ends {
        scanner.at += 1;
    }
    while !ends {
        copy(scanner, element, out, depth + 1)?;
        ends = scanner.list_ends()?;
        if !ends {
            out.push(b',');
        }
    }
    out.push(b']');
    Ok(())
}
