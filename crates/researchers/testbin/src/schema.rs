//! Validates the lines that a command prints against the JSON Schema that the program prints for it.
//!
//! Stricter than JSON Schema: a field that the schema does not have is an error, because readers of the manual would not know it. An unknown
//! keyword of a schema is one, too.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// Asserts that each command that prints results has a schema with fields, and that there are no other schemas.
///
/// The schema of a command below another has both names, with a hyphen. Those of the commands in `shared` have the name of the upper one
/// only. The commands in `without` have none.
pub fn assert_complete<'s>(
    program: &clap::Command,
    shared: &[&str],
    without: &[&str],
    schemas: impl IntoIterator<Item = (&'s str, String)>,
) {
    let mut names = BTreeSet::new();
    let has_lines = |command: &&clap::Command| !without.contains(&command.get_name());
    for command in program.get_subcommands().filter(has_lines) {
        let name = command.get_name();
        if shared.contains(&name) || !command.has_subcommands() {
            names.insert(name.to_owned());
        } else {
            let below = command.get_subcommands();
            names.extend(below.map(|below| format!("{name}-{}", below.get_name())));
        }
    }
    let mut known = BTreeSet::new();
    for (name, schema) in schemas {
        assert!(schema.contains("\"properties\""), "{name}: {schema}");
        known.insert(name.to_owned());
    }
    assert_eq!(known, names);
}

/// The schemas of this test's programs that have been read; `None` for a command without one.
static KNOWN: Mutex<BTreeMap<String, Option<Value>>> = Mutex::new(BTreeMap::new());

/// The schema of a command of a program, if it has one. `words` are its arguments: the command is the first of them, or the first two. An
/// export has that of its table.
#[must_use]
pub fn of_command(program: &Path, words: &[&str]) -> Option<Value> {
    let what = words.iter().skip_while(|word| **word != "--what").nth(1).unwrap_or(&"measurements");
    let is_export = words.first() == Some(&"export");
    let names = [
        is_export.then(|| format!("export-{what}")),
        words.get(..2).map(|two| two.join("-")),
        words.first().map(|one| (*one).to_owned()),
    ];
    names.into_iter().flatten().find_map(|name| {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{} {name}", program.display());
        known.entry(key).or_insert_with(|| read(program, &name)).clone()
    })
}

fn read(program: &Path, name: &str) -> Option<Value> {
    let output =
        Command::new(program).args(["schema", name, "--json"]).output().expect("it starts");
    output.status.success().then(|| serde_json::from_slice(&output.stdout).expect("a schema"))
}

/// The reason why a value does not follow the schema, if it does not.
///
/// # Errors
/// The reason.
pub fn validate(schema: &Value, value: &Value) -> Result<(), String> {
    let declared = check(schema, schema, value)?;
    if let (Some(fields), Some(declared)) = (value.as_object(), declared) {
        let stranger = fields.keys().find(|name| !declared.contains(name));
        if let Some(stranger) = stranger {
            return Err(format!("the schema has no field `{stranger}`"));
        }
    }
    Ok(())
}

