//! Mapping plugins over the shape of sample records.

use crate::bindings::mapping::{self as contract, Kinds, Seen, SourceShape, TableColumn};
use crate::export::MappingPlugin;
use crate::mapping::{Coercion, Derivation, OnConflict};
use crate::path::{self, Step};
use crate::{Result, Type};
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value};

/// What a mapping plugin planned.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanOutcome {
    /// The columns, in order.
    pub columns: Vec<PlannedColumn>,
    /// Paths of the fields to leave out.
    pub drops: Vec<String>,
}

/// A column of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedColumn {
    /// The column of the table.
    pub name: String,
    /// Its type, as the plugin spells it.
    pub data_type: String,
    /// The path in the record.
    pub path: String,
    /// How the value itself is read.
    pub coercion: Coercion,
    /// How values inside it are read, by their paths.
    pub inner_coercions: Vec<(String, Coercion)>,
    /// What it takes of the value instead of the whole.
    pub derivation: Option<Derivation>,
    /// What becomes of a value that does not fit.
    pub on_conflict: OnConflict,
    /// The value where the record does not have the field.
    pub default: Option<Value>,
    /// For readers of the table.
    pub comment: Option<String>,
}

impl PlanOutcome {
    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&PlannedColumn> {
        self.columns.iter().find(|column| column.name == name)
    }
}

/// Runs a mapping plugin over the shape of these records, which are JSON objects, and a table of these
/// columns, names and types; `None` when there is no table yet.
///
/// Inferred types are those of the host, save that fields come in the order of their names, and that
/// a number beyond 64 bits counts as one with a fraction.
pub fn run_plan<C: DeserializeOwned>(
    plugin: &MappingPlugin<C>,
    config: Value,
    records: &[Value],
    table: Option<&[(&str, &str)]>,
) -> Result<PlanOutcome> {
    let config = plugin.configure(&config.to_string())?;
    let mut tree = Tree::default();
    records.iter().for_each(|record| tree.observe(record));
    let mut fields = Vec::new();
    tree.list(&mut Vec::new(), &mut fields);
    let source = SourceShape { format: "json".to_owned(), schema_id: None, fields };
    let table = table.map(|columns| {
        let columns = columns.iter().map(|(name, data_type)| {
            let data_type = Type::parse(data_type)?.to_string();
            Ok(TableColumn { name: (*name).to_owned(), data_type })
        });
        columns.collect::<Result<Vec<_>>>()
    });
    let plan = plugin.plan(&config, source, table.transpose()?)?;
    let columns = plan.columns.into_iter().map(planned).collect::<Result<_>>()?;
    Ok(PlanOutcome { columns, drops: plan.drops })
}

/// What was seen at a place of the records.
#[derive(Debug)]
struct Tree {
    kinds: Kinds,
    /// One beyond 64 bits with a sign.
    large: bool,
    fields: Vec<(String, Tree)>,
    element: Option<Box<Tree>>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { kinds: Kinds::empty(), large: false, fields: Vec::new(), element: None }
    }
}

impl Tree {
    fn observe(&mut self, value: &Value) {
        let kind = match value {
            Value::Null => Kinds::NULL,
            Value::Bool(_) => Kinds::BOOLEAN,
            Value::Number(number) => self.number(number),
            Value::String(_) => Kinds::STRING,
            Value::Array(elements) => {
                let element = self.element.get_or_insert_default();
                elements.iter().for_each(|value| element.observe(value));
                Kinds::LIST
            }
            Value::Object(object) => {
                self.object(object);
                Kinds::OBJECT
            }
        };
        self.kinds |= kind;
    }

    fn number(&mut self, number: &Number) -> Kinds {
        self.large |= number.is_u64() && !number.is_i64();
        if number.is_f64() { Kinds::FRACTION } else { Kinds::INTEGER }
    }

    fn object(&mut self, object: &Map<String, Value>) {
        for (key, value) in object {
            let at = self.fields.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
                self.fields.push((key.clone(), Self::default()));
                self.fields.len() - 1
            });
            if let Some((_, field)) = self.fields.get_mut(at) {
                field.observe(value);
            }
        }
    }

    /// Lists what lies below, each path before those below it.
    fn list(&self, steps: &mut Vec<Step>, all: &mut Vec<Seen>) {
        let fields = self.fields.iter().map(|(name, field)| (Step::Key(name.clone()), field));
        let element = self.element.iter().map(|element| (Step::Element, element.as_ref()));
        for (step, tree) in fields.chain(element) {
            // Of lists of nothing there is nothing to tell.
            if step == Step::Element && tree.kinds.is_empty() {
                continue;
            }
            steps.push(step);
            let inferred = tree.inferred().map(|data_type| data_type.to_string());
            all.push(Seen { path: path::spell(steps), kinds: tree.kinds, inferred });
            tree.list(steps, all);
            steps.pop();
        }
    }

    /// The type that inference gives; kinds that do not meet are a string of JSON text.
    fn inferred(&self) -> Option<Type> {
        let number = if self.kinds.contains(Kinds::FRACTION) {
            Some(Type::Double)
        } else {
            let integer = if self.large { Type::Decimal(20, 0) } else { Type::BigInt };
            self.kinds.contains(Kinds::INTEGER).then_some(integer)
        };
        let fields = self.fields.iter().filter_map(|(name, field)| Some((name.clone(), field.inferred()?)));
        let fields: Vec<_> = fields.collect();
        let element = self.element.as_ref().and_then(|element| element.inferred());
        let known = [
            self.kinds.contains(Kinds::BOOLEAN).then_some(Type::Boolean),
            number,
            self.kinds.contains(Kinds::STRING).then_some(Type::String),
            (!fields.is_empty()).then_some(Type::Struct(fields)),
            element.map(|element| Type::Array(Box::new(element))),
        ];
        let mut known = known.into_iter().flatten();
        let first = known.next()?;
        Some(if known.next().is_some() { Type::String } else { first })
    }
}

fn planned(column: contract::Column) -> Result<PlannedColumn> {
    let inner = column.inner_coercions.into_iter();
    Ok(PlannedColumn {
        name: column.name,
        data_type: column.data_type,
        path: column.path,
        coercion: coercion(column.coercion),
        inner_coercions: inner.map(|inner| (inner.path, coercion(inner.coercion))).collect(),
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
        default: column.default.as_deref().map(super::parse).transpose()?,
        comment: column.comment,
    })
}

fn coercion(coercion: contract::Coercion) -> Coercion {
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
