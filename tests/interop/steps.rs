//! Tables of every type, through every step of a schema's growth, as other engines read them: after each
//! step, before and after a checkpoint, with schema, rows, values and what is found by each column.
//!
//! What a table must hold is found in `agree.py` from the records alone.

use alluvium_delta::{DeltaConfig, DeltaSink, TableRole};
use alluvium_kafka::Sandbox;
use alluvium_tests::readers::agree;
use alluvium_tests::rivals::rounds;
use alluvium_tests::{Options, Workbench};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const ENGINES: [&str; 5] = ["delta-rs", "pyarrow", "duckdb", "polars", "spark"];

/// What comes next, and what the table then is.
struct Step {
    says: &'static str,
    /// Columns that the pipeline file declares from now on.
    declares: &'static [(&'static str, &'static str)],
    /// The table's columns that are new, or that have another type; `json` is a string of JSON text.
    columns: &'static [(&'static str, &'static str)],
    /// Records, each with what is in the rescue column.
    records: &'static [(&'static str, &'static str)],
}

/// A table on its way through the steps.
struct Journey {
    bench: Workbench,
    _sandbox: Sandbox,
    partition_by: Vec<String>,
    /// An engine that cannot read such a table.
    without: &'static str,
    columns: Vec<(&'static str, &'static str)>,
    records: Vec<(&'static str, &'static str)>,
}

impl Journey {
    fn new(name: &str, partition_by: &[&str], without: &'static str) -> Self {
        let topic = Workbench::topic_name(name);
        let sandbox = Sandbox::start(&[(&topic, 1)]).unwrap();
        let bench = Workbench::new(sandbox.brokers(), &topic, &Options::default());
        let partition_by = partition_by.iter().map(|name| (*name).to_owned()).collect();
        Self { bench, _sandbox: sandbox, partition_by, without, columns: Vec::new(), records: Vec::new() }
    }

    async fn take(&mut self, steps: &[Step]) {
        let (mut declared, mut problems) = (String::new(), Vec::new());
        for (number, step) in steps.iter().enumerate() {
            for (name, kind) in step.declares {
                writeln!(declared, "[[schema.column]]\nname = {name:?}\ntype = {kind:?}\non_conflict = \"rescue\"")
                    .unwrap();
            }
            let first = self.columns.is_empty();
            for (name, kind) in step.columns {
                match self.columns.iter_mut().find(|(there, _)| there == name) {
                    Some(column) => column.1 = kind,
                    None => self.columns.push((name, kind)),
                }
            }
            if first {
                self.columns.extend(METADATA);
            }
            self.bench.rewrite(&Options {
                partitions: 1,
                transforms: String::new(),
                schema: format!("evolve = \"add\"\n{declared}"),
                sink: format!("partition_by = {:?}", self.partition_by),
                ..Options::default()
            });
            self.bench.send(self.bench.topic(), 0, step.records.iter().map(|(record, _)| record)).await;
            self.records.extend(step.records);
            let summary = self.bench.run_to_end("run");
            assert_eq!(summary[0]["rows"], step.records.len(), "{}: {summary:#}", step.says);
            let before = self.bench.dir().join("pipeline");
            let after = self.checkpointed().await;
            // Each file's bounds are asked about: where an entry of the log has them, and where a checkpoint has.
            let (first, last) = (number == 0, number + 1 == steps.len());
            problems.extend(self.problems(step.says, &before, first));
            problems.extend(self.problems(&format!("{}, after a checkpoint", step.says), &after, last));
        }
        assert!(problems.is_empty(), "\n{}", problems.join("\n"));
    }

    /// A copy of the table, all of whose log is in a checkpoint.
    async fn checkpointed(&self) -> PathBuf {
        let config = DeltaConfig { partition_by: self.partition_by.clone(), ..self.bench.config("pipeline") };
        let sink = DeltaSink::open(config).await.unwrap();
        sink.maintain(TableRole::Rows).await.unwrap();
        let copy = self.bench.dir().join(format!("after-{}", self.records.len()));
        copy_all(&self.bench.dir().join("pipeline"), &copy);
        let log = copy.join("_delta_log");
        let names = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut entries: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
        entries.sort_unstable();
        // Where there is nothing else to read, the checkpoint is read.
        entries.pop();
        entries.iter().for_each(|entry| std::fs::remove_file(log.join(entry)).unwrap());
        copy
    }

