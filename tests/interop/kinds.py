"""Columns' types, spelled as in Spark's DDL, and what JSON values are in them: found without any code of ours.

A type is a word (`bigint`, `decimal(10,2)`; `json` is a string that holds any value as JSON text), or one of
("array", element), ("map", value), ("struct", [(name, type), ...])."""
import base64, datetime, decimal, json, re, struct

decimal.getcontext().prec = 100
INTEGERS = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}


def parse(text):
    kind, rest = parse_start(text)
    assert not rest, text
    return kind


def parse_start(text):
    """The type that a text starts with, and the text after it."""
    if text.startswith("array<"):
        element, rest = parse_start(text[len("array<") :])
        return ("array", element), rest[1:]
    if text.startswith("map<string,"):
        value, rest = parse_start(text[len("map<string,") :])
        return ("map", value), rest[1:]
    if text.startswith("struct<"):
        fields, rest = [], text[len("struct<") - 1 :]
        while rest[0] != ">":
            name, rest = rest[1:].split(":", 1)
            kind, rest = parse_start(rest)
            fields.append((name, kind))
            rest = rest if rest[0] in ",>" else None
        return ("struct", fields), rest[1:]
    word = re.match(r"\w+(\(\d+,\d+\))?", text).group()
    return word, text[len(word) :]


def digits(word):
    """Precision and scale of a decimal."""
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", word)
    return found and tuple(map(int, found.groups()))


def as_json(kind):
    """As Delta's log and Spark spell it; everything may be null."""
    match kind:
        case ("array", element):
            return {"type": "array", "elementType": as_json(element), "containsNull": True}
        case ("map", value):
            return {"type": "map", "keyType": "string", "valueType": as_json(value), "valueContainsNull": True}
        case ("struct", fields):
            field = lambda name, inner: {"name": name, "type": as_json(inner), "nullable": True, "metadata": {}}
            return {"type": "struct", "fields": [field(*each) for each in fields]}
        case "json":
            return "string"
    return INTEGERS.get(kind, kind)


def as_sql(kind):
    """As DuckDB spells it."""
    words = {"string": "VARCHAR", "json": "VARCHAR", "binary": "BLOB", "int": "INTEGER"}
    words |= {"timestamp": "TIMESTAMP WITH TIME ZONE", "timestamp_ntz": "TIMESTAMP"}
    match kind:
        case ("array", element):
            return f"{as_sql(element)}[]"
        case ("map", value):
            return f"MAP(VARCHAR, {as_sql(value)})"
        case ("struct", fields):
            return "STRUCT({})".format(", ".join(f"{name} {as_sql(inner)}" for name, inner in fields))
    return words.get(kind, kind.upper())


def as_polars(kind):
    import polars as pl

    words = {"boolean": pl.Boolean, "tinyint": pl.Int8, "smallint": pl.Int16, "int": pl.Int32, "bigint": pl.Int64}
    words |= {"float": pl.Float32, "double": pl.Float64, "string": pl.String, "json": pl.String, "binary": pl.Binary}
    words |= {"date": pl.Date, "timestamp": pl.Datetime("us", "UTC"), "timestamp_ntz": pl.Datetime("us")}
    match kind:
        case ("array", element):
            return pl.List(as_polars(element))
        case ("map", value):
            return pl.List(pl.Struct({"key": pl.String, "value": as_polars(value)}))
        case ("struct", fields):
            return pl.Struct({name: as_polars(inner) for name, inner in fields})
    return words[kind] if kind in words else pl.Decimal(*digits(kind))


def as_arrow(kind):
    """Of plain values only."""
    import pyarrow as pa

    words = {"boolean": pa.bool_(), "tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32()}
    words |= {"bigint": pa.int64(), "float": pa.float32(), "double": pa.float64(), "string": pa.string()}
    words |= {"json": pa.string(), "binary": pa.binary(), "date": pa.date32()}
    words |= {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}
    return words[kind] if kind in words else pa.decimal128(*digits(kind))


def load(text):
    """JSON whose numbers keep all digits."""
    return json.loads(text, parse_int=decimal.Decimal, parse_float=decimal.Decimal)


def meant(value, kind):
    """What a JSON value is in a column of this type."""
    if value is None:
        return None
    match kind:
        case ("array", element):
            return [meant(inner, element) for inner in value]
        case ("map", inner):
            return sorted((key, meant(each, inner)) for key, each in value.items())
        case ("struct", fields):
            more = set(value) - {name for name, _ in fields}
            assert not any(value[name] is not None for name in more), f"{value} has fields that {kind} has not"
            return {name: meant(value.get(name), inner) for name, inner in fields}
        case "json":
            return json.dumps(value, default=int, separators=(",", ":"), ensure_ascii=False)
        case "double":
            return float(value)
        case "float":
            return struct.unpack("f", struct.pack("f", float(value)))[0]
        case "binary":
            return base64.b64decode(value, validate=True)
        case "date":
            return datetime.date.fromisoformat(value)
        case "timestamp":
            return datetime.datetime.fromisoformat(value).astimezone(datetime.timezone.utc).replace(tzinfo=None)
        case "timestamp_ntz":
            return datetime.datetime.fromisoformat(value)
    if kind in INTEGERS:
        assert value == int(value), value
        return int(value)
    if places := digits(kind):
        return decimal.Decimal(value).quantize(decimal.Decimal(1).scaleb(-places[1]))
    return value


def found(value, kind):
    """The same of what a reader gives, in whichever form it gives it."""
    if value is None:
        return None
    match kind:
        case ("array", element):
            return [found(inner, element) for inner in value]
        case ("map", inner):
            return sorted((key, found(each, inner)) for key, each in entries(value))
        case ("struct", fields):
            value = value.asDict() if hasattr(value, "asDict") else value
            assert set(value) == {name for name, _ in fields}, f"{value} is not of {kind}"
            return {name: found(value[name], inner) for name, inner in fields}
        case "timestamp":
            return value.astimezone(datetime.timezone.utc).replace(tzinfo=None) if value.tzinfo else value
        case "binary":
            return bytes(value)
    return value


def entries(value):
    """A map: a dict, two lists in one, or a list of pairs."""
    if isinstance(value, dict):
        return zip(value["key"], value["value"]) if set(value) == {"key", "value"} else value.items()
    return [tuple(entry.values()) if isinstance(entry, dict) else tuple(entry) for entry in value]
