//! Record plugins over records.

use crate::Result;
use crate::bindings::record::{Chunk, Headers, Packed};
use crate::export::RecordPlugin;
use crate::record::{PackedStrings, Packing};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A record that goes in. A text or bytes make one that has only a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The value.
    pub value: Vec<u8>,
    /// The key, if there is one.
    pub key: Option<Vec<u8>>,
    /// The headers: names, and values that may be null.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since the epoch, if there is one.
    pub timestamp: Option<i64>,
}

impl From<&str> for Input {
    fn from(value: &str) -> Self {
        value.as_bytes().into()
    }
}

impl From<&[u8]> for Input {
    fn from(value: &[u8]) -> Self {
        Self { value: value.to_owned(), ..Self::default() }
    }
}

/// A record that comes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The number of the record that it comes from.
    pub input: usize,
    /// The value.
    pub value: Vec<u8>,
    /// The key: the plugin's, or its record's.
    pub key: Option<Vec<u8>>,
}

impl Output {
    /// The value as text; what is not UTF-8 in it is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.value).into_owned()
    }
}

/// What a record plugin made of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsOutcome {
    /// The records that came out.
    pub outputs: Vec<Output>,
    /// Records rejected: their numbers, and why.
    pub rejects: Vec<(usize, String)>,
}

impl RecordsOutcome {
    /// The values that came out, as text.
    pub fn texts(&self) -> Vec<String> {
        self.outputs.iter().map(Output::text).collect()
    }
}

/// Runs a record plugin over records. It sees of them what its `access` asks for.
pub fn run_records<C: DeserializeOwned>(
    plugin: &RecordPlugin<C>,
    config: Value,
    records: &[Input],
) -> Result<RecordsOutcome> {
    let configured = plugin.configure(&config.to_string())?;
    let asked = configured.contract();
    let all = || records.iter();
    let chunk = Chunk {
        count: u32::try_from(records.len())?,
        values: pack(all().map(|record| Some(record.value.as_slice())))?,
        keys: asked.keys.then(|| pack(all().map(|record| record.key.as_deref()))).transpose()?,
        headers: asked.headers.then(|| headers(records)).transpose()?,
        timestamps: asked.timestamps.then(|| all().map(|record| record.timestamp.unwrap_or(-1)).collect()),
    };
    let output = plugin.transform(&configured, &chunk)?;

    let count = output.inputs.len();
    let wrong = || "the plugin's output does not fit together";
    let values = PackedStrings::new(&output.values, count).ok_or_else(wrong)?;
    let keys = output.keys.as_ref().map(|keys| PackedStrings::new(keys, count).ok_or_else(wrong)).transpose()?;
    let mut outputs = Vec::with_capacity(count);
    for (at, input) in output.inputs.iter().map(|input| *input as usize).enumerate() {
        let key = match keys {
            Some(keys) => keys.get(at).map(<[u8]>::to_owned),
            None => records.get(input).and_then(|record| record.key.clone()),
        };
        outputs.push(Output { input, value: values.get(at).ok_or_else(wrong)?.to_owned(), key });
    }
    let rejects = output.rejects.into_iter().map(|reject| (reject.input as usize, reject.reason)).collect();
    Ok(RecordsOutcome { outputs, rejects })
}

fn headers(records: &[Input]) -> Result<Headers> {
    let all = || records.iter().flat_map(|record| &record.headers);
    let counts =
        records.iter().map(|record| u32::try_from(record.headers.len())).collect::<std::result::Result<_, _>>()?;
    let names = pack(all().map(|(name, _)| Some(name.as_bytes())))?;
    Ok(Headers { counts, names, values: pack(all().map(|(_, value)| value.as_deref()))? })
}

fn pack<'a>(strings: impl Iterator<Item = Option<&'a [u8]>>) -> Result<Packed> {
    let mut packing = Packing::default();
    for string in strings {
        packing.push(string).ok_or("the records are over 4 GiB")?;
    }
    Ok(packing.into_contract())
}
