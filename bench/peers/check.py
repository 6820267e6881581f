"""check.py TABLE: what a table of orders holds, as one line of JSON, so that contenders are seen to do the same job."""
import json
import sys

import pyarrow.compute as pc
from deltalake import DeltaTable

table = DeltaTable(sys.argv[1]).to_pyarrow_table()
prices = pc.struct_field(pc.list_flatten(table["items"].combine_chunks()), "price")
masked = pc.starts_with(pc.struct_field(table["customer"].combine_chunks(), "email"), "***@")
print(json.dumps({
    "rows": table.num_rows,
    "amount": round(pc.sum(table["amount"]).as_py() or 0, 2),
    "items": len(prices),
    "prices": str(pc.sum(prices).as_py()),
    "masked": pc.sum(masked).as_py(),
}))
