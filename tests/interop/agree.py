"""Answers questions, one a line, whether engines find in a table what was sent: one process, so one Spark session.

A question is {"table", "columns", "records", "places", "partition_by", "conditions", "engines"}: `columns` are the names
and types that the table must have, in order; `records` the JSON texts of the records, each with what must be in
`_rescued`; `places` their partitions and offsets, rising. With `conditions`, each engine is also asked for the rows that meet conditions on each
column, at its least, greatest and other values: a file that it skips wrongly makes it find fewer than there are.
The answer is {"problems": [texts], "seconds": {engine: seconds}}."""
import json, sys, time, traceback

import kinds
from engines import ENGINES, in_python

METADATA = ("_rescued", "_kafka")
started = {}


def engine(name):
    if name not in started:
        started[name] = ENGINES[name]()
    return started[name]


def without(value, rescued, kind):
    """A record without what is rescued of it; a struct is there even if all of its fields are not."""
    fields = dict(kind[1]) if kind[0] == "struct" else {}
    for name, inner in rescued.items():
        if isinstance(inner, dict) and isinstance(value[name], dict) and fields.get(name, "")[0] == "struct":
            without(value[name], inner, fields[name])
        else:
            del value[name]
    return value


def wanted_row(record, rescued, columns, partition_by):
    value = without(kinds.load(record), kinds.load(rescued or "{}"), ("struct", columns))
    row = kinds.meant(value, ("struct", [column for column in columns if column[0] not in METADATA]))
    row |= {name: row[name] or None for name in partition_by if row[name] == ""}
    return row | {"_rescued": rescued or None}


def place(row):
    return [row["_kafka"]["partition"], row["_kafka"]["offset"]]


def leaves(columns, path=()):
    """All columns, and all fields of structs."""
    for name, kind in columns:
        yield path + (name,), kind
        if kind[0] == "struct":
            yield from leaves(kind[1], path + (name,))


def at(row, path):
    for name in path:
        row = row and row[name]
    return row


def conditions(rows, columns):
    """Each column's least, greatest and other values, and whether it is null: what one file or another has."""
    for path, kind in leaves(columns):
        yield path, kind, "null", None
        yield path, kind, "not null", None
        values = sorted({at(row, path) for row in rows} - {None}) if isinstance(kind, str) else []
        yield from ((path, kind, "=", value) for value in values)
        if values and kind != "boolean":
            yield path, kind, "<=", values[0]
            yield path, kind, ">=", values[-1]
            yield path, kind, "<", values[len(values) // 2]
            yield path, kind, ">", values[len(values) // 2]


def all_of(row, columns):
    """Conditions on every column that a row meets."""
    for path, kind in leaves(columns):
        value = at(row, path)
        if value is None:
            yield path, kind, "null", None
        elif isinstance(kind, str):
            yield path, kind, "=", value


def asked_of(reader, rows, columns, partition_by):
    """Lists of conditions that hold at once. Who is slow is asked for whole rows: each of their values must be found."""
    columns = [column for column in columns if column[0] != "_kafka"]
    can_ask = lambda condition: reader.can_ask(*condition, partition_by)
    if reader.is_slow:
        questions = [list(all_of(row, columns)) for row in rows]
    else:
        questions = [[condition] for condition in conditions(rows, columns)]
    questions = [list(filter(can_ask, question)) for question in questions]
    return [question for question in questions if question]


def problems_of(name, question):
    columns = [(column, kinds.parse(kind)) for column, kind in question["columns"]]
    table, reader, partition_by = question["table"], engine(name), question["partition_by"]
    schema, wanted = reader.schema(table), reader.wanted(columns)
    if schema != wanted:
        yield f"the schema is {schema} instead of {wanted}"
        return
    wanted = [wanted_row(*each, columns, partition_by) for each in question["records"]]
    rows = sorted((kinds.found(row, ("struct", columns)) for row in reader.rows(table)), key=place)
    if list(map(place, rows)) != question["places"]:
        yield f"the rows are those of {list(map(place, rows))}"
    for number, (row, there) in enumerate(zip(wanted, rows)):
        # Their texts tell -0.0 from 0.0, and the digits of decimals.
        yield from (
            f"row {number}, {column}: {there[column]!r} instead of {row[column]!r}"
            for column in row
            if repr(there[column]) != repr(row[column])
        )
    if not question["conditions"]:
        return
    asked = asked_of(reader, wanted, columns, partition_by)
    meets = lambda row, asked: all(in_python(condition, at(row, condition[0])) for condition in asked)
    for condition, count in zip(asked, reader.counts(table, asked), strict=True):
        there = sum(meets(row, condition) for row in wanted)
        if count != there:
            said = [f"{'.'.join(path)} {operator} {value!r}" for path, _, operator, value in condition]
            yield f"{count} rows instead of {there} where {' and '.join(said)}"


def answer(question):
    problems, seconds = [], {}
    for name in question["engines"]:
        begun = time.monotonic()
        try:
            problems += [f"{name}: {problem}" for problem in problems_of(name, question)]
        except BaseException:  # Polars' panics are no exceptions.
            problems.append(f"{name}: {traceback.format_exc()}")
        seconds[name] = round(time.monotonic() - begun, 2)
    return {"problems": problems, "seconds": seconds}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
