//! The mapping plan that all workers of a pipeline share, and how it grows.

use crate::error::Error;
use crate::layout::{Layout, joined};
use crate::mapper::Mapper;
use crate::metadata::MetadataColumns;
use crate::stages::Plugins;
use alluvium_config::{Mapping, Pipeline};
use alluvium_core::data_type::quoted;
use alluvium_core::seam::TableState;
use alluvium_core::{DataType, PluginRef};
use alluvium_schema::{ColumnSpec, Evolve, OnConflict, Plan, PlanOptions, Shape};
use alluvium_wasm::{AccessField, ColumnAccess};
use arrow_schema::{Field, Schema, SchemaRef};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Owns the pipeline's current [`Layout`]. Workers take it for each chunk, so that a column that one
/// of them adds is known to all.
#[derive(Debug)]
pub struct Planner {
    base: Base,
    /// Held for a moment only: the driver looks at it too, which must not wait for a plugin.
    current: Mutex<Current>,
    /// Where a plugin decides on the mapping. Held while a plan is made, which a plugin can make long:
    /// one at a time. Taken before `current`.
    growth: Mutex<Option<Mapper>>,
    /// Whether it was told that no more columns can be added.
    full: AtomicBool,
}

#[derive(Clone, Debug)]
struct Current {
    layout: Arc<Layout>,
    /// The table that the layout is for.
    table: Option<SchemaRef>,
    /// The columns of the table and of every layout since it was read, whose rows may be on their way to it.
    known: SchemaRef,
    /// How often the plan was made anew over the table: a plan for an earlier state is of no use.
    reloads: u64,
}

impl Current {
    fn new(layout: Arc<Layout>, table: &TableState, reloads: u64) -> Self {
        let own = layout.schema();
        let known = table.schema.as_ref().map_or_else(|| own.clone(), |table| joined(table, own));
        Self { layout, table: table.schema.clone(), known, reloads }
    }
}

/// What does not change while a pipeline runs.
#[derive(Debug)]
struct Base {
    mapping: Mapping,
    options: PlanOptions,
    accesses: Vec<(PluginRef, ColumnAccess)>,
    metadata: MetadataColumns,
    partition_by: Vec<String>,
}

impl Planner {
    /// The plan of a pipeline over the table's present state.
    pub fn new(pipeline: &Pipeline, plugins: &Plugins, table: &TableState) -> Result<Self, Error> {
        let metadata = MetadataColumns::new(pipeline.sink.metadata.clone(), plugins.multiply());
        let mut reserved = metadata.names();
        let accesses: Vec<_> =
            plugins.columns().iter().map(|plugin| (plugin.reference().clone(), plugin.access().clone())).collect();
        let declared: &[alluvium_config::Column] = match &pipeline.schema.mapping {
            Mapping::Columns(columns) => columns,
            _ => &[],
        };
        reserved.extend(added_names(&accesses, declared));
        let options = PlanOptions {
            evolve: pipeline.schema.evolve,
            max_columns: pipeline.schema.max_columns,
            rescued: pipeline.sink.metadata.rescued.clone(),
            reserved,
            drops: pipeline.schema.drops.clone(),
        };
        let partition_by = pipeline.sink.partition_by.clone();
        let base = Base { mapping: pipeline.schema.mapping.clone(), options, accesses, metadata, partition_by };
        let layout = Arc::new(base.layout(table)?);
        let mapper = plugins.mapping().map(|plugin| Mapper::new(plugin.clone()));
        let current = Current::new(layout, table, 0);
        let (current, growth) = (Mutex::new(current), Mutex::new(mapper));
        let planner = Self { base, current, growth, full: AtomicBool::new(false) };
        planner.tell_full(&planner.layout());
        Ok(planner)
    }

