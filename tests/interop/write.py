"""write.py ENGINE TABLE OPERATION...: what another engine does to a Delta table that is being written.

ENGINE: deltalake, spark. OPERATION: optimize, delete:CONDITION, vacuum, add:COLUMN, set:KEY=VALUE, restore:VERSIONS
(that many back). Whoever loses a version to another writer tries again. Prints {"operations": [names]}."""
import json, os, sys, time

engine, table, operations = sys.argv[1], sys.argv[2], sys.argv[3:]


def with_deltalake():
    from deltalake import DeltaTable, Field
    from deltalake.schema import PrimitiveType

    def run(name, argument):
        written = DeltaTable(table)
        if name == "optimize":
            written.optimize.compact()
        elif name == "delete":
            written.delete(argument)
        elif name == "vacuum":
            written.vacuum(dry_run=False)
        elif name == "add":
            written.alter.add_columns([Field(argument, PrimitiveType("string"), nullable=True)])
        elif name == "set":
            key, value = argument.split("=")
            written.alter.set_table_properties({key: value}, raise_if_not_exists=False)
        elif name == "restore":
            written.restore(written.version() - int(argument))

    return run


def with_spark():
    from session import session

    spark = session()
    path = f"delta.`{table}`"

    def version():
        return spark.sql(f"DESCRIBE HISTORY {path} LIMIT 1").collect()[0]["version"]

    statements = {
        "optimize": lambda _: f"OPTIMIZE {path}",
        "delete": lambda condition: f"DELETE FROM {path} WHERE {condition}",
        "vacuum": lambda _: f"VACUUM {path}",
        "add": lambda column: f"ALTER TABLE {path} ADD COLUMNS ({column} STRING)",
        "set": lambda pair: "ALTER TABLE {} SET TBLPROPERTIES ('{}' = '{}')".format(path, *pair.split("=")),
        "restore": lambda back: f"RESTORE TABLE {path} TO VERSION AS OF {version() - int(back)}",
    }
    return lambda name, argument: spark.sql(statements[name](argument)).collect()


run = {"deltalake": with_deltalake, "spark": with_spark}[engine]()
for operation in operations:
    name, _, argument = operation.partition(":")
    for attempt in range(30):
        try:
            run(name, argument)
            break
        except Exception as error:
            reason = str(error).partition("\n\tat ")[0]
            print(f"{operation}: {reason}", file=sys.stderr)
            if attempt == 29:
                sys.exit(1)
            time.sleep(0.5)
print(json.dumps({"operations": operations}), flush=True)
if engine != "spark":
    # An engine's threads may still be at work: the interpreter's end under them can be an abort.
    os._exit(0)
