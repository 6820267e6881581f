"""Engines that read Delta tables: schema, rows, and how many rows a condition leaves."""
import datetime, glob, json, operator, os
from functools import reduce

import kinds

os.environ["TZ"] = "UTC"
OPERATORS = {"=": operator.eq, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}


def in_python(condition, value):
    """Whether a value meets a condition, as SQL has it."""
    _, _, name, wanted = condition
    if name in ("null", "not null"):
        return (value is None) == (name == "null")
    return value is not None and OPERATORS[name](value, wanted)


def text(value):
    """A plain value as SQL casts it from text."""
    if isinstance(value, datetime.datetime):
        return value.isoformat(sep=" ", timespec="microseconds")
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


class Engine:
    is_slow = False

    def can_ask(self, path, kind, name, value, partition_by):
        """Whether it answers such a condition right, about a table of any writer."""
        # SQL text has no place for this character.
        return not (isinstance(value, str) and "\0" in value)

    def where(self, conditions):
        """Conditions in SQL: each a path, its type, an operator, a value."""

        def one(path, kind, name, value):
            column = self.column(path)
            null = name in ("null", "not null")
            return f"{column} IS {name.upper()}" if null else f"{column} {name} {self.literal(value, kind)}"

        return " AND ".join(one(*each) for each in conditions)


class Spark(Engine):
    is_slow = True

    def __init__(self):
        from session import session

        self.spark = session()
        # Compiling takes longer than reading a few rows.
        self.spark.conf.set("spark.sql.codegen.wholeStage", "false")
        self.spark.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")

    def schema(self, table):
        schema = self.spark.read.format("delta").load(table).schema.jsonValue()
        return [field | {"metadata": {}} for field in schema["fields"]]

    def wanted(self, columns):
        return kinds.as_json(("struct", columns))["fields"]

    def rows(self, table):
        return self.spark.read.format("delta").load(table).toArrow().to_pylist()

    def column(self, path):
        return ".".join("`{}`".format(name.replace("`", "``")) for name in path)

    def literal(self, value, kind):
        if kind in ("string", "json", "binary"):
            raw = value if kind == "binary" else value.encode()
            return f"CAST(X'{raw.hex()}' AS {'BINARY' if kind == 'binary' else 'STRING'})"
        return f"CAST('{text(value)}' AS {kind})"

    def counts(self, table, conditions):
        # Each is a scan of its own, which skips files by itself.
        select = lambda number, each: f"SELECT {number} AS id, count(*) AS n FROM delta.`{table}` WHERE {self.where(each)}"
        union = " UNION ALL ".join(select(*each) for each in enumerate(conditions))
        found = {row["id"]: row["n"] for row in self.spark.sql(union).collect()}
        return [found[number] for number in range(len(conditions))]


class DeltaRs(Engine):
    """delta-rs's own query engine."""

    def schema(self, table):
        from deltalake import DeltaTable

        fields = json.loads(DeltaTable(table).schema().to_json())["fields"]
        return [field | {"metadata": {}} for field in fields]

    wanted = Spark.wanted

    def query(self, table, sql):
        import pyarrow
        from deltalake import DeltaTable, QueryBuilder

        return pyarrow.table(QueryBuilder().register("t", DeltaTable(table)).execute(sql))

    def rows(self, table):
        return self.query(table, "SELECT * FROM t").to_pylist()

    def column(self, path):
        return f'"{path[0]}"' + "".join(f"['{name}']" for name in path[1:])

    def literal(self, value, kind):
        if kind in ("string", "json"):
            return "'{}'".format(value.replace("'", "''"))
        if kind == "binary":
            return f"X'{value.hex()}'"
        words = {"tinyint": "Int8", "smallint": "Int16", "int": "Int32", "bigint": "Int64", "boolean": "Boolean"}
        words |= {"float": "Float32", "double": "Float64", "date": "Date32"}
        words |= {"timestamp": 'Timestamp(Microsecond, Some("UTC"))', "timestamp_ntz": "Timestamp(Microsecond, None)"}
        places = kinds.digits(kind)
        word = "Decimal128({}, {})".format(*places) if places else words[kind]
        return f"arrow_cast('{text(value)}', '{word}')"

    def counts(self, table, conditions):
        import pyarrow
        from deltalake import DeltaTable, QueryBuilder

        query = QueryBuilder().register("t", DeltaTable(table))
        count = lambda where: pyarrow.table(query.execute(f"SELECT count(*) AS n FROM t WHERE {where}"))["n"][0].as_py()
        return [count(self.where(each)) for each in conditions]


