//! Asking a schema-mapping plugin for a plan.

use crate::error::Error;
use alluvium_core::{Coercion, DataType};
use alluvium_schema::{ColumnSpec, Kind, Plan, PlanOptions, Shape, path};
use alluvium_wasm::{Kinds, MappedColumn, MappingAnswer, MappingPlugin, Seen, SourceShape, TableColumn};
use arrow_schema::Schema;
use std::collections::HashMap;
use std::sync::Arc;

/// Paths of a shape past which a plugin is not asked again: records choose their keys, and each new one
/// would be another question.
const MOST_PATHS: usize = 10_000;
/// Answers that are kept.
const MOST_ANSWERS: usize = 64;

/// A plugin with all that it was asked, and what it answered.
#[derive(Debug)]
pub(crate) struct Mapper {
    plugin: Arc<MappingPlugin>,
    shape: Shape,
    /// By the fingerprint of what the plugin, of one digest, was told.
    answers: HashMap<String, MappingAnswer>,
    questions: u64,
    full: bool,
}

impl Mapper {
    pub(crate) fn new(plugin: Arc<MappingPlugin>) -> Self {
        Self { plugin, shape: Shape::default(), answers: HashMap::new(), questions: 0, full: false }
    }

    /// All that was seen of the records.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Adds what was seen; whether it was not seen before, and is to be asked about.
    pub(crate) fn observe(&mut self, shape: &Shape) -> bool {
        // Whoever chooses the keys could make every chunk cost a walk over all of them.
        if self.full {
            return false;
        }
        if self.shape.holds(shape) {
            return false;
        }
        let mut all = self.shape.clone();
        all.merge(shape.clone());
        if all.paths() > MOST_PATHS {
            self.full = true;
            tracing::warn!(
                plugin = %self.plugin.reference().name,
                "the records have more than {MOST_PATHS} different fields: the plugin is not asked about further ones"
            );
            return false;
        }
        self.shape = all;
        true
    }

    /// The plugin's plan for all that was seen, over a table of these columns. Asked once for the same.
    pub(crate) fn plan(&mut self, table: Option<&Schema>, options: &PlanOptions) -> Result<Plan, Error> {
        let hidden = |name: &str| options.reserved.iter().chain([&options.rescued]).any(|other| other == name);
        let table = table.map(|schema| table_columns(schema, hidden));
        let source = source_shape(&self.shape);
        let fingerprint = self.fingerprint(&source, table.as_deref());
        let answer = match self.answers.get(&fingerprint) {
            Some(answer) => answer.clone(),
            None => {
                self.questions += 1;
                let answer = self.plugin.plan(&source, table.as_deref());
                let answer = answer.map_err(|error| self.failed(alluvium_core::Fault::new(error)))?;
                let plugin = &self.plugin.reference().name;
                let (fields, columns) = (source.fields.len(), answer.columns.len());
                tracing::info!(%plugin, fields, columns, %fingerprint, "the plugin has decided on the columns");
                if self.answers.len() >= MOST_ANSWERS {
                    self.answers.clear();
                }
                self.answers.insert(fingerprint, answer.clone());
                answer
            }
        };
        let drops = options.drops.iter().cloned().chain(answer.drops).collect();
        let columns = answer.columns.into_iter().map(column_spec).collect();
        Plan::mapped(columns, PlanOptions { drops, ..options.clone() }).map_err(|problems| self.wrong(problems))
    }

    /// How often the plugin was asked.
    pub(crate) fn questions(&self) -> u64 {
        self.questions
    }

    /// Stands for the plugin and all that it is told.
    fn fingerprint(&self, source: &SourceShape, table: Option<&[TableColumn]>) -> String {
        let told = format!("{}\n{source:?}\n{table:?}", self.plugin.reference().digest);
        alluvium_wasm::digest(told.as_bytes())
    }

    /// What is wrong with a plan of the plugin.
    pub(crate) fn wrong(&self, problems: Vec<alluvium_schema::PlanError>) -> Error {
        Error::PluginPlan { plugin: self.plugin.reference().name.clone(), problems }
    }

    fn failed(&self, source: alluvium_core::Fault) -> Error {
        Error::MappingPlugin { plugin: self.plugin.reference().name.clone(), source }
    }
}

fn table_columns(schema: &Schema, hidden: impl Fn(&str) -> bool) -> Vec<TableColumn> {
    let column = |field: &Arc<arrow_schema::Field>| {
        let data_type = DataType::from_arrow(field.data_type())?;
        Some(TableColumn { name: field.name().clone(), data_type })
    };
    schema.fields().iter().filter(|field| !hidden(field.name())).filter_map(column).collect()
}

fn column_spec(column: MappedColumn) -> ColumnSpec {
    let MappedColumn { name, data_type, path, coercion, inner_coercions, .. } = column;
    let inner_coercions = inner_coercions.into_iter().filter(|(_, coercion)| *coercion != Coercion::None).collect();
    ColumnSpec {
        from: Some(path),
        on_conflict: column.on_conflict,
        coercion,
        inner_coercions,
        derivation: column.derivation,
        default: column.default,
        comment: column.comment,
        ..ColumnSpec::new(name, data_type)
    }
}

fn source_shape(shape: &Shape) -> SourceShape {
    let mut fields = Vec::new();
    add_fields(shape, "", &mut fields);
    SourceShape { format: "json".to_owned(), schema_id: None, fields }
}

/// Adds what lies below a path, each before those below it.
fn add_fields(shape: &Shape, at: &str, fields: &mut Vec<Seen>) {
    for (name, field) in shape.fields() {
        let mut below = at.to_owned();
        match name {
            // Without backticks it leads to the elements of a list.
            "[]" if at.is_empty() => below.push_str("`[]`"),
            "[]" => below.push_str(".`[]`"),
            name => path::push(&mut below, name),
        }
        add(field, below, fields);
    }
    if let Some(element) = shape.element().filter(|element| !element.is_empty()) {
        add(element, format!("{at}.[]"), fields);
    }
}

fn add(shape: &Shape, at: String, fields: &mut Vec<Seen>) {
    let mut kinds = Kinds::default();
    for kind in shape.kinds() {
        match kind {
            Kind::Null => kinds.null = true,
            Kind::Boolean => kinds.boolean = true,
            Kind::Integer => kinds.integer = true,
            Kind::Fraction => kinds.fraction = true,
            Kind::String => kinds.string = true,
            Kind::Object => kinds.object = true,
            Kind::List => kinds.list = true,
        }
    }
    let inferred = shape.inferred().map(|data_type| data_type.to_string());
    let below = at.clone();
    fields.push(Seen { path: at, kinds, inferred });
    add_fields(shape, &below, fields);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_shape_is_told_path_by_path() {
        let mut shape = Shape::default();
        shape.observe(br#"{"a":{"b.c":[{"d":1},null]},"[]":1.5,"e":null,"f":[]}"#);
        let told = source_shape(&shape).fields;
        let told: Vec<_> = told.iter().map(|seen| (seen.path.as_str(), seen.inferred.as_deref())).collect();
        assert_eq!(
            told,
            [
                ("a", Some("struct<`b.c`:array<struct<d:bigint>>>")),
                ("a.`b.c`", Some("array<struct<d:bigint>>")),
                ("a.`b.c`.[]", Some("struct<d:bigint>")),
                ("a.`b.c`.[].d", Some("bigint")),
                ("`[]`", Some("double")),
                ("f", None),
                ("e", None),
            ]
        );
    }
}
