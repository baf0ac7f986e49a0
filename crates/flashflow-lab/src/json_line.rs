//! Results as JSON lines.

use serde::Serialize;
use serde_json::{Value, json};

/// The fields of `what` as a JSON object with the given `type`.
pub(crate) fn tagged(kind: &str, what: &impl Serialize) -> Value {
    let mut line = json!({"type": kind});
    if let (Value::Object(line), Ok(Value::Object(rest))) = (&mut line, serde_json::to_value(what))
    {
        line.extend(rest);
    }
    line
}
