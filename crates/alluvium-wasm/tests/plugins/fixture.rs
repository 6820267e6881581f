//! Components out of core modules in text form, laid out by hand as the canonical ABI wants it.

use wit_component::{ComponentEncoder, StringEncoding};
use wit_parser::Resolve;

const CONTRACT: &str = include_str!("../../../../wit/0.1.0/plugin.wit");

/// Where a module's constant data starts.
const BASE: u32 = 1024;

/// A core module under construction: its functions' bodies, and the constants they return.
pub struct Core {
    interface: &'static str,
    world: &'static str,
    contract: String,
    data: Vec<u8>,
    /// Pages of memory at the start.
    pub pages: u32,
    /// Further definitions.
    pub more: String,
    /// Runs when the module is instantiated.
    pub start: String,
    /// Runs first in each allocation for arguments.
    pub realloc: String,
    /// Each leaves the address of the result on the stack.
    pub describe: String,
    /// Parameters: `$config`, `$length`.
    pub configure: String,
    /// Parameters of a column plugin: `$rows`, `$nodes`, `$count`; of a record plugin: `$chunk`. Of a
    /// mapping plugin this is `plan`.
    pub transform: String,
}

/// A node that a fixture returns.
#[derive(Clone)]
pub struct Node {
    pub name: &'static str,
    pub layout: u8,
    pub children: u32,
    pub length: u32,
    pub validity: Option<Vec<u8>>,
    pub offsets: Option<Vec<i32>>,
    pub values: Vec<u8>,
}

impl Node {
    /// A column of `bigint`.
    pub fn bigint(values: &[i64]) -> Self {
        Self {
            name: "x",
            layout: 4,
            children: 0,
            length: values.len() as u32,
            validity: None,
            offsets: None,
            values: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        }
    }
}

/// Byte strings that a fixture returns.
#[derive(Clone, Default)]
pub struct Packed {
    pub ends: Vec<u32>,
    pub data: Vec<u8>,
    pub validity: Option<Vec<u8>>,
}

/// A column plugin that keeps everything, changed by `build`.
pub fn column(build: impl FnOnce(&mut Core)) -> Vec<u8> {
    let mut core = Core::new("column-transform", "column-plugin");
    core.columns(&[], &[], false);
    core.edit(None, &[], &[]);
    build(&mut core);
    core.component()
}

/// A record plugin that filters everything, changed by `build`.
pub fn record(build: impl FnOnce(&mut Core)) -> Vec<u8> {
    let mut core = Core::new("record-transform", "record-plugin");
    core.wants(false, false, false, false);
    core.output(&[], &Packed::default(), None, &[]);
    build(&mut core);
    core.component()
}

/// A mapping plugin that has an empty plan, changed by `build`.
pub fn mapping(build: impl FnOnce(&mut Core)) -> Vec<u8> {
    let mut core = Core::new("schema-mapping", "mapping-plugin");
    core.configure = constant(core.put(&[0; 12]));
    core.plan(&[], &[]);
    build(&mut core);
    core.component()
}

impl Core {
    fn new(interface: &'static str, world: &'static str) -> Self {
        let mut core = Self {
            interface,
            world,
            contract: CONTRACT.to_owned(),
            data: Vec::new(),
            pages: 4,
            more: String::new(),
            start: String::new(),
            realloc: String::new(),
            describe: String::new(),
            configure: String::new(),
            transform: String::new(),
        };
        core.description("fixture", "1.0.0", "for tests", "");
        core
    }

    /// The world is taken from this contract instead of the released one.
    pub fn contract(&mut self, change: impl FnOnce(String) -> String) {
        self.contract = change(std::mem::take(&mut self.contract));
    }

    pub fn description(&mut self, name: &str, version: &str, summary: &str, schema: &str) {
        let texts = [name, version, summary, schema].map(|text| self.bytes(text.as_bytes()));
        let record: Vec<u8> = texts.into_iter().flat_map(pair).collect();
        self.describe = constant(self.put(&record));
    }

    /// `configure` answers that these columns are wanted: paths and types.
    pub fn columns(&mut self, reads: &[(&str, &str)], writes: &[(&str, &str)], multiplies: bool) {
        let mut record = vec![0; 4];
        for fields in [reads, writes] {
            let mut list = Vec::new();
            for (path, data_type) in fields {
                list.extend(pair(self.bytes(path.as_bytes())));
                list.extend(pair(self.bytes(data_type.as_bytes())));
            }
            record.extend(pair((self.put(&list), fields.len() as u32)));
        }
        record.extend([u8::from(multiplies), 0, 0, 0]);
        self.configure = constant(self.put(&record));
    }