    /// What engines find in the table that is not as it should be.
    fn problems(&self, says: &str, table: &Path, conditions: bool) -> Vec<String> {
        let answer = agree(&json!({
            "table": table,
            "columns": self.columns,
            "records": self.records,
            "places": (0..self.records.len()).map(|offset| [0, offset]).collect::<Vec<_>>(),
            "partition_by": self.partition_by,
            "conditions": conditions,
            "engines": ENGINES.into_iter().filter(|engine| *engine != self.without).collect::<Vec<_>>(),
        }));
        println!("{says}: {}", answer["seconds"]);
        problems(&answer).map(|problem| format!("{says}: {problem}")).collect()
    }
}

fn problems(answer: &Value) -> impl Iterator<Item = &str> {
    answer["problems"].as_array().unwrap().iter().filter_map(Value::as_str)
}

fn copy_all(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(|entry| entry.unwrap().path()) {
        let to = to.join(entry.file_name().unwrap());
        if entry.is_dir() { copy_all(&entry, &to) } else { std::fs::copy(&entry, &to).map(drop).unwrap() }
    }
}

/// Nothing; for steps to be filled up with.
const STEP: Step = Step { says: "", declares: &[], columns: &[], records: &[] };

/// Columns that come after those of a table's first records.
const METADATA: [(&str, &str); 2] =
    [("_rescued", "string"), ("_kafka", "struct<partition:int,offset:bigint,timestamp:timestamp>")];

