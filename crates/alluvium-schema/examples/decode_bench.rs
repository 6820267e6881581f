//! Nanoseconds per record of decoding orders: `cargo run --release -p alluvium-schema --example decode_bench`.
//!
//! Orders of about 340 bytes in chunks of 1,000, one thread; the best of many rounds, since other
//! work on the machine only ever adds time. Beside it arrow-json, which must come to the same columns.
#![allow(clippy::print_stdout, clippy::expect_used)]

use alluvium_core::{DataType, Packed};
use alluvium_schema::{ColumnSpec, Decoder, Evolve, Plan, PlanOptions, Shape};
use arrow_json::ReaderBuilder;
use arrow_schema::{Field, Schema};
use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CHUNK: u64 = 1_000;
const CHUNKS: u64 = 20;
const ROUNDS: usize = 40;

const COLUMNS: [(&str, &str); 8] = [
    ("id", "bigint"),
    ("event_time", "timestamp"),
    ("customer", "struct<id:string,email:string,country:string>"),
    ("items", "array<struct<sku:string,qty:int,price:decimal(10,2)>>"),
    ("currency", "string"),
    ("amount", "decimal(12,2)"),
    ("test", "boolean"),
    ("note", "string"),
];

fn main() {
    let declared = || COLUMNS.map(|(name, data_type)| column(name, data_type)).to_vec();
    let chunks = |order: fn(&mut Random, u64) -> String| {
        let mut random = Random(42);
        (0..CHUNKS).map(|chunk| pack(&mut random, chunk * CHUNK, order)).collect::<Vec<_>>()
    };
    let plain = chunks(order);
    let spaced = chunks(|random, id| spaced(&order(random, id)));
    let bytes: usize = plain.iter().map(|chunk| chunk.data().len()).sum();
    println!("{} bytes per order", bytes as u64 / (CHUNK * CHUNKS));

    let options = PlanOptions { evolve: Evolve::None, ..PlanOptions::default() };
    let plan = Plan::declared(declared(), options.clone()).expect("the columns are right");
    let ours = measure("declared", &plan, &plain);
    let theirs = measure_arrow_json(&plan, &plain);
    println!("{:>6.2} times as fast as arrow-json", theirs.as_secs_f64() / ours.as_secs_f64());
    measure("declared, white space between", &plan, &spaced);

    let mut reversed = declared();
    reversed.reverse();
    let plan = Plan::declared(reversed, options.clone()).expect("the columns are right");
    measure("declared in another order", &plan, &plain);

    let mut shape = Shape::default();
    plain.iter().flat_map(Packed::iter).flatten().for_each(|record| shape.observe(record));
    let inferred = Plan::inferred(PlanOptions::default());
    let plan = inferred.grow(&shape).expect("growth is allowed").expect("orders have fields");
    measure("inferred", &plan, &plain);

    let some = declared().into_iter().filter(|column| column.name != "note" && column.name != "currency");
    let plan = Plan::declared(some.collect(), options).expect("the columns are right");
    measure("two fields of each rescued", &plan, &plain);
}

fn column(name: &str, data_type: &str) -> ColumnSpec {
    ColumnSpec::new(name, DataType::parse(data_type).expect("the type is right"))
}

fn measure(what: &str, plan: &Plan, chunks: &[Packed]) -> Duration {
    let mut decoder = Decoder::new(Arc::new(plan.clone()));
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for chunk in chunks {
            let decoded = black_box(decoder.decode(black_box(chunk)).expect("decoding works"));
            assert_eq!(decoded.inputs.len(), chunk.len());
        }
        best = best.min(start.elapsed());
    }
    tell(best, what);
    best
}

fn tell(time: Duration, what: &str) {
    let records = u32::try_from(CHUNK * CHUNKS).unwrap_or(u32::MAX);
    println!("{:>6} ns per record, {what}", (time / records).as_nanos());
}