    /// Warns of the table's columns that no record will fill, which a declaration too few may not be meant to do.
    pub(crate) fn warn_unfilled(&self) {
        let layout = self.layout();
        let unfilled = layout.plan().unfilled().map(quoted).collect::<Vec<_>>().join(", ");
        if !unfilled.is_empty() {
            tracing::warn!("columns of the table that the pipeline does not declare are null in its rows: {unfilled}");
        }
    }

    pub fn layout(&self) -> Arc<Layout> {
        lock(&self.current).layout.clone()
    }

    /// Plans anew over another state of the table; what was not committed is forgotten. A plugin that
    /// decides on the mapping is asked again with the next records.
    pub fn reload(&self, table: &TableState) -> Result<(), Error> {
        let layout = Arc::new(self.base.layout(table)?);
        self.tell_full(&layout);
        let mut current = lock(&self.current);
        let reloads = current.reloads + 1;
        *current = Current::new(layout, table, reloads);
        Ok(())
    }

    /// Whether others gave the table columns, or fields of structs, that the plan was made without.
    pub fn is_behind(&self, table: &Schema) -> bool {
        let current = lock(&self.current).clone();
        if current.table.as_deref() == Some(table) {
            return false;
        }
        !table.fields().iter().all(|field| has_all_of(&current.known, field))
    }

    /// How often the plugin that decides on the mapping was asked.
    pub fn questions(&self) -> u64 {
        lock(&self.growth).as_ref().map_or(0, Mapper::questions)
    }

    /// Whether the columns are still to be inferred from a first batch.
    pub fn needs_sample(&self) -> bool {
        !self.layout().plan().is_settled()
    }

    /// Makes the first columns of the shape of a first batch. From then on they stand, even if plugins
    /// had asked for all of them before; a batch without a single record decides nothing.
    pub fn learn(&self, shape: &Shape) -> Result<(), Error> {
        let mut growth = lock(&self.growth);
        let current = lock(&self.current).clone();
        let plan = self.base.grown(&mut growth, &current, shape)?;
        if plan.is_some() || !shape.is_empty() {
            let plan = plan.unwrap_or_else(|| current.layout.plan().as_ref().clone());
            self.follow(&current, plan.settle())?;
        }
        Ok(())
    }

    /// The columns that a commit may give the table now: none of the records' before a first batch
    /// was seen, so that the table does not look as if its columns stood.
    pub fn committable(&self) -> SchemaRef {
        let layout = self.layout();
        if layout.plan().is_settled() { layout.schema().clone() } else { layout.bare_schema(&self.base.partition_by) }
    }

    /// Adds the new fields of `shape`; the layout that holds them, or the present one where nothing can be added.
    pub fn grow(&self, shape: &Shape) -> Result<Arc<Layout>, Error> {
        let mut growth = lock(&self.growth);
        let current = lock(&self.current).clone();
        if let Some(plan) = self.base.grown(&mut growth, &current, shape)? {
            self.follow(&current, plan)?;
        }
        Ok(self.layout())
    }

    /// Makes `plan`, which was made for `from`, the present one.
    fn follow(&self, from: &Current, plan: Plan) -> Result<(), Error> {
        let layout = self.base.with_plugins(plan)?;
        // The first columns of inferred ones are the first batch's, also where a table without any is there.
        let are_first = matches!(self.base.mapping, Mapping::Infer) && !from.layout.plan().is_settled();
        if let Some(table) = from.table.as_ref().filter(|_| !are_first) {
            self.base.check_approved(&layout, table)?;
        }
        self.tell_full(&layout);
        let mut current = lock(&self.current);
        // Decoders are made anew for another layout.
        if current.reloads == from.reloads && layout != *current.layout {
            current.known = joined(&current.known, layout.schema());
            current.layout = Arc::new(layout);
        }
        Ok(())
    }

