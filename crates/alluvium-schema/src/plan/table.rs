//! A plan over an existing table, and under plugins that read its columns.

use super::check::{check_field_names, check_name, check_structure, coerced_type};
use super::{COERCIONS, Column, Origin, Plan, default, same_name};
use crate::{Coercion, Evolve, OnConflict, PlanError, path};
use alluvium_core::{DataType, data_type};
use arrow_schema::{Field, Schema};
use std::collections::BTreeMap;

impl Plan {
    /// The plan over an existing table.
    ///
    /// Every column that both have must be of one type; of two structs, the one may have fields
    /// that the other has not, and the column gets them all. The columns that only the table has
    /// become columns of an inferred plan, in the table's order and rescuing; those of a declared
    /// plan stay null until the owner declares them or, with `evolve = "add"`, a record has them.
    /// With `evolve = "approve"` to have them in the table is to have approved them.
    /// Names match without regard to case, and the plan takes the table's spelling.
    pub fn with_table(mut self, table: &Schema) -> Result<Self, Vec<PlanError>> {
        let mut errors = Vec::new();
        // Positions in `columns` of those that the table has, in the table's order.
        let mut in_table = Vec::new();
        self.undeclared.clear();
        for field in table.fields() {
            let found = match self.table_column(field) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            if let Some(at) = self.columns.iter().position(|column| same_name(&column.name, &found.name)) {
                in_table.push(at);
                let origin = self.origin;
                errors.extend(self.columns.get_mut(at).and_then(|column| column.adopt(found, origin).err()));
            } else if self.drops.contains(&found.path) || !(self.origin == Origin::Inferred || self.approves(&found)) {
                self.undeclared.push(found);
            } else {
                in_table.push(self.columns.len());
                self.columns.push(found);
            }
        }
        if self.origin == Origin::Inferred {
            self.settled |= !in_table.is_empty();
            self.put_first(&in_table);
        }
        if self.evolve == Evolve::Approve {
            self.hold_back(table);
        }
        errors.extend(self.columns.iter().chain(&self.undeclared).filter_map(|column| self.drop_inside(column)));
        if errors.is_empty() { Ok(self) } else { Err(errors) }
    }

    /// Whether a column of the table is the owner's word for the field of its name, which no other column reads.
    fn approves(&self, column: &Column) -> bool {
        let is_read = self.columns.iter().any(|other| other.path.first() == column.path.first());
        self.evolve == Evolve::Approve && !is_read
    }

    /// Leaves out what the table does not have.
    fn hold_back(&mut self, table: &Schema) {
        let type_in_table = |column: &Column| {
            let field = table.fields().iter().find(|field| same_name(field.name(), &column.name))?;
            DataType::from_arrow(field.data_type())
        };
        self.columns.retain_mut(|column| {
            let Some(data_type) = type_in_table(column) else { return false };
            column.coercions.retain(|inner, _| inner.is_empty() || coerced_type(&data_type, inner).is_some());
            column.default = column.default.take().and_then(|default| default::within(&default, &data_type));
            column.data_type = data_type;
            true
        });
    }

    /// Puts the columns at these positions before the others.
    fn put_first(&mut self, positions: &[usize]) {
        let mut ranks = vec![usize::MAX; self.columns.len()];
        for (rank, at) in positions.iter().enumerate() {
            if let Some(slot) = ranks.get_mut(*at) {
                *slot = rank;
            }
        }
        let mut ranked = std::mem::take(&mut self.columns).into_iter().zip(ranks).collect::<Vec<_>>();
        ranked.sort_by_key(|(_, rank)| *rank);
        self.columns = ranked.into_iter().map(|(column, _)| column).collect();
    }