class PyArrow(DeltaRs):
    """A data set that delta-rs makes, with its files' bounds, for pyarrow to read."""

    def can_ask(self, *_):
        # In 1.6 the bounds that a file lacks hide its rows, in delta-rs's own tables too.
        return False

    def data(self, table):
        from deltalake import DeltaTable

        return DeltaTable(table).to_pyarrow_dataset()

    def rows(self, table):
        return self.data(table).to_table().to_pylist()


class DuckDb(Engine):
    def __init__(self):
        import duckdb, duckdb_extension_delta

        home = os.path.dirname(duckdb_extension_delta.__file__)
        (extension,) = glob.glob(home + "/extensions/*/delta.duckdb_extension")
        self.connection = duckdb.connect()
        self.connection.execute(f"LOAD '{extension}'")
        self.connection.execute("SET TimeZone='UTC'")

    def can_ask(self, path, *condition):
        # It looks for a field b of a (in 1.5).
        return "a.b" not in path and super().can_ask(path, *condition)

    def schema(self, table):
        described = self.connection.sql(f"DESCRIBE SELECT * FROM delta_scan('{table}')").fetchall()
        # Names inside a type are in quotation marks where DuckDB has a use of its own for them.
        return [(name, kind.replace('"', ""), null) for name, kind, null, *_ in described]

    def wanted(self, columns):
        return [(name, kinds.as_sql(kind), "YES") for name, kind in columns]

    def rows(self, table):
        relation = self.connection.sql(f"SELECT * FROM delta_scan('{table}')")
        names = relation.columns
        return [dict(zip(names, row)) for row in relation.fetchall()]

    def column(self, path):
        return ".".join(f'"{name}"' for name in path)

    def literal(self, value, kind):
        if kind in ("string", "json"):
            return "'{}'".format(value.replace("'", "''"))
        if kind == "binary":
            return "'{}'::BLOB".format("".join(f"\\x{byte:02x}" for byte in value))
        zone = "+00" if kind == "timestamp" else ""
        return f"CAST('{text(value)}{zone}' AS {kinds.as_sql(kind)})"

    def counts(self, table, conditions):
        count = lambda each: f"SELECT count(*) FROM delta_scan('{table}') WHERE {self.where(each)}"
        return [self.connection.sql(count(each)).fetchone()[0] for each in conditions]


class Polars(Engine):
    def can_ask(self, path, kind, name, value, partition_by):
        # It fails on bounds of structs, and finds NULL to be below all other partitions, or false (in 1.44).
        return len(path) == 1 and kind[0] != "struct" and (path[0] not in partition_by or value is None)

    def schema(self, table):
        import polars

        return list(polars.scan_delta(table).collect_schema().items())

    def wanted(self, columns):
        return [(name, kinds.as_polars(kind)) for name, kind in columns]

    def rows(self, table):
        import polars

        return polars.scan_delta(table).collect().to_dicts()

    def counts(self, table, conditions):
        import polars

        def where(path, kind, name, value):
            column = reduce(lambda column, name: column.struct.field(name), path[1:], polars.col(path[0]))
            if name in ("null", "not null"):
                return column.is_null() if name == "null" else column.is_not_null()
            return OPERATORS[name](column, polars.lit(value, dtype=kinds.as_polars(kind)))

        count = lambda each: polars.scan_delta(table).filter(*(where(*one) for one in each)).select(polars.len())
        return [count(each).collect().item() for each in conditions]


ENGINES = {"spark": Spark, "delta-rs": DeltaRs, "pyarrow": PyArrow, "duckdb": DuckDb, "polars": Polars}