/// Checks a value, and returns the fields that the schema declares; `None` if any is allowed.
fn check(root: &Value, schema: &Value, value: &Value) -> Result<Option<Vec<String>>, String> {
    let Some(schema) = schema.as_object() else {
        return if schema == &Value::Bool(true) {
            Ok(None)
        } else {
            Err("nothing is allowed".to_owned())
        };
    };
    let mut declared = Some(Vec::new());
    let mut extend = |more: Option<Vec<String>>| match (&mut declared, more) {
        (Some(all), Some(more)) => all.extend(more),
        (all, _) => *all = None,
    };
    for (keyword, rule) in schema {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "format" | "default" => {}
            "type" => check_type(rule, value)?,
            "const" if rule == value => {}
            "const" => return Err(format!("{value} is not {rule}")),
            "enum" if rule.as_array().is_some_and(|all| all.contains(value)) => {}
            "enum" => return Err(format!("{value} is none of {rule}")),
            "minimum" if value.as_f64().is_none_or(|number| Some(number) >= rule.as_f64()) => {}
            "maximum" if value.as_f64().is_none_or(|number| Some(number) <= rule.as_f64()) => {}
            "minItems"
                if value.as_array().is_none_or(|list| Some(list.len() as u64) >= rule.as_u64()) => {
            }
            "maxItems"
                if value.as_array().is_none_or(|list| Some(list.len() as u64) <= rule.as_u64()) => {
            }
            "uniqueItems" => {}
            "minimum" | "maximum" | "minItems" | "maxItems" => {
                return Err(format!("{value}: {keyword} {rule}"));
            }
            "$ref" => {
                let name =
                    rule.as_str().and_then(|path| path.strip_prefix('#')).expect("a reference");
                let target = root.pointer(name).unwrap_or_else(|| panic!("no {name}"));
                extend(check(root, target, value)?);
            }
            "anyOf" | "oneOf" => {
                let all = rule.as_array().expect("schemas");
                let mut problems = Vec::new();
                let found = all.iter().find_map(|one| match check(root, one, value) {
                    Ok(fields) => Some(fields),
                    Err(problem) => {
                        problems.push(problem);
                        None
                    }
                });
                extend(found.ok_or_else(|| problems.join("; "))?);
            }
            "allOf" => {
                for one in rule.as_array().expect("schemas") {
                    extend(check(root, one, value)?);
                }
            }
            "properties" => {
                let Some(fields) = value.as_object() else { continue };
                let rules = rule.as_object().expect("properties");
                check_fields(root, rules, fields)?;
                extend(Some(rules.keys().cloned().collect()));
            }
            "required" => {
                let Some(fields) = value.as_object() else { continue };
                let names = rule.as_array().expect("names").iter().filter_map(Value::as_str);
                if let Some(missing) = names.into_iter().find(|name| !fields.contains_key(*name)) {
                    return Err(format!("`{missing}` is missing"));
                }
            }
            "additionalProperties" => extend(None),
            "prefixItems" => {
                let items = value.as_array().into_iter().flatten();
                for (one, item) in rule.as_array().expect("schemas").iter().zip(items) {
                    check_whole(root, one, item)?;
                }
            }
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check_whole(root, rule, item)?;
                }
            }
            other => panic!("a schema has the keyword {other}, which the test does not know"),
        }
    }
    Ok(declared)
}

fn check_fields(
    root: &Value,
    rules: &Map<String, Value>,
    fields: &Map<String, Value>,
) -> Result<(), String> {
    for (name, rule) in rules {
        if let Some(field) = fields.get(name) {
            check_whole(root, rule, field).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    Ok(())
}

/// As [`check`], for a value all of whose fields must be declared.
fn check_whole(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let declared = check(root, schema, value)?;
    match (value.as_object(), declared) {
        (Some(fields), Some(declared)) if !declared.is_empty() => {
            match fields.keys().find(|name| !declared.contains(name)) {
                Some(stranger) => Err(format!("the schema has no field `{stranger}`")),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn check_type(rule: &Value, value: &Value) -> Result<(), String> {
    let is = |name: &Value| match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        Some("number") => value.is_number(),
        Some("integer") => value.is_u64() || value.is_i64(),
        other => panic!("the type {other:?}"),
    };
    let fits = rule.as_array().map_or_else(|| is(rule), |all| all.iter().any(is));
    if fits { Ok(()) } else { Err(format!("{value} is not of the type {rule}")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_follow_a_schema_or_the_reason_is_named() {
        let schema = json!({
            "anyOf": [
                {"$ref": "#/$defs/Key", "properties": {"type": {"const": "key"}}, "required": ["type"]},
                {"type": "object", "properties": {"type": {"const": "end"}, "why": {"type": ["string", "null"]}},
                    "required": ["type", "why"]},
            ],
            "$defs": {"Key": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 0},
                "of": {"type": "array", "items": {"type": "number"}}}, "required": ["size"]}},
        });
        for good in
            [json!({"type": "key", "size": 3, "of": [1.5]}), json!({"type": "end", "why": null})]
        {
            assert_eq!(validate(&schema, &good), Ok(()));
        }
        for (bad, reason) in [
            (json!({"type": "key"}), "`size` is missing"),
            (json!({"type": "key", "size": -1}), "minimum"),
            (json!({"type": "key", "size": "3"}), "not of the type"),
            (json!({"type": "key", "size": 3, "of": ["a"]}), "not of the type"),
            (json!({"type": "key", "size": 3, "more": 1}), "no field `more`"),
            (json!({"type": "other", "size": 3}), "is not"),
            (json!({"type": "end"}), "`why` is missing"),
        ] {
            let problem = validate(&schema, &bad).expect_err("wrong");
            assert!(problem.contains(reason), "{bad}: {problem}");
        }
    }
}
