//! `alluvium:plugin@0.1.0`.
//!
//! Inputs are borrowed by the bindings (`NodeParam`, `ChunkParam`…), so that a column's buffers
//! are copied once, into the plugin's memory.

mod mapping;

use super::{
    Answer, ChunkView, Description, HeadersView, Layout, Node, PackedView, RawColumnAccess, RawEdit, RawField, RawNode,
    RawOutput, RawPacked, RawReject, RecordAccess,
};
use crate::instance::StoreData;
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

pub(crate) use mapping::{MappingLinked, MappingRunning};

#[allow(missing_debug_implementations, clippy::all)]
mod column {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        world: "column-plugin",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

#[allow(missing_debug_implementations, clippy::all)]
mod record {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        world: "record-plugin",
        ownership: Borrowing { duplicate_if_necessary: true },
    });
}

use column::exports::alluvium::plugin::column_transform as columns;
use record::exports::alluvium::plugin::record_transform as records;

#[derive(Clone)]
pub(crate) struct ColumnLinked {
    component: InstancePre<StoreData>,
    indices: column::ColumnPluginIndices,
}

impl ColumnLinked {
    pub fn new(component: InstancePre<StoreData>) -> wasmtime::Result<Self> {
        let indices = column::ColumnPluginIndices::new(&component)?;
        Ok(Self { component, indices })
    }

