"""read.py READER TABLE [COLUMN...]: a Delta table as another engine reads it, as JSON.

READER: deltalake, duckdb, polars, spark. Prints {"count", "schema", "rows"}; the rows hold the named columns (all by
default) and are sorted by "id". Values are written alike for all readers: decimals and floats as text, timestamps in
UTC, binary as hex, maps as sorted pairs."""
import datetime, decimal, glob, json, os, sys

os.environ["TZ"] = "UTC"
reader, table, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]


def alike(value):
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        if value.tzinfo:
            value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
        return value.isoformat(timespec="microseconds")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return "hex:" + bytes(value).hex()
    if hasattr(value, "asDict"):  # Spark's rows
        return {key: alike(inner) for key, inner in value.asDict().items()}
    if isinstance(value, dict) and set(value) == {"key", "value"} and isinstance(value["key"], list):  # DuckDB's maps
        return pairs(zip(value["key"], value["value"]))
    if isinstance(value, dict):
        return {key: alike(inner) for key, inner in value.items()}
    return [alike(inner) for inner in value]


def pairs(entries):
    """A map, however the reader gives it."""
    if entries is None:
        return None
    if isinstance(entries, dict):
        entries = entries.items() if not set(entries) == {"key", "value"} else zip(entries["key"], entries["value"])
    entries = [tuple(entry.values()) if isinstance(entry, dict) else tuple(entry) for entry in entries]
    return sorted([alike(key), alike(value)] for key, value in entries)


def with_deltalake():
    from deltalake import DeltaTable

    read = DeltaTable(table)
    data = read.to_pyarrow_table() if hasattr(read, "to_pyarrow_table") else read.to_pyarrow_dataset().to_table()
    return {field.name: str(field.type) for field in data.schema}, data.to_pylist()


def with_duckdb():
    import duckdb, duckdb_extension_delta

    (extension,) = glob.glob(os.path.dirname(duckdb_extension_delta.__file__) + "/extensions/*/delta.duckdb_extension")
    connection = duckdb.connect()
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone='UTC'")
    relation = connection.sql(f"SELECT * FROM delta_scan('{table}')")
    names = relation.columns
    return dict(zip(names, map(str, relation.types))), [dict(zip(names, row)) for row in relation.fetchall()]


def with_polars():
    import polars

    data = polars.scan_delta(table).collect()
    return {name: str(kind) for name, kind in data.schema.items()}, data.to_dicts()


def with_spark():
    from session import session

    spark = session()
    data = spark.read.format("delta").load(table)
    rows = [row.asDict() for row in data.collect()]
    schema = {field.name: field.dataType.simpleString() for field in data.schema.fields}
    spark.stop()
    return schema, rows


schema, rows = {"deltalake": with_deltalake, "duckdb": with_duckdb, "polars": with_polars, "spark": with_spark}[reader]()
maps = {name for name in schema if name.endswith("map")}
rows.sort(key=lambda row: row.get("id", 0))
rows = [
    {name: pairs(value) if name in maps else alike(value) for name, value in row.items() if not wanted or name in wanted}
    for row in rows
]
print(json.dumps({"count": len(rows), "schema": schema, "rows": rows}), flush=True)
if reader != "spark":
    # An engine's threads may still be at work: the interpreter's end under them can be an abort.
    os._exit(0)