/// The same columns by arrow-json, of the same records: first that they are equal, then how long they take.
fn measure_arrow_json(plan: &Plan, chunks: &[Packed]) -> Duration {
    let fields = plan.columns().iter().map(|column| Field::new(&column.name, column.data_type.to_arrow(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let lines =
        |chunk: &Packed| chunk.iter().flatten().flat_map(|record| [record, b"\n"].concat()).collect::<Vec<u8>>();
    let texts: Vec<Vec<u8>> = chunks.iter().map(lines).collect();
    let builder = ReaderBuilder::new(schema).with_batch_size(CHUNK as usize);
    let mut decoder = builder.build_decoder().expect("the types are known to it");
    let mut own = Decoder::new(Arc::new(plan.clone()));
    let mut best = Duration::MAX;
    for round in 0..ROUNDS {
        let mut time = Duration::ZERO;
        for (text, chunk) in texts.iter().zip(chunks) {
            let start = Instant::now();
            let read = decoder.decode(black_box(text)).expect("decoding works");
            let batch = black_box(decoder.flush().expect("decoding works").expect("a chunk of records"));
            time += start.elapsed();
            assert_eq!((read, batch.num_rows()), (text.len(), chunk.len()));
            if round == 0 {
                let decoded = own.decode(chunk).expect("decoding works").batch;
                assert_eq!(batch.columns(), &decoded.columns()[..batch.num_columns()], "the same values");
            }
        }
        best = best.min(time);
    }
    tell(best, "arrow-json");
    best
}

fn pack(random: &mut Random, first: u64, order: fn(&mut Random, u64) -> String) -> Packed {
    let mut packed = Packed::default();
    for id in first..first + CHUNK {
        packed.push(Some(order(random, id).as_bytes())).expect("a chunk is small");
    }
    packed
}

/// A small generator of numbers; the same ones every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        choices[self.below(choices.len() as u64) as usize]
    }
}

const WORDS: [&str; 12] = [
    "please",
    "ring twice",
    "leave at the door",
    "gift wrap",
    "fragile",
    "express",
    "invoice by mail",
    "call before",
    "neighbour",
    "office",
    "weekend",
    "reception desk",
];

fn order(random: &mut Random, id: u64) -> String {
    let seconds = id * 6 / 10;
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let customer = random.below(200_000);
    let mut items = String::new();
    let mut cents = 0;
    for at in 0..1 + random.below(3) {
        let (sku, qty, price) = (random.below(50_000), 1 + random.below(5), 99 + random.below(20_000));
        cents += qty * price;
        let comma = if at > 0 { "," } else { "" };
        let (whole, part) = (price / 100, price % 100);
        write!(items, r#"{comma}{{"sku":"SKU-{sku:06}","qty":{qty},"price":"{whole}.{part:02}"}}"#)
            .expect("strings grow");
    }
    let mut note = (0..4).map(|_| random.of(&WORDS)).collect::<Vec<_>>().join(" ");
    if random.below(20) == 0 {
        note.push_str(random.of(&[r" Straße 5, Köln", r#" say \"hello\""#, r" line one\nline two", r" 100\u20ac"]));
    }
    let millis = random.below(1000);
    let domain = random.of(&["example.com", "example.org", "mail.example.net", "shop.example.de"]);
    let country = random.of(&["DE", "FR", "GB", "US", "NL", "PL", "ES", "IT", "SE", "AT"]);
    let currency = random.of(&["EUR", "USD", "GBP", "SEK"]);
    let (whole, part, test) = (cents / 100, cents % 100, id.is_multiple_of(10));
    format!(
        concat!(
            r#"{{"id":{id},"event_time":"2026-03-01T{hour:02}:{minute:02}:{second:02}.{millis:03}Z","#,
            r#""customer":{{"id":"c-{customer:06}","email":"user{customer}@{domain}","country":"{country}"}},"#,
            r#""items":[{items}],"currency":"{currency}","amount":{whole}.{part:02},"test":{test},"note":"{note}"}}"#
        ),
        id = id,
        hour = hour,
        minute = minute,
        second = second,
        millis = millis,
        customer = customer,
        domain = domain,
        country = country,
        items = items,
        currency = currency,
        whole = whole,
        part = part,
        test = test,
        note = note,
    )
}

/// The same JSON as Python's `json.dumps` spaces it.
fn spaced(json: &str) -> String {
    json.replace("\":", "\": ").replace(",\"", ", \"")
}