    /// Says once that no more columns can be added: new fields do not come to the planner then.
    fn tell_full(&self, layout: &Layout) {
        let options = &self.base.options;
        let is_full = layout.plan().room() == 0 && options.evolve == Evolve::Add;
        if is_full && !self.full.swap(true, Ordering::Relaxed) {
            let (most, rescued) = (options.max_columns, &options.rescued);
            tracing::warn!("the table has {most} columns, as many as `max_columns` allows: new fields go to {rescued}");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Base {
    /// The plan with what is new in `shape`; none when nothing is to be added.
    fn grown(&self, mapper: &mut Option<Mapper>, current: &Current, shape: &Shape) -> Result<Option<Plan>, Error> {
        if let Some(mapper) = mapper
            && let Some(plan) = self.asked(mapper, current, shape)?
        {
            return Ok(Some(plan));
        }
        current.layout.plan().grow(shape).map_err(Error::Grow)
    }

    /// The plan of the plugin that decides on the mapping, grown by what it leaves to the pipeline. None
    /// when it has been asked about all that is in `shape`.
    fn asked(&self, mapper: &mut Mapper, current: &Current, shape: &Shape) -> Result<Option<Plan>, Error> {
        let Current { layout, table, known, .. } = current;
        let settled = layout.plan().is_settled();
        let is_new = mapper.observe(shape);
        if (settled && !is_new) || mapper.shape().is_empty() {
            return Ok(None);
        }
        // The table as it will be: rows of the present plan and those before may be on their way to it.
        let will_be = if settled { Some(known) } else { table.as_ref() };
        let mut plan = mapper.plan(will_be.map(|schema| &**schema), &self.options)?;
        // What is held back until it is approved is in no layout either.
        let over = if self.options.evolve == Evolve::Approve { table.as_ref().or(will_be) } else { will_be };
        if let Some(over) = over {
            plan = plan.with_table(over).map_err(|problems| mapper.wrong(problems))?;
        }
        let grown = plan.grow(mapper.shape()).map_err(Error::Grow)?;
        Ok(Some(grown.unwrap_or(plan)))
    }

    fn layout(&self, table: &TableState) -> Result<Layout, Error> {
        let mut plan = match &self.mapping {
            Mapping::Columns(columns) => {
                let specs = columns.iter().map(column_spec).collect();
                Plan::declared(specs, self.options.clone()).map_err(Error::Mapping)?
            }
            // A plugin says with the first records which columns there are.
            _ => Plan::inferred(self.options.clone()),
        };
        let mapped = matches!(self.mapping, Mapping::Plugin(_));
        if let Some(schema) = &table.schema {
            let (found, wanted) = (&table.partition_by, &self.partition_by);
            if found != wanted {
                return Err(Error::PartitionedBy { found: found.join(", "), wanted: wanted.join(", ") });
            }
            if !mapped {
                plan = plan.with_table(schema).map_err(Error::Mapping)?;
            }
        }
        let layout = self.with_plugins(plan)?;
        if let Some(schema) = &table.schema {
            self.check_added(&layout, schema)?;
            self.check_metadata(schema)?;
            if !mapped {
                self.check_approved(&layout, schema)?;
            }
        }
        Ok(layout)
    }

    /// Where columns are approved by the owner, nothing may add any to a table that is there: neither a
    /// plugin that writes one, nor the metadata.
    fn check_approved(&self, layout: &Layout, table: &Schema) -> Result<(), Error> {
        if self.options.evolve != Evolve::Approve {
            return Ok(());
        }
        let columns: Vec<_> = layout.schema().fields().iter().filter(|field| !has_all_of(table, field)).collect();
        if columns.is_empty() {
            return Ok(());
        }
        Err(Error::NotApproved { columns: columns.into_iter().map(|field| field.name().clone()).collect() })
    }

    /// The plan with all columns that plugins read, and the columns that they add.
    fn with_plugins(&self, mut plan: Plan) -> Result<Layout, Error> {
        let mut added: Vec<(String, DataType)> = Vec::new();
        for (plugin, access) in &self.accesses {
            for field in &access.reads {
                self.resolve_read(plugin, field, &added, &mut plan)?;
            }
            for field in &access.writes {
                self.resolve_write(plugin, field, &plan, &mut added)?;
            }
        }
        let added: Vec<Field> = added.iter().map(|(name, kind)| Field::new(name, kind.to_arrow(), true)).collect();
        Ok(Layout::new(plan, &added, self.metadata.clone()))
    }

    fn resolve_read(
        &self,
        plugin: &PluginRef,
        field: &AccessField,
        added: &[(String, DataType)],
        plan: &mut Plan,
    ) -> Result<(), Error> {
        let by_plugin = field.path.first().and_then(|first| added.iter().find(|(name, _)| name == first));
        let found = match by_plugin {
            Some((_, data_type)) => type_at(data_type, &field.path),
            None => {
                // A plugin's wish is a declaration, unless columns are declared: then it must fit.
                let inferred = !matches!(self.mapping, Mapping::Columns(_));
                match plan.data_type_of(&field.path) {
                    None if inferred => {
                        let required = plan.require(&field.path, &field.data_type, OnConflict::Rescue);
                        return required.map_err(|error| Error::Mapping(vec![error]));
                    }
                    found => found,
                }
            }
        };
        match found {
            Some(found) if found == field.data_type => Ok(()),
            found => Err(mismatch(plugin, "reads", field, found)),
        }
    }

    fn resolve_write(
        &self,
        plugin: &PluginRef,
        field: &AccessField,
        plan: &Plan,
        added: &mut Vec<(String, DataType)>,
    ) -> Result<(), Error> {
        let [name] = field.path.as_slice() else {
            return match plan.data_type_of(&field.path) {
                Some(found) if found == field.data_type => Ok(()),
                None => Err(Error::NestedColumn { plugin: plugin.name.clone(), column: dotted(&field.path) }),
                found => Err(mismatch(plugin, "writes", field, found)),
            };
        };
        let taken = self.metadata.names();
        if taken.iter().chain([&self.options.rescued]).any(|taken| taken.eq_ignore_ascii_case(name)) {
            return Err(Error::TakenColumn { plugin: plugin.name.clone(), column: name.clone() });
        }
        let by_plugin = added.iter().find(|(column, _)| column == name).map(|(_, found)| found.clone());
        match by_plugin.or_else(|| plan.data_type_of(&field.path)) {
            Some(found) if found == field.data_type => Ok(()),
            None => {
                added.push((name.clone(), field.data_type.clone()));
                Ok(())
            }
            found => Err(mismatch(plugin, "writes", field, found)),
        }
    }

    /// Metadata columns must be the table's of their name, if it has such.
    fn check_metadata(&self, table: &Schema) -> Result<(), Error> {
        for field in self.metadata.fields() {
            let same_name = |found: &&Arc<Field>| found.name().to_lowercase() == field.name().to_lowercase();
            let Some(found) = table.fields().iter().find(same_name) else { continue };
            let types = DataType::from_arrow(found.data_type()).zip(DataType::from_arrow(field.data_type()));
            if found.name() != field.name() || !types.as_ref().is_some_and(|(found, wanted)| takes(found, wanted)) {
                let told = |field: &Field| {
                    let data_type = DataType::from_arrow(field.data_type());
                    let data_type = data_type.map_or_else(|| field.data_type().to_string(), |known| known.to_string());
                    format!("{} {data_type}", quoted(field.name()))
                };
                return Err(Error::MetadataColumn { wanted: told(&field), found: told(found) });
            }
        }
        Ok(())
    }

    /// Columns that plugins add must have the type that the table has; metadata columns may grow.
    fn check_added(&self, layout: &Layout, table: &Schema) -> Result<(), Error> {
        for (plugin, access) in &self.accesses {
            for field in &access.writes {
                let [name] = field.path.as_slice() else { continue };
                let added = layout.plan().data_type_of(&field.path).is_none();
                let there = table.field_with_name(name).ok().and_then(|there| DataType::from_arrow(there.data_type()));
                if let Some(found) = there.filter(|found| added && *found != field.data_type) {
                    return Err(mismatch(plugin, "writes", field, Some(found)));
                }
            }
        }
        Ok(())
    }
}

/// Whether a metadata column can be written to the table's column of its name, whose fields it may add to.
fn takes(table: &DataType, wanted: &DataType) -> bool {
    match (table, wanted) {
        (DataType::Struct(table), DataType::Struct(wanted)) => wanted.iter().all(|field| {
            let found = table.iter().find(|found| found.name.to_lowercase() == field.name.to_lowercase());
            found.is_none_or(|found| found.name == field.name && takes(&found.data_type, &field.data_type))
        }),
        (DataType::Array(table), DataType::Array(wanted)) => takes(table, wanted),
        _ => table == wanted,
    }
}

/// Whether a column of that name is there, and has all fields of this one's type.
fn has_all_of(schema: &Schema, field: &Field) -> bool {
    let found = schema.fields().iter().find(|there| there.name().eq_ignore_ascii_case(field.name()));
    let found = found.and_then(|found| DataType::from_arrow(found.data_type()));
    found.zip(DataType::from_arrow(field.data_type())).is_some_and(|(found, wanted)| holds(&found, &wanted))
}

/// Whether a column of the table has all fields of a type that is to go into it.
fn holds(table: &DataType, wanted: &DataType) -> bool {
    match (table, wanted) {
        (DataType::Struct(table), DataType::Struct(wanted)) => wanted.iter().all(|field| {
            table.iter().any(|there| there.name == field.name && holds(&there.data_type, &field.data_type))
        }),
        (DataType::Array(table), DataType::Array(wanted)) => holds(table, wanted),
        (DataType::Map(key, table), DataType::Map(wanted_key, wanted)) => key == wanted_key && holds(table, wanted),
        _ => table == wanted,
    }
}

fn column_spec(column: &alluvium_config::Column) -> ColumnSpec {
    ColumnSpec {
        from: Some(column.from.clone()),
        on_conflict: column.on_conflict,
        coercion: column.coercions.get("").copied().unwrap_or_default(),
        inner_coercions: column.coercions.clone(),
        derivation: column.derivation.clone(),
        default: column.default.clone(),
        comment: column.comment.clone(),
        ..ColumnSpec::new(&column.name, column.data_type.clone())
    }
}

/// Top-level columns that plugins write without reading them, and that are not declared: a record's
/// own field of that name must not take their place.
fn added_names(accesses: &[(PluginRef, ColumnAccess)], declared: &[alluvium_config::Column]) -> Vec<String> {
    let mut known: Vec<&String> = declared.iter().map(|column| &column.name).collect();
    let mut added = Vec::new();
    for (_, access) in accesses {
        known.extend(access.reads.iter().filter_map(|field| field.path.first()));
        for field in &access.writes {
            if let [name] = field.path.as_slice()
                && !known.contains(&name)
            {
                added.push(name.clone());
            }
        }
    }
    added
}

fn mismatch(plugin: &PluginRef, access: &'static str, field: &AccessField, found: Option<DataType>) -> Error {
    Error::ColumnType {
        plugin: plugin.name.clone(),
        access,
        column: dotted(&field.path),
        wanted: field.data_type.to_string(),
        found: found.map_or_else(|| "no such column".to_owned(), |found| found.to_string()),
    }
}

fn dotted(path: &[String]) -> String {
    path.iter().map(|part| quoted(part)).collect::<Vec<_>>().join(".")
}

/// The type of the field that the parts of `path` after the first lead to.
fn type_at(data_type: &DataType, path: &[String]) -> Option<DataType> {
    let mut found = data_type;
    for part in path.iter().skip(1) {
        let DataType::Struct(fields) = found else { return None };
        found = &fields.iter().find(|field| field.name == *part)?.data_type;
    }
    Some(found.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pipeline(schema: &str) -> Pipeline {
        let text = format!(
            "version = 1\ntenant = \"t\"\nname = \"n\"\n[source]\nbrokers = [\"b:1\"]\ntopic = \"t\"\n\
             [sink]\ntable = \"t\"\n[schema]\n{schema}"
        );
        alluvium_config::parse(&text, "test.toml").unwrap()
    }

    fn table(columns: &[(&str, &str)]) -> TableState {
        let field = |(name, kind): &(&str, &str)| Field::new(*name, DataType::parse(kind).unwrap().to_arrow(), true);
        let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
        TableState { schema: Some(Arc::new(schema)), ..TableState::default() }
    }

    const KAFKA: (&str, &str) = ("_kafka", "struct<partition:int,offset:bigint,timestamp:timestamp>");

    fn shape(record: &str) -> Shape {
        let mut shape = Shape::default();
        shape.observe(record.as_bytes());
        shape
    }

    /// The driver looks at the layout while a worker waits for a plugin; were it to wait too, so would
    /// all that its thread has to do.
    #[test]
    fn nobody_waits_for_a_plan_that_is_being_made() {
        let planner = Planner::new(&pipeline(""), &Plugins::default(), &TableState::default()).unwrap();
        let planner = Arc::new(planner);
        let held = planner.growth.lock().unwrap();
        let (done, looked) = std::sync::mpsc::channel();
        let driver = planner.clone();
        std::thread::spawn(move || {
            assert!(driver.needs_sample());
            driver.reload(&table(&[("id", "bigint"), ("_rescued", "string"), KAFKA])).unwrap();
            done.send(driver.committable().fields().len()).unwrap();
        });
        assert_eq!(looked.recv_timeout(std::time::Duration::from_secs(10)), Ok(3));
        drop(held);
    }

    /// A plan that was made for the table as it was must not stand once the table was read anew.
    #[test]
    fn a_plan_for_an_earlier_state_of_the_table_is_dropped() {
        let planner = Planner::new(&pipeline(""), &Plugins::default(), &table(&[("id", "bigint"), KAFKA])).unwrap();
        let from = lock(&planner.current).clone();
        let plan = from.layout.plan().grow(&shape(r#"{"note":"n"}"#)).unwrap().unwrap();
        planner.reload(&table(&[("id", "bigint"), ("note", "bigint"), KAFKA])).unwrap();
        let reloaded = planner.layout();
        planner.follow(&from, plan).unwrap();
        assert!(Arc::ptr_eq(&planner.layout(), &reloaded));
        assert!(planner.grow(&shape(r#"{"other":1}"#)).unwrap().schema().field_with_name("other").is_ok());
    }

    #[test]
    fn columns_of_others_are_noticed_and_own_ones_are_none() {
        let (deep, rescued) = (("s", "struct<x:int>"), ("_rescued", "string"));
        let planner =
            Planner::new(&pipeline(""), &Plugins::default(), &table(&[("id", "bigint"), deep, KAFKA])).unwrap();
        planner.grow(&shape(r#"{"own":1}"#)).unwrap();
        let is_behind = |table: &TableState| planner.is_behind(table.schema.as_ref().unwrap());
        // Columns of the table, of the layout, of both.
        for known in [vec![("id", "bigint")], vec![("own", "bigint"), rescued], vec![("own", "bigint"), deep, KAFKA]] {
            assert!(!is_behind(&table(&known)), "{known:?}");
        }
        for other in [("note", "string"), ("t", "struct<y:int>"), ("s", "struct<x:int,y:int>")] {
            let table = table(&[("id", "bigint"), KAFKA, other]);
            assert!(is_behind(&table), "{other:?}");
            planner.reload(&table).unwrap();
            assert!(!is_behind(&table), "{other:?}");
        }
    }

    #[test]
    fn where_growth_is_approved_the_table_may_have_more_but_not_less() {
        let row = ("_kafka", "struct<partition:int,offset:bigint,timestamp:timestamp,row:int>");
        let approve = pipeline("evolve = \"approve\"");
        for kafka in [KAFKA, row] {
            let table = table(&[("id", "bigint"), ("_rescued", "string"), kafka]);
            let planner = Planner::new(&approve, &Plugins::default(), &table).unwrap();
            let layout = planner.layout();
            assert!(Arc::ptr_eq(&planner.grow(&shape(r#"{"id":1,"note":1}"#)).unwrap(), &layout), "nothing grows");
        }
        let lacks = table(&[("id", "bigint"), ("_rescued", "string"), ("_kafka", "struct<partition:int>")]);
        let error = Planner::new(&approve, &Plugins::default(), &lacks).unwrap_err();
        assert!(matches!(&error, Error::NotApproved { columns } if columns == &["_kafka"]), "{error}");
    }

    #[test]
    fn the_first_columns_of_a_bare_table_need_no_approval() {
        let approve = pipeline("evolve = \"approve\"");
        let bare = table(&[("_rescued", "string"), KAFKA]);
        let planner = Planner::new(&approve, &Plugins::default(), &bare).unwrap();
        assert!(planner.needs_sample());
        planner.learn(&shape(r#"{"id":1}"#)).unwrap();
        let layout = planner.layout();
        assert!(layout.schema().field_with_name("id").is_ok());
        assert!(Arc::ptr_eq(&planner.grow(&shape(r#"{"note":1}"#)).unwrap(), &layout), "from then on they stand");
    }

    #[test]
    fn metadata_columns_must_be_the_tables() {
        let all = pipeline("[sink.metadata]\nkey = \"k\"\nheaders = \"h\"");
        let headers = ("h", "array<struct<key:string,value:binary>>");
        let fine = table(&[("id", "bigint"), ("_rescued", "string"), KAFKA, ("k", "binary"), headers]);
        Planner::new(&all, &Plugins::default(), &fine).unwrap();
        Planner::new(&all, &Plugins::default(), &table(&[("_kafka", "struct<offset:bigint>")])).unwrap();
        for other in [
            ("_kafka", "string"),
            ("_kafka", "struct<partition:int,offset:string>"),
            ("_kafka", "struct<Partition:int>"),
            ("_KAFKA", KAFKA.1),
            ("k", "string"),
            ("h", "string"),
            ("h", "array<struct<key:binary>>"),
        ] {
            let table = table(&[("id", "bigint"), other]);
            let error = Planner::new(&all, &Plugins::default(), &table).unwrap_err();
            assert!(
                matches!(&error, Error::MetadataColumn { found, .. } if found.contains(other.0)),
                "{other:?}: {error}"
            );
            let planner = Planner::new(&all, &Plugins::default(), &fine).unwrap();
            assert!(matches!(planner.reload(&table), Err(Error::MetadataColumn { .. })), "{other:?}");
        }
    }

    /// What was known of a plugin's table stays known: rows of it may be on their way.
    #[test]
    fn the_columns_of_all_plans_are_known() {
        let planner = Planner::new(&pipeline(""), &Plugins::default(), &table(&[("id", "bigint"), KAFKA])).unwrap();
        let from = lock(&planner.current).clone();
        let with = |record: &str| from.layout.plan().grow(&shape(record)).unwrap().unwrap();
        planner.follow(&from, with(r#"{"a":1,"s":{"x":1}}"#)).unwrap();
        planner.follow(&from, with(r#"{"b":1,"s":{"x":1,"y":1}}"#)).unwrap();
        let known = lock(&planner.current).known.clone();
        let names: Vec<_> = known.fields().iter().map(|field| field.name().as_str()).collect();
        assert!(["id", "a", "b", "s"].iter().all(|name| names.contains(name)), "{names:?}");
        assert_eq!(
            DataType::from_arrow(known.field_with_name("s").unwrap().data_type()).unwrap().to_string(),
            "struct<x:bigint,y:bigint>"
        );
    }
}
