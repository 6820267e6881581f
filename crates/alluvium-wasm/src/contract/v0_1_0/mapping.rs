//! Schema mappings of `alluvium:plugin@0.1.0`.
//!
//! Inputs are copied: a plan is asked for once for a shape, and they are small.

use crate::contract::mapping::{Kinds, RawColumn, RawMapping, Seen, SourceShape, TableColumn};
use crate::contract::{Answer, Description};
use crate::instance::StoreData;
use alluvium_core::{Coercion, Derivation, OnConflict};
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};

#[allow(missing_debug_implementations, clippy::all)]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit/0.1.0",
        world: "mapping-plugin",
    });
}

use bindings::exports::alluvium::plugin::schema_mapping as contract;

#[derive(Clone)]
pub(crate) struct MappingLinked {
    component: InstancePre<StoreData>,
    indices: bindings::MappingPluginIndices,
}

impl MappingLinked {
    pub fn new(component: InstancePre<StoreData>) -> wasmtime::Result<Self> {
        let indices = bindings::MappingPluginIndices::new(&component)?;
        Ok(Self { component, indices })
    }

    pub fn start(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Instance> {
        self.component.instantiate(store)
    }

    pub fn load(&self, store: &mut Store<StoreData>, instance: &Instance) -> wasmtime::Result<MappingRunning> {
        self.indices.load(store, instance).map(MappingRunning)
    }
}

pub(crate) struct MappingRunning(bindings::MappingPlugin);

impl MappingRunning {
    pub fn describe(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Description> {
        let said = self.0.alluvium_plugin_schema_mapping().call_describe(store)?;
        Ok(Description {
            name: said.name,
            version: said.version,
            summary: said.summary,
            config_schema: said.config_schema,
        })
    }

    pub fn configure(&self, store: &mut Store<StoreData>, config: &str) -> Answer<()> {
        self.0.alluvium_plugin_schema_mapping().call_configure(store, config)
    }

    pub fn plan(
        &self,
        store: &mut Store<StoreData>,
        source: &SourceShape,
        table: Option<&[TableColumn]>,
    ) -> Answer<RawMapping> {
        let fields: Vec<_> = source.fields.iter().map(lower_seen).collect();
        let source =
            contract::SourceShape { format: source.format.clone(), schema_id: source.schema_id.clone(), fields };
        let table: Option<Vec<_>> = table.map(|columns| columns.iter().map(lower_table_column).collect());
        let answer = self.0.alluvium_plugin_schema_mapping().call_plan(store, &source, table.as_deref())?;
        Ok(answer
            .map(|plan| RawMapping { columns: plan.columns.into_iter().map(lift_column).collect(), drops: plan.drops }))
    }
}

fn lower_seen(seen: &Seen) -> contract::Seen {
    contract::Seen { path: seen.path.clone(), kinds: lower_kinds(seen.kinds), inferred: seen.inferred.clone() }
}

fn lower_table_column(column: &TableColumn) -> contract::TableColumn {
    contract::TableColumn { name: column.name.clone(), data_type: column.data_type.to_string() }
}

fn lower_kinds(kinds: Kinds) -> contract::Kinds {
    let Kinds { null, boolean, integer, fraction, string, object, list } = kinds;
    let flags = [
        (null, contract::Kinds::NULL),
        (boolean, contract::Kinds::BOOLEAN),
        (integer, contract::Kinds::INTEGER),
        (fraction, contract::Kinds::FRACTION),
        (string, contract::Kinds::STRING),
        (object, contract::Kinds::OBJECT),
        (list, contract::Kinds::LIST),
    ];
    let seen = flags.into_iter().filter_map(|(seen, flag)| seen.then_some(flag));
    seen.fold(contract::Kinds::empty(), |all, flag| all | flag)
}

fn lift_column(column: contract::Column) -> RawColumn {
    let inner = column.inner_coercions.into_iter();
    RawColumn {
        name: column.name,
        data_type: column.data_type,
        path: column.path,
        coercion: lift_coercion(column.coercion),
        inner_coercions: inner.map(|inner| (inner.path, lift_coercion(inner.coercion))).collect(),
        derivation: column.derivation.map(|derivation| match derivation {
            contract::Derivation::Date => Derivation::Date,
            contract::Derivation::Before(separator) => Derivation::Before(separator),
            contract::Derivation::After(separator) => Derivation::After(separator),
        }),
        on_conflict: match column.on_conflict {
            contract::OnConflict::Reject => OnConflict::Reject,
            contract::OnConflict::Rescue => OnConflict::Rescue,
            contract::OnConflict::Stop => OnConflict::Stop,
        },
        default: column.default,
        comment: column.comment,
    }
}

fn lift_coercion(coercion: contract::Coercion) -> Coercion {
    match coercion {
        contract::Coercion::None => Coercion::None,
        contract::Coercion::ParseString => Coercion::ParseString,
        contract::Coercion::JsonText => Coercion::JsonText,
        contract::Coercion::EpochS => Coercion::EpochS,
        contract::Coercion::EpochMs => Coercion::EpochMs,
        contract::Coercion::EpochUs => Coercion::EpochUs,
        contract::Coercion::EpochNs => Coercion::EpochNs,
        contract::Coercion::EpochDays => Coercion::EpochDays,
    }
}
