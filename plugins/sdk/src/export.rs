//! From the contract's calls to a plugin's functions. For the macros; nothing here is for authors.

use crate::bindings::{column as column_contract, mapping as mapping_contract, record as record_contract};
use crate::{Error, Result, column, mapping, record};
use serde::de::DeserializeOwned;

pub use std::cell::RefCell;

/// A column plugin, as `column_plugin!` puts it together.
#[derive(Clone, Copy, Debug)]
pub struct ColumnPlugin<C> {
    pub about: About,
    pub access: fn(&C, &mut column::Access) -> Result<()>,
    pub transform: fn(&C, &column::Batch<'_>, &mut column::Edit<'_>) -> Result<()>,
}

/// A record plugin, as `record_plugin!` puts it together.
#[derive(Clone, Copy, Debug)]
pub struct RecordPlugin<C> {
    pub about: About,
    pub access: fn(&C, &mut record::Access) -> Result<()>,
    pub transform: fn(&C, &record::Record<'_>, &mut record::Output<'_>) -> Result<()>,
}

/// A mapping plugin, as `mapping_plugin!` puts it together.
#[derive(Clone, Copy, Debug)]
pub struct MappingPlugin<C> {
    pub about: About,
    pub plan: fn(&C, &mapping::Shape, Option<&mapping::Table>, &mut mapping::Plan) -> Result<()>,
}

/// What a plugin says of itself.
#[derive(Clone, Copy, Debug)]
pub struct About {
    pub name: &'static str,
    pub version: &'static str,
    pub summary: &'static str,
    pub config_schema: &'static str,
}

/// A plugin with its configuration.
#[derive(Debug)]
pub struct Configured<C, A> {
    config: C,
    access: A,
}

impl<C: DeserializeOwned> ColumnPlugin<C> {
    pub fn describe(&self) -> column_contract::Description {
        let About { name, version, summary, config_schema } = self.about;
        column_contract::Description {
            name: name.to_owned(),
            version: version.to_owned(),
            summary: one_line(summary),
            config_schema: config_schema.to_owned(),
        }
    }

    pub fn configure(&self, config: &str) -> Result<Configured<C, column::Access>> {
        let config = read(config)?;
        let mut access = column::Access::default();
        (self.access)(&config, &mut access)?;
        Ok(Configured { config, access: access.checked()? })
    }

    #[inline]
    pub fn transform(
        &self,
        configured: &Configured<C, column::Access>,
        input: &column_contract::Columns,
    ) -> Result<column_contract::Edit> {
        let batch = column::Batch::new(configured.access.read(), input)?;
        let mut edit = column::Edit::new(&configured.access, input.rows);
        (self.transform)(&configured.config, &batch, &mut edit)?;
        edit.finish()
    }
}

impl<C: DeserializeOwned> RecordPlugin<C> {
    pub fn describe(&self) -> record_contract::Description {
        let About { name, version, summary, config_schema } = self.about;
        record_contract::Description {
            name: name.to_owned(),
            version: version.to_owned(),
            summary: one_line(summary),
            config_schema: config_schema.to_owned(),
        }
    }

    pub fn configure(&self, config: &str) -> Result<Configured<C, record::Access>> {
        let config = read(config)?;
        let mut access = record::Access::default();
        (self.access)(&config, &mut access)?;
        Ok(Configured { config, access })
    }

    #[inline]
    pub fn transform(
        &self,
        configured: &Configured<C, record::Access>,
        input: &record_contract::Chunk,
    ) -> Result<record_contract::Output> {
        let records = record::Records::new(input)?;
        let mut output = records.output(configured.access);
        for (index, record) in records.iter() {
            output.run(index, |output| (self.transform)(&configured.config, &record, output))?;
        }
        output.finish()
    }
}

impl<C: DeserializeOwned> MappingPlugin<C> {
    pub fn describe(&self) -> mapping_contract::Description {
        let About { name, version, summary, config_schema } = self.about;
        mapping_contract::Description {
            name: name.to_owned(),
            version: version.to_owned(),
            summary: one_line(summary),
            config_schema: config_schema.to_owned(),
        }
    }

    pub fn configure(&self, config: &str) -> Result<C> {
        read(config)
    }

    pub fn plan(
        &self,
        config: &C,
        source: mapping_contract::SourceShape,
        table: Option<Vec<mapping_contract::TableColumn>>,
    ) -> Result<mapping_contract::MappingPlan> {
        let shape = mapping::Shape::from_contract(source)?;
        let table = table.map(mapping::Table::from_contract);
        let mut plan = mapping::Plan::default();
        (self.plan)(config, &shape, table.as_ref(), &mut plan)?;
        plan.finish()
    }
}

impl<C, A> Configured<C, A> {
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn access(&self) -> &A {
        &self.access
    }
}

impl<C> Configured<C, column::Access> {
    pub fn contract(&self) -> column_contract::Access {
        self.access.to_contract()
    }
}

impl<C> Configured<C, record::Access> {
    pub fn contract(&self) -> record_contract::Access {
        self.access.to_contract()
    }
}

/// The configuration; no text and `null` are the empty one.
fn read<C: DeserializeOwned>(config: &str) -> Result<C> {
    let config = if matches!(config.trim(), "" | "null") { "{}" } else { config };
    // From bytes, as plugins read their records: one JSON reader in the component instead of two.
    serde_json::from_slice(config.as_bytes()).map_err(|error| Error::new(format!("configuration: {error}")))
}