    /// `configure` answers what a record plugin wants to see.
    pub fn wants(&mut self, keys: bool, headers: bool, timestamps: bool, multiplies: bool) {
        let flags = [keys, headers, timestamps, multiplies].map(u8::from);
        let record = [[0; 4], flags, [0; 4]].concat();
        self.configure = constant(self.put(&record));
    }

    /// `configure` refuses.
    pub fn refuses(&mut self, message: &str) {
        let mut record = vec![1, 0, 0, 0];
        record.extend(pair(self.bytes(message.as_bytes())));
        record.resize(24, 0);
        self.configure = constant(self.put(&record));
    }

    /// `transform` fails, as a plugin says so itself.
    pub fn fails(&mut self, message: &str) {
        let mut record = vec![1, 0, 0, 0];
        record.extend(pair(self.bytes(message.as_bytes())));
        record.resize(80, 0);
        self.transform = constant(self.put(&record));
    }

    /// `transform` returns this edit.
    pub fn edit(&mut self, rows: Option<&[u32]>, nodes: &[Node], rejects: &[(u32, &str)]) {
        let mut record = vec![0; 4];
        record.extend(self.option(rows.map(words), 4));
        let mut list = Vec::new();
        for node in nodes {
            list.extend(pair(self.bytes(node.name.as_bytes())));
            list.extend([node.layout, 0, 0, 0]);
            list.extend(words(&[node.children, node.length]));
            list.extend(self.option(node.validity.clone(), 1));
            let offsets = node.offsets.as_ref();
            list.extend(self.option(offsets.map(|offsets| offsets.iter().flat_map(|o| o.to_le_bytes()).collect()), 4));
            list.extend(pair(self.bytes(&node.values)));
        }
        record.extend(pair((self.put(&list), nodes.len() as u32)));
        record.extend(self.rejects(rejects));
        self.transform = constant(self.put(&record));
    }

    /// `transform` returns this output.
    pub fn output(&mut self, inputs: &[u32], values: &Packed, keys: Option<&Packed>, rejects: &[(u32, &str)]) {
        let mut record = vec![0; 4];
        record.extend(pair((self.put(&words(inputs)), inputs.len() as u32)));
        record.extend(self.packed(values));
        record.extend(words(&[u32::from(keys.is_some())]));
        record.extend(self.packed(keys.unwrap_or(&Packed::default())));
        record.extend(self.rejects(rejects));
        self.transform = constant(self.put(&record));
    }

    /// `plan` returns columns of these names, types and paths, and drops.
    pub fn plan(&mut self, columns: &[(&str, &str, &str)], drops: &[&str]) {
        let mut list = Vec::new();
        for (name, data_type, path) in columns {
            for text in [name, data_type, path] {
                list.extend(pair(self.bytes(text.as_bytes())));
            }
            // No coercion, derivation, default or comment; conflicts reject.
            list.extend([0; 56]);
        }
        let mut record = vec![0; 4];
        record.extend(pair((self.put(&list), columns.len() as u32)));
        let drops: Vec<u8> = drops.iter().flat_map(|path| pair(self.bytes(path.as_bytes()))).collect();
        record.extend(pair((self.put(&drops), drops.len() as u32 / 8)));
        self.transform = constant(self.put(&record));
    }

    /// Places bytes at an address that is a multiple of 8.
    pub fn put(&mut self, bytes: &[u8]) -> u32 {
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        let address = BASE + self.data.len() as u32;
        self.data.extend_from_slice(bytes);
        address
    }

    fn bytes(&mut self, bytes: &[u8]) -> (u32, u32) {
        (self.put(bytes), bytes.len() as u32)
    }

    /// An optional list whose elements have `width` bytes.
    fn option(&mut self, bytes: Option<Vec<u8>>, width: usize) -> Vec<u8> {
        let list = bytes.as_ref().map_or((0, 0), |bytes| (self.put(bytes), (bytes.len() / width) as u32));
        [words(&[u32::from(bytes.is_some())]), pair(list)].concat()
    }