    /// The table's column as inference would have made it; none for metadata and rescued columns.
    fn table_column(&mut self, field: &Field) -> Result<Option<Column>, PlanError> {
        let name = field.name();
        let unknown = || PlanError::TableColumn { column: name.clone(), found: field.data_type().to_string() };
        if same_name(name, &self.rescued) {
            let table = DataType::from_arrow(field.data_type()).ok_or_else(unknown)?;
            if table != DataType::String {
                return Err(PlanError::TableType { column: name.clone(), planned: DataType::String, table });
            }
            self.rescued.clone_from(name);
            return Ok(None);
        }
        if self.metadata_column(name).is_some() {
            return Ok(None);
        }
        let data_type = DataType::from_arrow(field.data_type()).ok_or_else(unknown)?;
        let mut column = Column::inferred(name, data_type, BTreeMap::new());
        column.coercions = stored_coercions(field, &column.data_type);
        sound(column).map(Some)
    }

    /// A plugin reads the column or struct field at `path` with this type.
    ///
    /// Where columns are not declared this acts as a declaration: what is not there yet is made, with
    /// `on_conflict` for a new column. It must be there already in a declared plan, and with this
    /// type in both.
    pub fn require(&mut self, path: &[String], data_type: &DataType, on_conflict: OnConflict) -> Result<(), PlanError> {
        let Some((name, fields)) = path.split_first() else {
            return Err(PlanError::NameEmpty);
        };
        let required = Required { path, fields, data_type };
        // As if the field were a column of its own.
        let alone = Column { path: path.to_vec(), ..Column::inferred(name, data_type.clone(), BTreeMap::new()) };
        if let Some(error) = self.drop_inside(&alone) {
            return Err(error);
        }
        if let Some(column) = self.columns.iter_mut().find(|column| same_name(&column.name, name)) {
            if column.name != *name {
                return Err(PlanError::RequiredCase { path: path::join(path), found: column.name.clone() });
            }
            if let Some(data_type) = required.within(&column.data_type, self.origin)? {
                *column = sound(Column { data_type, ..column.clone() })?;
            }
            return Ok(());
        }
        if self.origin == Origin::Declared || self.drops.iter().any(|drop| path.starts_with(drop)) {
            return Err(required.undeclared());
        }
        if let Some(reserved) = self.metadata_column(name) {
            return Err(PlanError::NameReserved { column: name.clone(), reserved: reserved.to_owned() });
        }
        required.check_new_names(path)?;
        let column = Column::inferred(name, required.wrapped(fields), BTreeMap::new());
        self.columns.push(sound(Column { on_conflict, ..column })?);
        Ok(())
    }
}

/// The column, unless decoding would go wrong with it.
fn sound(column: Column) -> Result<Column, PlanError> {
    let mut errors = Vec::new();
    check_structure(&column, &mut errors);
    errors.into_iter().next().map_or(Ok(column), Err)
}

impl Column {
    /// Takes over what the table's column of the same name has.
    fn adopt(&mut self, table: Column, origin: Origin) -> Result<(), PlanError> {
        let Some(data_type) = unified(&self.data_type, &table.data_type) else {
            return Err(PlanError::TableType {
                column: self.name.clone(),
                planned: self.data_type.clone(),
                table: table.data_type,
            });
        };
        // Coercions that the plan names itself stand; those of fields that only the table has
        // come with them. A plugin is told types alone: a text that the table holds as JSON stays that.
        for (inner, coercion) in table.coercions {
            let stays =
                coercion == Coercion::JsonText && origin == Origin::Mapped && !self.coercions.contains_key(&inner);
            if stays || coerced_type(&self.data_type, &inner).is_none() {
                self.coercions.insert(inner, coercion);
            }
        }
        self.name = table.name;
        self.data_type = data_type;
        Ok(())
    }
}

/// The coercions that [`Plan::schema`] noted on a column, as far as they fit its type.
fn stored_coercions(field: &Field, data_type: &DataType) -> BTreeMap<String, Coercion> {
    let stored = field.metadata().get(COERCIONS);
    let parsed = stored.and_then(|text| serde_json::from_str::<BTreeMap<String, Coercion>>(text).ok());
    let mut coercions = parsed.unwrap_or_default();
    coercions.retain(|inner, coercion| coerced_type(data_type, inner).is_some_and(|found| coercion.applies_to(found)));
    coercions
}