/// A package's description can have several lines.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `transform` came before `configure`: the host is wrong.
pub fn unconfigured() -> String {
    "the plugin is not configured".to_owned()
}

pub fn message(error: Error) -> String {
    error.into_message()
}

/// Makes a crate a column plugin: see [`column`](crate::column).
///
/// Its name, version and summary are the package's. `config_schema`, a JSON Schema of the
/// configuration, may be left out.
#[macro_export]
macro_rules! column_plugin {
    (config: $config:ty, access: $access:path, transform: $transform:path
        $(, config_schema: $schema:expr)? $(,)?) => {
        $crate::__plugin! {
            ColumnPlugin, column, column_transform, Columns, Edit,
            $config, $access, $transform $(, $schema)?
        }
    };
}

/// Makes a crate a record plugin: see [`record`](crate::record).
///
/// Its name, version and summary are the package's. `config_schema`, a JSON Schema of the
/// configuration, may be left out.
#[macro_export]
macro_rules! record_plugin {
    (config: $config:ty, access: $access:path, transform: $transform:path
        $(, config_schema: $schema:expr)? $(,)?) => {
        $crate::__plugin! {
            RecordPlugin, record, record_transform, Chunk, Output,
            $config, $access, $transform $(, $schema)?
        }
    };
}

/// Makes a crate a mapping plugin: see [`mapping`](crate::mapping).
///
/// Its name, version and summary are the package's. `config_schema`, a JSON Schema of the
/// configuration, may be left out.
#[macro_export]
macro_rules! mapping_plugin {
    (config: $config:ty, plan: $plan:path $(, config_schema: $schema:expr)? $(,)?) => {
        #[allow(dead_code, reason = "on the host it is used by tests alone")]
        const PLUGIN: $crate::export::MappingPlugin<$config> =
            $crate::export::MappingPlugin { about: $crate::__about!($($schema)?), plan: $plan };

        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "the contract's exports")]
        const _: () = {
            use $crate::bindings::mapping as contract;

            ::std::thread_local! {
                static CONFIGURED: $crate::export::RefCell<::std::option::Option<$config>> =
                    const { $crate::export::RefCell::new(None) };
            }

            struct Exports;

            impl contract::Guest for Exports {
                fn describe() -> contract::Description {
                    PLUGIN.describe()
                }

                fn configure(config: ::std::string::String) -> ::std::result::Result<(), ::std::string::String> {
                    let configured = PLUGIN.configure(&config).map_err($crate::export::message)?;
                    CONFIGURED.replace(Some(configured));
                    Ok(())
                }

                fn plan(
                    source: contract::SourceShape,
                    table: ::std::option::Option<::std::vec::Vec<contract::TableColumn>>,
                ) -> ::std::result::Result<contract::MappingPlan, ::std::string::String> {
                    CONFIGURED.with_borrow(|configured| {
                        let configured = configured.as_ref().ok_or_else($crate::export::unconfigured)?;
                        PLUGIN.plan(configured, source, table).map_err($crate::export::message)
                    })
                }
            }

            contract::export!(Exports with_types_in $crate::bindings::mapping);
        };
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __about {
    ($($schema:expr)?) => {
        $crate::export::About {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            summary: env!("CARGO_PKG_DESCRIPTION"),
            config_schema: {
                #[allow(unused_variables)]
                let schema = "";
                $(let schema = $schema;)?
                schema
            },
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __plugin {
    ($kind:ident, $module:ident, $interface:ident, $input:ident, $output:ident,
        $config:ty, $access:path, $transform:path $(, $schema:expr)?) => {
        #[allow(dead_code, reason = "on the host it is used by tests alone")]
        const PLUGIN: $crate::export::$kind<$config> = $crate::export::$kind {
            about: $crate::__about!($($schema)?),
            access: $access,
            transform: $transform,
        };

        #[cfg(target_arch = "wasm32")]
        #[allow(unsafe_code, reason = "the contract's exports")]
        const _: () = {
            use $crate::bindings::$module as contract;

            type Configured = $crate::export::Configured<$config, $crate::$module::Access>;

            ::std::thread_local! {
                static CONFIGURED: $crate::export::RefCell<::std::option::Option<Configured>> =
                    const { $crate::export::RefCell::new(None) };
            }

            struct Exports;

            impl contract::Guest for Exports {
                fn describe() -> contract::Description {
                    PLUGIN.describe()
                }

                fn configure(config: ::std::string::String) -> ::std::result::Result<contract::Access, ::std::string::String> {
                    let configured = PLUGIN.configure(&config).map_err($crate::export::message)?;
                    let access = configured.contract();
                    CONFIGURED.replace(Some(configured));
                    Ok(access)
                }

                fn transform(input: contract::$input) -> ::std::result::Result<contract::$output, ::std::string::String> {
                    CONFIGURED.with_borrow(|configured| {
                        let configured = configured.as_ref().ok_or_else($crate::export::unconfigured)?;
                        PLUGIN.transform(configured, &input).map_err($crate::export::message)
                    })
                }
            }

            contract::export!(Exports with_types_in $crate::bindings::$module);
        };
    };
}