    pub fn start(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Instance> {
        self.component.instantiate(store)
    }

    pub fn load(&self, store: &mut Store<StoreData>, instance: &Instance) -> wasmtime::Result<ColumnRunning> {
        self.indices.load(store, instance).map(ColumnRunning)
    }
}

pub(crate) struct ColumnRunning(column::ColumnPlugin);

impl ColumnRunning {
    pub fn describe(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Description> {
        let said = self.0.alluvium_plugin_column_transform().call_describe(store)?;
        Ok(Description {
            name: said.name,
            version: said.version,
            summary: said.summary,
            config_schema: said.config_schema,
        })
    }

    pub fn configure(&self, store: &mut Store<StoreData>, config: &str) -> Answer<RawColumnAccess> {
        let answer = self.0.alluvium_plugin_column_transform().call_configure(store, config)?;
        Ok(answer.map(|access| RawColumnAccess {
            reads: access.reads.into_iter().map(field).collect(),
            writes: access.writes.into_iter().map(field).collect(),
            multiplies: access.multiplies,
        }))
    }

    pub fn transform(&self, store: &mut Store<StoreData>, rows: u32, nodes: &[Node<'_>]) -> Answer<RawEdit> {
        let nodes: Vec<_> = nodes.iter().map(lower_node).collect();
        let input = columns::Columns { rows, nodes: &nodes };
        let answer = self.0.alluvium_plugin_column_transform().call_transform(store, input)?;
        Ok(answer.map(|edit| RawEdit {
            rows: edit.rows,
            nodes: edit.nodes.into_iter().map(lift_node).collect(),
            rejects: edit
                .rejects
                .into_iter()
                .map(|reject| RawReject { input: reject.input, reason: reject.reason })
                .collect(),
        }))
    }
}

fn field(field: columns::Field) -> RawField {
    RawField { path: field.path, data_type: field.data_type }
}

fn lower_node<'a>(node: &'a Node<'a>) -> columns::NodeParam<'a> {
    columns::NodeParam {
        name: node.name,
        layout: match node.layout {
            Layout::Boolean => columns::Layout::Boolean,
            Layout::Fixed1 => columns::Layout::Fixed1,
            Layout::Fixed2 => columns::Layout::Fixed2,
            Layout::Fixed4 => columns::Layout::Fixed4,
            Layout::Fixed8 => columns::Layout::Fixed8,
            Layout::Fixed16 => columns::Layout::Fixed16,
            Layout::Bytes => columns::Layout::Bytes,
            Layout::Utf8 => columns::Layout::Utf8,
            Layout::List => columns::Layout::List,
            Layout::Map => columns::Layout::Map,
            Layout::Struct => columns::Layout::Struct,
        },
        children: node.children,
        length: node.length,
        validity: node.validity.as_deref(),
        offsets: node.offsets.as_deref(),
        values: &node.values,
    }
}

fn lift_node(node: columns::NodeResult) -> RawNode {
    RawNode {
        name: node.name,
        layout: match node.layout {
            columns::Layout::Boolean => Layout::Boolean,
            columns::Layout::Fixed1 => Layout::Fixed1,
            columns::Layout::Fixed2 => Layout::Fixed2,
            columns::Layout::Fixed4 => Layout::Fixed4,
            columns::Layout::Fixed8 => Layout::Fixed8,
            columns::Layout::Fixed16 => Layout::Fixed16,
            columns::Layout::Bytes => Layout::Bytes,
            columns::Layout::Utf8 => Layout::Utf8,
            columns::Layout::List => Layout::List,
            columns::Layout::Map => Layout::Map,
            columns::Layout::Struct => Layout::Struct,
        },
        children: node.children,
        length: node.length,
        validity: node.validity,
        offsets: node.offsets,
        values: node.values,
    }
}

#[derive(Clone)]
pub(crate) struct RecordLinked {
    component: InstancePre<StoreData>,
    indices: record::RecordPluginIndices,
}

impl RecordLinked {
    pub fn new(component: InstancePre<StoreData>) -> wasmtime::Result<Self> {
        let indices = record::RecordPluginIndices::new(&component)?;
        Ok(Self { component, indices })
    }

    pub fn start(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Instance> {
        self.component.instantiate(store)
    }

    pub fn load(&self, store: &mut Store<StoreData>, instance: &Instance) -> wasmtime::Result<RecordRunning> {
        self.indices.load(store, instance).map(RecordRunning)
    }
}

pub(crate) struct RecordRunning(record::RecordPlugin);

impl RecordRunning {
    pub fn describe(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Description> {
        let said = self.0.alluvium_plugin_record_transform().call_describe(store)?;
        Ok(Description {
            name: said.name,
            version: said.version,
            summary: said.summary,
            config_schema: said.config_schema,
        })
    }

    pub fn configure(&self, store: &mut Store<StoreData>, config: &str) -> Answer<RecordAccess> {
        let answer = self.0.alluvium_plugin_record_transform().call_configure(store, config)?;
        Ok(answer.map(|access| RecordAccess {
            keys: access.keys,
            headers: access.headers,
            timestamps: access.timestamps,
            multiplies: access.multiplies,
        }))
    }

    pub fn transform(&self, store: &mut Store<StoreData>, chunk: &ChunkView<'_>) -> Answer<RawOutput> {
        let input = records::Chunk {
            count: chunk.count,
            values: lower_packed(&chunk.values),
            keys: chunk.keys.as_ref().map(lower_packed),
            headers: chunk.headers.as_ref().map(lower_headers),
            timestamps: chunk.timestamps,
        };
        let answer = self.0.alluvium_plugin_record_transform().call_transform(store, input)?;
        Ok(answer.map(|output| RawOutput {
            inputs: output.inputs,
            values: lift_packed(output.values),
            keys: output.keys.map(lift_packed),
            rejects: output
                .rejects
                .into_iter()
                .map(|reject| RawReject { input: reject.input, reason: reject.reason })
                .collect(),
        }))
    }
}

fn lower_packed<'a>(packed: &PackedView<'a>) -> records::PackedParam<'a> {
    records::PackedParam { ends: packed.ends, data: packed.data, validity: packed.validity }
}

fn lower_headers<'a>(headers: &HeadersView<'a>) -> records::Headers<'a> {
    records::Headers {
        counts: headers.counts,
        names: lower_packed(&headers.names),
        values: lower_packed(&headers.values),
    }
}

fn lift_packed(packed: records::PackedResult) -> RawPacked {
    RawPacked { ends: packed.ends, data: packed.data, validity: packed.validity }
}