    fn packed(&mut self, packed: &Packed) -> Vec<u8> {
        let ends = (self.put(&words(&packed.ends)), packed.ends.len() as u32);
        let data = self.bytes(&packed.data);
        [pair(ends), pair(data), self.option(packed.validity.clone(), 1)].concat()
    }

    fn rejects(&mut self, rejects: &[(u32, &str)]) -> Vec<u8> {
        let mut list = Vec::new();
        for (input, reason) in rejects {
            list.extend(words(&[*input]));
            list.extend(pair(self.bytes(reason.as_bytes())));
        }
        pair((self.put(&list), rejects.len() as u32))
    }

    /// The core module's text.
    fn text(&self) -> String {
        let escaped: String = self.data.iter().map(|byte| format!("\\{byte:02x}")).collect();
        let heap = (BASE + self.data.len() as u32).next_multiple_of(16);
        let pages = self.pages.max(heap.div_ceil(1 << 16) + 1);
        let prefix = format!("alluvium:plugin/{}@0.1.0", self.interface);
        let prefix = if self.contract.contains("package alluvium:plugin@0.1.0") {
            prefix
        } else {
            prefix.replace("@0.1.0", "@0.2.0")
        };
        let (function, parameters) = match self.interface {
            "column-transform" => ("transform", "(param $rows i32) (param $nodes i32) (param $count i32)"),
            "schema-mapping" => ("plan", "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)"),
            _ => ("transform", "(param $chunk i32)"),
        };
        let Self { more, start, realloc, describe, configure, transform, .. } = self;
        format!(
            r#"(module
              (memory (export "memory") {pages})
              (global $heap (mut i32) (i32.const {heap}))
              (data (i32.const {BASE}) "{escaped}")
              {more}
              (func $start {start})
              (start $start)
              (func (export "cabi_realloc") (param $old i32) (param $was i32) (param $align i32) (param $size i32) (result i32)
                (local $at i32)
                {realloc}
                (local.set $at (i32.and (i32.add (global.get $heap) (i32.const 15)) (i32.const -16)))
                (global.set $heap (i32.add (local.get $at) (local.get $size)))
                (if (i32.gt_u (global.get $heap) (i32.mul (memory.size) (i32.const 65536)))
                  (then (if (i32.eq (i32.const -1) (memory.grow (i32.add (i32.const 1) (i32.shr_u (local.get $size) (i32.const 16)))))
                    (then unreachable))))
                (local.get $at))
              (func (export "{prefix}#describe") (result i32) {describe})
              (func (export "{prefix}#configure") (param $config i32) (param $length i32) (result i32) {configure})
              (func (export "{prefix}#{function}") {parameters} (result i32) {transform}))"#
        )
    }

    fn component(&self) -> Vec<u8> {
        let text = self.text();
        let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"));
        let mut resolve = Resolve::default();
        let package = resolve.push_str("plugin.wit", &self.contract).unwrap();
        let world = resolve.select_world(&[package], Some(self.world)).unwrap();
        wit_component::embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default().validate(false).module(&module).unwrap().encode().unwrap()
    }
}

fn constant(address: u32) -> String {
    format!("(i32.const {address})")
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair((first, second): (u32, u32)) -> Vec<u8> {
    words(&[first, second])
}

/// Instructions for `transform` of a column plugin that reads one `bigint`: runs `fault` when a value
/// is 13, and then does as `rest` says.
pub fn on_thirteen(fault: &str, rest: &str) -> String {
    format!(
        r#"(local $at i32) (local $end i32)
        (local.set $at (i32.load offset=44 (local.get $nodes)))
        (local.set $end (i32.add (local.get $at) (i32.mul (local.get $rows) (i32.const 8))))
        (block $done (loop $next
          (br_if $done (i32.ge_u (local.get $at) (local.get $end)))
          (if (i64.eq (i64.load align=1 (local.get $at)) (i64.const 13)) (then {fault}))
          (local.set $at (i32.add (local.get $at) (i32.const 8)))
          (br $next)))
        {rest}"#
    )
}

/// Loops for ever.
pub const SPIN: &str = "(loop $spin (br $spin))";
/// Takes memory until there is none, then traps.
pub const HOARD: &str = "(loop $more (br_if $more (i32.ne (i32.const -1) (memory.grow (i32.const 16))))) unreachable";
