//! The contract as wit-bindgen spells it. Nothing here is for plugin authors.

#![allow(unsafe_code, clippy::all, missing_debug_implementations, reason = "generated from the contract")]

pub mod column {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0",
        world: "column-plugin",
        pub_export_macro: true,
        export_macro_name: "export",
        additional_derives: [Clone, PartialEq],
    });

    pub use self::alluvium::plugin::types::{Description, Reject};
    pub use self::exports::alluvium::plugin::column_transform::{Access, Columns, Edit, Field, Guest, Layout, Node};
}

pub mod record {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0",
        world: "record-plugin",
        pub_export_macro: true,
        export_macro_name: "export",
        additional_derives: [Clone, PartialEq],
    });

    pub use self::alluvium::plugin::types::{Description, Reject};
    pub use self::exports::alluvium::plugin::record_transform::{Access, Chunk, Guest, Headers, Output, Packed};
}

pub mod mapping {
    wit_bindgen::generate!({
        path: "../../wit/0.1.0",
        world: "mapping-plugin",
        pub_export_macro: true,
        export_macro_name: "export",
    });

    pub use self::alluvium::plugin::types::Description;
    pub use self::exports::alluvium::plugin::schema_mapping::{
        Coercion, Column, Derivation, Guest, InnerCoercion, Kinds, MappingPlan, OnConflict, Seen, SourceShape,
        TableColumn,
    };
}