const INFERRED: &[Step] = &[
    Step {
        says: "all that is inferred",
        columns: &[
            ("id", "bigint"),
            ("flag", "boolean"),
            ("most", "decimal(20,0)"),
            ("huge", "decimal(38,0)"),
            ("ratio", "double"),
            ("text", "string"),
            ("u", "struct<a:bigint,in:struct<t:string>>"),
            ("list", "array<bigint>"),
            ("items", "array<struct<sku:string,qty:bigint>>"),
            ("mixed", "json"),
        ],
        records: &[
            (
                r#"{"id":9223372036854775807,"flag":true,"most":18446744073709551615,"huge":99999999999999999999999999999999999999,"ratio":1.5,"text":"a","u":{"a":1,"in":{"t":"x"}},"list":[1,null,-1],"items":[{"sku":"a","qty":1},{"sku":null}],"mixed":7,"nothing":null}"#,
                "",
            ),
            (
                r#"{"id":-9223372036854775808,"flag":false,"most":-1,"huge":-99999999999999999999999999999999999999,"ratio":-0.0,"text":"","u":{"in":{}},"list":[],"items":[],"mixed":"A7"}"#,
                "",
            ),
            (r#"{"id":3,"mixed":{"o":[1,"z"]},"u":{},"list":null,"waits":[]}"#, r#"{"waits":[]}"#),
            (r#"{"id":4,"flag":null,"ratio":null,"u":null,"items":[null,{}]}"#, ""),
        ],
        ..STEP
    },
    Step {
        says: "new columns",
        columns: &[
            ("waits", "array<string>"),
            ("name", "string"),
            ("a.b", "bigint"),
            ("größe", "double"),
            ("it's", "bigint"),
        ],
        records: &[
            (r#"{"id":5,"waits":["now"],"name":"b","a.b":7,"größe":0.25,"it's":1}"#, ""),
            (r#"{"name":"c","id":6}"#, ""),
        ],
        ..STEP
    },
    Step {
        says: "new fields of structs",
        columns: &[("u", "struct<a:bigint,in:struct<t:string,v:boolean>,b:string>")],
        records: &[
            (r#"{"id":7,"u":{"b":"new","a":2,"in":{"v":true}}}"#, ""),
            (r#"{"id":8,"u":{"in":{"t":"old"}}}"#, ""),
        ],
        ..STEP
    },
    Step {
        says: "new fields of structs in an array",
        columns: &[("items", "array<struct<sku:string,qty:bigint,price:double,tags:array<string>>>")],
        records: &[
            (r#"{"id":9,"items":[{"price":0.5,"sku":"b"},{"qty":2,"tags":["x",null]},null]}"#, ""),
            (r#"{"id":10,"items":[{"sku":"c"}]}"#, ""),
        ],
        ..STEP
    },
    Step {
        says: "a clock's time and a map, declared later",
        declares: &[("wall", "timestamp_ntz"), ("m", "map<string,struct<x:bigint,at:timestamp_ntz>>")],
        columns: &[("wall", "timestamp_ntz"), ("m", "map<string,struct<x:bigint,at:timestamp_ntz>>")],
        records: &[
            (
                r#"{"id":11,"wall":"2026-03-01T10:00:00.000001","m":{"k":{"x":1,"at":"1969-12-31T23:59:59.999999"}}}"#,
                "",
            ),
            (r#"{"id":12,"wall":"0001-01-01T00:00:00","m":{}}"#, ""),
            (r#"{"id":13,"wall":"9999-12-31T23:59:59.999999","m":{"":null,"ü":{}}}"#, ""),
            (r#"{"id":14}"#, ""),
        ],
    },
    Step {
        says: "types that do not fit",
        records: &[
            (
                r#"{"id":"17","flag":1,"ratio":"1.5","text":{"o":1}}"#,
                r#"{"id":"17","flag":1,"ratio":"1.5","text":{"o":1}}"#,
            ),
            (r#"{"id":18,"u":{"a":"x","b":"kept"},"list":[1,"a"]}"#, r#"{"u":{"a":"x"},"list":[1,"a"]}"#),
            (
                r#"{"id":19.5,"most":100000000000000000000,"wall":"2026-03-01T10:00:00Z","m":{"k":1}}"#,
                r#"{"id":19.5,"most":100000000000000000000,"wall":"2026-03-01T10:00:00Z","m":{"k":1}}"#,
            ),
            (r#"{"id":20,"items":{"sku":"c"}}"#, r#"{"items":{"sku":"c"}}"#),
        ],
        ..STEP
    },
    Step {
        says: "names that differ in case, and names that cannot be",
        records: &[
            (r#"{"ID":21,"Text":"x"}"#, r#"{"ID":21,"Text":"x"}"#),
            (r#"{"id":22,"u":{"A":5,"a":6}}"#, r#"{"u":{"A":5}}"#),
            (r#"{"id":23,"a b":1,"c":"new"}"#, r#"{"a b":1}"#),
        ],
        columns: &[("c", "string")],
        ..STEP
    },
    Step {
        says: "in another order, and with fields missing",
        records: &[
            (
                r#"{"u":{"b":"1","in":{"v":false,"t":"2"},"a":3},"items":[{"tags":[],"price":1,"qty":2,"sku":"d"}],"c":"x","id":24,"m":{"k":{"at":"2026-01-01T00:00:00","x":2}},"größe":-0.5}"#,
                "",
            ),
            (r#"{"items":[{"price":2}],"u":{"in":{"v":null}},"id":25}"#, ""),
            (r"{}", ""),
        ],
        ..STEP
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inferred_table_is_read_alike_after_every_step_of_its_growth() {
    Journey::new("inferred", &[], "").take(INFERRED).await;
}

/// Every primitive type, at the top and in structs; the last ones are behind what has statistics.
const DECLARED: &[(&str, &str)] = &[
    ("id", "bigint"),
    ("flag", "boolean"),
    ("tiny", "tinyint"),
    ("small", "smallint"),
    ("number", "int"),
    ("single", "float"),
    ("double", "double"),
    ("money", "decimal(9,2)"),
    ("amount", "decimal(18,6)"),
    ("whole", "decimal(38,0)"),
    ("scaled", "decimal(38,18)"),
    ("fraction", "decimal(38,38)"),
    ("text", "string"),
    ("bytes", "binary"),
    ("day", "date"),
    ("at", "timestamp"),
    ("wall", "timestamp_ntz"),
    (
        "inner",
        "struct<money:decimal(38,10),text:string,deep:struct<at:timestamp,wall:timestamp_ntz,day:date,single:float>,list:array<int>>",
    ),
    ("list", "array<decimal(38,18)>"),
    ("lists", "array<array<timestamp_ntz>>"),
    ("items", "array<struct<day:date,parts:array<struct<bytes:binary>>>>"),
    ("map", "map<string,double>"),
    ("maps", "map<string,map<string,struct<a:tinyint>>>"),
    ("late", "struct<a:bigint,b:bigint,c:bigint,d:bigint,e:bigint,f:bigint,g:bigint,h:bigint,i:bigint,j:bigint>"),
    ("last", "string"),
];

const TYPES: &[Step] = &[
    Step {
        says: "the least",
        declares: DECLARED,
        columns: DECLARED,
        records: &[(
            r#"{"id":-9223372036854775808,"flag":false,"tiny":-128,"small":-32768,"number":-2147483648,"single":-3.4028235e38,"double":-1.7976931348623157e308,"money":-9999999.99,"amount":"-999999999999.999999","whole":-99999999999999999999999999999999999999,"scaled":"-99999999999999999999.999999999999999999","fraction":"-0.99999999999999999999999999999999999999","text":"","bytes":"","day":"0001-01-01","at":"0001-01-01T00:00:00Z","wall":"0001-01-01T00:00:00","inner":{"money":"-9999999999999999999999999999.9999999999","text":"","deep":{"at":"1582-10-04T23:59:59.999999Z","wall":"1582-10-04T00:00:00","day":"1582-10-04","single":-1.5},"list":[-2147483648,null]},"list":["-99999999999999999999.999999999999999999",null],"lists":[["0001-01-01T00:00:00",null],null,[]],"items":[{"day":"0001-01-01","parts":[{"bytes":"AAA="},{"bytes":null},null]}],"map":{"":-5e-324,"a":null},"maps":{"x":{"y":{"a":-128},"z":null},"w":null,"v":{}},"late":{"a":-1,"j":-9},"last":"a"}"#,
            "",
        )],
    },
    Step {
        says: "the greatest",
        records: &[(
            concat!(
                r#"{"id":9223372036854775807,"flag":true,"tiny":127,"small":32767,"number":2147483647,"single":3.4028235e38,"double":1.7976931348623157e308,"money":9999999.99,"amount":"999999999999.999999","whole":99999999999999999999999999999999999999,"scaled":"99999999999999999999.999999999999999999","fraction":"0.99999999999999999999999999999999999999","bytes":"/////w==","day":"9999-12-31","at":"9999-12-31T23:59:59.999999Z","wall":"9999-12-31T23:59:59.999999","inner":{"money":"9999999999999999999999999999.9999999999","text":"\u0000'\"\\","deep":{"at":"2026-03-01T10:00:00.000001+02:00","wall":"2026-03-01T10:00:00.999999","day":"9999-12-31","single":1.4e-45},"list":[]},"list":["99999999999999999999.999999999999999999"],"lists":[[]],"items":[{},null],"map":{"k":1.7976931348623157e308},"maps":{},"late":{"a":1,"j":9},"last":"z","text":""#,
                // No text of as many bytes as bounds may have is above it.
                "\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}\u{10FFFF}",
                r#""}"#
            ),
            "",
        )],
        ..STEP
    },
    Step {
        says: "long texts",
        records: &[(
            concat!(
                r#"{"id":1,"text":""#,
                "größe größe größe größe größe größe größe größe größe größe größe größe größe größe größe größe größe größe größe",
                r#"","inner":{"text":""#,
                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\u{10FFFF}aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                r#""}}"#
            ),
            "",
        )],
        ..STEP
    },
    Step {
        says: "ends of a different order",
        records: &[
            // In UTF-16 the first would be the greater.
            (r#"{"id":2,"text":"\uffff","double":0.0,"single":0,"inner":{"text":"é","deep":{"single":-0.0}}}"#, ""),
            (r#"{"id":3,"text":"\ud800\udc00","double":-0.0,"single":-0.0,"inner":{"deep":{"single":0.0}}}"#, ""),
        ],
        ..STEP
    },
    Step {
        says: "between",
        records: &[
            (
                r#"{"id":4,"flag":true,"tiny":0,"small":-1,"number":0,"single":0.1,"double":5e-324,"money":"0.01","amount":-0.000001,"whole":1e20,"scaled":1e-18,"fraction":"1e-38","text":"b","bytes":"AAH/","day":"1970-01-01","at":"1969-12-31T23:59:59.999999Z","wall":"1969-12-31T23:59:59.999999","inner":{"money":1e-10,"deep":{"at":"1970-01-01T00:00:00.000001Z","day":"1969-12-31","single":16777217}}}"#,
                "",
            ),
            (
                r#"{"id":5,"double":0.1,"single":16777216,"money":19.9,"whole":9007199254740993,"text":"b ","day":"2026-03-01","at":"2026-03-01T10:00:00.298677Z","wall":"2026-03-01T10:00:00.298677","inner":{"deep":{"wall":"1969-12-31T23:59:59.0005"}}}"#,
                "",
            ),
            (r#"{"id":6,"inner":{},"late":{},"map":{}}"#, ""),
        ],
        ..STEP
    },
    Step { says: "nothing but nulls", records: &[(r"{}", ""), (r#"{"inner":null,"list":null}"#, "")], ..STEP },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_declared_type_is_read_alike_at_its_limits() {
    Journey::new("types", &[], "").take(TYPES).await;
}

const PARTS: &[(&str, &str)] = &[
    ("id", "bigint"),
    ("name", "string"),
    ("day", "date"),
    ("at", "timestamp"),
    ("wall", "timestamp_ntz"),
    ("money", "decimal(38,10)"),
    ("flag", "boolean"),
    ("number", "bigint"),
    ("u", "struct<a:bigint>"),
];

const PARTITIONED: &[Step] = &[
    Step {
        says: "strange parts",
        declares: PARTS,
        columns: PARTS,
        records: &[
            (
                r#"{"id":0,"name":"plain","day":"2026-03-01","at":"2026-03-01T10:00:00Z","wall":"2026-03-01T10:00:00","money":"1.5","flag":true,"number":1,"u":{"a":1}}"#,
                "",
            ),
            (
                r#"{"id":1,"name":"a/b","day":"0001-01-01","at":"0001-01-01T00:00:00.000001Z","wall":"0001-01-01T00:00:00.000001","money":"-0.0000000001","flag":false,"number":-9223372036854775808}"#,
                "",
            ),
            (
                r#"{"id":2,"name":"","day":"9999-12-31","at":"9999-12-31T23:59:59.999999Z","wall":"9999-12-31T23:59:59.999999","money":"9999999999999999999999999999.9999999999","number":9223372036854775807}"#,
                "",
            ),
            (r#"{"id":3}"#, ""),
            (r#"{"id":4,"name":"100%"}"#, ""),
            (r#"{"id":5,"name":"%2F"}"#, ""),
            (r#"{"id":6,"name":"a b+c"}"#, ""),
            (r#"{"id":7,"name":"a=b&c"}"#, ""),
            (r#"{"id":8,"name":"~#?:*|<>'\"\\"}"#, ""),
            (r#"{"id":9,"name":"größe"}"#, ""),
            (r#"{"id":10,"name":"\ud83e\udd80"}"#, ""),
            (r#"{"id":11,"name":"__HIVE_DEFAULT_PARTITION__x"}"#, ""),
            (r#"{"id":12,"name":"null"}"#, ""),
            (r#"{"id":13,"name":" "}"#, ""),
            (r#"{"id":14,"name":"."}"#, ""),
            (r#"{"id":15,"name":".."}"#, ""),
        ],
    },
    Step {
        says: "a column beside them",
        columns: &[("note", "string"), ("u", "struct<a:bigint,b:double>")],
        records: &[(r#"{"note":"n","id":16,"name":"plain","u":{"b":0.5}}"#, ""), (r#"{"id":17,"name":"a\nb"}"#, "")],
        ..STEP
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strange_partition_values_are_read_alike() {
    let parts = ["name", "day", "at", "wall", "money", "flag", "number"];
    // It misspells a decimal between -1 and 0 (in 1.6).
    Journey::new("parts", &parts, "pyarrow").take(PARTITIONED).await;
}

const MAP: &[(&str, &str)] = &[("id", "bigint"), ("m", "map<string,struct<x:bigint,at:timestamp_ntz>>")];

const MAPS: &[Step] = &[
    Step {
        says: "a map of structs",
        declares: MAP,
        columns: MAP,
        records: &[(r#"{"id":1,"m":{"k":{"x":1},"":null}}"#, ""), (r#"{"id":2,"m":{}}"#, "")],
    },
    Step {
        says: "a new field of structs in a map",
        columns: &[("m", "map<string,struct<x:bigint,at:timestamp_ntz,y:string,z:struct<d:double>>>")],
        records: &[
            (r#"{"m":{"a":{"y":"new","z":{"d":-0.0}},"b":{"at":"2026-01-01T00:00:00","x":2}},"id":3}"#, ""),
            (r#"{"id":4,"m":null}"#, ""),
        ],
        ..STEP
    },
    Step { says: "without the new field", records: &[(r#"{"id":5,"m":{"k":{"x":1,"z":{}}}}"#, "")], ..STEP },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn structs_in_a_map_grow() {
    // Its own query engine does not read a map whose values grew (in 1.6); with pyarrow it does.
    Journey::new("maps", &[], "delta-rs").take(MAPS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_two_writers_grew_at_once_is_read_alike() {
    let (rivals, rows) = rounds(false, 3).await;
    let answer = agree(&json!({
        "table": rivals.bench.dir().join("pipeline"),
        "columns": rivals.columns().await,
        "records": rows.iter().map(|row| (row.record.to_string(), &row.rescued)).collect::<Vec<_>>(),
        "places": rows.iter().map(|row| row.place).collect::<Vec<_>>(),
        "partition_by": [],
        "conditions": false,
        "engines": ENGINES,
    }));
    assert_eq!(problems(&answer).collect::<Vec<_>>(), [""; 0]);
}