/// The type that holds all fields of both: the table's first, in its order. None when they differ
/// in more than fields of structs.
fn unified(planned: &DataType, table: &DataType) -> Option<DataType> {
    Some(match (planned, table) {
        (DataType::Array(planned), DataType::Array(table)) => DataType::Array(Box::new(unified(planned, table)?)),
        (DataType::Map(planned_key, planned), DataType::Map(key, table)) if planned_key == key => {
            DataType::Map(key.clone(), Box::new(unified(planned, table)?))
        }
        (DataType::Struct(planned), DataType::Struct(table)) => {
            let mut fields = Vec::with_capacity(table.len());
            for field in table {
                let mut data_type = field.data_type.clone();
                if let Some(own) = planned.iter().find(|own| same_name(&own.name, &field.name)) {
                    // The name of a struct's field is the key in the record, where case counts.
                    if own.name != field.name {
                        return None;
                    }
                    data_type = unified(&own.data_type, &field.data_type)?;
                }
                fields.push(data_type::Field { name: field.name.clone(), data_type });
            }
            let new = planned.iter().filter(|own| !table.iter().any(|field| same_name(&own.name, &field.name)));
            fields.extend(new.cloned());
            DataType::Struct(fields)
        }
        (planned, table) if planned == table => table.clone(),
        _ => return None,
    })
}

/// What a plugin asks of the plan.
struct Required<'a> {
    path: &'a [String],
    /// The part of `path` below the column.
    fields: &'a [String],
    data_type: &'a DataType,
}

impl Required<'_> {
    /// The column's type with the required field in it; none when it is there already.
    fn within(&self, column: &DataType, origin: Origin) -> Result<Option<DataType>, PlanError> {
        let mut grown = column.clone();
        let mut place = &mut grown;
        for (depth, name) in self.fields.iter().enumerate() {
            let DataType::Struct(inner) = place else {
                return Err(self.other_type(place));
            };
            match inner.iter().position(|field| same_name(&field.name, name)) {
                Some(at) if inner.get(at).is_some_and(|field| field.name != *name) => {
                    let found = inner.get(at).map(|field| field.name.clone()).unwrap_or_default();
                    return Err(PlanError::RequiredCase { path: path::join(self.path), found });
                }
                Some(at) => place = &mut inner[at].data_type,
                None if origin == Origin::Declared => return Err(self.undeclared()),
                None => {
                    let rest = self.fields.get(depth..).unwrap_or_default();
                    self.check_new_names(rest)?;
                    let data_type = self.wrapped(rest.get(1..).unwrap_or_default());
                    inner.push(data_type::Field { name: name.clone(), data_type });
                    return Ok(Some(grown));
                }
            }
        }
        if place == self.data_type { Ok(None) } else { Err(self.other_type(place)) }
    }

    /// The required type inside the structs that `fields` lead through.
    fn wrapped(&self, fields: &[String]) -> DataType {
        fields.iter().rev().fold(self.data_type.clone(), |data_type, name| {
            DataType::Struct(vec![data_type::Field { name: name.clone(), data_type }])
        })
    }

    /// Checks names that will be in the table for the first time, with those inside the type.
    fn check_new_names(&self, names: &[String]) -> Result<(), PlanError> {
        let mut errors = Vec::new();
        let column = path::join(self.path);
        names.iter().for_each(|name| check_name(&column, name, &mut errors));
        check_field_names(&column, self.data_type, &mut errors);
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    fn other_type(&self, found: &DataType) -> PlanError {
        PlanError::Required { path: path::join(self.path), wanted: self.data_type.clone(), found: found.clone() }
    }

    fn undeclared(&self) -> PlanError {
        PlanError::RequiredUndeclared { path: path::join(self.path), wanted: self.data_type.clone() }
    }
}
